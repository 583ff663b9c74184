# drivers/i2c/i2c-core-base.c: an adapter nothing is connected to.

.text

FUNC_STATIC name_show                   # rdi device, rsi attribute, rdx page; rax length
    PROLOGUE
    mov rax, [rdi+DEVICE_DATA]
    mov rdi, rdx
    mov rdx, rax
    mov rsi, offset i2c_string_format
    xor eax, eax
    call sysfs_emit
    EPILOGUE
ENDFUNC name_show

FUNC_NOTRACE i2c_sysfs_init
    push rbp
    mov rbp, rsp
    mov rdi, offset i2c_path
    mov rsi, offset i2c_attrs
    mov rdx, offset i2c_adapter_name
    call device_register_at
    pop rbp
    ret
ENDFUNC i2c_sysfs_init

.data
.balign 8
i2c_name_attr:
    .quad i2c_name_text, 0x124, name_show, 0
i2c_attrs:
    .quad i2c_name_attr, 0
i2c_path:
    .asciz "bus/i2c/devices/i2c-0"
i2c_adapter_name:
    .asciz "SMBus I801 adapter"
i2c_name_text:
    .asciz "name"
i2c_string_format:
    .asciz "%s\n"

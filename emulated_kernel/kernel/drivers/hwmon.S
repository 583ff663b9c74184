# drivers/hwmon/hwmon.c: a temperature sensor that has settled.

.text

FUNC_STATIC name_show                   # rdi device, rsi attribute, rdx page; rax length
    PROLOGUE
    mov rax, rdi
    mov rdi, rdx
    mov rsi, offset hwmon_string_format
    mov rdx, [rax+DEVICE_DATA]
    xor eax, eax
    call sysfs_emit
    EPILOGUE
ENDFUNC name_show

FUNC_STATIC hwmon_attr_show             # rdi device, rsi attribute, rdx page; rax length
    PROLOGUE
    mov rdi, rdx
    mov rsi, offset hwmon_number_format
    mov rdx, [rip + hwmon_temperature]
    xor eax, eax
    call sysfs_emit
    EPILOGUE
ENDFUNC hwmon_attr_show

FUNC_NOTRACE hwmon_sysfs_init
    push rbp
    mov rbp, rsp
    mov rdi, offset hwmon_path
    mov rsi, offset hwmon_attrs
    mov rdx, offset hwmon_chip_name
    call device_register_at
    pop rbp
    ret
ENDFUNC hwmon_sysfs_init

.data
.balign 8
hwmon_name_attr:
    .quad hwmon_name_text, 0x124, name_show, 0
hwmon_temp_attr:
    .quad hwmon_temp_text, 0x124, hwmon_attr_show, 0
hwmon_attrs:
    .quad hwmon_name_attr, hwmon_temp_attr, 0
OBJECT hwmon_temperature                # thousandths of a degree
    .quad 42000
ENDOBJECT hwmon_temperature
hwmon_path:
    .asciz "class/hwmon/hwmon0"
hwmon_chip_name:
    .asciz "coretemp"
hwmon_name_text:
    .asciz "name"
hwmon_temp_text:
    .asciz "temp1_input"
hwmon_string_format:
    .asciz "%s\n"
hwmon_number_format:
    .asciz "%ld\n"

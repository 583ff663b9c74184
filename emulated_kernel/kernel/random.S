# drivers/char/random.c: random numbers. The generator of each CPU is xorshift64*; what interrupts
# bring is mixed into it. Everything comes from the machine's clock, so a virtual clock gives the
# same numbers each time. Not for secrets.

.text

FUNC crng_fast_key_erasure              # rdi state; rax 64 random bits, the state moved on
    PROLOGUE
    mov rax, [rdi]
    mov rcx, rax
    shr rcx, 12
    xor rax, rcx
    mov rcx, rax
    shl rcx, 25
    xor rax, rcx
    mov rcx, rax
    shr rcx, 27
    xor rax, rcx
    mov [rdi], rax
    movabs rcx, 0x2545f4914f6cdd1d
    imul rax, rcx
    EPILOGUE
ENDFUNC crng_fast_key_erasure

FUNC crng_make_state                    # rax 64 random bits of this CPU's generator
    PROLOGUE
    cmp qword ptr gs:[RANDOM_STATE], 0
    jne 1f
    mov eax, gs:[CPU_NUMBER]
    inc rax
    movabs rcx, 0x9e3779b97f4a7c15
    imul rax, rcx
    mov gs:[RANDOM_STATE], rax
1:
    mov rdi, gs:[PERCPU_SELF]
    add rdi, RANDOM_STATE
    call crng_fast_key_erasure
    EPILOGUE
ENDFUNC crng_make_state

FUNC get_random_u64
    ENTER2
    LOCAL_IRQ_SAVE ebx
    call crng_make_state
    LOCAL_IRQ_RESTORE ebx
    LEAVE2
ENDFUNC get_random_u64

FUNC get_random_u32
    ENTER2
    LOCAL_IRQ_SAVE ebx
    call crng_make_state
    shr rax, 32
    LOCAL_IRQ_RESTORE ebx
    LEAVE2
ENDFUNC get_random_u32

FUNC get_random_bytes                   # rdi to, rsi how many
    PROLOGUE
    call _get_random_bytes
    EPILOGUE
ENDFUNC get_random_bytes

FUNC _get_random_bytes
    ENTER3
    mov rbx, rdi
    mov r12, rsi
    LOCAL_IRQ_SAVE r13d
.Lnext:
    test r12, r12
    je .Lout
    call crng_make_state
    mov ecx, 8
    cmp r12, rcx
    cmovb rcx, r12
    sub r12, rcx
.Lbyte:
    mov [rbx], al
    shr rax, 8
    inc rbx
    dec ecx
    jne .Lbyte
    jmp .Lnext
.Lout:
    LOCAL_IRQ_RESTORE r13d
    LEAVE3
ENDFUNC _get_random_bytes

FUNC add_interrupt_randomness           # edi interrupt
    ENTER1
    push rdi
    call sched_clock
    rol rax, 17
    xor rax, [rsp]
    xor gs:[RANDOM_STATE], rax
    jne 1f
    inc qword ptr gs:[RANDOM_STATE]     # zero is the one state it never leaves
1:
    LEAVE1
ENDFUNC add_interrupt_randomness

FUNC add_device_randomness              # rdi data, rsi length
    ENTER1
    push rax
    mov edx, gs:[RANDOM_STATE]
    call jhash
    xor gs:[RANDOM_STATE], eax
    LEAVE1
ENDFUNC add_device_randomness

# fs/exec.c: the new stack, and the strings that go to its top. Left out: the vectors that point to them,
# for nobody runs there.

.text

FUNC_NOTRACE bprm_mm_init               # rdi bprm with its mm; eax 0 or error
    ENTER2
    mov rbx, rdi
    mov rdi, [rdi+BPRM_MM]
    call vm_area_alloc
    test rax, rax
    je .Lnomem
    mov [rbx+BPRM_VMA], rax
    mov rcx, STACK_TOP
    mov [rax+VMA_END], rcx
    sub rcx, 8
    mov [rbx+BPRM_P], rcx
    sub rcx, PAGE_BYTES - 8
    mov [rax+VMA_START], rcx
    shr rcx, PAGE_SHIFT
    mov [rax+VMA_PGOFF], rcx
    mov qword ptr [rax+VMA_FLAGS], VM_READ | VM_WRITE | VM_GROWSDOWN | VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC
    mov rdi, [rbx+BPRM_MM]
    mov qword ptr [rdi+MM_TOTAL_VM], 1
    mov rsi, rax
    call vma_link
    xor eax, eax
    LEAVE2
.Lnomem:
    mov eax, -ENOMEM
    LEAVE2
ENDFUNC bprm_mm_init

FUNC get_arg_page                       # rdi bprm, rsi address, edx write; rax page with a reference, or 0
    ENTER2
    mov r12, rsi
    mov rbx, [rdi+BPRM_VMA]
    cmp rsi, [rbx+VMA_START]
    jae .Lfault
    mov rdi, rbx
    call expand_downwards
    test eax, eax
    jne .Lnone
.Lfault:
    mov rdi, rbx
    mov rsi, r12
    mov edx, FAULT_FLAG_WRITE
    xor ecx, ecx
    call handle_mm_fault
    test eax, eax
    jne .Lnone
    mov rdi, [rbx+VMA_MM]
    mov rsi, r12
    call pte_walk
    test rax, rax
    je .Lnone
    mov rax, [rax]
    ENTRY_TO_VIRT rax, rcx
    VIRT_TO_PAGE rax
    GET_PAGE rax
    LEAVE2
.Lnone:
    xor eax, eax
    LEAVE2
ENDFUNC get_arg_page

# Below what is on the stack already: rbx bprm, r12 string, r13 its length with the NUL; \copy(to, from,
# bytes) moves a piece, and \check looks at its rax. Goes to .Lfailed with the error in eax.
.macro COPY_TO_STACK copy, check
    mov r14, [rbx+BPRM_P]
    sub r14, r13
    mov [rbx+BPRM_P], r14
.Lpiece:
    mov rdi, rbx
    mov rsi, r14
    mov edx, 1
    call get_arg_page
    test rax, rax
    mov ecx, -E2BIG
    je .Lfailed
    mov r15, rax
    mov rdi, rax
    PAGE_TO_VIRT rdi
    mov ecx, r14d
    and ecx, PAGE_BYTES - 1
    add rdi, rcx
    mov edx, PAGE_BYTES
    sub edx, ecx
    cmp rdx, r13
    cmova rdx, r13
    mov rsi, r12
    add r12, rdx
    add r14, rdx
    sub r13, rdx
    call \copy
    \check
    mov rdi, r15
    call folio_put
    test r13, r13
    jne .Lpiece
.endm

.macro ALWAYS_COPIED
.endm

.macro COPIED_FROM_USER
    test rax, rax
    jne .Lfault
.endm

FUNC copy_string_kernel                 # rdi string, rsi bprm; eax 0 or error
    ENTER5
    push 0
    mov r12, rdi
    mov rbx, rsi
    call strlen
    lea r13, [rax+1]
    mov ecx, -E2BIG
    cmp r13, MAX_ARG_STRLEN
    ja .Lfailed
    COPY_TO_STACK memcpy, ALWAYS_COPIED
    xor ecx, ecx
.Lfailed:
    mov eax, ecx
    LEAVE5
ENDFUNC copy_string_kernel

FUNC copy_strings.isra.0                # edi how many, rsi user array of them, rdx bprm; eax 0 or error
    ENTER5
    sub rsp, 24
    mov rbx, rdx
    mov [rbp-48], rdi
    mov [rbp-56], rsi
.Lnext:
    xor ecx, ecx
    cmp dword ptr [rbp-48], 0
    je .Lfailed
    dec dword ptr [rbp-48]              # the last one goes highest
    mov eax, [rbp-48]
    mov rsi, [rbp-56]
    lea rsi, [rsi+rax*8]
    lea rdi, [rbp-64]
    mov edx, 8
    call _copy_from_user
    mov ecx, -EFAULT
    test rax, rax
    jne .Lfailed
    mov r12, [rbp-64]
    mov rdi, r12
    mov esi, MAX_ARG_STRLEN
    call strnlen_user
    mov r13, rax
    mov ecx, -EFAULT
    test rax, rax
    je .Lfailed
    mov ecx, -E2BIG
    cmp rax, MAX_ARG_STRLEN
    ja .Lfailed
    COPY_TO_STACK _copy_from_user, COPIED_FROM_USER
    jmp .Lnext
.Lfault:
    mov rdi, r15
    call folio_put
    mov ecx, -EFAULT
.Lfailed:
    mov eax, ecx
    LEAVE5
ENDFUNC copy_strings.isra.0

FUNC setup_arg_pages                    # rdi bprm, rsi top of the stack, edx executable; eax 0 or error
    ENTER2
    mov rbx, rdi
    mov rdi, gs:[CURRENT_TASK]
    mov r12, [rdi+TASK_MM]
    lea rdi, [r12+MM_MMAP_LOCK]
    call down_write
    mov rax, [rbx+BPRM_P]
    and rax, -16
    mov [rbx+BPRM_P], rax
    mov [r12+MM_START_STACK], rax
    mov rdi, [rbx+BPRM_VMA]
    lea rsi, [rax-STACK_EXPAND]
    call expand_downwards
    mov ebx, eax
    lea rdi, [r12+MM_MMAP_LOCK]
    call up_write
    mov eax, ebx
    LEAVE2
ENDFUNC setup_arg_pages

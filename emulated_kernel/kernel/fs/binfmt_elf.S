# fs/binfmt_elf.c: programs in the format ELF. Their segments are mapped; the interpreter is not, for
# nobody runs there.

.text

# rdi file, rsi address, rdx program header, ecx PROT_*, r8d MAP_*; rax address or error
FUNC elf_map
    PROLOGUE
    mov eax, esi
    and eax, PAGE_BYTES - 1             # offset of the segment in its first page
    and rsi, PAGE_MASK
    mov r9, [rdx+PHDR_OFFSET]
    sub r9, rax
    add rax, [rdx+PHDR_FILESZ]
    mov rdx, rax
    mov rax, rsi
    test rdx, rdx
    je .Lout
    call vm_mmap
.Lout:
    EPILOGUE
ENDFUNC elf_map

ELFLOAD_PHDRS = 48                      # locals of load_elf_binary, below rbp
ELFLOAD_LEFT = 56
ELFLOAD_BIAS = 64
ELFLOAD_BRK = 72

FUNC load_elf_binary                    # rdi bprm; rax 0 or error
    ENTER5
    sub rsp, 40
    mov rbx, rdi
    mov r12, -ENOEXEC
    cmp dword ptr [rbx+BPRM_BUF], ELF_MAGIC
    jne .Lout
    xor ecx, ecx
    movzx eax, word ptr [rbx+BPRM_BUF+ELF_TYPE]
    cmp eax, ET_EXEC
    je .Ltype
    cmp eax, ET_DYN
    jne .Lout
    mov rcx, ELF_ET_DYN_BASE
.Ltype:
    mov [rbp-ELFLOAD_BIAS], rcx
    cmp word ptr [rbx+BPRM_BUF+ELF_MACHINE], EM_X86_64
    jne .Lout
    mov rdi, rbx
    call load_elf_phdrs
    mov [rbp-ELFLOAD_PHDRS], rax
    test rax, rax
    je .Lout
    mov rdi, rbx
    call begin_new_exec
    movsxd r12, eax
    test eax, eax
    jne .Lfree
    mov rdi, rbx
    call setup_new_exec
    mov rdi, rbx
    mov rsi, STACK_TOP
    xor edx, edx
    call setup_arg_pages
    movsxd r12, eax
    test eax, eax
    jne .Lfree
    mov r13, [rbp-ELFLOAD_PHDRS]
    movzx eax, word ptr [rbx+BPRM_BUF+ELF_PHNUM]
    mov [rbp-ELFLOAD_LEFT], eax
    mov qword ptr [rbp-ELFLOAD_BRK], 0
.Lsegment:
    cmp dword ptr [r13+PHDR_TYPE], PT_LOAD
    jne .Lnext
    mov eax, [r13+PHDR_FLAGS]
    mov ecx, eax
    and ecx, PF_W                       # PROT_WRITE as well
    test eax, PF_R
    je .Lexec
    or ecx, PROT_READ
.Lexec:
    test eax, PF_X
    je .Lmap
    or ecx, PROT_EXEC
.Lmap:
    mov r14, [r13+PHDR_VADDR]
    add r14, [rbp-ELFLOAD_BIAS]
    mov rdi, [rbx+BPRM_FILE]
    mov rsi, r14
    mov rdx, r13
    mov r8d, MAP_PRIVATE | MAP_FIXED
    call elf_map
    mov r12, rax
    cmp rax, ERR_MIN
    jae .Lfree
    mov rdi, r14                        # set_brk: what the file does not hold
    add rdi, [r13+PHDR_FILESZ]
    add r14, [r13+PHDR_MEMSZ]
    cmp qword ptr [r13+PHDR_FILESZ], 0
    je .Lwhole
    add rdi, PAGE_BYTES - 1
.Lwhole:
    and rdi, PAGE_MASK
    cmp r14, [rbp-ELFLOAD_BRK]
    jbe .Lbss
    mov [rbp-ELFLOAD_BRK], r14
.Lbss:
    mov rsi, r14
    sub rsi, rdi
    jbe .Lnext
    xor edx, edx
    call vm_brk_flags
    movsxd r12, eax
    test eax, eax
    jne .Lfree
.Lnext:
    add r13, ELF_PHDR_BYTES
    dec dword ptr [rbp-ELFLOAD_LEFT]
    jne .Lsegment
    mov rax, gs:[CURRENT_TASK]
    mov rax, [rax+TASK_MM]
    mov rcx, [rbp-ELFLOAD_BRK]
    mov [rax+MM_END_CODE], rcx
    mov [rax+MM_START_BRK], rcx
    mov rdi, rbx
    call finalize_exec
    xor r12d, r12d
.Lfree:
    mov rdi, [rbp-ELFLOAD_PHDRS]
    call kfree
.Lout:
    mov rax, r12
    LEAVE5
ENDFUNC load_elf_binary

FUNC load_elf_phdrs                     # rdi bprm; rax the program headers, to be freed, or 0
    ENTER3
    mov rbx, rdi
    sub rsp, 16
    cmp word ptr [rdi+BPRM_BUF+ELF_PHENTSIZE], ELF_PHDR_BYTES
    jne .Lnone
    movzx r12d, word ptr [rdi+BPRM_BUF+ELF_PHNUM]
    test r12d, r12d
    je .Lnone
    imul r12d, r12d, ELF_PHDR_BYTES
    cmp r12d, 65536
    ja .Lnone
    mov edi, r12d
    mov esi, GFP_KERNEL
    call __kmalloc
    mov r13, rax
    test rax, rax
    je .Lnone
    mov rax, [rbx+BPRM_BUF+ELF_PHOFF]
    mov [rsp], rax
    mov rdi, [rbx+BPRM_FILE]
    mov rsi, r13
    mov edx, r12d
    mov rcx, rsp
    call kernel_read
    cmp rax, r12
    jne .Lshort
    mov rax, r13
    LEAVE3
.Lshort:
    mov rdi, r13
    call kfree
.Lnone:
    xor eax, eax
    LEAVE3
ENDFUNC load_elf_phdrs

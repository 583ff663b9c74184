# mm/mmap.c: areas of an address space: finding, making, splitting and merging them. They are kept as a
# list in order of address.

.text

MAX_MAP_COUNT = 65530
RLIMIT_AS = 1 << 32                     # bytes

FUNC find_vma                           # rdi mm, rsi address; rax the first area that ends above it, or 0
    PROLOGUE
    mov rax, [rdi+MM_MMAP]
.Lnext:
    test rax, rax
    je .Lout
    cmp rsi, [rax+VMA_END]
    jb .Lout
    mov rax, [rax+VMA_NEXT]
    jmp .Lnext
.Lout:
    EPILOGUE
ENDFUNC find_vma

FUNC find_vma_prev                      # rdi mm, rsi address, rdx area *: the one before; rax as find_vma
    PROLOGUE
    xor ecx, ecx
    mov rax, [rdi+MM_MMAP]
.Lnext:
    test rax, rax
    je .Lout
    cmp rsi, [rax+VMA_END]
    jb .Lout
    mov rcx, rax
    mov rax, [rax+VMA_NEXT]
    jmp .Lnext
.Lout:
    mov [rdx], rcx
    EPILOGUE
ENDFUNC find_vma_prev

FUNC find_vma_intersection              # rdi mm, rsi start, rdx end; rax the first area in it, or 0
    ENTER1
    push 0
    mov rbx, rdx
    call find_vma
    test rax, rax
    je .Lout
    cmp rbx, [rax+VMA_START]
    ja .Lout
    xor eax, eax
.Lout:
    LEAVE1
ENDFUNC find_vma_intersection

FUNC vma_link                           # rdi mm, rsi area: into the list
    ENTER2
    sub rsp, 16
    mov rbx, rdi
    mov r12, rsi
    mov rsi, [rsi+VMA_START]
    mov rdx, rsp
    call find_vma_prev
    mov rcx, [rsp]
    mov [r12+VMA_NEXT], rax
    mov [r12+VMA_PREV], rcx
    test rax, rax
    je .Lprev
    mov [rax+VMA_PREV], r12
.Lprev:
    test rcx, rcx
    je .Lfirst
    mov [rcx+VMA_NEXT], r12
    jmp .Lout
.Lfirst:
    mov [rbx+MM_MMAP], r12
.Lout:
    inc qword ptr [rbx+MM_MAP_COUNT]
    LEAVE2
ENDFUNC vma_link

# Out of the list: rdi mm, rsi area.
FUNC_NOTRACE vma_unlink
    mov rax, [rsi+VMA_NEXT]
    mov rcx, [rsi+VMA_PREV]
    test rax, rax
    je .Lprev
    mov [rax+VMA_PREV], rcx
.Lprev:
    test rcx, rcx
    je .Lfirst
    mov [rcx+VMA_NEXT], rax
    jmp .Lout
.Lfirst:
    mov [rdi+MM_MMAP], rax
.Lout:
    dec qword ptr [rdi+MM_MAP_COUNT]
    ret
ENDFUNC vma_unlink

FUNC __vma_adjust                       # rdi area, rsi new start, rdx new end
    PROLOGUE
    mov rax, rsi
    sub rax, [rdi+VMA_START]
    sar rax, PAGE_SHIFT
    add [rdi+VMA_PGOFF], rax
    mov [rdi+VMA_START], rsi
    mov [rdi+VMA_END], rdx
    EPILOGUE
ENDFUNC __vma_adjust

# Let a neighbour take [rdx, rcx) in: rdi mm, rsi the area before it or 0, r8 flags (anonymous only);
# rax that area or 0.
FUNC vma_merge
    ENTER4
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    test rsi, rsi
    mov rdx, [rdi+MM_MMAP]
    je .Lnext
    mov rdx, [rsi+VMA_NEXT]
    cmp [rsi+VMA_END], r13
    jne .Lnext
    cmp [rsi+VMA_FLAGS], r8
    jne .Lnext
    cmp qword ptr [rsi+VMA_OPS], 0
    jne .Lnext
    mov rdi, r12
    mov rsi, [r12+VMA_START]
    test rdx, rdx                       # does it fill a gap between two
    je .Lgrow
    cmp [rdx+VMA_START], r14
    jne .Lgrow
    cmp [rdx+VMA_FLAGS], r8
    jne .Lgrow
    cmp qword ptr [rdx+VMA_OPS], 0
    jne .Lgrow
    mov r13, rdx
    mov rdx, [rdx+VMA_END]
    call __vma_adjust
    mov rdi, rbx
    mov rsi, r13
    call vma_unlink
    mov rdi, r13
    call vm_area_free
    mov rax, r12
    LEAVE4
.Lgrow:
    mov rdx, r14
    call __vma_adjust
    mov rax, r12
    LEAVE4
.Lnext:
    xor eax, eax
    test rdx, rdx
    je .Lout
    cmp [rdx+VMA_START], r14
    jne .Lout
    cmp [rdx+VMA_FLAGS], r8
    jne .Lout
    cmp qword ptr [rdx+VMA_OPS], 0
    jne .Lout
    mov r12, rdx
    mov rdi, rdx
    mov rsi, r13
    mov rdx, [rdx+VMA_END]
    call __vma_adjust
    mov rax, r12
.Lout:
    LEAVE4
ENDFUNC vma_merge

FUNC may_expand_vm                      # rdi mm, rsi flags, rdx pages; al
    PROLOGUE
    xor eax, eax
    add rdx, [rdi+MM_TOTAL_VM]
    mov rcx, RLIMIT_AS >> PAGE_SHIFT
    cmp rdx, rcx
    setbe al
    EPILOGUE
ENDFUNC may_expand_vm

# Let a stack's area reach down to an address: rdi area, rsi address; eax 0 or -ENOMEM.
FUNC expand_downwards
    ENTER2
    mov rbx, rdi
    mov r12, rsi
    and r12, PAGE_MASK
    cmp r12, [rdi+VMA_START]
    jae .Lthere
    mov rax, [rdi+VMA_END]
    sub rax, r12
    cmp rax, RLIMIT_STACK
    ja .Lnomem
    mov rax, [rdi+VMA_PREV]
    test rax, rax
    je .Lgap
    mov rax, [rax+VMA_END]
    add rax, STACK_GUARD_GAP
    cmp rax, r12
    ja .Lnomem
.Lgap:
    mov rdi, [rbx+VMA_MM]
    mov rsi, [rbx+VMA_FLAGS]
    mov rdx, [rbx+VMA_START]
    sub rdx, r12
    shr rdx, PAGE_SHIFT
    call vm_stat_account
    mov rdi, rbx
    mov rsi, r12
    mov rdx, [rbx+VMA_END]
    call __vma_adjust
.Lthere:
    xor eax, eax
    LEAVE2
.Lnomem:
    mov eax, -ENOMEM
    LEAVE2
ENDFUNC expand_downwards

RLIMIT_STACK = 8 << 20
STACK_GUARD_GAP = 256 << 12

FUNC vm_stat_account                    # rdi mm, rsi flags, rdx pages, more or fewer
    PROLOGUE
    add [rdi+MM_TOTAL_VM], rdx
    EPILOGUE
ENDFUNC vm_stat_account

# --- where something can go -----------------------------------------------------------------------

# The highest gap of rdi bytes below rsi and not below rdx, in the current mm: rax address or -ENOMEM.
FUNC vm_unmapped_area
    PROLOGUE
    mov rcx, gs:[CURRENT_TASK]
    mov rcx, [rcx+TASK_MM]
    mov rcx, [rcx+MM_MMAP]
    mov rax, -ENOMEM
    mov r8, rdx                         # end of the area before the gap
.Larea:
    mov r9, rsi                         # end of the gap
    test rcx, rcx
    je .Lgap
    cmp [rcx+VMA_START], rsi
    cmovb r9, [rcx+VMA_START]
.Lgap:
    mov r10, r9
    sub r10, rdi
    jb .Lsmall
    cmp r10, r8
    jb .Lsmall
    mov rax, r10
.Lsmall:
    test rcx, rcx
    je .Lout
    cmp r8, [rcx+VMA_END]
    cmovb r8, [rcx+VMA_END]
    cmp r8, rsi
    jae .Lout
    mov rcx, [rcx+VMA_NEXT]
    jmp .Larea
.Lout:
    EPILOGUE
ENDFUNC vm_unmapped_area

# rdi file, rsi address wished for or 0, rdx length, rcx page offset, r8 flags; rax address or error
FUNC arch_get_unmapped_area_topdown
    ENTER3
    push 0
    mov r12, rsi
    mov r13, rdx
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_MM]
    test rsi, rsi
    je .Lsearch
    mov rdi, rbx
    lea rdx, [rsi+rdx]
    call find_vma_intersection
    test rax, rax
    mov rax, r12
    je .Lout
.Lsearch:
    mov rdi, r13
    mov rsi, [rbx+MM_MMAP_BASE]
    mov edx, PAGE_BYTES
    call vm_unmapped_area
.Lout:
    LEAVE3
ENDFUNC arch_get_unmapped_area_topdown

# rdi file, rsi address, rdx length, rcx page offset, r8 MAP_* flags; rax address or error
FUNC get_unmapped_area
    ENTER1
    push 0
    mov rax, TASK_SIZE_MAX
    cmp rdx, rax
    ja .Lnomem
    sub rax, rdx
    cmp rsi, rax
    ja .Lnomem
    mov rbx, rsi
    test r8d, MAP_FIXED
    jne .Lfixed
    call arch_get_unmapped_area_topdown
    cmp rax, ERR_MIN
    jae .Lout
    mov rbx, rax
.Lfixed:
    mov rax, -EINVAL
    test ebx, PAGE_BYTES - 1
    jne .Lout
    mov rdi, rbx
    call security_mmap_addr
    movsxd rax, eax
    test rax, rax
    cmove rax, rbx
.Lout:
    LEAVE1
.Lnomem:
    mov rax, -ENOMEM
    LEAVE1
ENDFUNC get_unmapped_area

# --- mapping --------------------------------------------------------------------------------------

# rdi file or 0, rsi address, rdx length, rcx flags (VM_*), r8 page offset; rax address or error
FUNC mmap_region
    ENTER5
    sub rsp, 40
    mov [rbp-48], rdi
    mov [rbp-56], r8
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov rbx, gs:[CURRENT_TASK]
    mov rbx, [rbx+TASK_MM]
    mov rdi, rbx
    mov rsi, rcx
    shr rdx, PAGE_SHIFT
    call may_expand_vm
    test al, al
    mov rax, -ENOMEM
    je .Lout
    mov rdi, rbx                        # what was there before
    mov rsi, r12
    mov rdx, r13
    call do_munmap
    movsxd rax, eax
    test rax, rax
    jne .Lout
    cmp qword ptr [rbp-48], 0
    jne .Lalloc
    mov rdi, rbx
    mov rsi, r12
    lea rdx, [rbp-64]
    call find_vma_prev
    mov rdi, rbx
    mov rsi, [rbp-64]
    mov rdx, r12
    lea rcx, [r12+r13]
    mov r8, r14
    call vma_merge
    test rax, rax
    jne .Laccount
.Lalloc:
    mov rdi, rbx
    call vm_area_alloc
    mov r15, rax
    test rax, rax
    mov rax, -ENOMEM
    je .Lout
    mov [r15+VMA_START], r12
    lea rax, [r12+r13]
    mov [r15+VMA_END], rax
    mov [r15+VMA_FLAGS], r14
    mov rax, [rbp-56]
    mov [r15+VMA_PGOFF], rax
    mov rdi, [rbp-48]
    test rdi, rdi
    je .Llink
    call get_file
    mov [r15+VMA_FILE], rax
    mov rdi, rax
    mov rsi, r15
    mov rax, [rax+FILE_OP]
    call [rax+FOPS_MMAP]
    movsxd rax, eax
    test rax, rax
    jne .Lrefused
.Llink:
    mov rdi, rbx
    mov rsi, r15
    call vma_link
.Laccount:
    mov rdi, rbx
    mov rsi, r14
    mov rdx, r13
    shr rdx, PAGE_SHIFT
    call vm_stat_account
    mov rax, r12
    LEAVE5
.Lrefused:
    mov r14, rax
    mov rdi, r15
    call remove_vma
    mov rax, r14
.Lout:
    LEAVE5
ENDFUNC mmap_region

# rdi file or 0, rsi address, rdx length, ecx PROT_*, r8d MAP_*, r9 page offset; mmap_lock held; rax
FUNC do_mmap
    ENTER5
    push r9
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14d, ecx
    mov r15d, r8d
    mov rax, -EINVAL
    test r13, r13
    je .Lout
    mov rax, -ENOMEM
    add r13, PAGE_BYTES - 1
    and r13, PAGE_MASK
    je .Lout
    test r15d, MAP_FIXED
    jne .Laddress
    and r12, PAGE_MASK                  # a wish only
.Laddress:
    mov rcx, gs:[CURRENT_TASK]
    mov rcx, [rcx+TASK_MM]
    cmp qword ptr [rcx+MM_MAP_COUNT], MAX_MAP_COUNT
    ja .Lout
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov rcx, r9
    mov r8d, r15d
    call get_unmapped_area
    cmp rax, ERR_MIN
    jae .Lout
    mov r12, rax
    mov ecx, r14d                       # PROT_* and VM_* are the same bits
    and ecx, PROT_READ | PROT_WRITE | PROT_EXEC
    or ecx, VM_MAYREAD | VM_MAYWRITE | VM_MAYEXEC
    mov edx, r15d
    and edx, MAP_SHARED | MAP_PRIVATE
    mov rax, -EINVAL
    cmp edx, MAP_SHARED
    je .Lshared
    cmp edx, MAP_PRIVATE
    jne .Lout
    jmp .Lkind
.Lshared:
    or ecx, VM_SHARED
.Lkind:
    test rbx, rbx
    je .Lregion
    mov rax, -EACCES
    mov edx, [rbx+FILE_MODE]
    test edx, FMODE_READ
    je .Lout
    test ecx, VM_SHARED
    je .Lmappable
    test edx, FMODE_WRITE
    jne .Lmappable
    test ecx, VM_WRITE
    jne .Lout
    and ecx, ~VM_MAYWRITE
.Lmappable:
    mov rax, [rbx+FILE_OP]
    cmp qword ptr [rax+FOPS_MMAP], 0
    mov rax, -ENODEV
    je .Lout
.Lregion:
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov r8, [rbp-48]
    test rbx, rbx
    jne .Loffset
    mov r8, r12                         # an anonymous area's pages are numbered by address
    shr r8, PAGE_SHIFT
.Loffset:
    call mmap_region
.Lout:
    LEAVE5
ENDFUNC do_mmap

# rdi file or 0, rsi address, rdx length, ecx PROT_*, r8d MAP_*, r9 page offset; rax address or error
FUNC vm_mmap_pgoff
    ENTER5
    push r9
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14d, ecx
    mov r15d, r8d
    mov esi, ecx
    mov edx, r8d
    call security_mmap_file
    movsxd rax, eax
    test rax, rax
    jne .Lout
    mov rdi, gs:[CURRENT_TASK]
    mov rdi, [rdi+TASK_MM]
    test rdi, rdi
    mov rax, -ENOMEM
    je .Lout
    add rdi, MM_MMAP_LOCK
    call down_write
    mov rdi, rbx
    mov rsi, r12
    mov rdx, r13
    mov ecx, r14d
    mov r8d, r15d
    mov r9, [rbp-48]
    call do_mmap
    mov rbx, rax
    mov rdi, gs:[CURRENT_TASK]
    mov rdi, [rdi+TASK_MM]
    add rdi, MM_MMAP_LOCK
    call up_write
    mov rax, rbx
.Lout:
    LEAVE5
ENDFUNC vm_mmap_pgoff

# rdi file or 0, rsi address, rdx length, ecx PROT_*, r8d MAP_*, r9 offset; rax address or error (mm/util.c)
FUNC vm_mmap
    PROLOGUE
    mov rax, -EINVAL
    test r9d, PAGE_BYTES - 1
    jne .Lout
    shr r9, PAGE_SHIFT
    call vm_mmap_pgoff
.Lout:
    EPILOGUE
ENDFUNC vm_mmap

# rdi address, rsi length, edx PROT_*, ecx MAP_*, r8d fd, r9 page offset; rax address or error
FUNC ksys_mmap_pgoff
    ENTER3
    push 0
    mov r12, rdi
    mov r13, rsi
    xor ebx, ebx
    test ecx, MAP_ANONYMOUS
    jne .Lmap
    push rdx
    push rcx
    push r9
    push r9
    mov edi, r8d
    call fget
    pop r9
    pop r9
    pop rcx
    pop rdx
    mov rbx, rax
    test rax, rax
    mov rax, -EBADF
    je .Lout
.Lmap:
    mov rdi, rbx
    mov r8d, ecx
    mov ecx, edx
    mov rsi, r12
    mov rdx, r13
    call vm_mmap_pgoff
    mov r12, rax
    test rbx, rbx
    je .Lmapped
    mov rdi, rbx
    call fput
.Lmapped:
    mov rax, r12
.Lout:
    LEAVE3
ENDFUNC ksys_mmap_pgoff

FUNC __x64_sys_mmap                     # rdi pt_regs: (address, length, prot, flags, fd, offset)
    PROLOGUE
    mov r11, rdi
    mov rdi, [r11+PT_RDI]
    mov rsi, [r11+PT_RSI]
    mov edx, [r11+PT_RDX]
    mov ecx, [r11+PT_R10]
    mov r8d, [r11+PT_R8]
    mov r9, [r11+PT_R9]
    mov rax, -EINVAL
    test r9d, PAGE_BYTES - 1
    jne .Lout
    shr r9, PAGE_SHIFT
    call ksys_mmap_pgoff
.Lout:
    EPILOGUE
ENDFUNC __x64_sys_mmap

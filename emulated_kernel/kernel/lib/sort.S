# Sorting and searching with the caller's comparison: lib/sort.c, bsearch.c, list_sort.c.

.text

# rdi array, rsi elements, rdx element size, rcx compare(a, b), r8 swap(a, b, size) or 0.
FUNC_NOTRACE sort
    xor r9d, r9d
    jmp sort_r
ENDFUNC sort

# Heap sort; compare and swap are also given the caller's word in r9. Offsets are in bytes.
SORT_SWAP = 48
SORT_PRIV = 56
SORT_ROOT = 64
FUNC_NOTRACE sort_r
    ENTER5
    sub rsp, 24
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov [rbp - SORT_SWAP], r8
    mov [rbp - SORT_PRIV], r9
    mov r15, rsi
    shr r15, 1
    je .Lout
    imul r15, r13
    imul r12, r13
.Lnext:
    test r15, r15
    je .Lextract
    sub r15, r13
    jmp .Lsift
.Lextract:
    sub r12, r13
    je .Lout
    mov rdi, rbx
    lea rsi, [rbx + r12]
    call .Lswap
.Lsift:
    mov [rbp - SORT_ROOT], r15
.Ldown:
    mov rax, [rbp - SORT_ROOT]
    lea rax, [rax + rax]
    add rax, r13
    cmp rax, r12
    jae .Lnext
    push rax
    push rax
    lea rcx, [rax + r13]
    cmp rcx, r12
    jae .Lchild
    lea rdi, [rbx + rax]
    lea rsi, [rbx + rcx]
    mov rdx, [rbp - SORT_PRIV]
    call r14
    test eax, eax
    jns .Lchild
    add [rsp], r13
.Lchild:
    mov rdi, [rbp - SORT_ROOT]
    add rdi, rbx
    mov rsi, [rsp]
    add rsi, rbx
    mov rdx, [rbp - SORT_PRIV]
    call r14
    test eax, eax
    jns .Lsettled
    mov rdi, [rbp - SORT_ROOT]
    add rdi, rbx
    mov rsi, [rsp]
    add rsi, rbx
    call .Lswap
    pop rax
    mov [rbp - SORT_ROOT], rax
    pop rax
    jmp .Ldown
.Lsettled:
    add rsp, 16
    jmp .Lnext
.Lout:
    LEAVE5
.Lswap:
    mov rdx, r13
    mov rax, [rbp - SORT_SWAP]
    test rax, rax
    je .Lbytes
    mov rcx, [rbp - SORT_PRIV]
    jmp rax
.Lbytes:
    mov al, [rdi + rdx - 1]
    mov cl, [rsi + rdx - 1]
    mov [rdi + rdx - 1], cl
    mov [rsi + rdx - 1], al
    dec rdx
    jne .Lbytes
    ret
ENDFUNC sort_r

# rdi key, rsi array, rdx elements, rcx element size, r8 compare(key, element): the element or 0.
FUNC_NOTRACE bsearch
    ENTER5
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov r15, r8
.Lnext:
    test r13, r13
    je .Lnone
    mov rax, r13
    shr rax, 1
    imul rax, r14
    add rax, r12
    push rax
    push rax
    mov rdi, rbx
    mov rsi, rax
    call r15
    mov ecx, eax
    pop rax
    add rsp, 8
    test ecx, ecx
    je .Lout
    js .Lleft
    lea r12, [rax + r14]
    dec r13
.Lleft:
    shr r13, 1
    jmp .Lnext
.Lnone:
    xor eax, eax
.Lout:
    LEAVE5
ENDFUNC bsearch

# rdi the caller's word, rsi list head, rdx compare(word, a, b) > 0 when a belongs behind b. Stable.
# At [rbp - 560]: sorted chains of 2^n entries each, joined by their next pointers alone.
LIST_SORT_BINS = 560
FUNC_NOTRACE list_sort
    ENTER4
    sub rsp, 528
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    lea rdi, [rbp - LIST_SORT_BINS]
    mov ecx, 64
    xor eax, eax
    rep stosq
    mov r14, [r12]
.Lnext:
    cmp r14, r12
    je .Ljoin
    mov rcx, r14
    mov r14, [r14]
    mov qword ptr [rcx], 0
    lea r8, [rbp - LIST_SORT_BINS]
.Lcarry:
    mov rdx, [r8]
    test rdx, rdx
    je .Lstore
    mov qword ptr [r8], 0
    push r8
    push r8
    mov rdi, rbx
    mov rsi, r13
    call merge
    pop r8
    pop r8
    mov rcx, rax
    add r8, 8
    jmp .Lcarry
.Lstore:
    mov [r8], rcx
    jmp .Lnext
.Ljoin:
    xor ecx, ecx
    xor r14d, r14d
.Lbin:
    mov rdx, [rbp + r14*8 - LIST_SORT_BINS]
    test rdx, rdx
    je .Lskip
    mov rdi, rbx
    mov rsi, r13
    call merge
    mov rcx, rax
.Lskip:
    inc r14d
    cmp r14d, 64
    jb .Lbin
    mov rax, r12
.Llink:
    mov [rax], rcx
    test rcx, rcx
    je .Lclose
    mov [rcx + 8], rax
    mov rax, rcx
    mov rcx, [rcx]
    jmp .Llink
.Lclose:
    mov [rax], r12
    mov [r12 + 8], rax
    LEAVE4
ENDFUNC list_sort

# rdi word, rsi compare, rdx and rcx chains of which rdx comes first among equals: the merged chain.
FUNC_NOTRACE merge
    ENTER5
    push rax
    mov rbx, rdi
    mov r12, rsi
    mov r13, rdx
    mov r14, rcx
    mov r15, rsp
.Lnext:
    test r13, r13
    je .Lrest
    test r14, r14
    je .Lfirst
    mov rdi, rbx
    mov rsi, r13
    mov rdx, r14
    call r12
    test eax, eax
    jg .Lsecond
    mov [r15], r13
    mov r15, r13
    mov r13, [r13]
    jmp .Lnext
.Lsecond:
    mov [r15], r14
    mov r15, r14
    mov r14, [r14]
    jmp .Lnext
.Lfirst:
    mov r14, r13
.Lrest:
    mov [r15], r14
    pop rax
    LEAVE5
ENDFUNC merge

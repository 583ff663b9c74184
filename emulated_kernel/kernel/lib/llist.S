# Lock-less lists with many adders and one remover: lib/llist.c. A head is a pointer to the newest.

.text

# rdi first and rsi last of a chain, rdx head: eax 1 when the list was empty.
FUNC_NOTRACE llist_add_batch
    mov rax, [rdx]
.Lagain:
    mov [rsi], rax
    lock cmpxchg [rdx], rdi
    jne .Lagain
    test rax, rax
    sete al
    movzx eax, al
    ret
ENDFUNC llist_add_batch

# rdi head: its newest entry, taken off, or 0.
FUNC_NOTRACE llist_del_first
    mov rax, [rdi]
.Lagain:
    test rax, rax
    je .Lout
    mov rcx, [rax]
    lock cmpxchg [rdi], rcx
    jne .Lagain
.Lout:
    ret
ENDFUNC llist_del_first

FUNC_NOTRACE llist_reverse_order
    xor eax, eax
.Lnext:
    test rdi, rdi
    je .Lout
    mov rcx, [rdi]
    mov [rdi], rax
    mov rax, rdi
    mov rdi, rcx
    jmp .Lnext
.Lout:
    ret
ENDFUNC llist_reverse_order

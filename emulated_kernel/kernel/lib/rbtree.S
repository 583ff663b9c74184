# Red-black trees: lib/rbtree.c, and lib/timerqueue.c over them. A node's first word is its
# parent's address, with bit 0 set when the node is black. The caller links a new node below its
# parent and asks for the colours to be set right.

.text

# \out = parent of \node
.macro RB_PARENT out, node
    mov \out, [\node]
    and \out, -2
.endm

# Put \new (may be 0) where \old is below \parent (0: the root in \root).
.macro RB_CHANGE_CHILD old, new, parent, root
    test \parent, \parent
    je 2f
    cmp [\parent + RB_NODE_LEFT], \old
    jne 1f
    mov [\parent + RB_NODE_LEFT], \new
    jmp 3f
1:
    mov [\parent + RB_NODE_RIGHT], \new
    jmp 3f
2:
    mov [\root], \new
3:
.endm

# Rotate rdi down to the \side, its child from \other coming up. rsi root. Clobbers rax rcx rdx.
# The two keep their own colours.
.macro RB_ROTATE side, other
    mov rax, [rdi + \other]
    mov rcx, [rax + \side]
    mov [rdi + \other], rcx
    test rcx, rcx
    je 4f
    mov rdx, [rcx]
    and edx, 1
    or rdx, rdi
    mov [rcx], rdx
4:
    RB_PARENT rcx, rdi
    mov rdx, [rax]
    and edx, 1
    or rdx, rcx
    mov [rax], rdx
    RB_CHANGE_CHILD rdi, rax, rcx, rsi
    mov [rax + \side], rdi
    mov rdx, [rdi]
    and edx, 1
    or rdx, rax
    mov [rdi], rdx
.endm

FUNC_NOTRACE rb_rotate_left
    RB_ROTATE RB_NODE_LEFT, RB_NODE_RIGHT
    ret
ENDFUNC rb_rotate_left

FUNC_NOTRACE rb_rotate_right
    RB_ROTATE RB_NODE_RIGHT, RB_NODE_LEFT
    ret
ENDFUNC rb_rotate_right

# rdi node, rsi its parent or 0, rdx the link it hangs from.
FUNC_NOTRACE rb_link_node
    mov [rdi], rsi
    mov qword ptr [rdi + RB_NODE_LEFT], 0
    mov qword ptr [rdi + RB_NODE_RIGHT], 0
    mov [rdx], rdi
    ret
ENDFUNC rb_link_node

# One side of the repair after an insertion: r8 the red node, r9 its red parent, r10 the
# grandparent.
.macro RB_INSERT_CASE near, far, rotate_near, rotate_far, again
    mov r11, [r10 + \far]
    test r11, r11
    je 5f
    test byte ptr [r11], 1
    jne 5f
    or byte ptr [r11], 1
    or byte ptr [r9], 1
    and byte ptr [r10], 0xfe
    mov r8, r10
    jmp \again
5:
    cmp [r9 + \far], r8
    jne 6f
    mov rdi, r9
    call \rotate_near
    mov r9, r8
6:
    or byte ptr [r9], 1
    and byte ptr [r10], 0xfe
    mov rdi, r10
    call \rotate_far
.endm

# rdi new node, rsi root.
FUNC_NOTRACE rb_insert_color
    mov r8, rdi
.Lagain:
    RB_PARENT r9, r8
    test r9, r9
    je .Lroot
    test byte ptr [r9], 1
    jne .Lout
    RB_PARENT r10, r9
    cmp [r10 + RB_NODE_LEFT], r9
    jne .Lright
    RB_INSERT_CASE RB_NODE_LEFT, RB_NODE_RIGHT, rb_rotate_left, rb_rotate_right, .Lagain
    ret
.Lright:
    RB_INSERT_CASE RB_NODE_RIGHT, RB_NODE_LEFT, rb_rotate_right, rb_rotate_left, .Lagain
    ret
.Lroot:
    or byte ptr [r8], 1
.Lout:
    ret
ENDFUNC rb_insert_color

# One side of the repair after a removal: r8 the node (or 0) that is a black short, r9 its parent.
.macro RB_ERASE_CASE near, far, rotate_near, rotate_far, again
    mov r10, [r9 + \far]
    test byte ptr [r10], 1
    jne 5f
    or byte ptr [r10], 1
    and byte ptr [r9], 0xfe
    mov rdi, r9
    call \rotate_near
    mov r10, [r9 + \far]
5:
    mov r11, [r10 + \far]
    test r11, r11
    je 6f
    test byte ptr [r11], 1
    je 8f
6:
    mov r11, [r10 + \near]
    test r11, r11
    je 7f
    test byte ptr [r11], 1
    jne 7f
    or byte ptr [r11], 1
    and byte ptr [r10], 0xfe
    mov rdi, r10
    call \rotate_far
    mov r10, [r9 + \far]
    jmp 8f
7:
    and byte ptr [r10], 0xfe
    mov r8, r9
    RB_PARENT r9, r8
    jmp \again
8:
    mov rax, [r9]
    and eax, 1
    and byte ptr [r10], 0xfe
    or [r10], al
    or byte ptr [r9], 1
    mov r11, [r10 + \far]
    or byte ptr [r11], 1
    mov rdi, r9
    call \rotate_near
    ret
.endm

# rdi node, rsi root.
FUNC_NOTRACE rb_erase
    mov r8, [rdi + RB_NODE_LEFT]
    mov r10, [rdi + RB_NODE_RIGHT]
    test r8, r8
    je .Lright_only
    test r10, r10
    jne .Lboth
    jmp .Lone
.Lright_only:
    mov r8, r10
# At most one child, r8, which takes the place of rdi.
.Lone:
    mov r11, [rdi]
    mov r9, r11
    and r9, -2
    test r8, r8
    je 4f
    mov rax, [r8]
    and eax, 1
    or rax, r9
    mov [r8], rax
4:
    RB_CHANGE_CHILD rdi, r8, r9, rsi
    jmp .Lcheck

# Two children: the next node in order, r10, leaves its place and takes that of rdi, colour and all.
.Lboth:
    mov rax, [r10 + RB_NODE_LEFT]
    test rax, rax
    je .Lsuccessor
    mov r10, rax
    jmp .Lboth
.Lsuccessor:
    mov r11, [r10]
    mov r9, r11
    and r9, -2
    mov r8, [r10 + RB_NODE_RIGHT]
    cmp r9, rdi
    je .Ladjacent
    mov [r9 + RB_NODE_LEFT], r8
    test r8, r8
    je 5f
    mov rax, [r8]
    and eax, 1
    or rax, r9
    mov [r8], rax
5:
    mov rax, [rdi + RB_NODE_RIGHT]
    mov [r10 + RB_NODE_RIGHT], rax
    mov rcx, [rax]
    and ecx, 1
    or rcx, r10
    mov [rax], rcx
    jmp .Lreplace
.Ladjacent:
    mov r9, r10
.Lreplace:
    mov rax, [rdi + RB_NODE_LEFT]
    mov [r10 + RB_NODE_LEFT], rax
    mov rcx, [rax]
    and ecx, 1
    or rcx, r10
    mov [rax], rcx
    mov rax, [rdi]
    mov [r10], rax
    and rax, -2
    RB_CHANGE_CHILD rdi, r10, rax, rsi

# r11: the colour that went missing at r8, below r9.
.Lcheck:
    test r11d, 1
    je .Lout
.Lfix:
    test r8, r8
    je .Lshort
    test byte ptr [r8], 1
    jne .Lshort
    or byte ptr [r8], 1
.Lout:
    ret
.Lshort:
    test r9, r9
    je .Lout
    cmp [r9 + RB_NODE_LEFT], r8
    jne .Lon_right
    RB_ERASE_CASE RB_NODE_LEFT, RB_NODE_RIGHT, rb_rotate_left, rb_rotate_right, .Lfix
.Lon_right:
    RB_ERASE_CASE RB_NODE_RIGHT, RB_NODE_LEFT, rb_rotate_right, rb_rotate_left, .Lfix
ENDFUNC rb_erase

# The outermost node on one side; rdi root.
.macro RB_EXTREME side
    mov rax, [rdi]
    test rax, rax
    je 2f
1:
    mov rcx, [rax + \side]
    test rcx, rcx
    je 2f
    mov rax, rcx
    jmp 1b
2:
    ret
.endm

FUNC_NOTRACE rb_first
    RB_EXTREME RB_NODE_LEFT
ENDFUNC rb_first

FUNC_NOTRACE rb_last
    RB_EXTREME RB_NODE_RIGHT
ENDFUNC rb_last

# The neighbour in order of rdi: down the other side, or up until we come from it.
.macro RB_STEP down, side
    mov rax, [rdi + \side]
    test rax, rax
    je 2f
1:
    mov rcx, [rax + \down]
    test rcx, rcx
    je 4f
    mov rax, rcx
    jmp 1b
2:
    RB_PARENT rax, rdi
    test rax, rax
    je 4f
    cmp [rax + \side], rdi
    jne 4f
    mov rdi, rax
    jmp 2b
4:
    ret
.endm

FUNC_NOTRACE rb_next
    RB_STEP RB_NODE_LEFT, RB_NODE_RIGHT
ENDFUNC rb_next

FUNC_NOTRACE rb_prev
    RB_STEP RB_NODE_RIGHT, RB_NODE_LEFT
ENDFUNC rb_prev

# rdi victim, rsi its replacement, rdx root.
FUNC_NOTRACE rb_replace_node
    mov rax, [rdi]
    mov [rsi], rax
    mov rcx, [rdi + RB_NODE_LEFT]
    mov [rsi + RB_NODE_LEFT], rcx
    test rcx, rcx
    je 4f
    mov r8, [rcx]
    and r8d, 1
    or r8, rsi
    mov [rcx], r8
4:
    mov rcx, [rdi + RB_NODE_RIGHT]
    mov [rsi + RB_NODE_RIGHT], rcx
    test rcx, rcx
    je 5f
    mov r8, [rcx]
    and r8d, 1
    or r8, rsi
    mov [rcx], r8
5:
    and rax, -2
    RB_CHANGE_CHILD rdi, rsi, rax, rdx
    ret
ENDFUNC rb_replace_node

# --- timerqueue: nodes in order of their expiry, the first one remembered -------------------------

# rdi queue, rsi node with its expiry: eax 1 when it is now the first.
FUNC_NOTRACE timerqueue_add
    push rbp
    mov rbp, rsp
    push rdi
    push rsi
    mov r9, rsi
    mov r10, [rsi + TIMERQUEUE_EXPIRES]
    mov rdx, rdi
    xor r8d, r8d
    mov ecx, 1
.Ldown:
    mov rax, [rdx]
    test rax, rax
    je .Llink
    mov r8, rax
    lea rdx, [rax + RB_NODE_LEFT]
    cmp r10, [rax + TIMERQUEUE_EXPIRES]
    jb .Ldown
    lea rdx, [rax + RB_NODE_RIGHT]
    xor ecx, ecx
    jmp .Ldown
.Llink:
    test ecx, ecx
    je 1f
    mov [rdi + TIMERQUEUE_FIRST], rsi
1:
    mov rdi, r9
    mov rsi, r8
    call rb_link_node
    mov rdi, [rbp - 16]
    mov rsi, [rbp - 8]
    call rb_insert_color
    mov rcx, [rbp - 8]
    mov rdx, [rbp - 16]
    xor eax, eax
    cmp [rcx + TIMERQUEUE_FIRST], rdx
    sete al
    leave
    ret
ENDFUNC timerqueue_add

# rdi queue, rsi node: eax 1 while others are left.
FUNC_NOTRACE timerqueue_del
    push rbp
    mov rbp, rsp
    push rdi
    push rsi
    cmp [rdi + TIMERQUEUE_FIRST], rsi
    jne 1f
    mov rdi, rsi
    call rb_next
    mov rdi, [rbp - 8]
    mov [rdi + TIMERQUEUE_FIRST], rax
1:
    mov rdi, [rbp - 16]
    mov rsi, [rbp - 8]
    call rb_erase
    mov rdi, [rbp - 16]
    mov [rdi], rdi
    mov rcx, [rbp - 8]
    xor eax, eax
    cmp qword ptr [rcx], 0
    setne al
    leave
    ret
ENDFUNC timerqueue_del

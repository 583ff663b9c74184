# fs/notify: events on files. A watch is a mask on an inode; an event that it covers is counted and wakes
# whoever waits for it. Left out: groups, queues, merging.

.text


# rdi dentry, esi event, rdx inode; eax 0: tell the watchers of the parent, then those of the file.
FUNC __fsnotify_parent
    ENTER3
    push 0
    mov rbx, rdi
    mov r12d, esi
    mov r13, rdx
    mov rax, [rdi+DENTRY_PARENT]
    mov rax, [rax+DENTRY_INODE]
    test rax, rax
    je .Lself
    test [rip + fsnotify_parent_mask], esi
    je .Lself
    mov edi, esi
    mov rsi, rax
    mov rdx, rbx
    call fsnotify
.Lself:
    test [rip + fsnotify_inode_mask], r12d
    je .Lout
    mov edi, r12d
    mov rsi, r13
    mov rdx, rbx
    call fsnotify
.Lout:
    xor eax, eax
    LEAVE3
ENDFUNC __fsnotify_parent

FUNC fsnotify                           # edi event, rsi inode it happened to, rdx dentry; eax 0
    PROLOGUE
    mov ecx, edi
    and ecx, [rip + fsnotify_inode_mask]
    je .Lout
    bsf ecx, ecx
    inc qword ptr [fsnotify_events + rcx*8]
    mov rax, offset fsnotify_last_inode
    mov [rax], rsi
.Lout:
    xor eax, eax
    EPILOGUE
ENDFUNC fsnotify

.data
.balign 8
OBJECT fsnotify_events                  # by bit of the mask
    .zero 8 * 32
ENDOBJECT fsnotify_events
OBJECT fsnotify_last_inode
    .quad 0
ENDOBJECT fsnotify_last_inode
OBJECT fsnotify_parent_mask             # what anybody watches
    .long FS_CREATE | FS_DELETE | FS_MOVED_TO
ENDOBJECT fsnotify_parent_mask
OBJECT fsnotify_inode_mask
    .long FS_MODIFY | FS_CREATE | FS_DELETE | FS_MOVED_TO
ENDOBJECT fsnotify_inode_mask

# The writer of the ring buffer (kernel/trace/ring_buffer.c), and how the buffer lies in memory.
#
#     op.PRIVATE -> u64[nr_cpus] -> struct ring_buffer_per_cpu, the RB_ words:
#
#     PAGE    the page being written; TAIL where the next record goes; END where the page ends
#     STAMP   time of the last record; BALANCE tells how many are on this page
#     TABLE   a descriptor {address, records} for each page of the ring, in ring order
#     INDEX   the descriptor of PAGE; HEAD that of the oldest page; both in bytes, of PAGES_BYTES
#     ENTRIES, ENTRIES_BYTES   records and bytes on the pages that were left
#     OVERRUN, DROPPED         records lost to newer ones, records not taken for want of room
#     GUARD   not zero: do not record. OVERWRITE: the oldest page gives way, not the new record
#
# Records are counted by their bytes: those on this page have RB_USUAL_BYTES each, for most are calls. What
# is not so is added to BALANCE: the difference of a longer or a shorter one, and bytes that are no record.
# So a call's record costs nothing to count.
#
# A page is a time stamp, the bytes of data in it (written when the page is left), how many of them are
# padding at the end, and the data. The first record has delta 0, the stamp being its time. Nothing
# interrupts a writer, so a record is committed when it is complete, and no word needs to be changed
# atomically.
#
# The reader may take the page that is being written. Then its place in the ring holds another page:
# INDEX no longer names PAGE, and the next page is HEAD without anything being overwritten.

# The reservation in RB_RESERVE did not fit as it was: the page is full, the last record is long ago,
# or there is no record yet. In: r9 buffer, r8 delta, r10 tail, eax bytes wanted. Out: r10 where the
# record's header goes, r11 its end, r8 its delta, carry clear; or carry set: dropped. Uses rax.
FUNC_NOTRACE rb_reserve_rare
    push rcx
    mov ecx, eax
    lea r11, [r10 + rcx]
    cmp r11, [r9 + RB_END]
    ja .Lpage
    lea r11, [r10 + rcx + RB_LEN_TIME_EXTEND]
    cmp r11, [r9 + RB_END]
    ja .Lpage
    mov eax, r8d
    shl eax, 5
    or eax, RINGBUF_TYPE_TIME_EXTEND
    mov [r10], eax
    shr r8, TS_SHIFT
    mov [r10 + 4], r8d
    add r10, RB_LEN_TIME_EXTEND
    sub qword ptr [r9 + RB_BALANCE], RB_LEN_TIME_EXTEND
    xor r8d, r8d
    pop rcx
    ret
.Lpage:
    call rb_move_tail
    lea r11, [r10 + rcx]                    # leaves the carry alone
    pop rcx
    ret
ENDFUNC rb_reserve_rare

# rax = the records on the current page; uses r10. The sum is a multiple of RB_USUAL_BYTES, so that dividing
# by 7 is multiplying by its inverse.
.macro RB_PAGE_ENTRIES
    mov rax, [r9 + RB_TAIL]
    sub rax, [r9 + RB_PAGE]
    sub rax, RB_PAGE_HEADER
    add rax, [r9 + RB_BALANCE]
    shr rax, 2
    movabs r10, 0x6db6db6db6db6db7
    imul rax, r10
.endm

# On to the next page, or to the first record of an empty buffer. In: r9. Out: r10 the first record
# of the page, r8 = 0, carry clear; or carry set: full. Uses rax r11.
FUNC_NOTRACE rb_move_tail
    push rcx
    push rdx
    mov rax, [r9 + RB_PAGE]
    lea r10, [rax + RB_PAGE_HEADER]
    cmp r10, [r9 + RB_END]
    je .Lfirst

    # What is left of this page becomes padding, so that nothing fits behind a dropped record.
    mov r10, [r9 + RB_TAIL]
    mov rax, [r9 + RB_END]
    sub rax, r10
    je .Lpadded
    cmp eax, RB_EVNT_HDR_SIZE
    je .Lnull
    sub [r9 + RB_BALANCE], rax
    mov rdx, [r9 + RB_PAGE]
    mov [rdx + RB_PAGE_PADDING], eax
    sub eax, RB_EVNT_HDR_SIZE
    mov dword ptr [r10], (1 << 5) | RINGBUF_TYPE_PADDING
    mov [r10 + 4], eax
    mov rax, [r9 + RB_END]
    mov [r9 + RB_TAIL], rax
    jmp .Lpadded
.Lnull:                                     # no room for a length, and not part of the data
    mov dword ptr [r10], RINGBUF_TYPE_PADDING
.Lpadded:

    mov r11, [r9 + RB_TABLE]
    mov rdx, [r9 + RB_INDEX]
    lea rcx, [rdx + RB_DESC_BYTES]
    cmp rcx, [r9 + RB_PAGES_BYTES]
    jne 1f
    xor ecx, ecx
1:  mov rax, [r11 + rdx]
    cmp rax, [r9 + RB_PAGE]
    jne .Lleave                             # the reader has taken the page
    cmp rcx, [r9 + RB_HEAD]
    jne .Lroom
    cmp dword ptr [r9 + RB_OVERWRITE], 0
    jne .Loverwrite
    inc qword ptr [r9 + RB_DROPPED]
    stc
    jmp .Lout

.Loverwrite:
    mov rax, [r11 + rcx + 8]
    add [r9 + RB_OVERRUN], rax
    mov rax, [r11 + rcx]
    mov eax, [rax + RB_PAGE_COMMIT]
    sub [r9 + RB_ENTRIES_BYTES], rax
    lea rax, [rcx + RB_DESC_BYTES]
    cmp rax, [r9 + RB_PAGES_BYTES]
    jne 1f
    xor eax, eax
1:  mov [r9 + RB_HEAD], rax
.Lroom:
    RB_PAGE_ENTRIES
    mov [r11 + rdx + 8], rax
.Lleave:
    RB_PAGE_ENTRIES
    add [r9 + RB_ENTRIES], rax
    mov rax, [r9 + RB_PAGE]
    mov r10, [r9 + RB_TAIL]
    sub r10, rax
    sub r10, RB_PAGE_HEADER
    mov [rax + RB_PAGE_COMMIT], r10d
    add [r9 + RB_ENTRIES_BYTES], r10
    mov [r9 + RB_INDEX], rcx
    mov rax, [r11 + rcx]
    mov [r9 + RB_PAGE], rax
    TRACE_CLOCK                             # Linux reads it again too, which a counter shows
    mov [r9 + RB_STAMP], r8
    mov rax, [r9 + RB_PAGE]
    lea r10, [rax + RB_PAGE_HEADER]
.Lfirst:
    mov r8, [r9 + RB_STAMP]
    mov [rax], r8
    xor r8d, r8d
    mov [rax + RB_PAGE_PADDING], r8d
    lea rax, [rax + RB_PAGE_BYTES]
    mov [r9 + RB_END], rax
    mov [r9 + RB_BALANCE], r8               # leaves the carry of the xor: clear
.Lout:
    pop rdx
    pop rcx
    ret
ENDFUNC rb_move_tail

# A record of any length. In: r9 buffer, edx bytes of payload (at least 1, at most 4072).
# Out: r10 four bytes before the payload, so that RB_COMMON and the fields' offsets are the same for
# every record, and rdx the bytes that belong to it; or carry set: dropped. Uses rax r8 r11.
FUNC_NOTRACE ring_buffer_lock_reserve
    push rcx
    TRACE_CLOCK
    lea ecx, [rdx + 3]
    and ecx, 0xfffffffc                     # the payload in whole words
    lea eax, [rcx + RB_EVNT_HDR_SIZE]
    cmp ecx, RB_MAX_SMALL_DATA
    jbe 1f
    add eax, 4                              # and its length in a word of its own
1:  mov edx, eax
    mov r11, [r9 + RB_STAMP]
    mov [r9 + RB_STAMP], r8
    sub r8, r11
    mov r10, [r9 + RB_TAIL]
    lea r11, [r10 + rdx]
    mov rax, [r9 + RB_END]
    sub rax, r11
    or rax, r8
    shr rax, TS_SHIFT
    je .Lreserved
    mov eax, edx
    call rb_reserve_rare
    jb .Lout
.Lreserved:
    mov [r9 + RB_TAIL], r11
    mov eax, RB_USUAL_BYTES
    sub rax, rdx
    add [r9 + RB_BALANCE], rax
    mov edx, ecx
    shl r8d, 5
    cmp ecx, RB_MAX_SMALL_DATA
    ja .Llong
    shr ecx, 2
    or r8d, ecx
    mov [r10], r8d
    clc
.Lout:
    pop rcx
    ret
.Llong:
    mov [r10], r8d                          # type_len 0
    add ecx, 4
    mov [r10 + 4], ecx
    add r10, 4
    clc
    pop rcx
    ret
ENDFUNC ring_buffer_lock_reserve

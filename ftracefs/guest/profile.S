# The function profiler (kernel/trace/ftrace.c): how often a function was called, and how long it took.
#
# What function graph tracing calls instead of making records: profile_graph_entry when a function is
# entered, profile_graph_return when it returns. Each CPU has a table of its own, with a record for
# each function that was called on it; records lie in pages and are never taken out.

GOLDEN_RATIO_64 = 0x61c8864680b583eb

# ftrace_find_profiled_func: r10 = the record of \ip, or goes to \none; rax its place in the table.
.macro FIND_PROFILED_FUNC ip, none
    movabs rax, GOLDEN_RATIO_64             # hash_long
    imul rax, \ip
    shr rax, 64 - FTRACE_PROFILE_HASH_BITS
    shl rax, 3
    add rax, [r9 + PROFILE_STAT_HASH]
    mov r10, [rax]
1:  test r10, r10
    je \none
    cmp [r10 + PROFILE_IP], \ip
    je 2f
    mov r10, [r10 + PROFILE_NEXT]
    jmp 1b
2:
.endm

# \to (64 bits; \to32 its low half) = where the subtime of the frame at \frame is kept.
.macro FRAME_SUBTIME to, to32, frame, frame32
    mov \to32, \frame32
    and \to32, FGT_ALIGN - 1
    sub \to32, FGT_BYTES
    shr \to32, 2                            # a word for each frame
    add \to, FGT_SUBTIME
    mov r11, \frame
    and r11, -FGT_ALIGN
    add \to, r11
.endm

# rdi the function's call site, rdx its frame, r9 this CPU's ftrace_profile_stat. Returns 1.
FUNC_NOTRACE profile_graph_entry
    cmp dword ptr [rip + ftrace_profile_enabled], 0
    je .Lsubtime
    FIND_PROFILED_FUNC rdi, .Lalloc
.Lfound:
    inc qword ptr [r10 + PROFILE_COUNTER]
.Lsubtime:
    FRAME_SUBTIME rax, eax, rdx, edx
    mov qword ptr [rax], 0
    mov eax, 1
    ret

    # ftrace_profile_alloc and ftrace_add_profile
.Lalloc:
    mov r10, [r9 + PROFILE_STAT_PAGES]
    mov r11, [r10 + PROFILE_PAGE_INDEX]
    cmp r11, PROFILES_PER_PAGE
    jne 1f
    mov r10, [r10 + PROFILE_PAGE_NEXT]
    test r10, r10
    je .Lsubtime
    mov [r9 + PROFILE_STAT_PAGES], r10
    mov r11, [r10 + PROFILE_PAGE_INDEX]
1:  inc qword ptr [r10 + PROFILE_PAGE_INDEX]
    lea r11, [r11 + r11*2]
    shl r11, 4
    lea r10, [r10 + r11 + PROFILE_PAGE_RECORDS]
    mov [r10 + PROFILE_IP], rdi
    mov r11, [rax]
    mov [r10 + PROFILE_NEXT], r11
    mov [r10 + PROFILE_PPREV], rax
    mov [rax], r10
    test r11, r11
    je .Lfound
    mov [r11 + PROFILE_PPREV], r10          # the link that leads to it is this record's first word
    jmp .Lfound
ENDFUNC profile_graph_entry

# rsi the frame, taken off already, r9 this CPU's ftrace_profile_stat.
FUNC_NOTRACE profile_graph_return
    cmp dword ptr [rip + ftrace_profile_enabled], 0
    je .Lout
    mov rax, [rsi + FG_CALLTIME]
    test rax, rax
    je .Lout
    mov r8, [rsi + FG_RETP]                 # the return time
    sub r8, rax
    cmp dword ptr [rip + fgraph_graph_time], 0
    je .Lself
.Ladd:
    mov rcx, [rsi + FG_FUNC]
    FIND_PROFILED_FUNC rcx, .Lout
    add [r10 + PROFILE_TIME], r8
    imul r8, r8
    add [r10 + PROFILE_TIME_SQUARED], r8
.Lout:
    ret

    # Without graph-time a call's time is the caller's subtime, and its own what is left of it.
.Lself:
    FRAME_SUBTIME rax, eax, rsi, esi
    mov ecx, esi
    and ecx, FGT_ALIGN - 1
    cmp ecx, FGT_BYTES
    je 1f                                   # nobody called it who is profiled
    add [rax - 8], r8
1:  mov rcx, [rax]
    cmp rcx, r8
    jae 2f
    sub r8, rcx
    jmp .Ladd
2:  xor r8d, r8d
    jmp .Ladd
ENDFUNC profile_graph_return

.data
.balign 8
OBJECT ftrace_profile_enabled
    .long 0
ENDOBJECT ftrace_profile_enabled
OBJECT fgraph_graph_time
    .long 1
ENDOBJECT fgraph_graph_time

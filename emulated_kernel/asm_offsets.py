"""The numbers that guest code and Python agree on, as arch/x86/kernel/asm-offsets.c gives them.

One table, passed to every assembly as `constants` and read by whoever looks into guest memory
from outside. Offsets of a structure are `PREFIX_FIELD`, its size `PREFIX_SIZE`; per-CPU words are
offsets from the gs base and carry no prefix.
"""

from __future__ import annotations

from collections.abc import Mapping

CONSTANTS: dict[str, int] = {}


def _define(**values: int) -> None:
    for name, value in values.items():
        if name in CONSTANTS:
            raise ValueError(f"{name} is defined twice")
        CONSTANTS[name] = value


def _layout(
    prefix: str, fields: Mapping[str, int], *, start: int = 0, size: int | None = None
) -> None:
    """Give each field (name -> bytes) its naturally aligned offset."""
    offset = start
    for field, width in fields.items():
        alignment = min(width, 8)
        offset = -(-offset // alignment) * alignment
        _define(**{f"{prefix}{field}": offset})
        offset += width
    if size is not None:
        if offset > size:
            raise ValueError(f"{prefix} takes {offset} bytes of {size}")
        _define(**{f"{prefix}SIZE": size})


# --- where things are (virtual addresses), as arch/x86/include/asm/page_64_types.h has them -------

TEXT_BASE = 0xFFFFFFFF81000000
DATA_BASE = 0xFFFFFFFF82000000
MODULES_VADDR = 0xFFFFFFFFC0000000  # engine code, trampolines and module text, within rel32 reach
MODULES_DATA = 0xFFFFFFFFC1000000
PAGE_OFFSET = 0xFFFF888000000000  # direct map of all of RAM
_define(PAGE_BYTES=4096, STACK_BYTES=16384)
CONSTANTS["PAGE_OFFSET"] = PAGE_OFFSET

# --- per-CPU words (gs:) --------------------------------------------------------------------------

_layout(
    "",
    {
        "CURRENT_TASK": 8,
        "CPU_NUMBER": 4,
        "NEED_RESCHED": 4,
        # pid << 32 | preempt depth << 24 | flags << 16: the common fields of every trace record
        "TRACE_CTX": 8,
        "IRQ_DEPTH": 4,  # hard interrupts nested on this CPU
        "SOFTIRQ_DEPTH": 4,
        "SOFTIRQ_PENDING": 4,
        "CPU_ONLINE": 4,
        "HARDIRQ_STACK": 8,  # top of the interrupt stack
        "PERCPU_SELF": 8,  # where these words are: the gs base itself, where that is the engine's
        "WAKE_LIST": 8,  # tasks another CPU or the host asked this one to wake (task.WAKE_NEXT)
        "HOST_WAKE": 8,  # a task that the host wants to run here
        "HOST_ARG": 8,  # a word the host leaves for an interrupt handler
        # sched_clock = ((rdtsc * CLOCK_MULT) >> 32) + (*CLOCK_PTR += CLOCK_STEP) + CLOCK_OFFSET
        "CLOCK_MULT": 8,
        "CLOCK_STEP": 8,
        "CLOCK_PTR": 8,
        "CLOCK_OFFSET": 8,
        "TICKS": 8,
        "IRQ_COUNT": 8,
        # contexts of this CPU that are inside a guarded callback: bits 0-3, the list function 8-11
        "TRACE_RECURSION": 4,
        "GRAPH_BUFFER": 8,  # where this CPU's calls and returns are recorded
        "NO_BUFFER": 8,  # the RB_GUARD of a buffer that is none
        # Of a kernel that keeps its own current: the task that CURRENT_TASK mirrors, and by what it
        # is known; the kernel's words about its context, what TRACE_CTX was by them, and the
        # function to be called when something of it is no longer so.
        "MIRRORED_TASK": 8,
        "MIRRORED_CANARY": 8,
        "CONTEXT_WORDS": 8,
        "CONTEXT_CTX": 8,
        "CONTEXT_CHANGED": 8,
        "OPEN_RECORDS": 4,  # of such a kernel's events: reserved, and its probe still writes them
    },
)
_define(
    IRQ_FLAGS=CONSTANTS["TRACE_CTX"] + 2,
    PREEMPT_DEPTH=CONSTANTS["TRACE_CTX"] + 3,
    CURRENT_PID=CONSTANTS["TRACE_CTX"] + 4,
    PERCPU_BYTES=4096,
)
_layout(
    "RQ_",
    {
        "LOCK": 4,
        "NR_RUNNING": 4,
        "CURR": 8,
        "IDLE": 8,
        "CLOCK": 8,
        "HEAD": 8,  # runnable tasks in order of vruntime: list_head
        "TAIL": 8,
        "NR_SWITCHES": 8,
        "MIN_VRUNTIME": 8,
        "PREV_MM": 8,
    },
    start=0x200,
)
# Per-CPU room of the subsystems; each defines its own words there.
_define(PERCPU_NET=0x300, PERCPU_MM=0x400, PERCPU_FS=0x500, PERCPU_TIME=0x600, PERCPU_MISC=0x700)

# common_flags of a record (include/linux/trace_events.h)
_define(
    TRACE_FLAG_IRQS_OFF=0x01,
    TRACE_FLAG_NEED_RESCHED=0x04,
    TRACE_FLAG_HARDIRQ=0x08,
    TRACE_FLAG_SOFTIRQ=0x10,
    TRACE_FLAG_PREEMPT_RESCHED=0x20,
    TRACE_FLAG_BH_OFF=0x80,
)

# --- task_struct ----------------------------------------------------------------------------------

_layout(
    "TASK_",
    {
        "STATE": 4,
        "FLAGS": 4,
        "PID": 4,
        "TGID": 4,
        "CPU": 4,
        "ON_RQ": 4,
        "PRIO": 4,
        "EXIT_STATE": 4,
        "EXIT_CODE": 4,
        "SIGPENDING": 4,  # TIF_SIGPENDING
        "SP": 8,  # saved stack pointer (thread.sp)
        "STACK": 8,  # lowest address of the kernel stack
        "TRACE_BITS": 4,  # flags and preempt depth of TRACE_CTX while switched out
        "USAGE": 4,
        "RQ_NEXT": 8,  # list_head on the run queue
        "RQ_PREV": 8,
        "WAKE_NEXT": 8,
        "ALL_NEXT": 8,  # list_head of all tasks, init_task is its head
        "ALL_PREV": 8,
        "PARENT": 8,
        "CHILDREN": 8,  # list_head of the children's SIBLING
        "CHILDREN_PREV": 8,
        "SIBLING": 8,
        "SIBLING_PREV": 8,
        "VRUNTIME": 8,
        "EXEC_START": 8,
        "SUM_EXEC": 8,
        "NVCSW": 8,
        "NIVCSW": 8,
        "START_TIME": 8,
        "MM": 8,
        "ACTIVE_MM": 8,
        "FILES": 8,
        "FS": 8,
        "SIGNAL": 8,
        "SIGHAND": 8,
        "SIGSET": 8,  # pending signals, one bit each
        "BLOCKED": 8,
        "CRED": 8,
        "RET_TOP": 8,  # shadow stack of the function graph tracer
        "RET_END": 8,
        "RET_BASE": 8,
        "WAIT_CHLDEXIT": 8,  # wait queue head: first waiter
        "RETVAL": 8,  # what the last system call returned, for the host
        "COMM": 16,
        "WAIT_ENTRY": 32,
        "FORK_FN": 8,  # kernel thread: function and its argument
        "FORK_ARG": 8,
        "SYSCALL_NR": 8,
        "PRIVATE": 8,
        "RCU_NESTING": 4,  # rcu_read_lock_nesting
        "PI_LOCK": 4,  # held by whoever wakes the task
        "WAKE_CPU": 4,  # one more than the CPU the host wants it to be woken on, or 0
    },
    size=512,
)
_define(
    TASK_RUNNING=0,
    TASK_INTERRUPTIBLE=1,
    TASK_UNINTERRUPTIBLE=2,
    TASK_DEAD=0x80,
    TASK_IDLE=0x402,  # uninterruptible, and not counted as load
    EXIT_DEAD=0x10,
    EXIT_ZOMBIE=0x20,
    PF_EXITING=0x4,
    PF_KTHREAD=0x200000,
    PF_IDLE=0x2,
)

# --- pt_regs (arch/x86/include/uapi/asm/ptrace-abi.h); FRAME_BYTES is SIZEOF_PTREGS ---------------

_define(
    PT_R15=0,
    PT_R14=8,
    PT_R13=16,
    PT_R12=24,
    PT_RBP=32,
    PT_RBX=40,
    PT_R11=48,
    PT_R10=56,
    PT_R9=64,
    PT_R8=72,
    PT_RAX=80,
    PT_RCX=88,
    PT_RDX=96,
    PT_RSI=104,
    PT_RDI=112,
    PT_ORIG_RAX=120,
    PT_RIP=128,
    PT_CS=136,
    PT_EFLAGS=144,
    PT_RSP=152,
    PT_SS=160,
    FRAME_BYTES=168,
    KERNEL_CS=0x10,
    KERNEL_DS=0x18,
)

# --- host protocol --------------------------------------------------------------------------------

HYPERCALL_VECTOR = 0xF0
_define(
    HYPERCALL=HYPERCALL_VECTOR,
    HC_PRINTK=1,
    HC_PANIC=2,
    HC_CALLBACK=3,
    HC_SNAPSHOT=4,
    HC_PROBE=5,
    HC_DUMP=6,
    HC_UPDATE_MAX_TR=7,
    HC_WAKEUP_MAX=8,
)
# The tracers of sections with interrupts or preemption off (kernel/trace/trace_irqsoff.c): which
# they measure, and what they keep, 64 bytes for each of at most 8 CPUs.
_define(TRACER_IRQS_OFF=2, TRACER_PREEMPT_OFF=4, IRQSOFF_CPUS_BYTES=8 * 64)
# What HC_UPDATE_MAX_TR tells of a section with interrupts or preemption off, behind rdi.
_layout("IRQSOFF_MAX_", {"LATENCY": 8, "START": 8, "END": 8, "TIMESTAMP": 8}, size=32)
# What HC_SNAPSHOT is asked and answers, in the word at rsi.
_define(SNAPSHOT_TAKE=0, SNAPSHOT_STOP=1)
_define(SNAPSHOT_DONE=0, SNAPSHOT_NOT_ALLOCATED=1, SNAPSHOT_LATENCY_TRACER=2)

# --- the ftrace engine's structures (ftracefs/guest) ----------------------------------------------

_layout(
    "OP_",
    {
        "FUNC": 8,
        "FLAGS": 8,
        "FILTER_TABLE": 8,
        "FILTER_MASK": 8,
        "NOTRACE_TABLE": 8,
        "NOTRACE_MASK": 8,
        "PRIVATE": 8,
        "NEXT": 8,  # the op registered before it, or ftrace_list_end
        "DIRECT_CALL": 8,  # where call_direct_funcs sends its functions' calls
        "LIST_FUNC": 8,  # what the list function calls: FUNC, or what stands in front of it
        "FUNC_REPEATS": 8,  # struct trace_func_repeats of each CPU, with the option func-no-repeats
        "PROBE_FUNC": 8,  # of a struct ftrace_func_probe, whose op this is: what a call does
        "PROBE_DATA": 8,  # and the counts of its functions (struct ftrace_func_mapper), or 0
        "TRACE_ARRAY": 8,  # the struct trace_array it traces for, or 0
        "SAVED_FUNC": 8,  # what ftrace_pid_func calls
        # How far each CPU's buffer is from its own words, if the list function writes there for the
        # callback; else NO_BUFFER.
        "LIST_BUFFER": 8,
    },
    size=128,
)
_layout(
    "RB_",
    {
        "GUARD": 4,
        "OVERWRITE": 4,
        "TAIL": 8,
        "END": 8,
        "STAMP": 8,
        "BALANCE": 8,  # of the current page: RB_USUAL_BYTES for each record, less its bytes of data
        "CLOCK_MULT": 8,
        "CLOCK_STEP": 8,
        "CLOCK_PTR": 8,
        "CLOCK_OFFSET": 8,
        "PAGE": 8,
        "TABLE": 8,
        "INDEX": 8,
        "PAGES_BYTES": 8,
        "HEAD": 8,
        "OVERRUN": 8,
        "DROPPED": 8,
        "ENTRIES": 8,  # records on the pages that were left
        "ENTRIES_BYTES": 8,  # of the pages that were left and not overwritten
        "STACKTRACE": 4,  # which stack traces follow an event, RB_STACKTRACE_ bits
    },
    size=4096,
)
_define(
    RB_SHIFT=12,  # RB_SIZE as a power of two
    RB_CPUS=0x800,  # behind the first CPU's words: where each CPU's are
    OPS_WORDS=0x6B5A7C00,  # of a buffer that a template does not know yet; the last byte is free
    RB_PAGE_COMMIT=8,  # 4 bytes, as the next one, which keeps what Linux has in real_end
    RB_PAGE_PADDING=12,
    RB_PAGE_HEADER=16,
    RB_USUAL_BYTES=28,  # a call's record
    RB_DESC_BYTES=16,
    # Bits of RB_GUARD. The low byte stops every record, the rest the function tracers only.
    RB_GUARD_OFF=0x1,
    RB_GUARD_DISABLED=0x2,
    RB_GUARD_CPU_DISABLED=0x4,
    RB_GUARD_CLOCK=0x100,  # stops nothing: the clock is more than a scaled time stamp counter
    RB_GUARD_GRAPH=0x200,  # stops nothing: the function graph tracer has filters or limits to ask
    RB_GUARD_FUNCTION=0x400,  # the function tracer is gone, though its call sites could not be
    RB_GUARD_FGRAPH_OPS=0x8000,  # no buffer: the functions of a struct fgraph_ops are called
    RB_STACKTRACE_KERNEL=1,
    RB_STACKTRACE_USER=2,
)
_layout("REPEATS_", {"IP": 8, "PARENT_IP": 8, "COUNT": 8, "TS_LAST_CALL": 8}, size=32)
_layout("MAPPER_", {"TABLE": 8, "MASK": 8, "COUNTS": 8}, size=24)
_layout("EVENT_PROBE_", {"FILE": 8, "COUNT": 8, "ENABLE": 4}, size=24)
# The shadow stack of a task, from task.RET_BASE to RET_END, and the words in front of it, which
# begin at a multiple of FGT_ALIGN: a frame's address tells its depth and where the words are.
_layout("FG_", {"RET": 8, "FUNC": 8, "CALLTIME": 8, "RETP": 8}, size=32)
_layout(
    "FGT_",
    {
        "FLAGS": 4,  # FGT_IN_*: what the functions that have not returned yet mean for others
        "DEPTH": 4,  # of the function from set_graph_function that is being traced
        "OVERRUN": 4,  # calls not traced for want of room (trace_overrun)
        "PAUSE": 4,  # not zero: trace nothing in this task (tracing_graph_pause)
        "TIMESTAMP": 8,  # when the task was switched out (ftrace_timestamp)
        "OWNER": 8,  # the task
    },
    start=-32,
)
_define(
    FTRACE_RETFUNC_DEPTH=50,
    FGT_BYTES=32,
    FGT_SUBTIME=32 + 50 * 32,  # behind the frames: a word for each (subtime, of the profiler)
    FGT_ALIGN=2048,
    FGT_IN_GRAPH=0x1,
    FGT_IN_NOTRACE=0x2,
    FGT_IN_IRQ=0x4,
)

# The function profiler (kernel/trace/ftrace.c): what a CPU counts, a page of records, a record.
_layout(
    "PROFILE_STAT_",
    {
        "GUARD": 4,  # in the place of RB_GUARD, always RB_GUARD_FGRAPH_OPS
        "HASH": 8,
        "PAGES": 8,  # the page that is being filled
        "START": 8,
    },
    size=64,
)
_layout("PROFILE_PAGE_", {"NEXT": 8, "INDEX": 8, "RECORDS": 8})
_layout(
    "PROFILE_",
    {"NEXT": 8, "PPREV": 8, "IP": 8, "COUNTER": 8, "TIME": 8, "TIME_SQUARED": 8},
    size=48,
)
_define(
    PROFILES_PER_PAGE=(4096 - CONSTANTS["PROFILE_PAGE_RECORDS"]) // CONSTANTS["PROFILE_SIZE"],
    FTRACE_PROFILE_HASH_BITS=10,
)
# The stack tracer (kernel/trace/trace_stack.c).
_define(STACK_TRACE_ENTRIES=500)

# --- tracepoints (include/linux/tracepoint-defs.h) and what is hung into them --------------------

# static_key.enabled stands first; FUNCS is an array of tracepoint_func that ends with a null one.
_layout("TP_", {"KEY": 8, "FUNCS": 8}, size=16)
_layout("TPF_", {"FUNC": 8, "DATA": 8, "PRIO": 8}, size=24)
# What a CPU's tasks are called (ftracefs/guest/sched_switch.S).
_define(TASKINFO_FIRST=64, TASKINFO_ENTRIES=64, TASKINFO_BYTES=24, TASKINFO_RING_BYTES=64 + 64 * 24)
# As much of a linux_binprm and an irqaction as events are about.
_define(BPRM_FILENAME=8, IRQACTION_NAME=32)
# As much of a trace_array and a trace_event_file as guest code needs.
_layout(
    "TR_",
    {
        "BUFFERS": 8,  # u64[nr_cpus]: the ring buffer of each CPU
        "FILTERED_PIDS": 8,
        "FILTERED_NO_PIDS": 8,
        "IGNORE_PID": 8,  # a byte for each CPU: the task there is not to be traced
        "FUNCTION_PIDS": 8,
        "FUNCTION_NO_PIDS": 8,
        "FTRACE_IGNORE_PID": 32,  # u32[nr_cpus]: the pid traced there, or FTRACE_PID_*
        "MAX_LATENCY": 8,  # nanoseconds: the worst that a latency tracer has seen
    },
    size=128,
)
_define(FTRACE_PID_IGNORE=0xFFFFFFFF, FTRACE_PID_TRACE=0xFFFFFFFE)
# A set of pids (kernel/trace/pid_list.h): two levels of pointers above bitmaps.
_define(
    PID_UPPER1_SHIFT=22,
    PID_UPPER2_SHIFT=14,
    PID_UPPER_MASK=0xFF,
    PID_LOWER_MASK=0x3FFF,
    PID_CHUNK_BYTES=2048,  # either level's; one that is free holds the next free one's address
    PID_LIMIT=1 << 30,  # MAX_PID
)
_layout(
    "PIDS_",
    {
        "UPPER": 2048,
        "UPPER_LIST": 8,
        "LOWER_LIST": 8,
        "FREE_UPPER_CHUNKS": 4,
        "FREE_LOWER_CHUNKS": 4,
    },
    size=2072,
)
# LINUX: a booted Linux's own struct trace_event_file, as much of it as its code looks at.
_layout("EVENT_FILE_", {"FLAGS": 4, "TYPE": 4, "TR": 8, "LINUX": 128}, size=192)
_define(
    EVENT_FILE_FL_ENABLED=0x1,
    EVENT_FILE_FL_RECORDED_CMD=0x2,
    EVENT_FILE_FL_RECORDED_TGID=0x4,
    EVENT_FILE_FL_SOFT_MODE=0x20,
    EVENT_FILE_FL_SOFT_DISABLED=0x40,
    EVENT_FILE_FL_PID_FILTER=0x200,
    EVENT_FILE_FL_WAS_ENABLED=0x400,
)

# --- system calls (arch/x86/entry/syscalls/syscall_64.tbl) ----------------------------------------

SYSCALLS = {
    "read": 0,
    "write": 1,
    "open": 2,
    "close": 3,
    "newstat": 4,
    "newfstat": 5,
    "newlstat": 6,
    "poll": 7,
    "lseek": 8,
    "mmap": 9,
    "mprotect": 10,
    "munmap": 11,
    "brk": 12,
    "ioctl": 16,
    "pread64": 17,
    "pwrite64": 18,
    "pipe": 22,
    "dup": 32,
    "dup2": 33,
    "nanosleep": 35,
    "getpid": 39,
    "socket": 41,
    "connect": 42,
    "accept": 43,
    "sendto": 44,
    "recvfrom": 45,
    "shutdown": 48,
    "bind": 49,
    "listen": 50,
    "getsockname": 51,
    "clone": 56,
    "fork": 57,
    "execve": 59,
    "exit": 60,
    "wait4": 61,
    "kill": 62,
    "uname": 63,
    "fsync": 74,
    "truncate": 76,
    "ftruncate": 77,
    "getdents": 78,
    "getcwd": 79,
    "chdir": 80,
    "rename": 82,
    "mkdir": 83,
    "rmdir": 84,
    "creat": 85,
    "unlink": 87,
    "symlink": 88,
    "readlink": 89,
    "gettimeofday": 96,
    "getppid": 110,
    "sync": 162,
    "gettid": 186,
    "time": 201,
    "getdents64": 217,
    "clock_gettime": 228,
    "exit_group": 231,
    "openat": 257,
    "newfstatat": 262,
    "accept4": 288,
    "pipe2": 293,
    "statx": 332,
}
_define(**{f"NR_{name}": number for name, number in SYSCALLS.items()}, NR_SYSCALLS=450)

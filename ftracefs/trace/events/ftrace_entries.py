"""The records of the tracers themselves (kernel/trace/trace_entries.h), the system `ftrace`.

No one can switch them: a tracer, a marker or an option writes them. Clients read their formats.
"""

from __future__ import annotations

from ftracefs.trace.events.call import TraceEventCall
from ftracefs.trace.events.fields import Declaration, array, field

FTRACE_STACK_ENTRIES = 8
TRACE_FUNC_SIZE, TRACE_FILE_SIZE = 30, 20

_FUNCTION = (field("unsigned long", "ip"), field("unsigned long", "parent_ip"))
_GRAPH = (field("unsigned long", "func"), field("int", "depth"))
_STACK = array("unsigned long", "caller", FTRACE_STACK_ENTRIES)
_CTX_SWITCH = (
    field("unsigned int", "prev_pid"),
    field("unsigned int", "next_pid"),
    field("unsigned int", "next_cpu"),
    field("unsigned char", "prev_prio"),
    field("unsigned char", "prev_state"),
    field("unsigned char", "next_prio"),
    field("unsigned char", "next_state"),
)
_CTX_SWITCH_ARGUMENTS = (
    " REC->prev_pid, REC->prev_prio, REC->prev_state,"
    " REC->next_pid, REC->next_prio, REC->next_state, REC->next_cpu"
)
_STACK_FMT = " ".join(
    (
        r'"\t=> %ps\n\t=> %ps\n\t=> %ps\n"',
        r'"\t=> %ps\n\t=> %ps\n\t=> %ps\n"',
        r'"\t=> %ps\n\t=> %ps\n",',
        ", ".join(f"(void *)REC->caller[{i}]" for i in range(FTRACE_STACK_ENTRIES)),
    )
)


def _event(name: str, id_: int, fields: tuple[Declaration, ...], fmt: str) -> TraceEventCall:
    # Linux gives an id file to those that perf or a trigger can use.
    return TraceEventCall("ftrace", name, id_, fields, fmt, has_id=name in {"function", "print"})


FTRACE_EVENTS = (
    _event("function", 1, _FUNCTION, '" %ps <-- %ps", (void *)REC->ip, (void *)REC->parent_ip'),
    _event(
        "context_switch", 2, _CTX_SWITCH, f'"%u:%u:%u  ==> %u:%u:%u [%03u]",{_CTX_SWITCH_ARGUMENTS}'
    ),
    _event("wakeup", 3, _CTX_SWITCH, f'"%u:%u:%u  ==+ %u:%u:%u [%03u]",{_CTX_SWITCH_ARGUMENTS}'),
    _event("kernel_stack", 4, (field("int", "size"), _STACK), _STACK_FMT),
    _event(
        "print",
        5,
        (field("unsigned long", "ip"), array("char", "buf", 0)),
        '"%ps: %s", (void *)REC->ip, REC->buf',
    ),
    _event(
        "bprint",
        6,
        (field("unsigned long", "ip"), field("const char *", "fmt"), array("u32", "buf", 0)),
        '"%ps: %s", (void *)REC->ip, REC->fmt',
    ),
    _event(
        "mmiotrace_rw",
        7,
        (
            field("resource_size_t", "phys"),
            field("unsigned long", "value"),
            field("unsigned long", "pc"),
            field("int", "map_id"),
            field("unsigned char", "opcode"),
            field("unsigned char", "width"),
        ),
        '"%lx %lx %lx %d %x %x", (unsigned long)REC->phys, REC->value, REC->pc,'
        " REC->map_id, REC->opcode, REC->width",
    ),
    _event(
        "mmiotrace_map",
        8,
        (
            field("resource_size_t", "phys"),
            field("unsigned long", "virt"),
            field("unsigned long", "len"),
            field("int", "map_id"),
            field("unsigned char", "opcode"),
        ),
        '"%lx %lx %lx %d %x", (unsigned long)REC->phys, REC->virt, REC->len,'
        " REC->map_id, REC->opcode",
    ),
    _event(
        "branch",
        9,
        (
            field("unsigned int", "line"),
            array("char", "func", TRACE_FUNC_SIZE + 1),
            array("char", "file", TRACE_FILE_SIZE + 1),
            field("char", "correct"),
            field("char", "constant"),
        ),
        '"%u:%s:%s (%u)%s", REC->line, REC->func, REC->file, REC->correct,'
        ' REC->constant ? " CONSTANT" : ""',
    ),
    _event(
        "funcgraph_exit",
        10,
        (
            *_GRAPH,
            field("unsigned int", "overrun"),
            field("unsigned long long", "calltime"),
            field("unsigned long long", "rettime"),
        ),
        '"<-- %ps (%d) (start: %llx  end: %llx) over: %d", (void *)REC->func, REC->depth,'
        " REC->calltime, REC->rettime, REC->depth",
    ),
    _event("funcgraph_entry", 11, _GRAPH, '"--> %ps (%d)", (void *)REC->func, REC->depth'),
    _event("user_stack", 12, (field("unsigned int", "tgid"), _STACK), _STACK_FMT),
    _event(
        "bputs",
        14,
        (field("unsigned long", "ip"), field("const char *", "str")),
        '"%ps: %s", (void *)REC->ip, REC->str',
    ),
    _event(
        "hwlat",
        15,
        (
            field("u64", "duration"),
            field("u64", "outer_duration"),
            field("u64", "nmi_total_ts"),
            field("s64", "tv_sec"),
            field("long", "tv_nsec"),
            field("unsigned int", "nmi_count"),
            field("unsigned int", "seqnum"),
            field("unsigned int", "count"),
        ),
        r'"cnt:%u\tts:%010llu.%010lu\tinner:%llu\touter:%llu\tcount:%d\tnmi-ts:%llu'
        r'\tnmi-count:%u\n", REC->seqnum, REC->tv_sec, REC->tv_nsec, REC->duration,'
        " REC->outer_duration, REC->count, REC->nmi_total_ts, REC->nmi_count",
    ),
    _event(
        "osnoise",
        16,
        (
            field("u64", "noise"),
            field("u64", "runtime"),
            field("u64", "max_sample"),
            field("unsigned int", "hw_count"),
            field("unsigned int", "nmi_count"),
            field("unsigned int", "irq_count"),
            field("unsigned int", "softirq_count"),
            field("unsigned int", "thread_count"),
        ),
        r'"noise:%llu\tmax_sample:%llu\thw:%u\tnmi:%u\tirq:%u\tsoftirq:%u\tthread:%u\n",'
        " REC->noise, REC->max_sample, REC->hw_count, REC->nmi_count, REC->irq_count,"
        " REC->softirq_count, REC->thread_count",
    ),
    _event(
        "timerlat",
        17,
        (field("unsigned int", "seqnum"), field("int", "context"), field("u64", "timer_latency")),
        r'"seq:%u\tcontext:%d\ttimer_latency:%llu\n",'
        " REC->seqnum, REC->context, REC->timer_latency",
    ),
    _event(
        "raw_data",
        18,
        (field("unsigned int", "id"), array("char", "buf", 0)),
        '"id:%04x %08x", REC->id, (int)REC->buf[0]',
    ),
    _event(
        "func_repeats",
        19,
        (
            *_FUNCTION,
            field("u16", "count"),
            field("u16", "top_delta_ts"),
            field("u32", "bottom_delta_ts"),
        ),
        r'" %ps <-%ps\t(repeats:%u  delta: -%llu)", (void *)REC->ip, (void *)REC->parent_ip,'
        " REC->count, (((u64)(REC)->top_delta_ts << 32) | (REC)->bottom_delta_ts)",
    ),
)

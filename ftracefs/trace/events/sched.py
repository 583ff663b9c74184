"""The scheduler's events (include/trace/events/sched.h), with the ids of Debian's 6.1 kernels.

The probes are in guest/sched_events.S, which knows the same layouts.
"""

from __future__ import annotations

from ftracefs.trace.events.call import TraceEventCall
from ftracefs.trace.events.fields import Declaration, array, field, string

TASK_COMM_LEN = 16


def _comm(name: str) -> Declaration:
    return array("char", name, TASK_COMM_LEN)


# What TASK_REPORT, TASK_REPORT_IDLE and TASK_REPORT_MAX become in a print format.
_STATES = " | ".join(f"0x{bit:08x}" for bit in (0, 1, 2, 4, 8, 0x10, 0x20, 0x40))
_TASK_REPORT_MAX = f"((({_STATES}) + 1) << 1)"
_REPORTED = f"REC->prev_state & ({_TASK_REPORT_MAX} - 1)"
_NAMES = ", ".join(f'{{ 0x{1 << bit:08x}, "{name}" }}' for bit, name in enumerate("SDTtXZPI"))
_PREV_STATE = (
    f'({_REPORTED}) ? __print_flags({_REPORTED}, "|", {_NAMES}) : "R",'
    f' REC->prev_state & {_TASK_REPORT_MAX} ? "+" : ""'
)
_WAKEUP_TEMPLATE = (_comm("comm"), field("pid_t", "pid"), field("int", "prio"))
_PROCESS_TEMPLATE = _WAKEUP_TEMPLATE
_PROCESS_FMT = '"comm=%s pid=%d prio=%d", REC->comm, REC->pid, REC->prio'
_WAKEUP_FMT = (
    '"comm=%s pid=%d prio=%d target_cpu=%03d", REC->comm, REC->pid, REC->prio, REC->target_cpu'
)


def _process(name: str, id_: int, probe: str = "sched_process_template") -> TraceEventCall:
    return TraceEventCall("sched", name, id_, _PROCESS_TEMPLATE, _PROCESS_FMT, probe)


def _wakeup(name: str, id_: int) -> TraceEventCall:
    fields = (*_WAKEUP_TEMPLATE, field("int", "target_cpu"))
    return TraceEventCall("sched", name, id_, fields, _WAKEUP_FMT, "sched_wakeup_template")


SCHED_EVENTS = (
    TraceEventCall(
        "sched",
        "sched_process_exec",
        312,
        (string("filename"), field("pid_t", "pid"), field("pid_t", "old_pid")),
        '"filename=%s pid=%d old_pid=%d", __get_str(filename), REC->pid, REC->old_pid',
        "sched_process_exec",
    ),
    TraceEventCall(
        "sched",
        "sched_process_fork",
        313,
        (
            _comm("parent_comm"),
            field("pid_t", "parent_pid"),
            _comm("child_comm"),
            field("pid_t", "child_pid"),
        ),
        '"comm=%s pid=%d child_comm=%s child_pid=%d",'
        " REC->parent_comm, REC->parent_pid, REC->child_comm, REC->child_pid",
        "sched_process_fork",
    ),
    _process("sched_process_wait", 314, "sched_process_wait"),
    _process("sched_process_exit", 316),
    _process("sched_process_free", 317),
    TraceEventCall(
        "sched",
        "sched_migrate_task",
        318,
        (*_WAKEUP_TEMPLATE, field("int", "orig_cpu"), field("int", "dest_cpu")),
        '"comm=%s pid=%d prio=%d orig_cpu=%d dest_cpu=%d",'
        " REC->comm, REC->pid, REC->prio, REC->orig_cpu, REC->dest_cpu",
        "sched_migrate_task",
    ),
    TraceEventCall(
        "sched",
        "sched_switch",
        319,
        (
            _comm("prev_comm"),
            field("pid_t", "prev_pid"),
            field("int", "prev_prio"),
            field("long", "prev_state"),
            _comm("next_comm"),
            field("pid_t", "next_pid"),
            field("int", "next_prio"),
        ),
        '"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==>'
        ' next_comm=%s next_pid=%d next_prio=%d",'
        f" REC->prev_comm, REC->prev_pid, REC->prev_prio, {_PREV_STATE},"
        " REC->next_comm, REC->next_pid, REC->next_prio",
        "sched_switch",
    ),
    _wakeup("sched_wakeup_new", 320),
    _wakeup("sched_wakeup", 321),
    _wakeup("sched_waking", 322),
)

"""The events of interrupts (include/trace/events/irq.h), with the ids of Debian's 6.1 kernels."""

from __future__ import annotations

from ftracefs.trace.events.call import TraceEventCall
from ftracefs.trace.events.fields import field, string

_SOFTIRQS = (
    *("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK"),
    *("IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"),
)
_NAMES = ", ".join(f'{{ {number}, "{name}" }}' for number, name in enumerate(_SOFTIRQS))
_SOFTIRQ_FMT = f'"vec=%u [action=%s]", REC->vec, __print_symbolic(REC->vec, {_NAMES})'


def _softirq(name: str, id_: int) -> TraceEventCall:
    fields = (field("unsigned int", "vec"),)
    return TraceEventCall("irq", name, id_, fields, _SOFTIRQ_FMT, "softirq")


IRQ_EVENTS = (
    _softirq("softirq_raise", 148),
    _softirq("softirq_exit", 149),
    _softirq("softirq_entry", 150),
    TraceEventCall(
        "irq",
        "irq_handler_exit",
        151,
        (field("int", "irq"), field("int", "ret")),
        '"irq=%d ret=%s", REC->irq, REC->ret ? "handled" : "unhandled"',
        "irq_handler_exit",
    ),
    TraceEventCall(
        "irq",
        "irq_handler_entry",
        152,
        (field("int", "irq"), string("name")),
        '"irq=%d name=%s", REC->irq, __get_str(name)',
        "irq_handler_entry",
    ),
)

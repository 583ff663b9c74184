"""What stands in front of each record: task, CPU, state, time (trace_print_context).

The pieces repeat: one text for each combination of task, CPU and flags, and the times made from
tables with array operations.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from emulated_kernel.distinct import distinct
from ftracefs.ring_buffer.entries import Entries
from ftracefs.ring_buffer.pages import I64, U64
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.saved_cmdlines import find_cmdline

U8 = npt.NDArray[np.uint8]

_FLAG_IRQS_OFF = 0x01
_FLAG_IRQS_NOSUPPORT = 0x02
_FLAG_NEED_RESCHED = 0x04
_FLAG_HARDIRQ = 0x08
_FLAG_SOFTIRQ = 0x10
_FLAG_PREEMPT_RESCHED = 0x20
_FLAG_NMI = 0x40
_FLAG_BH_OFF = 0x80

_THREE_DIGITS = np.frombuffer(b"".join(b"%03d" % n for n in range(1000)), np.uint8).reshape(-1, 3)
_SECONDS_IN_TABLE = 1 << 16
_USEC_PER_SEC = np.uint64(1_000_000)

# From how many nanoseconds on the latency format marks the time to the next record.
_MARKS = (
    (1_000_000_000, "$"),
    (100_000_000, "@"),
    (10_000_000, "*"),
    (1_000_000, "#"),
    (100_000, "!"),
    (10_000, "+"),
)

_LIMITS = np.array([limit for limit, _ in reversed(_MARKS)], dtype=np.uint64)
_SIGNS = np.frombuffer((" " + "".join(sign for _, sign in reversed(_MARKS))).encode(), np.uint8)
_POWERS = np.array([10**power for power in range(20)], dtype=np.uint64)
_NARROWEST = 4  # digits, with blanks in front of a shorter number
_COLON = np.frombuffer(b": ", np.uint8)
_BLANK, _ZERO = np.frombuffer(b" 0", np.uint8)


def trace_print_lat_fmt(flags: int, preempt_count: int) -> str:
    """The five state columns: irqs, resched, context, preemption depth, migration disabled."""
    irqs_off, bh_off = flags & _FLAG_IRQS_OFF, flags & _FLAG_BH_OFF
    if irqs_off:
        irqs = "D" if bh_off else "d"
    elif bh_off:
        irqs = "b"
    else:
        irqs = "X" if flags & _FLAG_IRQS_NOSUPPORT else "."
    resched = {
        0: ".",
        _FLAG_NEED_RESCHED: "n",
        _FLAG_PREEMPT_RESCHED: "p",
        _FLAG_NEED_RESCHED | _FLAG_PREEMPT_RESCHED: "N",
    }[flags & (_FLAG_NEED_RESCHED | _FLAG_PREEMPT_RESCHED)]
    if flags & _FLAG_NMI:
        where = "Z" if flags & _FLAG_HARDIRQ else "z"
    elif flags & _FLAG_HARDIRQ:
        where = "H" if flags & _FLAG_SOFTIRQ else "h"
    else:
        where = "s" if flags & _FLAG_SOFTIRQ else "."
    preempt = f"{preempt_count & 0xF:x}" if preempt_count & 0xF else "."
    migrate = f"{preempt_count >> 4:x}" if preempt_count & 0xF0 else "."
    return irqs + resched + where + preempt + migrate


class _Tasks(dict[int, bytes]):
    """The columns up to the time, by `pid << 24 | preempt_count << 16 | flags << 8 | cpu`."""

    def __init__(self, context: OutputContext) -> None:
        super().__init__()
        self._context = context

    def __missing__(self, key: int) -> bytes:
        pid = key >> 24
        pid -= (pid & 0x80000000) << 1
        text = self[key] = self._format(pid, key & 0xFF, key >> 8 & 0xFF, key >> 16 & 0xFF).encode(
            errors="surrogateescape"
        )
        return text

    def _format(self, pid: int, cpu: int, flags: int, preempt_count: int) -> str:
        context = self._context
        text = f"{find_cmdline(context.names, pid):>16}-{pid:<7d} "
        if context.flags & TraceIter.RECORD_TGID:
            tgid = context.tgids.get(pid, 0)
            text += f"({tgid:7d}) " if tgid else "(-------) "
        text += f"[{cpu:03d}] "
        if context.flags & TraceIter.IRQ_INFO:
            text += trace_print_lat_fmt(flags, preempt_count)
        return text


class _LatencyTasks(_Tasks):
    """The same for the latency format (lat_print_generic)."""

    def _format(self, pid: int, cpu: int, flags: int, preempt_count: int) -> str:
        name = find_cmdline(self._context.names, pid)
        state = trace_print_lat_fmt(flags, preempt_count)
        return f"{name[:8]:>8}-{pid:<7d} {cpu:3d}{state}"


class _VerboseTasks(_Tasks):
    """The same for the latency format with the option verbose."""

    def _format(self, pid: int, cpu: int, flags: int, preempt_count: int) -> str:
        name = find_cmdline(self._context.names, pid)
        return f"{name:>16} {pid:7d} {cpu:3d} {flags} {preempt_count & 0xF:08x} "


def _tasks(entries: Entries, tasks: _Tasks) -> list[bytes]:
    state = entries.common >> np.uint32(16)
    pid = entries.words[entries.at + 1].astype(np.uint64)
    keys = pid << np.uint64(24) | state.astype(np.uint64) << np.uint64(8)
    keys |= entries.cpu.astype(np.uint64)
    return list(map(tasks.__getitem__, keys.tolist()))


def ns2usecs(ns: U64) -> U64:
    """Microseconds, rounded to the nearest."""
    return (ns + np.uint64(500)) // np.uint64(1000)


def trace_print_time(ts: U64, in_ns: bool) -> list[bytes]:
    """The time of each record with what stands around it: ` 1234.567890: `."""
    if len(ts) == 0:
        return []
    if not in_ns:
        return [b" %12d: " % value for value in ts.tolist()]
    usecs = ns2usecs(ts)
    seconds = usecs // _USEC_PER_SEC
    usecs -= seconds * _USEC_PER_SEC
    first, last = int(seconds.min()), int(seconds.max())
    if last - first >= _SECONDS_IN_TABLE or len(str(first)) < len(str(last)) > 5:
        both = zip(seconds.tolist(), usecs.tolist(), strict=True)
        return [b" %5d.%06d: " % pair for pair in both]
    texts = b"".join(b" %5d." % second for second in range(first, last + 1))
    table = np.frombuffer(texts, np.uint8).reshape(last + 1 - first, -1)
    width = table.shape[1]
    columns: U8 = np.empty((len(ts), width + 8), dtype=np.uint8)
    columns[:, :width] = table[(seconds - np.uint64(first)).astype(np.intp)]
    small = usecs.astype(np.intp)
    columns[:, width : width + 3] = _THREE_DIGITS[small // 1000]
    columns[:, width + 3 : width + 6] = _THREE_DIGITS[small % 1000]
    columns[:, width + 6 :] = (0x3A, 0x20)
    times: list[bytes] = columns.view(f"S{width + 8}").ravel().tolist()
    return times


def trace_print_context(
    entries: Entries, context: OutputContext
) -> tuple[list[bytes], list[bytes]]:
    """The context of each entry in two pieces, the second of them the time."""
    tasks = _tasks(entries, _Tasks(context))
    return tasks, trace_print_time(entries.ts, context.clock_in_ns)


def trace_find_mark(ns: int) -> str:
    """The sign for a time to the next record that is worth a look."""
    return next((sign for limit, sign in _MARKS if ns > limit), " ")


def trace_print_lat_context(
    entries: Entries, context: OutputContext, numbers: I64, following: U64
) -> tuple[list[bytes], list[bytes]]:
    """The context in the latency format.

    `numbers` are those of the entries in the trace, `following` the times of the next ones.
    """
    absolute = entries.ts - np.uint64(context.time_start)
    relative = following - entries.ts
    if context.flags & TraceIter.VERBOSE:
        tasks = _tasks(entries, _VerboseTasks(context))
        columns = (numbers, entries.ts, absolute, relative)
        return tasks, _verbose_times(columns, context.clock_in_ns)
    return _tasks(entries, _LatencyTasks(context)), lat_print_times(
        absolute, relative, context.clock_in_ns
    )


def lat_print_times(absolute: U64, relative: U64, in_ns: bool) -> list[bytes]:
    """lat_print_timestamp: since the buffer was emptied, with a mark where the next one is far."""
    if not in_ns:
        return _numbers(absolute, np.full((len(absolute), 2), _COLON))
    usecs = ns2usecs(relative) * np.uint64(1000)
    tail = np.empty((len(absolute), 5), dtype=np.uint8)
    tail[:, :2] = np.frombuffer(b"us", np.uint8)
    tail[:, 2] = _SIGNS[np.searchsorted(_LIMITS, usecs, "left")]
    tail[:, 3:] = _COLON
    return _numbers(ns2usecs(absolute), tail)


def _numbers(values: U64, tail: U8) -> list[bytes]:
    """` %4d` of each value, and what `tail` has behind it."""
    widths = np.maximum(np.searchsorted(_POWERS, values, "right"), _NARROWEST)
    texts = np.empty(len(values), dtype=object)
    for width in distinct(widths).tolist():
        where = np.flatnonzero(widths == width)
        of_width = values[where]
        columns: U8 = np.full((len(where), 1 + width + tail.shape[1]), _BLANK)
        for place, power in enumerate(_POWERS[width - 1 :: -1]):
            digits = (of_width // power % np.uint64(10)).astype(np.uint8) + _ZERO
            is_shown = (of_width >= power) | (power == 1)
            columns[:, 1 + place] = np.where(is_shown, digits, _BLANK)
        columns[:, 1 + width :] = tail[where]
        texts[where] = columns.view(f"S{columns.shape[1]}").ravel().astype(object)
    made: list[bytes] = texts.tolist()
    return made


def _usecs(ns: int) -> int:
    return (ns + 500) // 1000


def _verbose_times(columns: tuple[I64, U64, U64, U64], in_ns: bool) -> list[bytes]:
    rows = zip(*(column.tolist() for column in columns), strict=True)
    if not in_ns:
        return [b"%08x [%016x] %d (+%d): " % (number, *times) for number, *times in rows]
    return [
        b"%08x [%08x] %d.%03dms (+%d.%03dms): "
        % (number, _usecs(now), *divmod(_usecs(absolute), 1000), *divmod(_usecs(relative), 1000))
        for number, now, absolute, relative in rows
    ]

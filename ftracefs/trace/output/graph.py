"""Entries as the function graph tracer prints them (kernel/trace/trace_functions_graph.c).

A call whose return is the next record of its CPU is a leaf and takes one line for both records;
other calls open a brace and their returns close it. What other records say becomes a comment.

Left out: the arrows around functions of the section .irqentry.text, of which a 6.1 kernel for x86
traces none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ftracefs.ring_buffer.entries import Entries
from ftracefs.ring_buffer.pages import I64, U32, U64
from ftracefs.trace.events.table import EVENTS
from ftracefs.trace.options import TraceIter
from ftracefs.trace.output.event_output import (
    TRACE_FN,
    TRACE_GRAPH_ENT,
    TRACE_GRAPH_RET,
    TRACE_PRINT,
    TRACE_STACK,
    EventText,
    TraceEventFunctions,
    by_type,
    trace_print_msg_only,
)
from ftracefs.trace.output.graph_layout import GraphFlags, GraphLayout
from ftracefs.trace.output.graph_text import (
    DURATIONS,
    END,
    LEAF,
    NESTED,
    NO_DURATION,
    TAIL,
    TRACE_GRAPH_INDENT,
    Prologues,
    graph_bodies,
    print_graph_abs_time,
    print_graph_cpu,
    print_graph_proc,
    print_graph_rel_time,
)
from ftracefs.trace.output.lines import LinePrinter
from ftracefs.trace.output.output_context import OutputContext

Mask = npt.NDArray[np.bool_]
Fronts = list[list[bytes]]  # what stands before the function, column by column

FTRACE_RETFUNC_DEPTH = 50
NO_PID = -1

# Offsets of the fields (struct ftrace_graph_ent_entry, struct ftrace_graph_ret_entry).
_FUNC, _DEPTH, _OVERRUN, _CALLTIME, _RETTIME = 8, 16, 20, 24, 32


@dataclass(slots=True)
class FgraphCpuData:
    """What was printed last of a CPU (struct fgraph_cpu_data)."""

    last_pid: int = NO_PID
    depth: int = 0
    enter_funcs: dict[int, int] = field(default_factory=dict)


class FgraphData(dict[int, FgraphCpuData]):
    """The state of one reader, by CPU (struct fgraph_data)."""

    def __missing__(self, cpu: int) -> FgraphCpuData:
        data = self[cpu] = FgraphCpuData()
        return data

    def copy(self) -> FgraphData:
        return FgraphData(
            (cpu, FgraphCpuData(data.last_pid, data.depth, dict(data.enter_funcs)))
            for cpu, data in self.items()
        )


def next_of_cpu(cpu: I64) -> I64:
    """For each entry the index of the next one of its CPU; -1 for the last."""
    following = np.full(len(cpu), -1, dtype=np.int64)
    if len(cpu) == 0:
        return following
    if (cpu == cpu[0]).all():
        following[:-1] = np.arange(1, len(cpu))
        return following
    order = np.argsort(cpu.astype(np.uint8), kind="stable")
    same = cpu[order[1:]] == cpu[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    return following


@dataclass(frozen=True, slots=True)
class GraphLines:
    """Lines to print, an array element each.

    `at` is the index of its record among all entries, `last` that of the record with the duration:
    of a leaf its return, of any other line its own. `entries` and `returns` are these records.
    `following` is the time of the record that is next when the line is begun, or its own behind the
    last. `lost` is as in Entries.
    """

    entries: Entries
    returns: Entries
    at: I64
    last: I64
    type: U32
    func: U64
    depth: I64
    following: U64
    lost: Mapping[int, int]

    def __len__(self) -> int:
        return len(self.at)

    def first(self, count: int) -> GraphLines:
        """The first `count` of them."""
        part = slice(0, count)
        return GraphLines(
            self.entries[part],
            self.returns[part],
            self.at[part],
            self.last[part],
            self.type[part],
            self.func[part],
            self.depth[part],
            self.following[part],
            {index: lost for index, lost in self.lost.items() if index < count},
        )

    @property
    def leaf(self) -> Mask:
        found: Mask = self.last != self.at
        return found

    @property
    def is_return(self) -> Mask:
        found: Mask = self.type == TRACE_GRAPH_RET
        return found

    @property
    def is_graph(self) -> Mask:
        found: Mask = self.is_return | (self.type == TRACE_GRAPH_ENT)
        return found


class GraphPrinter:
    """Prints the entries of one reader. `data` is what has been printed before.

    `others` prints what the tracer leaves to be printed as without it.
    """

    def __init__(
        self,
        context: OutputContext,
        events: Mapping[int, TraceEventFunctions] = EVENTS,
        data: FgraphData | None = None,
        others: LinePrinter | None = None,
    ) -> None:
        self._context = context
        self._events = events
        self.data = FgraphData() if data is None else data
        self._layout = context.graph or GraphLayout()
        self._flags = self._layout.flags
        self._others = LinePrinter(context, events) if others is None else others
        self._prologues = Prologues(context, self._flags, self._layout.nr_cpus)
        self._entries: Entries | None = None
        self._next: I64 = np.zeros(0, dtype=np.int64)
        self._skipped: Mask = np.zeros(0, dtype=np.bool_)

    def block(self, entries: Entries, start: int, stop: int) -> bytes:
        """The text of entries[start:stop]; blocks are printed one behind the other."""
        return b"".join(self.lines(self.plan(entries, start, stop)))

    # --- which lines there are -------------------------------------------------------------------

    def plan(self, entries: Entries, start: int, stop: int) -> GraphLines:
        """The lines for entries[start:stop]; a leaf's return may lie behind `stop`."""
        if self._entries is not entries:
            self._entries = entries
            self._next = next_of_cpu(entries.cpu)
            self._skipped = np.zeros(len(entries), dtype=np.bool_)
        indices = np.arange(start, stop)
        following = self._next[start:stop]
        leaf = _is_leaf(entries, indices, following)
        self._skipped[following[leaf]] = True
        wanted = ~self._skipped[start:stop]
        at = indices[wanted]
        last = np.where(leaf, following, indices)[wanted]
        own, returns = entries.take(at), entries.take(last)
        type = own.type
        is_graph = (type == TRACE_GRAPH_ENT) | (type == TRACE_GRAPH_RET)
        func, depth = np.zeros(len(at), dtype=np.uint64), np.zeros(len(at), dtype=np.int64)
        graph = own.take(np.flatnonzero(is_graph))
        func[is_graph] = graph.u64(_FUNC)
        depth[is_graph] = graph.u32(_DEPTH).view(np.int32)
        lost = {int(np.searchsorted(at, i)): n for i, n in entries.lost.items() if i in at}
        next_ts = self._following(entries, at, last, stop)
        return GraphLines(own, returns, at, last, type, func, depth, next_ts, lost)

    def _following(self, entries: Entries, at: I64, last: I64, stop: int) -> U64:
        """See GraphLines: of the next line's record and a leaf's own return the nearer one."""
        if len(at) == 0:
            return entries.ts[at]
        rest = self._skipped[stop:]
        behind = stop + int(np.argmin(rest)) if len(rest) else stop
        has_behind = behind < len(entries) and not self._skipped[behind]
        following = np.append(at[1:], behind if has_behind else at[-1])
        is_return = (last != at) & ((last < following) | (following == at))
        return entries.ts[np.where(is_return, last, following)]

    # --- what the lines before mean for them ------------------------------------------------------

    def advance(self, lines: GraphLines) -> tuple[I64, Mask, I64]:
        """Take note of lines as printed.

        Returns for each line the task printed before on its CPU if another one (or -1), whether a
        return matches the call that opened its brace, and how deep a comment stands.
        """
        cpu = lines.entries.cpu
        order = np.argsort(cpu.astype(np.uint8), kind="stable")
        starts = np.flatnonzero(np.diff(cpu[order], prepend=-1))
        before = np.full(len(cpu), NO_PID, dtype=np.int64)
        depth = np.zeros(len(cpu), dtype=np.int64)
        matches = np.zeros(len(cpu), dtype=np.bool_)
        bounds = [*starts.tolist(), len(cpu)]
        for start, stop in pairwise(bounds):
            of_cpu = order[start:stop]
            data = self.data[int(cpu[of_cpu[0]])]
            before[of_cpu] = self._switches(lines, of_cpu, data)
            depth[of_cpu] = self._depths(lines, of_cpu, data)
            matches[of_cpu] = self._matches(lines, of_cpu, data)
        return before, matches, depth

    def _switches(self, lines: GraphLines, of_cpu: I64, data: FgraphCpuData) -> I64:
        """verif_pid: the task printed before, where it is another one."""
        before = np.full(len(of_cpu), NO_PID, dtype=np.int64)
        printed = np.flatnonzero(~np.isin(lines.type[of_cpu], (TRACE_FN, TRACE_STACK)))
        pids = lines.entries.pid[of_cpu[printed]].astype(np.int64)
        if len(pids) == 0:
            return before
        previous = np.concatenate(([data.last_pid], pids[:-1]))
        before[printed] = np.where(previous != pids, previous, NO_PID)
        data.last_pid = int(pids[-1])
        return before

    def _depths(self, lines: GraphLines, of_cpu: I64, data: FgraphCpuData) -> I64:
        """How deep a comment would stand before each line: in the call that was printed last."""
        is_graph = lines.is_graph[of_cpu]
        nested = is_graph & ~lines.is_return[of_cpu] & ~lines.leaf[of_cpu]
        own = lines.depth[of_cpu] - np.where(nested, 0, 1)
        last = np.maximum.accumulate(np.where(is_graph, np.arange(len(of_cpu)), -1))
        depths = np.where(last >= 0, own[last], data.depth)
        data.depth = int(depths[-1])
        return depths

    def _matches(self, lines: GraphLines, of_cpu: I64, data: FgraphCpuData) -> Mask:
        """Whether each return closes the brace that was opened last at its depth."""
        matches = np.zeros(len(of_cpu), dtype=np.bool_)
        graph = np.flatnonzero(
            lines.is_graph[of_cpu] & (lines.depth[of_cpu] < FTRACE_RETFUNC_DEPTH)
        )
        if len(graph) == 0:
            return matches
        which = of_cpu[graph]
        by_depth = np.argsort(lines.depth[which].astype(np.uint8), kind="stable")
        which, graph = which[by_depth], graph[by_depth]
        depth, func = lines.depth[which], lines.func[which]
        opens = ~lines.is_return[which] & ~lines.leaf[which]
        entered = np.where(opens, func, np.uint64(0))  # enter_funcs[depth] after each line
        found = np.concatenate((entered[:1], entered[:-1]))
        first = np.flatnonzero(np.diff(depth, prepend=-1))
        for index in first.tolist():
            found[index] = data.enter_funcs.get(int(depth[index]), 0)
        matches[graph] = found == func
        for index in [*(first[1:] - 1).tolist(), len(depth) - 1]:
            data.enter_funcs[int(depth[index])] = int(entered[index])
        return matches

    # --- text -------------------------------------------------------------------------------------

    def lines(self, lines: GraphLines) -> list[bytes]:
        """The text of each line; the reader's state goes on behind them."""
        if len(lines.at) == 0:
            return []
        before, matches, depth = self.advance(lines)
        entries, flags = lines.entries, self._flags
        fronts: Fronts = []
        if self._context.flags & TraceIter.CONTEXT_INFO:
            if flags & GraphFlags.ABS_TIME:
                fronts.append(print_graph_abs_time(entries.ts))
            if flags & GraphFlags.REL_TIME:
                fronts.append(print_graph_rel_time(entries.ts, self._context.time_start))
            fronts.append(self._prologue(entries))
            if flags & GraphFlags.DURATION:
                fronts.append(self._durations(lines))
        bodies = self._bodies(lines, matches)
        texts = list(map(b"".join, zip(*fronts, bodies, strict=True))) if fronts else bodies
        if flags & GraphFlags.OVERRUN:
            returns = np.flatnonzero(lines.is_return)
            overruns = entries.take(returns).u32(_OVERRUN).tolist()
            for index, overrun in zip(returns.tolist(), overruns, strict=True):
                texts[index] += b" (Overruns: %d)\n" % overrun
        self._put_others(lines, texts, fronts, depth)
        for index in np.flatnonzero(before != NO_PID).tolist():
            texts[index] = self._switch(lines, index, int(before[index])) + texts[index]
        for index, count in lines.lost.items():
            what = b"%d " % count if count >= 0 else b""
            texts[index] = b"CPU:%d [LOST %bEVENTS]\n" % (entries.cpu[index], what) + texts[index]
        return texts

    def _prologue(self, entries: Entries) -> list[bytes]:
        """The columns between time and duration (print_graph_prologue)."""
        prologues = self._prologues
        keys: U64 = np.zeros(len(entries), dtype=np.uint64)
        if prologues.has_cpu:
            keys |= entries.cpu.astype(np.uint64)
        if prologues.has_state:
            keys |= (entries.common & np.uint32(0xFFFF0000)).astype(np.uint64)
        if prologues.has_pid:
            keys |= entries.words[entries.at + 1].astype(np.uint64) << np.uint64(32)
        return list(map(prologues.__getitem__, keys.tolist()))

    def _durations(self, lines: GraphLines) -> list[bytes]:
        """The duration column (print_graph_duration)."""
        durations = [NO_DURATION] * len(lines.at)
        known = np.flatnonzero(lines.leaf | lines.is_return)
        returns = lines.returns.take(known)
        taken = (returns.u64(_RETTIME) - returns.u64(_CALLTIME)).tolist()
        texts = DURATIONS[bool(self._flags & GraphFlags.OVERHEAD)]
        for index, text in zip(known.tolist(), map(texts.__getitem__, taken), strict=True):
            durations[index] = text
        return durations

    def _bodies(self, lines: GraphLines, matches: Mask) -> list[bytes]:
        """Function and braces."""
        named = ~matches | bool(self._flags & GraphFlags.TAIL)
        closing = np.where(named, np.uint64(TAIL), np.uint64(END))
        opening = np.where(lines.leaf, np.uint64(LEAF), np.uint64(NESTED))
        kind = np.where(lines.is_return, closing, opening)
        kind[~lines.is_graph] = END
        func = np.where(kind == np.uint64(END), np.uint64(0), lines.func)
        return graph_bodies(self._context.symbols, func, lines.depth.astype(np.uint64), kind)

    def _switch(self, lines: GraphLines, index: int, before: int) -> bytes:
        """The banner of a task switch."""
        rule = " " + "-" * 42 + "\n"
        names = self._context.names
        text = (
            rule
            + print_graph_cpu(int(lines.entries.cpu[index]), self._layout.nr_cpus)
            + print_graph_proc(names, before)
            + " => "
            + print_graph_proc(names, int(lines.entries.pid[index]))
            + f"\n{rule}\n"
        )
        return text.encode(errors="surrogateescape")

    # --- other records ----------------------------------------------------------------------------

    def _put_others(
        self, lines: GraphLines, texts: list[bytes], fronts: Fronts, depth: I64
    ) -> None:
        """Print what is neither call nor return: as comments, or as without this tracer."""
        others = np.flatnonzero(~lines.is_graph)
        types = lines.type[others]
        known = np.isin(types, list(self._events)) & ~np.isin(types, (TRACE_FN, TRACE_STACK))
        comments, plain = others[known], others[~known]
        printed = self._others.lines_at(lines.entries, plain, lines.following)
        for index, text in zip(plain.tolist(), printed, strict=True):
            texts[index] = text

        def printer(number: int) -> EventText:
            if number == TRACE_PRINT:
                return trace_print_msg_only
            return self._events[number].trace

        said = by_type(lines.entries.take(comments), self._context, printer)
        for index, text in zip(comments.tolist(), said, strict=True):  # print_graph_comment
            deep = int(depth[index])
            indent = b" " * ((deep + 1) * TRACE_GRAPH_INDENT) if deep > 0 else b""
            front = b"".join(piece[index] for piece in fronts)
            texts[index] = b"%b%b/* %b */\n" % (front, indent, text.removesuffix(b"\n"))


def _is_leaf(entries: Entries, indices: I64, following: I64) -> Mask:
    """Which of `indices` are calls whose return is the next record of their CPU."""
    leaf: Mask = (entries.words[entries.at[indices]] & 0xFFFF == TRACE_GRAPH_ENT) & (following >= 0)
    calls = indices[leaf]
    returns = following[leaf]
    words, at = entries.words, entries.at
    same = words[at[returns]] & 0xFFFF == TRACE_GRAPH_RET
    # Only of returns: another record may be shorter, and the last of all words.
    calls, returns = at[calls[same]], at[returns[same]]
    equal = np.ones(len(calls), dtype=np.bool_)
    for word in (1, 2, 3):  # pid and func
        equal &= words[calls + word] == words[returns + word]
    same[same] = equal
    leaf[leaf] = same
    return leaf

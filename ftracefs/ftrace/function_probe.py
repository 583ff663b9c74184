"""Probes: what a command in set_ftrace_filter does each time one of its functions is called.

    register_ftrace_function_probe → ftrace_hash_move_and_update_ops, ftrace_startup
    unregister_ftrace_function_probe_func → ftrace_shutdown

Models kernel/trace/ftrace.c. For each kind of command (`FtraceProbeOps`) a trace array has at most
one probe, an op of its own whose filter holds all functions of that kind. What happens in them is
guest code, ftracefs/guest/function_probes.S; a kind may have a part for the host too, which that
code calls when there is something to do.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine import Processor
from ftracefs.errors import TracefsError
from ftracefs.ftrace.func_mapper import FtraceFuncMapper
from ftracefs.ftrace.graph_filter import FtraceGraphHash
from ftracefs.ftrace.hash_update import ftrace_hash_move_and_update_ops
from ftracefs.ftrace.hashes import EMPTY_HASH, FtraceHash, as_ips
from ftracefs.ftrace.match import find_records
from ftracefs.ftrace.ops import FTRACE_OPS_FL_DYNAMIC, FTRACE_OPS_FL_ENABLED, FtraceOps
from ftracefs.ftrace.regex import filter_parse_regex, ftrace_match
from ftracefs.ftrace.registration import ftrace_shutdown, ftrace_startup
from ftracefs.ftrace.state import FtraceState

UNLIMITED = -1


class FtraceProbeOps:
    """A kind of command (struct ftrace_probe_ops).

    `name` is how it reads back and `func` the guest function that runs in a call. With `counts`
    each function has a number, which `func` may count down. `host` is what the guest function's
    hypercall does; it is told the probe and the vCPU.
    """

    def __init__(
        self,
        name: str,
        func: str,
        *,
        counts: bool = False,
        host: Callable[[FtraceFuncProbe, Processor], None] | None = None,
    ) -> None:
        self.name = name
        self.func = func
        self.counts = counts
        self.host = host

    def print(self, probe: FtraceFuncProbe, ip: int) -> str:
        """`vfs_read:traceoff:count=3` (ftrace_probe_print)."""
        count = probe.mapper.find_ip(ip) if probe.mapper is not None else None
        text = f"{probe.state.kallsyms.sprint_symbol_no_offset(ip)}:{self.name}"
        return f"{text}:unlimited" if count is None else f"{text}:count={count}"

    def free(self, numbers: list[int]) -> None:
        """Some functions do it no more; these were their numbers."""


class FtraceFuncProbe:
    """A command that is set for some functions (struct ftrace_func_probe)."""

    def __init__(self, state: FtraceState, probe_ops: FtraceProbeOps, private: int) -> None:
        self.state = state
        self.probe_ops = probe_ops
        self.ops = FtraceOps(
            state.memory,
            state.labels["function_trace_probe_call"],
            flags=FTRACE_OPS_FL_DYNAMIC,
            private=private,
            name=f"probe of {probe_ops.name}",
        )
        self.mapper = FtraceFuncMapper(state.machine.memory) if probe_ops.counts else None
        # The functions in the order that they are listed in: that of the kernel's hash buckets.
        self.listed = FtraceGraphHash()
        memory, address = state.memory, self.ops.address
        memory.set_u64(address + CONSTANTS["OP_PROBE_FUNC"], state.labels[probe_ops.func])
        if self.mapper is not None:
            memory.set_u64(address + CONSTANTS["OP_PROBE_DATA"], self.mapper.address)

    def free(self) -> None:
        """Give the guest memory back; the op is not registered."""
        if self.mapper is not None:
            self.mapper.free()
        self.ops.free()

    @property
    def filter(self) -> FtraceHash:
        return self.ops.func_hash.filter_hash


@contextmanager
def quiet(state: FtraceState) -> Iterator[None]:
    """No command does anything meanwhile, in any trace array."""
    memory, word = state.machine.memory, state.labels["func_probes_quiet"]
    memory.set_u32(word, memory.u32(word) + 1)
    try:
        yield
    finally:
        memory.set_u32(word, memory.u32(word) - 1)


class FuncProbes:
    """The commands of one trace array (tr->func_probes), the kind that was set last in front.

    `private` is what their guest functions get as the trace array: its table of buffers.
    """

    def __init__(self, state: FtraceState, private: int) -> None:
        self._state = state
        self._private = private
        self._probes: list[FtraceFuncProbe] = []

    def _find(self, probe_ops: FtraceProbeOps) -> FtraceFuncProbe | None:
        return next((p for p in self._probes if p.probe_ops is probe_ops), None)

    def register_ftrace_function_probe(
        self, glob: bytes, probe_ops: FtraceProbeOps, data: int
    ) -> int:
        """Do it in the functions that `glob` means, `data` being the number of each.

        Returns how many there are. EINVAL when all do it already.
        """
        state = self._state
        probe = self._find(probe_ops)
        old = EMPTY_HASH if probe is None else probe.filter
        rows, _ = find_records(state.records, glob)
        found = state.records.ip[rows]
        new = found[~old.contains(found)]
        if not len(new):
            raise TracefsError(errno.EINVAL, f"{glob!r} names no function to add")
        if probe is None:
            probe = FtraceFuncProbe(state, probe_ops, self._private)
            self._add_probe(probe)
        try:
            listed = probe.listed.ips
            listed = listed[old.contains(listed)]  # without those of modules that are gone
            probe.listed = FtraceGraphHash.of(np.concatenate((listed, new)))
            if probe.mapper is not None:
                probe.mapper.remove_ips(as_ips(new))
                probe.mapper.add_ips(as_ips(new), data)
            ftrace_hash_move_and_update_ops(state, probe.ops, old.add(as_ips(new)), enable=True)
            if not probe.ops.flags & FTRACE_OPS_FL_ENABLED:
                ftrace_startup(state, probe.ops, 0)
        except BaseException:
            if not probe.ops.flags & FTRACE_OPS_FL_ENABLED:
                self._release_probe(probe)
            raise
        return len(new)

    def _add_probe(self, probe: FtraceFuncProbe) -> None:
        self._probes.insert(0, probe)
        if probe.probe_ops.host is not None:
            self._state.probe_hosts[probe.ops.address] = partial(probe.probe_ops.host, probe)

    def _release_probe(self, probe: FtraceFuncProbe) -> None:
        """release_probe: it does nothing anywhere any more."""
        self._probes.remove(probe)
        self._state.probe_hosts.pop(probe.ops.address, None)
        probe.free()

    def unregister_ftrace_function_probe_func(
        self, glob: bytes | None, probe_ops: FtraceProbeOps
    ) -> None:
        """Do it no more in those of its functions whose names match.

        ENODEV when it is done nowhere, EINVAL when no name matches.
        """
        match = None
        if glob and glob != b"*":
            match, negated = filter_parse_regex(glob)
            if negated:
                raise TracefsError(errno.EINVAL, "a second !")
        probe = self._find(probe_ops)
        if probe is None:
            raise TracefsError(errno.ENODEV, f"no function does {probe_ops.name}")
        state = self._state
        gone = probe.filter.ips
        if match is not None:
            names = [self._name(ip) for ip in gone.tolist()]
            gone = gone[[ftrace_match(name, match) for name in names]]
        if not len(gone):
            raise TracefsError(errno.EINVAL, f"{glob!r} names no function that does it")
        left = probe.filter.remove(gone)
        if not left.count:
            ftrace_shutdown(state, probe.ops, 0)
            if state.ftrace_disabled:
                self._defuse(probe)
                return
        ftrace_hash_move_and_update_ops(state, probe.ops, left, enable=True)
        if probe.mapper is not None:
            numbers = probe.mapper.numbers(gone)
            probe.mapper.remove_ips(gone)
            probe_ops.free(numbers)
        listed = probe.listed.ips
        probe.listed = FtraceGraphHash.of(listed[~np.isin(listed, gone)])
        if not left.count:
            self._release_probe(probe)

    def _name(self, ip: int) -> bytes:
        location = self._state.kallsyms.kallsyms_lookup(ip)
        return b"" if location is None else location.name.encode()

    def clear_ftrace_function_probes(self) -> None:
        """Do nothing anywhere any more: the trace array goes."""
        for probe in list(self._probes):
            if self._state.ftrace_disabled:
                self._defuse(probe)
            else:
                self.unregister_ftrace_function_probe_func(None, probe.probe_ops)

    def _defuse(self, probe: FtraceFuncProbe) -> None:
        """Call sites stay as they are and go on calling the op, which does nothing any more."""
        stub = self._state.ftrace_stub
        self._state.memory.set_u64(probe.ops.address + CONSTANTS["OP_PROBE_FUNC"], stub)
        self._probes.remove(probe)
        if probe.mapper is not None:
            probe.probe_ops.free(probe.mapper.numbers(probe.filter.ips))

    def text(self) -> bytes:
        """What set_ftrace_filter shows of them (t_probe_show)."""
        lines = [
            f"{probe.probe_ops.print(probe, ip)}\n"
            for probe in self._probes
            for ip in probe.listed.ips[probe.filter.contains(probe.listed.ips)].tolist()
        ]
        return "".join(lines).encode()

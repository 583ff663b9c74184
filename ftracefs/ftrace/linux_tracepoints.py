"""The tracepoints of a booted Linux: its own functions put our probes into them.

What they call is guest code of ours. Most of it takes tasks as the engine describes them: in front
of each such probe stands one that translates (guest/linux_probes.S).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from emulated_kernel.machine import EmulatedMachine
from emulated_kernel.text_poke import TextPoke
from emulated_kernel.tracepoint import (
    TRACEPOINT_DEFAULT_PRIO,
    TracepointError,
    TracepointFunc,
    Tracepoints,
)

_U32, _SIGN = 0xFFFFFFFF, 1 << 31
# By the tasks among a tracepoint's arguments.
_TRANSLATORS = {"sched_switch": "linux_probe_switch", "sched_process_fork": "linux_probe_fork"}
_ONE_TASK = "linux_probe_task"
# Probes that read Linux's own tasks.
_OWN_TASKS = ("probe_wakeup", "probe_wakeup_sched_switch", "probe_wakeup_migrate_task")

KernelFunction = Callable[..., int]


def kernel_errno(answer: int) -> int:
    """The errno that a kernel function's int answers, 0 if it is none."""
    value = answer & _U32
    return (1 << 32) - value if value & _SIGN else 0


class LinuxTracepoints(Tracepoints):
    """`call(name, …)` runs a function of the kernel, `address` knows its symbols."""

    def __init__(
        self,
        machine: EmulatedMachine,
        text_poke: TextPoke,
        labels: Mapping[str, int],
        address: Callable[[str], int | None],
        call: KernelFunction,
    ) -> None:
        super().__init__(machine, machine.image, text_poke)
        self._engine = labels
        self._address = address
        self._call = call
        self._takes_own_tasks = {labels[name] for name in _OWN_TASKS}
        # Never freed: another processor may be about to call a probe that has just been taken out.
        self._words: dict[tuple[int, int], int] = {}

    def exists(self, name: str) -> bool:
        return self._address(f"__tracepoint_{name}") is not None

    def tracepoint_probe_register(
        self, name: str, func: int, data: int, prio: int = TRACEPOINT_DEFAULT_PRIO
    ) -> None:
        """As in Tracepoints, for tracepoints whose arguments are tasks."""
        probe = TracepointFunc(func, data, prio)
        if any(probe.is_same(each) for each in self.probes(name)):
            raise TracepointError(errno.EEXIST, f"{name} has this probe")
        self._run("tracepoint_probe_register_prio", name, func, data, prio & _U32)
        self._funcs[name] = (*self.probes(name), probe)

    def tracepoint_probe_unregister(self, name: str, func: int, data: int) -> None:
        probe = TracepointFunc(func, data)
        left = tuple(each for each in self.probes(name) if not each.is_same(probe))
        if len(left) == len(self.probes(name)):
            raise TracepointError(errno.ENOENT, f"{name} has no such probe")
        self._run("tracepoint_probe_unregister", name, func, data)
        self._funcs[name] = left

    def tracepoint_synchronize_unregister(self) -> None:
        """As in Tracepoints. A single processor has left the probe before it comes here."""
        if self._machine.nr_cpus == 1:
            return
        self._call("synchronize_rcu")
        srcu = self._address("tracepoint_srcu")
        if srcu is not None:
            self._call("synchronize_srcu", srcu)

    def _word(self, func: int, data: int) -> int:
        """What leads the translator to a probe."""
        if (func, data) not in self._words:
            word = self._words[func, data] = self._machine.alloc(16, 16)
            self._memory.set_u64(word, func)
            self._memory.set_u64(word + 8, data)
        return self._words[func, data]

    def _run(self, function: str, name: str, func: int, data: int, *more: int) -> None:
        tracepoint = self._address(f"__tracepoint_{name}")
        if tracepoint is None:
            raise TracepointError(errno.ENOENT, f"no tracepoint {name}")
        if func not in self._takes_own_tasks:
            data = self._word(func, data)
            func = self._engine[_TRANSLATORS.get(name, _ONE_TASK)]
        if error := kernel_errno(self._call(function, tracepoint, func, data, *more)):
            raise TracepointError(error, f"{function} of {name}")

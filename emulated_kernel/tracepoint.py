"""What is hung into the kernel's tracepoints: kernel/tracepoint.c.

A tracepoint is passed without a trace until it has a probe. Then the branch at each of its sites
is switched over to a call with the tracepoint's arguments: of the probe, if it is the only one,
else of an iterator that calls one after the other.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.image import KernelImage
from emulated_kernel.jump_label import JumpLabels
from emulated_kernel.machine import EmulatedMachine
from emulated_kernel.static_call import static_call_update
from emulated_kernel.text_poke import TextPoke

TRACEPOINT_DEFAULT_PRIO = 10
INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
_TP_KEY, _TP_FUNCS = CONSTANTS["TP_KEY"], CONSTANTS["TP_FUNCS"]
_PREFIX = "__tracepoint_"


class TracepointError(EmulatedKernelError):
    """A probe that cannot be put in or taken out; `errno` says why."""

    def __init__(self, errno: int, message: str) -> None:
        super().__init__(message)
        self.errno = errno


@dataclass(frozen=True, slots=True)
class TracepointFunc:
    """A probe (struct tracepoint_func): guest code, the word it is given, and its turn."""

    func: int
    data: int
    prio: int = TRACEPOINT_DEFAULT_PRIO

    def is_same(self, other: TracepointFunc) -> bool:
        return (self.func, self.data) == (other.func, other.data)


class Tracepoints:
    """The tracepoints of a kernel, by name. For the machine thread."""

    def __init__(self, machine: EmulatedMachine, image: KernelImage, text_poke: TextPoke) -> None:
        self._machine = machine
        self._memory = machine.memory
        self._labels = image.labels
        self._text_poke = text_poke
        self.jump_labels = JumpLabels(machine, image, text_poke)
        self._funcs: dict[str, tuple[TracepointFunc, ...]] = {}
        # Where in the text which tracepoint is passed.
        self.site_names = {site: name for name in self.names() for site in self.sites(name)}

    def exists(self, name: str) -> bool:
        """Whether this kernel passes a tracepoint of that name."""
        return _PREFIX + name in self._labels

    def names(self) -> list[str]:
        """Every tracepoint of this kernel."""
        return sorted(n.removeprefix(_PREFIX) for n in self._labels if n.startswith(_PREFIX))

    def probes(self, name: str) -> tuple[TracepointFunc, ...]:
        """What is called at a tracepoint, in order."""
        return self._funcs.get(name, ())

    def sites(self, name: str) -> list[int]:
        """Where in the text a tracepoint is passed."""
        return self.jump_labels.sites(self._tracepoint(name) + _TP_KEY)

    def tracepoint_probe_register(
        self, name: str, func: int, data: int, prio: int = TRACEPOINT_DEFAULT_PRIO
    ) -> None:
        """Have guest code called at a tracepoint, with `data` in rdi and the arguments behind it.

        Probes of higher priority come first, those of the same in the order they came. EEXIST when
        the pair is there already; ENOENT when there is no such tracepoint.
        """
        probe = TracepointFunc(func, data, prio)
        old = self.probes(name)
        if any(probe.is_same(each) for each in old):
            raise TracepointError(errno.EEXIST, f"{name} has this probe")
        at = next((i for i, each in enumerate(old) if each.prio < prio), len(old))
        self._publish(name, (*old[:at], probe, *old[at:]))

    def tracepoint_probe_unregister(self, name: str, func: int, data: int) -> None:
        """Take a probe out. ENOENT when it is not there."""
        probe = TracepointFunc(func, data)
        old = self.probes(name)
        new = tuple(each for each in old if not probe.is_same(each))
        if len(new) == len(old):
            raise TracepointError(errno.ENOENT, f"{name} has no such probe")
        self._publish(name, new)

    def tracepoint_synchronize_unregister(self) -> None:
        """Wait until nobody is inside a probe that was taken out. At a safepoint nobody ever is."""

    def set_probe(
        self, name: str, func: int, data: int, on: bool, prio: int = TRACEPOINT_DEFAULT_PRIO
    ) -> None:
        """Register a probe or take it out; nothing where this kernel has no such tracepoint."""
        if not self.exists(name):
            return
        if on:
            self.tracepoint_probe_register(name, func, data, prio)
        else:
            self.tracepoint_probe_unregister(name, func, data)

    def _tracepoint(self, name: str) -> int:
        try:
            return self._labels[_PREFIX + name]
        except KeyError:
            raise TracepointError(errno.ENOENT, f"no tracepoint {name}") from None

    def _publish(self, name: str, new: tuple[TracepointFunc, ...]) -> None:
        """tracepoint_add_func, tracepoint_remove_func: other probes, step by step.

        The iterator follows any array, so it is there whenever the array and the target of the call
        do not belong together.
        """
        tp = self._tracepoint(name)
        old_array = self._memory.u64(tp + _TP_FUNCS)
        if not new:
            self.jump_labels.static_key_disable(tp + _TP_KEY)
        self._update_call(name, self._iterator(name))
        self._memory.set_u64(tp + _TP_FUNCS, self._array(new) if new else 0)
        if len(new) == 1:
            self._update_call(name, new[0].func)
        if new:
            self.jump_labels.static_key_enable(tp + _TP_KEY)
        self._funcs[name] = new
        if old_array:
            self._machine.free(old_array)

    def _array(self, probes: Sequence[TracepointFunc]) -> int:
        """The probes as guest code reads them."""
        size = CONSTANTS["TPF_SIZE"]
        address = self._machine.alloc(size * (len(probes) + 1), 64)
        for index, probe in enumerate(probes):
            at = address + index * size
            self._memory.set_u64(at + CONSTANTS["TPF_FUNC"], probe.func)
            self._memory.set_u64(at + CONSTANTS["TPF_DATA"], probe.data)
            self._memory.set_u64(at + CONSTANTS["TPF_PRIO"], probe.prio & 0xFFFFFFFF)
        return address

    def _iterator(self, name: str) -> int:
        return self._labels[f"__traceiter_{name}"]

    def _update_call(self, name: str, func: int) -> None:
        """tracepoint_update_call."""
        static_call_update(self._text_poke, self._labels[f"__SCT__tp_func_{name}"], func)

"""What the ftrace core keeps: the counterparts of the static variables of kernel/trace/ftrace.c.

Everything that reads or changes it runs on the machine thread, which stands for ftrace_lock,
text_mutex and regex_lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.kallsyms import Kallsyms, Symbol, SymbolTable
from emulated_kernel.machine import EmulatedMachine, Processor
from emulated_kernel.text_poke import TextPoke
from emulated_kernel.tracepoint import Tracepoints
from ftracefs.ftrace.hashes import Ips, hash_contains_ip
from ftracefs.ftrace.linux_tracepoints import LinuxTracepoints
from ftracefs.ftrace.ops import FTRACE_OPS_FL_PID, FtraceOps
from ftracefs.ftrace.records import FtraceRecords
from ftracefs.ftrace.task_mirror import TaskMirrors
from ftracefs.ftrace.trampoline_pages import TrampolinePages

log = logging.getLogger(__name__)

FENTRY = "__fentry__"


class TracedImage(Protocol):
    """What the core needs of a kernel, or of a module of one."""

    @property
    def symbols(self) -> Sequence[Symbol] | SymbolTable: ...
    @property
    def mcount(self) -> Sequence[int]: ...
    @property
    def labels(self) -> Mapping[str, int]: ...


class GuestCode(Protocol):
    """The engine's own assembled code."""

    @property
    def symbols(self) -> Sequence[Symbol]: ...
    @property
    def labels(self) -> Mapping[str, int]: ...


class FtraceState:
    """The state of ftrace on one machine."""

    def __init__(
        self, machine: EmulatedMachine, kallsyms: Kallsyms, text_poke: TextPoke, guest: GuestCode
    ) -> None:
        self.machine = machine
        self.memory = machine.memory
        self.kallsyms = kallsyms
        self.text_poke = text_poke
        self.labels = guest.labels
        self.mirrors: TaskMirrors | None = None
        linux = machine.image.linux
        if linux is None:
            self.tracepoints: Tracepoints = Tracepoints(machine, machine.image, text_poke)
        else:
            self.tracepoints = LinuxTracepoints(
                machine,
                text_poke,
                guest.labels,
                machine.image.find,
                self.call_kernel,
            )
            self.mirrors = TaskMirrors(machine, guest.labels, linux)
        self.records = FtraceRecords()
        self.trampoline_pages = TrampolinePages(self.memory.layout.modules_vaddr)
        self.dead_trampolines: list[tuple[int, int]] = []  # (address, size): somebody may be in it
        self.fentry = 0

        self.ops_list: list[FtraceOps] = []  # ftrace_ops_list, the op registered last in front
        self.ftrace_start_up = 0
        self.ftrace_enabled = True
        self.inline_callbacks = True  # trampolines may have a callback in line
        self.ftrace_disabled = False
        self.removed_ops: FtraceOps | None = None
        # What the hypercalls of probes do, by the addresses of their ops (function_probe.py).
        self.probe_hosts: dict[int, Callable[[Processor], None]] = {}
        self.direct_functions: dict[int, int] = {}  # call site -> target
        self.tmp_ops: FtraceOps | None = None  # of modify_ftrace_direct
        # Made to be targets of direct calls: address -> size, name.
        self.direct_trampolines: dict[int, tuple[int, str]] = {}

        for cpu in machine.cpus:
            cpu.set_word("NO_BUFFER", CONSTANTS["RB_GUARD_DISABLED"])
        stub = guest.labels["ftrace_stub"]
        self.ftrace_trace_function = stub  # what ftrace_caller is to call
        self.saved_ftrace_func = stub
        self.called_function = stub  # what it calls now
        self.set_function_trace_op = guest.labels["ftrace_list_end"]

        self.ftrace_update_tot_cnt = 0
        self.ftrace_number_of_pages = 0
        self.ftrace_number_of_groups = 0
        self.bugs: list[str] = []  # what ftrace_bug printed

        self.global_ops = FtraceOps(self.memory, stub, flags=FTRACE_OPS_FL_PID, name="global_ops")
        self.filtered_ops = [self.global_ops]  # those with filter files: of each trace array

    def call_kernel(self, name: str, *arguments: int) -> int:
        """Run a function of a booted Linux by its name, where it may sleep."""
        address = self.machine.image.find(name)
        if address is None:
            raise EmulatedKernelError(f"this kernel has no {name}")
        return self.machine.call_in_process(address, *arguments)

    # --- guest addresses -------------------------------------------------------------------------

    @property
    def ftrace_stub(self) -> int:
        return self.labels["ftrace_stub"]

    @property
    def ftrace_ops_list_func(self) -> int:
        return self.labels["ftrace_ops_list_func"]

    @property
    def ftrace_addr(self) -> int:
        """FTRACE_ADDR: where a site shared by several ops calls."""
        return self.labels["ftrace_caller"]

    @property
    def ftrace_regs_addr(self) -> int:
        """FTRACE_REGS_ADDR: the same when one of them wants registers."""
        return self.labels["ftrace_regs_caller"]

    # --- ops by site -----------------------------------------------------------------------------

    def write_ops_list(self) -> None:
        """Link the ops in guest memory the way `ops_list` has them."""
        following = self.labels["ftrace_list_end"]
        for ops in reversed(self.ops_list):
            self.memory.set_u64(ops.address + CONSTANTS["OP_NEXT"], following)
            following = ops.address
        self.memory.set_u64(self.labels["ftrace_ops_list"], following)

    def ops_on(
        self, ips: Ips, ops: Sequence[FtraceOps]
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which sites at least one of `ops` wants."""
        wanted = np.zeros(len(ips), dtype=np.bool_)
        for op in ops:
            wanted |= hash_contains_ip(op.func_hash, ips)
        return wanted

    # --- when it goes wrong ----------------------------------------------------------------------

    def ftrace_kill(self) -> None:
        """Switch ftrace off for good: text is not what it was thought to be."""
        self.ftrace_disabled = True
        self.ftrace_enabled = False
        self.ftrace_trace_function = self.ftrace_stub

    def report_bug(self, text: str) -> None:
        """ftrace_bug's end: keep and print the report, then ftrace_kill."""
        self.bugs.append(text)
        log.error("%s", text)
        self.ftrace_kill()

"""The ftrace core of one machine, put together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.image import Module
from emulated_kernel.kallsyms import Kallsyms
from emulated_kernel.machine import EmulatedMachine, Processor
from emulated_kernel.modules import Modules
from emulated_kernel.text_poke import TextPoke
from ftracefs.errors import TracefsError
from ftracefs.ftrace import direct, registration, show
from ftracefs.ftrace.fgraph import FunctionGraph
from ftracefs.ftrace.filter import FtraceFuncCommand, FtraceRegex
from ftracefs.ftrace.graph_filter import FtraceGraphRegex, graph_hash_text
from ftracefs.ftrace.guest_functions import GuestFunctions
from ftracefs.ftrace.init import ftrace_init
from ftracefs.ftrace.livepatch import Livepatch
from ftracefs.ftrace.module import TracedModule, ftrace_module_load, ftrace_release_mod
from ftracefs.ftrace.open_filter import OpenFilter
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_DYNAMIC,
    FTRACE_OPS_FL_ENABLED,
    FTRACE_OPS_FL_PID,
    FtraceOps,
)
from ftracefs.ftrace.profile import FunctionProfiler
from ftracefs.ftrace.python_callback import PythonCallbacks, PythonFunc
from ftracefs.ftrace.rcu_tasks import in_use
from ftracefs.ftrace.state import FtraceState, GuestCode, TracedImage

# Interrupted here a task was not in the kernel: a stack trace ends.
_USER_MODE = ("user_mode_halt", "host_call_halt")


class Ftrace(FtraceState):
    """ftrace on `machine`, whose kernel is `image` and has the engine's code `guest` loaded.

    Made after boot's call sites are in RAM and before the kernel runs: it turns them into nops.
    All methods are for the machine thread.
    """

    def __init__(
        self,
        machine: EmulatedMachine,
        image: TracedImage,
        guest: GuestCode,
        *,
        kallsyms: Kallsyms | None = None,
        text_poke: TextPoke | None = None,
    ) -> None:
        if kallsyms is None:
            kallsyms = Kallsyms()
            kallsyms.add("kernel", image.symbols)
            kallsyms.add("ftracefs", guest.symbols)
        if text_poke is None:
            text_poke = TextPoke(machine, symbolize=kallsyms.sprint_symbol)
        super().__init__(machine, kallsyms, text_poke, guest)
        self._open_filters: list[OpenFilter] = []
        self.livepatch = Livepatch(self)
        self._python = PythonCallbacks(self)
        self._functions = GuestFunctions(self)
        self.fgraph = FunctionGraph(self)
        self.profiler = FunctionProfiler(self, self.fgraph)
        ftrace_init(self, image)
        machine.hypercalls[CONSTANTS["HC_PROBE"]] = self._call_probe_host
        if machine.image.linux is None:
            for number, name in enumerate(_USER_MODE):
                ip = image.labels.get(name, 0)
                self.memory.set_u64(guest.labels["stack_trace_user"] + 8 * number, ip)

    def _call_probe_host(self, vcpu: Processor) -> None:
        (op,) = vcpu.get("rdx")
        self.probe_hosts[op](vcpu)

    # --- ops -------------------------------------------------------------------------------------

    def new_ops(
        self, func: int = 0, *, flags: int = 0, private: int = 0, name: str = ""
    ) -> FtraceOps:
        """An op whose callback is the guest function at `func`; not registered yet.

        One without a callback is for register_ftrace_direct.
        """
        return FtraceOps(self.memory, func, flags=flags, private=private, name=name)

    def ftrace_allocate_ftrace_ops(self, name: str) -> FtraceOps:
        """The op of a trace array, whose hashes files and modules change."""
        flags = FTRACE_OPS_FL_DYNAMIC | FTRACE_OPS_FL_PID
        ops = self.new_ops(self.ftrace_stub, flags=flags, name=name)
        self.filtered_ops.append(ops)
        return ops

    def ftrace_destroy_function_files(self, ops: FtraceOps) -> bool:
        """Undo `ftrace_allocate_ftrace_ops`; False when guest code may go on using the op.

        That is when ftrace has been disabled: call sites stay as they were then.
        """
        if ops.flags & FTRACE_OPS_FL_ENABLED:
            with suppress(TracefsError):
                self.unregister_ftrace_function(ops)
        self.filtered_ops.remove(ops)
        if self.ftrace_disabled:
            return False
        ops.free()
        return True

    def new_python_ops(self, func: PythonFunc, *, flags: int = 0, name: str = "") -> FtraceOps:
        """An op whose callback is a Python function (see python_callback.py)."""
        return self._python.new_ops(func, flags=flags, name=name)

    def register_ftrace_function(self, ops: FtraceOps) -> None:
        """Have `ops` called (see registration.register_ftrace_function)."""
        registration.register_ftrace_function(self, ops)

    def unregister_ftrace_function(self, ops: FtraceOps) -> None:
        """Have `ops` called no more."""
        registration.unregister_ftrace_function(self, ops)

    def register_ftrace_direct(self, ops: FtraceOps, addr: int) -> None:
        """Have the functions in the filter of `ops` call `addr` (see direct.py)."""
        direct.register_ftrace_direct(self, ops, addr)

    def modify_ftrace_direct(self, ops: FtraceOps, addr: int) -> None:
        """Have them call another target."""
        direct.modify_ftrace_direct(self, ops, addr)

    def unregister_ftrace_direct(self, ops: FtraceOps, addr: int) -> None:
        """Have them call nothing any more."""
        direct.unregister_ftrace_direct(self, ops, addr)

    def load_functions(self, name: str, source: str) -> Mapping[str, int]:
        """Put guest functions of one's own into the machine (see guest_functions.py)."""
        return self._functions.load(name, source)

    # --- modules ---------------------------------------------------------------------------------

    def load_module(self, module: TracedModule) -> None:
        """Take over the call sites of a module whose code is in RAM and has not run yet."""
        ftrace_module_load(self, module)

    def unload_module(self, name: str) -> None:
        """Forget a module's call sites."""
        ftrace_release_mod(self, name)

    def watch(self, modules: Modules) -> None:
        """Take part in the coming and going of `modules`."""
        modules.coming.append(self.load_module)
        modules.going.append(self._module_going)
        modules.users.append(self._module_users)
        modules.is_running = lambda module: in_use(self, *_text_range(module))

    def _module_going(self, module: Module) -> None:
        self.livepatch.klp_module_going(*_text_range(module))
        self.unload_module(module.name)

    def _module_users(self, module: Module) -> list[str]:
        """Who leads into the text of `module`, or out of it in a way that must not be lost."""
        start, end = _text_range(module)
        symbol = self.kallsyms.sprint_symbol
        users = [
            f"direct call of {symbol(site)} to {symbol(target)}"
            for site, target in self.direct_functions.items()
            if start <= site < end or start <= target < end
        ]
        users += ["live patch" for f in self.livepatch.patched() if start <= f.new_func < end]
        users += [f"callback of {op.name}" for op in self.ops_list if start <= op.func < end]
        return users

    # --- files -----------------------------------------------------------------------------------

    def available_filter_functions(self) -> bytes:
        """The text of available_filter_functions."""
        return self.records.available_filter_functions

    def enabled_functions(self) -> bytes:
        """The text of enabled_functions."""
        return show.enabled_functions(self)

    def forget_touched(self) -> None:
        """No function counts as touched any more but those that are patched now."""
        show.forget_touched(self)

    def touched_functions(self) -> bytes:
        """The text of touched_functions."""
        return show.touched_functions(self)

    def dyn_ftrace_total_info(self) -> bytes:
        """The text of dyn_ftrace_total_info."""
        return show.dyn_ftrace_total_info(self)

    def open_regex(
        self,
        ops: FtraceOps,
        *,
        notrace: bool,
        flags: int,
        commands: dict[bytes, FtraceFuncCommand] | None = None,
        probes: Callable[[], bytes] = bytes,
    ) -> FtraceRegex:
        """Open set_ftrace_filter or set_ftrace_notrace of `ops` with open(2)'s `flags`."""
        self.settle_truncations()
        regex = FtraceRegex(
            self,
            ops,
            notrace=notrace,
            flags=flags,
            commands=commands,
            probes=probes,
            on_release=self._open_filters.remove,
        )
        self._open_filters.append(regex)
        return regex

    def regex_text(
        self, ops: FtraceOps, *, notrace: bool, probes: Callable[[], bytes] = bytes
    ) -> bytes:
        """What one who opens the file now would read; nothing is settled."""
        return FtraceRegex(self, ops, notrace=notrace, flags=os.O_RDONLY, probes=probes).read()

    def settle_truncations(self) -> None:
        """Make the truncations that closed files still owe, before another file is opened."""
        for each in self._open_filters:
            each.settle()

    def open_graph(self, *, notrace: bool, flags: int) -> FtraceGraphRegex:
        """Open set_graph_function or set_graph_notrace with open(2)'s `flags`."""
        self.settle_truncations()
        fgraph = self.fgraph
        regex = FtraceGraphRegex(
            self,
            flags=flags,
            hash=fgraph.ftrace_graph_notrace_hash if notrace else fgraph.ftrace_graph_hash,
            store=fgraph.set_graph_notrace if notrace else fgraph.set_graph_function,
            on_release=self._open_filters.remove,
        )
        self._open_filters.append(regex)
        return regex

    def graph_text(self, *, notrace: bool) -> bytes:
        """The text of set_graph_function or set_graph_notrace."""
        fgraph = self.fgraph
        hash = fgraph.ftrace_graph_notrace_hash if notrace else fgraph.ftrace_graph_hash
        return graph_hash_text(self, hash, notrace=notrace)


def _text_range(module: Module) -> tuple[int, int]:
    start, code = module.segments[".text"]
    return start, start + len(code)

"""A session over a distribution's kernel, booted in the daemon.

The guest runs all the time; the host's work is done between two blocks of its code. Who touches the
mount lives in the guest as well, beside the processes that `emulator/sh` starts there.
"""

from __future__ import annotations

import errno
import logging
import sys

from emulated_kernel.errors import (
    CallInterrupted,
    EmulatedKernelError,
    GuestDeadError,
    ImageError,
)
from emulated_kernel.host_events import HostEvents
from emulated_kernel.images import HOST_KERNEL
from emulated_kernel.images.linux import linux_image
from emulated_kernel.linux import cache_directory, load_vmlinuz
from emulated_kernel.linux.find import find_linux
from emulated_kernel.linux.guest import start
from emulated_kernel.linux.memory import PC, PERCPU
from emulated_kernel.linux.mirrors import Mirrors, Rehearsal
from emulated_kernel.linux.trace_events import LinuxEvents
from emulated_kernel.tasks import CallResult
from ftracefs.bare_session import load_ftrace
from ftracefs.errors import TracefsError
from ftracefs.files import dead_guest, linux_guest
from ftracefs.files.reset import FirstValues
from ftracefs.files.table import build_tree
from ftracefs.guest import Linux, load_guest
from ftracefs.mount.callers import Callers
from ftracefs.mount.linux_callers import LinuxCallers
from ftracefs.mount.mirrored import IsolatedCallers
from ftracefs.mount.tracefs import Options
from ftracefs.trace.events.linux import linux_events
from ftracefs.trace.events.linux_values import LinuxValues
from ftracefs.trace.tracing import FunctionCall, Tracing

log = logging.getLogger(__name__)

NO_CALLERS = (
    "in virtual time nobody of the host lives in the guest: set_ftrace_pid takes pids of the"
    " guest's own, and a line written to trace_marker is of whoever runs there"
)


class LinuxSession:
    """A running tracefs without its mount. Raises ImageError for a kernel that does not boot."""

    def __init__(self, options: Options) -> None:
        assert options.kernel is not None
        if options.modules:
            raise ImageError("a booted kernel takes no modules of one's own")
        if options.cpus > 1 and options.clock == "virtual":
            raise ImageError("in virtual time a booted kernel has one CPU only")
        cache = cache_directory()
        progress = _Progress(options.at_terminal)
        path = options.kernel
        if path == HOST_KERNEL:
            path = find_linux(cache, lambda text: print(f"ftracefs: {text}", file=sys.stderr))
        self.vmlinux = load_vmlinuz(path)
        self.guest = start(
            self.vmlinux,
            cache=cache,
            progress=progress,
            cpus=options.cpus,
            is_virtual=options.clock == "virtual",
        )
        progress.end()
        self.machine = self.guest.machine
        try:
            self._start(options)
        except BaseException:
            self.machine.close()
            raise

    def _start(self, options: Options) -> None:
        machine = self.machine
        has_callers = not options.isolated and options.clock != "virtual"
        rehearsal = Rehearsal(machine, self.guest.agents) if has_callers else None
        machine.call_in_process = self._call_in_process
        self.image = machine.run(lambda: linux_image(self.vmlinux, machine.memory.ram_array))
        offsets = self.image.linux
        assert offsets is not None
        machine.run(lambda: machine.take_kernel(self.image, self.vmlinux))
        code = load_guest(self.image.labels, linux=Linux(PC, PERCPU, offsets))
        self.ftrace = load_ftrace(machine, self.image, code)
        self.ftrace.text_poke.between_phases = self.guest.agents.let_guest_run
        events = LinuxEvents(machine.memory, self.vmlinux)
        values = LinuxValues(machine.memory, self.vmlinux)
        self.tracing = machine.run(
            lambda: Tracing(
                machine,
                self.image,
                self.ftrace,
                code,
                call_function=self.call_function,
                events=linux_events(self.ftrace, events, values),
            )
        )
        own = linux_guest.files(self.guest, self.tracing)
        self.root = build_tree(self.tracing, pure=options.pure, emulator=own)
        first_values = machine.run(lambda: FirstValues(self.tracing, self.root))
        dead_guest.refuse_when_dead(self.root, machine)

        def reset() -> None:
            dead_guest.check_alive(machine)
            first_values.restore()

        self.reset = lambda: machine.run(reset)
        self.callers: Callers = IsolatedCallers(machine)
        self._host_events: HostEvents | None = None
        if rehearsal is not None:
            rehearsal.join()
            self._let_callers_in()
        elif not options.isolated:
            log.warning(NO_CALLERS)

    def _let_callers_in(self) -> None:
        agents = self.guest.agents
        mirrors = Mirrors(self.machine, agents)
        self._host_events = HostEvents(mirrors, mirrors)
        self.callers = LinuxCallers(self.machine, agents, mirrors, self._host_events.catch_up)

    def _call_in_process(self, address: int, *arguments: int) -> int:
        """A function of the kernel that is to change something. In a guest that is dead there is
        nothing to change, and who takes his traces away must not fail."""
        try:
            return self.guest.agents.call_in_process(address, *arguments)
        except GuestDeadError:
            return 0
        except EmulatedKernelError as error:
            raise TracefsError(errno.EIO, str(error)) from error

    def call_function(self, call: FunctionCall) -> CallResult:
        """Run a function as a process of the guest (the file emulator/call)."""
        try:
            value = self.guest.agents.call_in_process(
                call.address,
                *call.arguments,
                count=call.count,
                is_interrupted=call.is_interrupted,
            )
        except CallInterrupted as error:
            raise TracefsError(errno.EINTR, str(error)) from error
        except GuestDeadError as error:
            raise TracefsError(errno.EIO, str(error)) from error
        except EmulatedKernelError as error:
            return CallResult(0, str(error))
        return CallResult(value)

    def kallsyms_text(self) -> str:
        """The symbols of kernel and engine, as /proc/kallsyms has them."""
        return self.machine.run(self.ftrace.kallsyms.text)

    def close(self) -> None:
        """Switch the guest off."""
        self.guest.close()
        if self._host_events is not None:
            self._host_events.close()


class _Progress:
    """The last line of the guest's console, on a terminal."""

    def __init__(self, shows: bool) -> None:
        self._shows = shows
        self._used = False

    def __call__(self, text: str) -> None:
        if self._shows:
            line = "".join(c if c.isprintable() else "?" for c in text)[:100]
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            self._used = True

    def end(self) -> None:
        if self._used:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

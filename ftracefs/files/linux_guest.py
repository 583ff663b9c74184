"""emulator/ over a booted Linux: what a guest has that the built-in kernel has not.

kernel      what is running, and whether it still is
console     what its first serial line shows
sh          a command line written is run by the guest's shell; what it wrote is read
sh_status   how the last command ended
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from emulated_kernel.errors import GuestDeadError
from emulated_kernel.linux.guest import LinuxGuest
from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, DeferredWrite, OpenFile, TracefsFile
from ftracefs.files.emulator import kernel_text
from ftracefs.files.kernel_functions import LoadedFunctions
from ftracefs.files.simple import SeqFile, ValueFile
from ftracefs.trace.parsers import c_string
from ftracefs.trace.tracing import Tracing

_POLL_S = 0.02
_INTERRUPTED_S = 2.0  # for a command to end at control-C


def files(guest: LinuxGuest, tracing: Tracing) -> dict[str, TracefsFile]:
    """The files by name, to stand in for those of other kernels or beside them."""
    return {
        "console": _with_mode(SeqFile(guest.machine.console.text), 0o440),
        "kernel": _with_mode(ValueFile(lambda: _kernel(guest, tracing)), 0o440),
        "sh": _with_mode(ShellFile(guest), 0o640),
        "sh_status": _with_mode(ValueFile(lambda: f"{guest.shell.status}\n"), 0o440),
    }


def _with_mode(file: TracefsFile, mode: int) -> TracefsFile:
    file.mode = mode
    return file


def _kernel(guest: LinuxGuest, tracing: Tracing) -> str:
    machine = guest.machine
    how = "restored" if guest.was_restored else "booted"
    rows = {
        "version": guest.vmlinux.banner,
        "start": f"{how} in {guest.start_s:.2f} s",
        "state": f"dead: {machine.failure}" if machine.failure else "running",
        "exceptions": "native" if machine.cpu.is_native else "by Python",
        "shell": "none: the host has no sh for it" if guest.shell.is_missing else "sh",
    }
    text = kernel_text(tracing, len(LoadedFunctions(tracing)()))
    return text + "".join(f"{name + ':':<14}{value}\n" for name, value in rows.items())


class ShellFile(TracefsFile):
    """`emulator/sh`: one shell, and the output of its last command, for everybody."""

    def __init__(self, guest: LinuxGuest) -> None:
        self.guest = guest

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _ShellOpen(self.guest)


class _ShellOpen(OpenFile):
    def __init__(self, guest: LinuxGuest) -> None:
        self._guest = guest
        self._text: bytes | None = None

    def read(self, size: int, offset: int, nonblock: bool) -> bytes:
        if self._text is None or offset == 0:
            self._text = self._guest.shell.partial_output()
        return self._text[offset : offset + size]

    def write(self, data: bytes, offset: int) -> int | DeferredWrite:
        command = c_string(data).strip()
        if not command:
            raise TracefsError(errno.EINVAL, "which command?")
        if self._guest.shell.is_missing:
            raise TracefsError(errno.ENOENT, "the guest has no shell: the host has none for it")

        def run(is_interrupted: Callable[[], bool]) -> int:
            self._text = None
            try:
                self._run(command, is_interrupted)
            except GuestDeadError as error:
                raise TracefsError(errno.EIO, str(error)) from error
            except ValueError as error:
                raise TracefsError(errno.E2BIG, str(error)) from error
            return len(data)

        return run

    def _run(self, command: bytes, is_interrupted: Callable[[], bool]) -> None:
        """Wait for the turn, then for the end. EINTR, with the command ended as by control-C."""
        shell, machine = self._guest.shell, self._guest.machine

        def wait() -> None:
            while not shell.wait(lambda: shell.is_ready, _POLL_S):
                if is_interrupted():
                    raise TracefsError(errno.EINTR, os.strerror(errno.EINTR))

        wait()
        while not machine.run(lambda: shell.start(command)):
            wait()
        try:
            wait()
        except TracefsError:
            for harder in (False, True):
                machine.run(lambda harder=harder: shell.interrupt(harder=harder))  # type: ignore[misc]
                if shell.wait(lambda: shell.is_ready, _INTERRUPTED_S):
                    break
            raise

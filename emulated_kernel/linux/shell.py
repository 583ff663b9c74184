"""The guest's shell at the other end of the second serial line (init.S, commands.sh).

One command at a time. What it writes is kept until the next one; RS, its mark, its exit status and
a newline end it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import threading
from collections.abc import Callable
from typing import Any

from emulated_kernel.linux.pc import PcMachine

_UP, _NO_SHELL = 0x06, 0x15
_END = re.compile(rb"\x1e(\w+) (\d{1,3})\n\Z")
_END_MAX, _MARK_BYTES = 48, 8
_READY, _EXIT = b"ready", b"exit"  # the marks of a shell that has begun, and of one that ends
_SIGNALLED = 130  # how a shell ended that could not say so
_INTERRUPT, _QUIT = b"\x03", b"\x1c"
COMMAND_MAX = 3000  # with its escapes: the line of a serial port takes 4095 bytes
OUTPUT_MAX = 16 << 20


class Shell:
    """The line's state; everything but `wait` is for the machine thread."""

    def __init__(self, machine: PcMachine) -> None:
        self._machine = machine
        self._received = bytearray()
        self.is_up = False  # init runs
        self.is_ready = False  # there is a shell, and it waits for a command
        self.is_missing = False
        self.output = b""
        self.status = 0
        self._mark = _READY
        self._exit_status = _SIGNALLED
        self._commands = 0
        self._changed = threading.Condition()
        machine.on_line_output = self._receive
        machine.on_failure.append(self._notify)

    def _receive(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            end = at + 1
            if not self.is_up:
                self.is_up = data[at] == _UP
                self._notify()
            elif data[at] == _NO_SHELL and not self._received and not self.is_ready:
                self._machine.settle(lambda: self._settled(missing=True))
            else:
                end = data.find(b"\n", at) + 1 or len(data)
                self._append(data[at:end])
            at = end

    def _append(self, data: bytes) -> None:
        """What the shell writes, at most to the end of a line."""
        self._received += data
        end = _END.search(self._received[-_END_MAX:]) if data.endswith(b"\n") else None
        if end is not None and end[1] in (self._mark, _READY, _EXIT):
            self._ended(end[1], int(end[2]), len(end[0]))
        elif len(self._received) > OUTPUT_MAX:
            del self._received[: OUTPUT_MAX // 2]

    def _ended(self, mark: bytes, status: int, size: int) -> None:
        """A command, or the shell with it: then the next one's beginning is the end."""
        del self._received[-size:]
        if mark == _EXIT:
            self._exit_status = status
            return
        if mark == _READY and self._mark != _READY:
            status = self._exit_status
        self.output, self.status = bytes(self._received), status
        self._received.clear()
        self._machine.settle(lambda: self._settled(missing=False))

    def _settled(self, *, missing: bool) -> None:
        self.is_ready, self.is_missing = not missing, missing
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until `condition` holds; False when it does not in time.

        Raises GuestDeadError when the guest dies meanwhile.
        """
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._machine.failure, timeout)
        if not condition():
            self._machine.check_alive()
            return False
        return True

    def start(self, command: bytes) -> bool:
        """Give the shell a command; False while it still runs another one."""
        self._machine.check_alive()
        if not self.is_ready:
            return False
        line = encode(command)
        self._mark = self._new_mark()
        self._exit_status = _SIGNALLED
        self.is_ready = False
        self.output = b""
        self._machine.rouse()
        self._machine.line.send(self._mark + b" " + line)
        return True

    def _new_mark(self) -> bytes:
        """What ends a command: not to be guessed, but in virtual time the same in every run."""
        self._commands += 1
        if self._machine.time.is_virtual:
            number = b"%d" % self._commands
            return hashlib.sha256(number).hexdigest()[: 2 * _MARK_BYTES].encode()
        return secrets.token_hex(_MARK_BYTES).encode()

    def save(self) -> dict[str, Any]:
        """What `restore` takes."""
        return {"ready": self.is_ready, "missing": self.is_missing}

    def restore(self, saved: dict[str, Any]) -> None:
        self.is_up = True
        self.is_ready, self.is_missing = bool(saved["ready"]), bool(saved["missing"])

    def partial_output(self) -> bytes:
        """What has been written so far, or by the last command."""
        return self.output if self.is_ready else bytes(self._received)

    def interrupt(self, *, harder: bool = False) -> None:
        """Control-C; or Control-backslash, for what takes no notice of that."""
        if not self.is_ready:
            self._machine.line.send(_QUIT if harder else _INTERRUPT)


def encode(command: bytes) -> bytes:
    """A command as the shell's loop wants it. ValueError for one that is too long."""
    line = command.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\0", b"") + b"\n"
    line = line.replace(_INTERRUPT, b"\\03").replace(_QUIT, b"\\034")
    if len(line) > COMMAND_MAX:
        raise ValueError(f"a command of more than {COMMAND_MAX} bytes")
    return line

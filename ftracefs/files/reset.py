"""Every file back to what it read when the kernel had just booted.

What the kernel's own tests do between two of them (initialize_ftrace of its ftracetest), for all
files at once and without knowing them: a control file that can be read and written is compared with
its first text, and what differs is written back in one of the few ways in which tracefs files take
a value. What has no such file (records, sizes, names, the emulator's logs) is emptied by hand.

Counters of `emulator/kernel`, the clock and the guest's tasks go on.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress

from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, Directory, TracefsFile
from ftracefs.files.disassembly import TextDirectory
from ftracefs.files.emulator import CallFile
from ftracefs.files.events import EventsDirectory
from ftracefs.files.instances import Instances
from ftracefs.files.linux_guest import ShellFile
from ftracefs.trace.array_buffer import EMPTY_BUFFER_SIZE, free_snapshot
from ftracefs.trace.tracing import Tracing

# What reads as records or figures, and what is put back by hand.
_NOT_COMPARED = re.compile(
    r"(.*/)?(trace|snapshot|buffer_size_kb|error_log)|trace_stat/.*|emulator/(call|sh)"
)
# No control files, none of its own, and those that set_event speaks for.
_NOT_WALKED = (TextDirectory, Instances, EventsDirectory)
_PASSES = 4  # a file may be refused until another one is back
_FIRST = ("current_tracer", "emulator/sysctl/ftrace_enabled")
_MODULES = "emulator/modules"
_CHOSEN = re.compile(r"\[([^\]\s]+)\]")
_READ_SIZE = 1 << 20


class FirstValues:
    """The control files below `root` as they read now; made when nothing was changed yet."""

    def __init__(self, tracing: Tracing, root: Directory) -> None:
        self._tracing = tracing
        self._root = root
        files = {
            path: file
            for path, file in _files(root)
            if file.mode & 0o600 == 0o600 and not _NOT_COMPARED.fullmatch(path)
        }
        order = sorted(files, key=lambda path: (path not in _FIRST, path))
        self._files = {path: files[path] for path in order}
        self._first = {path: _read(file) for path, file in self._files.items()}

    def restore(self) -> None:
        """Put everything back. EBUSY, naming what would not go back, when something is in use."""
        self._remove_instances()
        for _ in range(_PASSES):
            changed = self._changed()
            if not changed:
                break
            for path in changed:
                self._write_back(path)
        self._empty()
        if changed := self._changed():
            raise TracefsError(errno.EBUSY, f"not as at first: {', '.join(changed)}")

    def _remove_instances(self) -> None:
        for _, instances in _directories(self._root):
            if isinstance(instances, Instances):
                for name in instances:
                    instances.rmdir(name)

    def _changed(self) -> list[str]:
        return [path for path, file in self._files.items() if not self._is_first(path, file)]

    def _is_first(self, path: str, file: TracefsFile) -> bool:
        try:
            text = _read(file)
        except TracefsError:
            return False
        first = self._first[path]
        return _modules(text) == _modules(first) if path == _MODULES else text == first

    def _write_back(self, path: str) -> None:
        """Try one way of writing after the other until the first text is there."""
        file, first = self._files[path], self._first[path]
        for command in self._commands(path, file, first):
            with suppress(TracefsError):
                _write(file, command)
            if self._is_first(path, file):
                return

    def _commands(self, path: str, file: TracefsFile, first: str) -> Iterator[str | None]:
        if path == _MODULES:
            now, then = _modules(_read(file)), _modules(first)
            yield from (f"unload {name}" for name in now if name not in then)
            yield from (f"load {name}" for name in reversed(then) if name not in now)
            return
        yield None  # lists of functions and pids
        if chosen := _CHOSEN.search(first):
            yield chosen[1]
            return
        lines = first.splitlines()
        if len(lines) == 1 and not first.startswith("#"):
            yield lines[0]
        now_lines = _read(file).splitlines()
        yield from (line for line in lines if line not in now_lines and not line.startswith("#"))
        yield from (
            # A command for ever is taken back without its count.
            f"!{line.strip().removesuffix(':unlimited')}"
            for line in reversed(now_lines)
            if line not in lines and not line.startswith("#")
        )

    def _empty(self) -> None:
        tracing = self._tracing
        tr = tracing.global_trace
        if tr.allocated_snapshot:
            free_snapshot(tr)
        if tracing.ring_buffer_expanded:
            tr.tracing_resize_ring_buffer(EMPTY_BUFFER_SIZE)
            tracing.ring_buffer_expanded = False
        tr.tracing_reset_online_cpus()
        tr.err_log.clear()
        tracing.saved_cmdlines.clear()
        tracing.saved_tgids.clear()
        tracing.ftrace.profiler.forget()
        tracing.stack_tracer.forget()
        tracing.ftrace.forget_touched()
        tracing.ftrace.text_poke.clear_log()
        tracing.console.clear()
        for _, file in _files(self._root):
            if isinstance(file, CallFile):
                file.last = ""
            elif isinstance(file, ShellFile):
                file.guest.shell.output = b""


def _directories(root: Directory) -> Iterator[tuple[str, Directory]]:
    """`root` and what is below it; the path of each ends with a slash or is empty."""
    waiting = [("", root)]
    while waiting:
        prefix, directory = waiting.pop()
        yield prefix, directory
        if isinstance(directory, _NOT_WALKED):
            continue
        for name in directory:
            node = directory.lookup(name)
            if isinstance(node, Directory):
                waiting.append((f"{prefix}{name}/", node))


def _files(root: Directory) -> Iterator[tuple[str, TracefsFile]]:
    for prefix, directory in _directories(root):
        if isinstance(directory, _NOT_WALKED):
            continue
        for name in directory:
            node = directory.lookup(name)
            if isinstance(node, TracefsFile):
                yield prefix + name, node


def _modules(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()]


def _nobody() -> Caller:
    return Caller(os.getpid())


def _read(file: TracefsFile) -> str:
    opened = file.dentry_open(os.O_RDONLY, _nobody())
    try:
        text = bytearray()
        while True:
            part = opened.read(_READ_SIZE, len(text), True)
            data = part() if callable(part) else part
            if not isinstance(data, bytes) or not data:
                return text.decode("utf-8", "surrogateescape")
            text += data
    finally:
        opened.flush()
        opened.fput()


def _write(file: TracefsFile, command: str | None) -> None:
    """Write a line; without one, open and close the file as `> file` does."""
    opened = file.dentry_open(os.O_WRONLY | (os.O_TRUNC if command is None else 0), _nobody())
    try:
        left = b"" if command is None else f"{command}\n".encode("utf-8", "surrogateescape")
        while left:
            taken = opened.write(left, 0)
            left = left[taken if isinstance(taken, int) else taken(lambda: False) :]
    finally:
        opened.flush()
        opened.fput()

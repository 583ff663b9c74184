"""set_ftrace_filter and set_ftrace_notrace: ftrace_regex_open, _write and _release.

A writer works on a hash of its own, a copy of the op's or, with O_TRUNC, an empty one, which
becomes the op's when the file is closed. So a reader sees the old list meanwhile, of two writers
the last to close wins, and replacing one function by another never passes through "all functions".

Linux: ftrace_regex_release does that at the last close. Here each `flush` (one close(2) of one
descriptor) after a write does, since a release may come long after close(2) has returned. A flush
with nothing written leaves a truncation pending, for the shell closes a duplicate of the descriptor
before it writes; the truncation is then made by the release, or by `settle` before anything else
looks at the filters.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import numpy as np

from ftracefs.errors import TracefsError
from ftracefs.ftrace.hash_update import ftrace_hash_move_and_update_ops
from ftracefs.ftrace.hashes import (
    EMPTY_HASH,
    FTRACE_HASH_FL_MOD,
    FtraceHash,
    ftrace_hash_empty,
)
from ftracefs.ftrace.match import match_records
from ftracefs.ftrace.ops import FtraceModLoad, FtraceOps
from ftracefs.ftrace.state import FtraceState
from ftracefs.ftrace.trace_parser import TraceParser

# A function command (struct ftrace_func_command): regex, func, command, parameter (None: there was
# no colon behind the command).
FtraceFuncCommand = Callable[["FtraceRegex", bytes, bytes, bytes | None], None]


class FtraceRegex:
    """One open(2) of a filter file of `ops`.

    `commands` are those the file takes besides `mod`; `probes` gives the text of the commands that
    are set, which a reader sees behind the functions.
    """

    def __init__(
        self,
        state: FtraceState,
        ops: FtraceOps,
        *,
        notrace: bool,
        flags: int,
        commands: dict[bytes, FtraceFuncCommand] | None = None,
        probes: Callable[[], bytes] = bytes,
        on_release: Callable[[FtraceRegex], None] = lambda _: None,
    ) -> None:
        if state.ftrace_disabled:
            raise TracefsError(errno.ENODEV, "ftrace is disabled")
        self.state = state
        self.ops = ops
        self.notrace = notrace
        self._commands = {b"mod": _ftrace_mod_callback, **(commands or {})}
        self._probes = probes
        self._on_release = on_release
        self._parser = TraceParser()
        self._mod_list = ops.mod_notrace if notrace else ops.mod_trace
        self.writable = flags & os.O_ACCMODE != os.O_RDONLY
        self.hash = ops.func_hash.notrace_hash if notrace else ops.func_hash.filter_hash
        self._written = False  # since the last flush
        self._truncating = self.writable and bool(flags & os.O_TRUNC)
        self._flushed = False
        self._parts: tuple[bytes, ...] | None = None
        if self._truncating:
            self.hash = EMPTY_HASH
            self._mod_list.clear()

    # --- writing ---------------------------------------------------------------------------------

    def write(self, data: bytes) -> int:
        """ftrace_regex_write: take one word, and return the bytes up to and with its end.

        EINVAL when the word names nothing, or is too long.
        """
        if not self.writable:
            raise TracefsError(errno.EBADF, "opened for reading")
        if not data:
            return 0
        if self.state.ftrace_disabled:
            raise TracefsError(errno.ENODEV, "ftrace is disabled")
        self._written, self._parts = True, None
        consumed = self._parser.trace_get_user(data)
        if self._parser.loaded and not self._parser.cont:
            self._process_word()
        return consumed

    def _process_word(self) -> None:
        word = bytes(self._parser.buffer)
        self._parser.clear()
        self.ftrace_process_regex(word)

    def ftrace_process_regex(self, word: bytes) -> None:
        """Act on one word: functions to enter or take out, or a command."""
        func, colon, rest = word.partition(b":")
        if not colon:
            hash = match_records(self.state.records, self.hash, func)
            if hash is None:
                raise TracefsError(errno.EINVAL, f"{word!r} names no function")
            self.hash = hash
            return
        name, colon, parameter = rest.partition(b":")
        command = self._commands.get(name)
        if command is None:
            raise TracefsError(errno.EINVAL, f"{name!r} is no command")
        command(self, func, name, parameter if colon else None)

    # --- closing ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """One descriptor was closed: what was written since the last time takes effect."""
        self._flushed = True
        if self._written:
            self._commit()

    def settle(self) -> None:
        """Make a truncation that only waits for a write after a descriptor was closed."""
        if self._truncating and self._flushed:
            self._commit()

    def release(self) -> None:
        """The last descriptor is gone."""
        self._on_release(self)
        if self._written or self._truncating:
            self._commit()

    def _commit(self) -> None:
        """The rest of ftrace_regex_release."""
        self._written = self._truncating = False
        if self._parser.loaded:
            try:
                self._process_word()
            except TracefsError:
                pass  # close(2) does not report a bad word
        if not self.notrace:
            waiting = FTRACE_HASH_FL_MOD if self._mod_list else 0
            self.hash = self.hash.with_flags(waiting)
        if not self.state.ftrace_disabled:
            ftrace_hash_move_and_update_ops(
                self.state, self.ops, self.hash, enable=not self.notrace
            )

    # --- reading ---------------------------------------------------------------------------------

    def read(self) -> bytes:
        """The whole text: of the list as it was at open, or as this file has changed it since."""
        return b"".join(self._shown())

    def seq_read(self, size: int, offset: int) -> bytes:
        """What one read gives: it does not go on from one part of the text to the next (t_next)."""
        begin = 0
        for part in self._shown():
            if offset < begin + len(part):
                return part[offset - begin :][:size]
            begin += len(part)
        return b""

    def _shown(self) -> tuple[bytes, ...]:
        if self._parts is None:
            self._parts = regex_parts(
                self.state, self.hash, self._mod_list, notrace=self.notrace, probes=self._probes
            )
        return self._parts


def regex_parts(
    state: FtraceState,
    hash: FtraceHash,
    mod_list: list[FtraceModLoad],
    *,
    notrace: bool,
    probes: Callable[[], bytes] = bytes,
) -> tuple[bytes, ...]:
    """What a filter file shows: functions, filters that wait for a module, commands."""
    if ftrace_hash_empty(hash):
        what = b"no functions disabled" if notrace else b"all functions enabled"
        functions = [b"#### " + what + b" ####"]
    else:
        functions = state.records.lines(np.flatnonzero(state.records.in_hash(hash)))
    waiting = [mod.func + b":mod:" + mod.module for mod in mod_list]
    texts = [b"".join(line + b"\n" for line in lines) for lines in (functions, waiting)]
    return (*texts, b"" if notrace else probes())


# --- the command `mod` ----------------------------------------------------------------------------


def _ftrace_mod_callback(
    regex: FtraceRegex, func: bytes, _command: bytes, module: bytes | None
) -> None:
    """`FUNC:mod:MODULE`: functions of that module, now or as soon as it is loaded."""
    hash = match_records(regex.state.records, regex.hash, func, module)
    if hash is not None:
        regex.hash = hash
        return
    mod_list = regex.ops.mod_notrace if regex.notrace else regex.ops.mod_trace
    cache_mod(regex.state, mod_list, func, module)


def cache_mod(
    state: FtraceState, mod_list: list[FtraceModLoad], func: bytes, module: bytes | None
) -> None:
    """Keep a filter until its module comes, or (`!`) forget it.

    EINVAL when the module is there already or nothing of the kind is kept; ENOMEM for `FUNC:mod`
    without a module, where Linux finds no text to keep.
    """
    if func.startswith(b"!"):
        func = func[1:]
        gone = [m for m in mod_list if m.module == module and func in (b"*", m.func)]
        if not gone:
            raise TracefsError(errno.EINVAL, "no such filter waits for a module")
        mod_list[:] = [m for m in mod_list if m not in gone]
        return
    if module is None:
        raise TracefsError(errno.ENOMEM, "no module given")
    if any(g.module is not None and g.module.encode() == module for g in state.records.groups):
        raise TracefsError(errno.EINVAL, "no such function in the module")
    mod_list.insert(0, FtraceModLoad(func, module))

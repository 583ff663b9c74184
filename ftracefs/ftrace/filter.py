"""set_ftrace_filter and set_ftrace_notrace: ftrace_regex_open, _write and _release.

A word is functions to enter or take out, or a command.
"""

from __future__ import annotations

import errno
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
from ftracefs.ftrace.open_filter import OpenFilter
from ftracefs.ftrace.ops import FtraceModLoad, FtraceOps
from ftracefs.ftrace.state import FtraceState

# A function command (struct ftrace_func_command): regex, func, command, parameter (None: there was
# no colon behind the command).
FtraceFuncCommand = Callable[["FtraceRegex", bytes, bytes, bytes | None], None]


class FtraceRegex(OpenFilter):
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
        on_release: Callable[[OpenFilter], None] = lambda _: None,
    ) -> None:
        super().__init__(state, flags=flags, on_release=on_release)
        self.ops = ops
        self.notrace = notrace
        self._commands = {b"mod": _ftrace_mod_callback, **(commands or {})}
        self._probes = probes
        self._mod_list = ops.mod_notrace if notrace else ops.mod_trace
        self.hash = ops.func_hash.notrace_hash if notrace else ops.func_hash.filter_hash
        self._parts: tuple[bytes, ...] | None = None
        if self._truncating:
            self.hash = EMPTY_HASH
            self._mod_list.clear()

    # --- writing ---------------------------------------------------------------------------------

    def write(self, data: bytes) -> int:
        """ftrace_regex_write."""
        if data and self.state.ftrace_disabled:
            raise TracefsError(errno.ENODEV, "ftrace is disabled")
        self._parts = None
        return super().write(data)

    def _process(self, word: bytes) -> None:
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

    def _put_in_force(self) -> None:
        """The rest of ftrace_regex_release."""
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

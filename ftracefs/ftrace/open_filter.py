"""An open filter file: words are taken as they are written, and in force when it is closed.

A writer works on a list of its own, a copy of the one in force or, with O_TRUNC, an empty one,
which takes its place when the file is closed. So a reader sees the old list meanwhile, of two
writers the last to close wins, and replacing one function by another never passes through "all
functions".

Linux does that in release, at the last close. Here each `flush` (one close(2) of one descriptor)
after a write does, since a release may come long after close(2) has returned. A flush with nothing
written leaves a truncation pending, for the shell closes a duplicate of the descriptor before it
writes; the truncation is then made by the release, or by `settle` before anything else looks at
the filters.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from ftracefs.errors import TracefsError
from ftracefs.ftrace.state import FtraceState
from ftracefs.ftrace.trace_parser import TraceParser


class OpenFilter(ABC):
    """One open(2). ENODEV when ftrace is disabled."""

    def __init__(
        self, state: FtraceState, *, flags: int, on_release: Callable[[OpenFilter], None]
    ) -> None:
        if state.ftrace_disabled:
            raise TracefsError(errno.ENODEV, "ftrace is disabled")
        self.state = state
        self._on_release = on_release
        self._parser = TraceParser()
        self._writable = flags & os.O_ACCMODE != os.O_RDONLY
        self._truncating = self._writable and bool(flags & os.O_TRUNC)
        self._written = False  # since the last flush
        self._flushed = False

    @abstractmethod
    def _process(self, word: bytes) -> None:
        """Act on one word; EINVAL when it names nothing."""

    @abstractmethod
    def _put_in_force(self) -> None:
        """Have what was written take the place of what was there."""

    def write(self, data: bytes) -> int:
        """Take one word, and return the bytes up to and with its end.

        EINVAL when the word names nothing, or is too long.
        """
        if not self._writable:
            raise TracefsError(errno.EBADF, "opened for reading")
        if not data:
            return 0
        self._written = True
        consumed = self._parser.trace_get_user(data)
        if self._parser.loaded and not self._parser.cont:
            self._process_word()
        return consumed

    def _process_word(self) -> None:
        word = bytes(self._parser.buffer)
        self._parser.clear()
        self._process(word)

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
        self._written = self._truncating = False
        if self._parser.loaded:
            with suppress(TracefsError):  # close(2) does not report a bad word
                self._process_word()
        self._put_in_force()

"""The two common shapes of a file: a value made anew at each read, and a sequence made once.

Models simple_read_from_buffer over a value, and seq_file (fs/seq_file.c), which keeps its text
until the reader goes back to the start.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from ftracefs.errors import TracefsError
from ftracefs.files.base import (
    Caller,
    Deferred,
    DeferredSize,
    OpenFile,
    Pending,
    TracefsFile,
    accmode,
)

Show = Callable[[], str | bytes]
Store = Callable[[bytes], int | None]


def is_writable(flags: int) -> bool:
    """FMODE_WRITE of an open's flags."""
    return accmode(flags) != os.O_RDONLY


def is_readable(flags: int) -> bool:
    """FMODE_READ of an open's flags."""
    return accmode(flags) != os.O_WRONLY


def truncates(flags: int) -> bool:
    """Whether an open with these flags empties the file: O_TRUNC of a writer."""
    return is_writable(flags) and bool(flags & os.O_TRUNC)


class _Open(OpenFile):
    def __init__(self, show: Show | None, store: Store | None, keeps_text: bool) -> None:
        self._show = show
        self._store = store
        self._keeps_text = keeps_text
        self._text: bytes | None = None

    def read(self, size: int, offset: int, nonblock: bool) -> bytes | Deferred | Pending:
        if self._show is None:
            raise TracefsError(errno.EINVAL, "not readable")
        if self._text is None or offset == 0 or not self._keeps_text:
            text = self._show()
            self._text = text if isinstance(text, bytes) else text.encode()
        return self._text[offset : offset + size]

    def write(self, data: bytes, offset: int) -> int:
        if self._store is None:
            raise TracefsError(errno.EINVAL, "not writable")
        taken = self._store(data)
        return len(data) if taken is None else taken


class ValueFile(TracefsFile):
    """A value. `store` acts on one write and returns the bytes taken, or None for all of them."""

    _keeps_text = False

    def __init__(self, show: Show | None, store: Store | None = None) -> None:
        self._show = show
        self._store = store

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _Open(self._show, self._store, self._keeps_text)

    def size(self) -> int | DeferredSize:
        if self._show is None:
            return 0
        text = self._show()
        return len(text) if isinstance(text, bytes) else len(text.encode())


class SeqFile(ValueFile):
    """A sequence of records, or a longer text. `clear` is done by an open that truncates."""

    _keeps_text = True

    def __init__(
        self, show: Show, store: Store | None = None, clear: Callable[[], None] | None = None
    ) -> None:
        super().__init__(show, store)
        self._clear = clear

    def open(self, flags: int, caller: Caller) -> OpenFile:
        if self._clear is not None and truncates(flags):
            self._clear()
        return super().open(flags, caller)


def ignore(_data: bytes) -> None:
    """A store that takes any write and does nothing with it."""

"""One word per write(2): struct trace_parser and trace_get_user (kernel/trace/trace.c).

A write gives at most one word; what is left of its data is the next write's. A word that no white
space or NUL has ended yet is kept and goes on with the next write.
"""

from __future__ import annotations

import errno

from ftracefs.errors import TracefsError

FTRACE_BUFF_MAX = 670  # KSYM_SYMBOL_LEN + 4
_SPACE = b" \t\n\v\f\r\xa0"  # isspace() of the kernel's ctype table
_END = _SPACE + b"\0"


class TraceParser:
    """The word that is being collected."""

    def __init__(self, size: int = FTRACE_BUFF_MAX) -> None:
        self._size = size
        self.buffer = bytearray()
        self.cont = False  # the last write ended inside a word
        self._fail = False

    @property
    def loaded(self) -> bool:
        """Whether there is a word, ended or not; never again once a word was too long."""
        return not self._fail and bool(self.buffer)

    def clear(self) -> None:
        """Forget the word."""
        self.buffer.clear()
        self.cont = False

    def trace_get_user(self, data: bytes) -> int:
        """Take up to one word from `data` and return the bytes consumed.

        A word longer than the buffer raises EINVAL, and whatever is written later has no effect.
        """
        at = 0
        if not self.cont:
            at = len(data) - len(data.lstrip(_SPACE))
            self.buffer.clear()
            if at == len(data):
                return at
            if data[at] == 0:
                return at + 1
        end = at
        while end < len(data) and data[end] not in _END:
            end += 1
        room = self._size - 1 - len(self.buffer)
        self.buffer += data[at : min(end, at + room)]
        if end - at > room:
            self._fail = True
            raise TracefsError(errno.EINVAL, f"a word of more than {self._size - 1} bytes")
        self.cont = end == len(data)
        return end if self.cont else end + 1

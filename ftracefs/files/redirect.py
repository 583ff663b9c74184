"""Files that send a function's calls elsewhere.

A command is a line: `FUNCTION TARGET`, or `!FUNCTION` to undo it. Reading gives the commands that
would make what is there. A write takes one line and returns its length, so several lines may be
written at once.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable

from ftracefs.errors import TracefsError
from ftracefs.files.simple import SeqFile
from ftracefs.ftrace import Ftrace
from ftracefs.trace.parsers import c_string

_TEXT_KINDS = frozenset("tTwW")


def lookup_function(ftrace: Ftrace, name: str) -> int:
    """The address of a function, be it a module's or the engine's; ENOENT when there is none."""
    address = ftrace.kallsyms.kallsyms_lookup_name(name)
    location = None if address is None else ftrace.kallsyms.kallsyms_lookup(address)
    if address is None or location is None or location.kind not in _TEXT_KINDS:
        raise TracefsError(errno.ENOENT, f"no function {name}")
    return address


def function_name(ftrace: Ftrace, address: int) -> str:
    """The name of the function that `address` lies in, or the address."""
    location = ftrace.kallsyms.kallsyms_lookup(address)
    return f"{address:#x}" if location is None else location.name


class RedirectFile(SeqFile):
    """`pairs` are (function, target) addresses; `add` and `remove` act on a pair.

    `remove` gets 0 for a target that was not given.
    """

    def __init__(
        self,
        ftrace: Ftrace,
        pairs: Callable[[], Iterable[tuple[int, int]]],
        add: Callable[[int, int], None],
        remove: Callable[[int, int], None],
    ) -> None:
        super().__init__(self._text, self._command)
        self._ftrace = ftrace
        self._pairs = pairs
        self._add = add
        self._remove = remove

    def _text(self) -> str:
        names = (
            (function_name(self._ftrace, function), function_name(self._ftrace, target))
            for function, target in self._pairs()
        )
        return "".join(f"{function} {target}\n" for function, target in names)

    def _command(self, data: bytes) -> int:
        line, newline, _ = c_string(data).partition(b"\n")
        words = line.decode("utf-8", "replace").split()
        taken = len(line) + 1 if newline else len(data)
        if not words and newline:
            return taken
        removing = bool(words) and words[0].startswith("!")
        if len(words) not in ((1, 2) if removing else (2,)):
            raise TracefsError(errno.EINVAL, "FUNCTION TARGET or !FUNCTION")
        function, *target = (lookup_function(self._ftrace, w.removeprefix("!")) for w in words)
        act = self._remove if removing else self._add
        act(function, target[0] if target else 0)
        return taken

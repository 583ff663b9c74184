"""echo and cat on a session's files, without a mount."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from ftracefs.files.base import Caller, Node, OpenFile, Pending
from ftracefs.mount.tracefs import Options
from ftracefs.session import Session

CALLER = Caller(os.getpid())


class Shell:
    """The files of `session` as a shell script sees them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.machine = session.machine

    def node(self, path: str) -> Node:
        node: Node = self.session.root
        for name in path.split("/"):
            node = node.lookup(name)  # type: ignore[union-attr]
        return node

    def cat(self, path: str) -> str:
        """All there is to read now; a file that would block ends there."""
        file = self.machine.run(lambda: self.node(path).dentry_open(os.O_RDONLY, CALLER))  # type: ignore[union-attr]
        text = bytearray()
        while True:
            part = self.machine.run(partial(file.read, 1 << 17, len(text), False))
            if isinstance(part, Pending):
                break
            if callable(part):
                part = part()
            if not part:
                break
            text += part
        self.machine.run(file.flush)
        self.machine.run(file.fput)
        return text.decode(errors="surrogateescape")

    def echo(self, text: str, path: str, *, append: bool = False) -> None:
        """`echo TEXT > PATH`, in as many writes as it takes; raises TracefsError."""
        flags = os.O_WRONLY | (os.O_APPEND if append else os.O_TRUNC)
        file = self.machine.run(lambda: self.node(path).dentry_open(flags, CALLER))  # type: ignore[union-attr]
        left = f"{text}\n".encode()
        try:
            while left:
                done = self.machine.run(partial(file.write, left, 0))
                left = left[done(lambda: False) if callable(done) else done :]
        finally:
            self.machine.run(file.flush)
            self.machine.run(file.fput)

    def mkdir(self, path: str) -> None:
        """`mkdir PATH`; raises TracefsError."""
        parent, _, name = path.rpartition("/")
        self.machine.run(lambda: self.node(parent).mkdir(name))  # type: ignore[union-attr]

    def rmdir(self, path: str) -> None:
        """`rmdir PATH`; raises TracefsError."""
        parent, _, name = path.rpartition("/")
        self.machine.run(lambda: self.node(parent).rmdir(name))  # type: ignore[union-attr]

    @contextmanager
    def opened(self, path: str, flags: int = os.O_RDONLY) -> Iterator[OpenFile]:
        """`exec 3< PATH` and `exec 3<&-`."""
        file = self.machine.run(lambda: self.node(path).dentry_open(flags, CALLER))  # type: ignore[union-attr]
        try:
            yield file
        finally:
            self.machine.run(file.flush)
            self.machine.run(file.fput)

    def truncate(self, path: str) -> None:
        """`: > PATH`."""
        flags = os.O_WRONLY | os.O_TRUNC
        file = self.machine.run(lambda: self.node(path).open(flags, CALLER))  # type: ignore[union-attr]
        self.machine.run(file.flush)
        self.machine.run(file.release)


@contextmanager
def isolated(*, cpus: int = 2, clock: str = "virtual") -> Iterator[Shell]:
    """A session of its own in which nothing runs by itself."""
    session = Session(Options(cpus=cpus, clock=clock, isolated=True))  # type: ignore[arg-type]
    try:
        yield Shell(session)
    finally:
        session.close()

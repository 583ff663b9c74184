"""A distribution's kernel that runs in this process, its files and the shell in it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from ftracefs.errors import TracefsError
from ftracefs.files.base import TracefsFile
from ftracefs.linux_session import LinuxSession
from ftracefs.mount.tracefs import Options
from support.linux_kernel import require_linux
from support.shell import CALLER, Shell


class LinuxShell(Shell):
    """The files of a session, and the guest's shell behind one of them."""

    session: LinuxSession  # type: ignore[assignment]

    def sh(self, command: str) -> str:
        """Run a command line in the guest."""
        self.echo(command, "emulator/sh")
        return self.cat("emulator/sh")

    def kernel_text(self) -> bytes:
        text, memory = self.session.vmlinux.text, self.machine.memory
        return self.machine.run(lambda: memory.read(text.start, text.end - text.start))

    def changed_functions(self, before: bytes) -> set[str]:
        """In which functions the kernel's text is not what it was.

        Without those that the kernel itself rewrites, once, when it has random numbers enough.
        """
        old, new = (np.frombuffer(text, np.uint8) for text in (before, self.kernel_text()))
        start = self.session.vmlinux.text.start
        places = np.flatnonzero(old != new).tolist()
        names = {self.session.ftrace.kallsyms.sprint_symbol(start + at) for at in places}
        return {name for name in names if not re.search(r"random|crng|rng_|entropy", name)}

    def interrupt(
        self,
        command: str,
        path: str = "emulator/sh",
        when: Callable[[], object] = lambda: True,
    ) -> None:
        """Write a command, and be interrupted while it runs: EINTR."""
        node = self.node(path)
        assert isinstance(node, TracefsFile)
        file = self.machine.run(lambda: node.dentry_open(os.O_WRONLY, CALLER))
        write = self.machine.run(lambda: file.write(command.encode(), 0))
        assert callable(write)
        with pytest.raises(TracefsError) as error:
            write(lambda: bool(when()))
        self.machine.run(file.fput)
        assert error.value.errno == errno.EINTR


@contextmanager
def switched_on(*, clock: str = "real", cpus: int = 1) -> Iterator[LinuxShell]:
    """Skip where there is no kernel, or no shell for it."""
    session = LinuxSession(Options(kernel=require_linux(), cpus=cpus, clock=clock))
    try:
        if session.guest.shell.is_missing:
            pytest.skip("no shell for the guest")
        yield LinuxShell(session)  # type: ignore[arg-type]
    finally:
        session.close()

"""Whatever is written to a file is taken, or refused with an error of Linux and nothing changed."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.shell import CALLER, Shell, isolated

from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory, TracefsFile

# What a write to a control file of Linux 6.1 can fail with.
ERRNOS = {
    errno.EINVAL,
    errno.ERANGE,
    errno.EOVERFLOW,
    errno.ENOENT,
    errno.ENODEV,
    errno.ENOMEM,
    errno.ESRCH,
    errno.EEXIST,
    errno.EBUSY,
    errno.EBADF,
    errno.E2BIG,
    errno.EPERM,
    errno.EFAULT,
}
# Not control files: what is in them comes and goes by itself, or is the whole kernel's.
NOT_COMPARED = {
    "available_filter_functions",
    "error_log",
    "kallsyms",
    "kernel",
    "patch_log",
    "README",
    "saved_cmdlines",
    "snapshot_raw",
    "stats",
    "trace",
    "trace_pipe",
    "trace_pipe_raw",
    "touched_functions",
    "trampolines",
}
NOT_COMPARED_BELOW = ("emulator/text/", "per_cpu/", "trace_stat/")
# What makes the test long, not wrong: a buffer of gigabytes, a function called for ever.
NOT_WRITTEN = ("emulator/call",)

NUMBERS = rb"0 1 -1 +1 08 0x10 1x 4096 99999999999999999999"
NAMES = rb"nop function function_graph local sym-addr nosym-addr no nonono stop_machine"
PATTERNS = rb"gcd !gcd * !* vfs_* *:mod:* :mod: gcd:traceoff:1 !gcd:traceoff gcd:x:y:z sched:*"
OTHERS = [b"", b" ", b"\n", b"\0", b"1 2", b"gcd lcm", b"gcd my_tramp", b"lcm gcd", b"load ext4"]
NOT_TEXT = [b"\xff\xfe\x80", b"e\xcc\x81"]
WORDS = st.sampled_from([*NUMBERS.split(), *NAMES.split(), *PATTERNS.split(), *OTHERS, *NOT_TEXT])
DATA = st.one_of(
    WORDS,
    st.binary(min_size=1, max_size=64),
    st.lists(WORDS, min_size=1, max_size=4).map(b" ".join),
    st.sampled_from([63, 64, 99, 100, 127, 128, 1023, 1024, 5000, 70000]).map(lambda n: b"a" * n),
).filter(bool)
FLAGS = st.sampled_from([os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_TRUNC])


def files(directory: Directory, prefix: str = "") -> Iterator[tuple[str, TracefsFile]]:
    for name in directory:
        node = directory.lookup(name)
        if isinstance(node, TracefsFile):
            yield prefix + name, node
        elif not f"{prefix}{name}/".startswith("emulator/text/"):
            yield from files(node, f"{prefix}{name}/")


class Fuzzed:
    """A session with an instance, its files, and what they show."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        shell.mkdir("instances/a")
        # The first use expands a buffer, refused or not.
        for directory in ("", "instances/a/"):
            shell.echo("64", f"{directory}buffer_size_kb")
        # As they are without a tracer of their own.
        self.options = [o for o in shell.cat("trace_options").split() if "test_nop" not in o]
        root = shell.session.root
        everything = dict(files(root))
        self.writable = sorted(
            path
            for path, file in everything.items()
            if file.mode & 0o222 and path not in NOT_WRITTEN
        )
        self.compared = [
            path
            for path, file in everything.items()
            if file.mode & 0o444
            and path.rpartition("/")[2] not in NOT_COMPARED
            and not any(part in path for part in NOT_COMPARED_BELOW)
        ]

    def state(self) -> dict[str, str]:
        """The text of every control file, read at once: waiting for the machine takes longest."""
        return self.shell.machine.run(
            lambda: {path: self.shell.cat(path) for path in self.compared}
        )

    def write(self, path: str, flags: int, data: bytes) -> bool:
        """Open, write all of it, close; whether every part was taken."""
        machine = self.shell.machine
        node = self.shell.node(path)
        assert isinstance(node, TracefsFile)
        file = machine.run(lambda: node.dentry_open(flags, CALLER))
        try:
            while data:
                taken = machine.run(partial(file.write, data, 0))
                if not isinstance(taken, int):
                    taken = taken(lambda: False)
                assert 1 <= taken <= len(data)
                data = data[taken:]
        except TracefsError as error:
            if error.errno not in ERRNOS:
                raise
            return False
        finally:
            machine.run(file.flush)
            machine.run(file.fput)
        return True


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    with isolated() as shell:
        yield Fuzzed(shell)


@given(st.data())
@settings(max_examples=400, deadline=None, derandomize=True)
def test_what_is_refused_changes_nothing(fuzzed: Fuzzed, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(fuzzed.writable))
    flags = data.draw(FLAGS)
    text = data.draw(DATA)
    one_word = not text.strip(b" \t\n\0") or not any(c in text.strip() for c in b" \t\n\0,")
    before = fuzzed.state()
    if not fuzzed.write(path, flags, text) and one_word and not flags & os.O_TRUNC:
        assert fuzzed.state() == before


@given(st.data())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_word_may_come_in_pieces(fuzzed: Fuzzed, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(fuzzed.writable))
    shell = fuzzed.shell
    parts = data.draw(st.lists(DATA, min_size=1, max_size=6))
    with shell.opened(path, os.O_WRONLY) as file:
        for part in parts:
            try:
                taken = shell.machine.run(partial(file.write, part, 0))
                if not isinstance(taken, int):
                    taken = taken(lambda: False)
                assert 1 <= taken <= len(part)
            except TracefsError as error:
                if error.errno not in ERRNOS:
                    raise
    fuzzed.state()


def test_afterwards_the_machine_goes_on(fuzzed: Fuzzed) -> None:
    shell = fuzzed.shell
    shell.rmdir("instances/a")
    shell.echo("nop", "current_tracer")
    for path in ("emulator/livepatch", "emulator/direct"):
        for line in {line.split()[0] for line in shell.cat(path).splitlines()}:
            shell.echo(f"!{line}", path)
    shell.echo("1", "emulator/sysctl/ftrace_enabled")
    shell.echo("gcd", "set_ftrace_filter")
    for path in ("set_ftrace_notrace", "set_ftrace_pid", "set_ftrace_notrace_pid"):
        shell.echo("", path)
    shell.echo("3", "tracing_cpumask")
    shell.echo("1", "tracing_on")
    for option in fuzzed.options:
        shell.echo(option, "trace_options")
    shell.echo("function", "current_tracer")
    shell.echo("lcm 4 6", "emulator/call")
    assert shell.cat("emulator/call") == "lcm(4, 6) = 12\n"
    assert "gcd <-lcm" in shell.cat("trace")

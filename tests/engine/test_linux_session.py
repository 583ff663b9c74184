"""A distribution's kernel, booted or restored, and the shell in it."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections.abc import Iterator

import pytest
from support.linux_kernel import require_linux
from support.linux_session import LinuxShell, switched_on
from support.shell import CALLER

from emulated_kernel.errors import ImageError
from emulated_kernel.linux import cache_directory, load_vmlinuz
from emulated_kernel.linux.guest import LinuxGuest, start
from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory, TracefsFile
from ftracefs.files.disassembly import TextDirectory
from ftracefs.linux_session import LinuxSession
from ftracefs.mount.tracefs import Options

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def linux(booted: LinuxShell) -> Iterator[LinuxShell]:
    """The guest with nothing traced."""
    yield booted
    booted.session.reset()
    assert booted.session.machine.failure is None


@pytest.fixture
def doomed() -> Iterator[LinuxShell]:
    """A guest of the test's own."""
    with switched_on() as made:
        yield made


# --- the guest ------------------------------------------------------------------------------------


def test_a_command_line_runs_in_the_guests_shell(linux: LinuxShell) -> None:
    assert linux.sh("uname -r") == linux.session.vmlinux.release + "\n"
    assert linux.sh("cat /proc/version") == linux.session.vmlinux.banner + "\n"
    assert linux.sh("printf 'a\\tb\\n'; for i in 1 2; do\necho $i\ndone") == "a\tb\n1\n2\n"
    assert linux.sh("cd /tmp; exec 2>&1; ls nothing").startswith("ls: nothing")
    assert linux.sh("pwd") == "/tmp\n"


def test_the_shell_comes_back_when_it_is_told_to_exit(linux: LinuxShell) -> None:
    assert linux.sh("echo before; exit 3") == "before\n"
    assert linux.sh("echo here") == "here\n"


@pytest.mark.parametrize(
    "command",
    [
        "sleep 1000; echo REACHED > /tmp/reached",
        "while :; do :; done",
        "while :; do sleep 1; done; echo REACHED > /tmp/reached",
        "trap '' INT; sleep 1000",
    ],
)
def test_a_writer_who_is_interrupted_ends_his_command(linux: LinuxShell, command: str) -> None:
    linux.interrupt(command)
    assert linux.sh("pidof sleep; cat /tmp/reached 2> /dev/null; echo here") == "here\n"


def test_what_a_command_writes_does_not_end_it(linux: LinuxShell) -> None:
    assert linux.sh("printf 'a\\036x 0\\nb\\n'; echo tail") == "a\x1ex 0\nb\ntail\n"
    assert linux.sh("exec 1>/dev/null; echo lost") == ""
    assert linux.sh("echo here") == "here\n"


@pytest.mark.parametrize(
    ("command", "status"),
    [("true", 0), ("false", 1), ("(exit 42)", 42), ("echo a; exit 3", 3), ("kill -9 $$", 130)],
)
def test_how_a_command_ended_is_told(linux: LinuxShell, command: str, status: int) -> None:
    linux.sh(command)
    assert linux.cat("emulator/sh_status") == f"{status}\n"


def test_the_console_is_the_kernels(linux: LinuxShell) -> None:
    assert linux.session.vmlinux.banner.split("#")[0] in linux.cat("emulator/console")
    linux.sh("echo '<1>ftracefs was here' > /dev/kmsg")
    assert "ftracefs was here\n" in linux.cat("emulator/console")


def test_time_in_the_guest_goes_as_fast_as_outside(linux: LinuxShell) -> None:
    def uptime() -> float:
        return float(linux.sh("cat /proc/uptime").split()[0])

    began, inside = time.monotonic(), uptime()
    linux.sh("sleep 1")
    inside = uptime() - inside
    passed = time.monotonic() - began
    assert 1 <= inside <= passed + 0.2


def test_a_restored_guest_goes_on_where_the_booted_one_was(booted: LinuxShell) -> None:
    guest = booted.session.guest
    other = start(guest.vmlinux, cache=cache_directory())
    try:
        assert other.was_restored
        assert b"Run /init" in other.machine.console.text()
        assert run(other, b"uname -r") == guest.vmlinux.release.encode() + b"\n"
        uptime = float(run(other, b"cat /proc/uptime").split()[0])
        assert uptime < float(booted.sh("cat /proc/uptime").split()[0]) + 60
    finally:
        other.close()


def run(guest: LinuxGuest, command: bytes) -> bytes:
    assert guest.machine.run(lambda: guest.shell.start(command))
    assert guest.shell.wait(lambda: guest.shell.is_ready, 100)
    return guest.shell.output


def test_without_native_hooks_the_guest_does_the_same(booted: LinuxShell) -> None:
    guest = start(booted.session.vmlinux, cache=cache_directory(), native=False)
    try:
        command = b"seq 1000 | md5sum; (exit 7); echo $?"
        output = run(guest, command)
        assert output == booted.sh(command.decode()).encode()
        assert output.split()[0] == hashlib.md5(_numbers(1000)).hexdigest().encode()
    finally:
        guest.close()


def _numbers(last: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(1, last + 1))


def test_a_boot_can_be_given_up() -> None:
    vmlinux = load_vmlinuz(require_linux())
    lines: list[str] = []

    class GivenUp(Exception):
        pass

    def progress(line: str) -> None:
        lines.append(line)
        if len(lines) > 3:
            raise GivenUp

    began = time.monotonic()
    with pytest.raises(ImageError, match="internal error: GivenUp"):
        start(vmlinux, cache=None, progress=progress)
    assert time.monotonic() - began < 60


def test_a_guest_that_panics_answers_with_an_error(doomed: LinuxShell) -> None:
    with pytest.raises(TracefsError, match="Kernel panic") as error:
        doomed.echo("echo c > /proc/sysrq-trigger", "emulator/sh")
    assert error.value.errno == errno.EIO
    with pytest.raises(TracefsError, match="Kernel panic"):
        doomed.echo("uname", "emulator/sh")
    with pytest.raises(TracefsError, match="Kernel panic") as error:
        doomed.echo("gcd 12 18", "emulator/call")
    assert error.value.errno == errno.EIO
    assert "state:        dead: Kernel panic" in doomed.cat("emulator/kernel")


REFUSED = [
    *(("current_tracer", "nop"), ("set_ftrace_filter", "vfs_write"), ("set_ftrace_pid", "1")),
    *(("set_ftrace_filter", "vfs_write:traceoff"), ("set_ftrace_notrace", "vfs_write")),
    *(("set_graph_function", "vfs_read"), ("stack_trace_filter", "vfs_read")),
    *(("set_event", "sched:sched_switch"), ("set_event_pid", "1"), ("events/enable", "1")),
    *(("events/sched/enable", "1"), ("events/sched/sched_switch/enable", "1")),
    *(("trace_marker", "text"), ("trace_marker_raw", "bytes"), ("function_profile_enabled", "1")),
    *(("emulator/sysctl/ftrace_enabled", "0"), ("emulator/sysctl/stack_tracer_enabled", "1")),
    *(("emulator/call", "gcd 12 18"), ("emulator/sh", "true"), ("emulator/direct", "gcd my_tramp")),
    *(
        ("instances/a/current_tracer", "nop"),
        ("instances/a/events/sched/sched_stat_wait/enable", "1"),
    ),
]
TAKEN = [
    *(("tracing_on", "0"), ("trace_options", "sym-offset"), ("options/sym-addr", "1")),
    *(("snapshot", "1"), ("buffer_size_kb", "100"), ("error_log", "")),
]


def test_of_a_dead_guest_all_can_be_read_and_what_is_the_hosts_written(doomed: LinuxShell) -> None:
    doomed.mkdir("instances/a")
    doomed.echo("function", "instances/a/current_tracer")
    doomed.echo("vfs_read", "set_ftrace_filter")
    doomed.echo("function", "current_tracer")
    node = doomed.node("set_event")
    assert isinstance(node, TracefsFile)
    open_before = doomed.machine.run(lambda: node.dentry_open(os.O_WRONLY, CALLER))
    with pytest.raises(TracefsError, match="Kernel panic"):
        doomed.echo("cat /proc/version; echo c > /proc/sysrq-trigger", "emulator/sh")
    before, records = doomed.kernel_text(), doomed.cat("trace")
    assert ": vfs_read <-" in records
    for path, text in REFUSED:
        with pytest.raises(TracefsError, match="the guest is dead: Kernel panic") as error:
            doomed.echo(text, path)
        assert error.value.errno == errno.EIO, path
    for change in (doomed.mkdir, doomed.rmdir):
        with pytest.raises(TracefsError, match="the guest is dead"):
            change("instances/a")
    with pytest.raises(TracefsError, match="the guest is dead"):
        doomed.machine.run(lambda: open_before.vfs_write(b"sched", 0))
    with pytest.raises(TracefsError, match="the guest is dead"):
        doomed.session.reset()
    doomed.machine.run(open_before.fput)
    assert doomed.cat("current_tracer") == "function\n"
    assert doomed.cat("set_ftrace_filter") == "vfs_read\n"
    assert doomed.cat("trace") == records
    for path, text in TAKEN:
        doomed.echo(text, path)
    assert ": vfs_read <-" not in doomed.cat("trace")
    assert re.search(r": vfs_read\+0x\w+/0x\w+ <\w+> <-", doomed.cat("snapshot"))
    doomed.echo("global", "trace_clock")
    for path in readable(doomed.session.root):
        doomed.cat(path)
    assert doomed.kernel_text() == before


def readable(directory: Directory, prefix: str = "") -> Iterator[str]:
    """The files that can be read, a few of the events' among them."""
    for name in directory:
        node, path = directory.lookup(name), f"{prefix}{name}"
        if isinstance(node, TracefsFile):
            if node.mode & 0o400:
                yield path
        elif (
            isinstance(node, Directory)
            and not isinstance(node, TextDirectory)
            and ("events/" not in path or re.search("events/(sched|ftrace)", path))
        ):
            yield from readable(node, f"{path}/")


def test_a_guest_that_is_switched_off_is_dead(doomed: LinuxShell) -> None:
    with pytest.raises(TracefsError, match="halted for good"):
        doomed.echo("poweroff -f", "emulator/sh")


def test_what_a_booted_kernel_cannot_do_is_refused() -> None:
    kernel = require_linux()
    with pytest.raises(ImageError, match="no modules"):
        LinuxSession(Options(kernel=kernel, modules=(kernel,)))

"""A call site does not hold what it should: what a shell sees of it, through a real mount.

The byte is changed in the machine: memset is called on the direct map of kernel text.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.daemon import MountedDaemon
from support.mounts import require_fuse

from emulated_kernel.asm_offsets import PAGE_OFFSET, TEXT_BASE
from emulated_kernel.machine.memory import TEXT_PHYS

FILTER_FILES = ["set_ftrace_filter", "set_ftrace_notrace", "available_filter_functions"]
FILTER_FILES += ["set_graph_function", "set_graph_notrace"]
LAST_BYTE = 4  # of the nop, which stays a nop whatever it holds


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[MountedDaemon]:
    require_fuse()
    with MountedDaemon(tmp_path, "--isolated") as daemon:
        yield daemon


def errno_of(work: Callable[[], object]) -> int | None:
    try:
        work()
    except OSError as error:
        return error.errno
    return 0


class Tracefs:
    """The files of a mount."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def cat(self, path: str) -> str:
        return (self.root / path).read_text()

    def echo(self, text: str, path: str) -> None:
        """`echo TEXT > PATH`; raises OSError."""
        descriptor = os.open(self.root / path, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, f"{text}\n".encode())
        finally:
            os.close(descriptor)

    def refused(self, text: str, path: str) -> int | None:
        """What `echo` is answered; 0 for nothing."""
        return errno_of(lambda: self.echo(text, path))

    def break_site(self, function: str) -> int:
        """Put a wrong byte into a call site; the site's address."""
        (address,) = re.findall(rf"^(\w+) T {function}$", self.cat("emulator/kallsyms"), re.M)
        site = int(address, 16)
        alias = PAGE_OFFSET + TEXT_PHYS + site - TEXT_BASE + LAST_BYTE
        self.echo(f"memset {alias:#x} 0x99 1", "emulator/call")
        return site


def test_enabling_changes_no_site_and_disables_ftrace(daemon: MountedDaemon) -> None:
    tracefs = Tracefs(daemon.path)
    tracefs.echo("gcd 12 18", "emulator/call")
    functions = {line.split()[0] for line in tracefs.cat(FILTER_FILES[2]).splitlines()}
    site = tracefs.break_site("gcd")
    tracefs.echo("nop", "current_tracer")
    log = tracefs.cat("emulator/patch_log")

    tracefs.echo("function", "current_tracer")
    assert tracefs.cat("current_tracer") == "function\n"
    report = daemon.log_text()
    assert f"ftrace failed to modify [<{site:x}>] gcd+0x0/" in report
    assert " actual:   0f:1f:44:00:99\n expected: 0f:1f:44:00:00\n" in report
    assert "Setting ftrace call site to call ftrace function" in report
    written = [line for line in tracefs.cat("emulator/patch_log").splitlines() if line not in log]
    # A trampoline, what ftrace_caller calls, tracepoints; no call site, be it behind an endbr64.
    sites = re.findall(r"  (\w+)\+0x[04]/", "\n".join(written))
    assert written
    assert set(sites).isdisjoint(functions)
    assert tracefs.cat("enabled_functions") == ""
    assert tracefs.cat("emulator/text/lcm").count("call site: nop") == 1


def test_what_a_shell_may_still_do(daemon: MountedDaemon) -> None:
    tracefs = Tracefs(daemon.path)
    for path in FILTER_FILES:
        assert tracefs.cat(path)
    tracefs.break_site("gcd")
    tracefs.echo("function", "current_tracer")

    for path in FILTER_FILES:
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY | os.O_APPEND):
            if path.startswith("available") and flags != os.O_RDONLY:
                continue
            answer = errno_of(lambda path=path, flags=flags: os.open(daemon.path / path, flags))
            assert answer == errno.ENODEV, path

    tracefs.echo("lcm 4 6 x3", "emulator/call")
    assert tracefs.cat("emulator/call") == "lcm(4, 6) = 12 (3 times)\n"
    assert "<-" not in tracefs.cat("trace"), "function is in charge and traces nothing"
    assert tracefs.refused("function_graph", "current_tracer") == errno.ENODEV
    assert tracefs.cat("current_tracer") == "nop\n"
    for path, text in (
        ("emulator/livepatch", "lcm gcd"),
        ("emulator/direct", "lcm my_tramp"),
        ("emulator/sysctl/ftrace_enabled", "0"),
    ):
        assert tracefs.refused(text, path) == errno.ENODEV
    tracefs.echo("function", "current_tracer")
    assert tracefs.cat("current_tracer") == "function\n"

    tracefs.echo("hello", "trace_marker")
    assert "tracing_mark_write: hello" in tracefs.cat("trace")
    tracefs.echo("0", "tracing_on")
    assert tracefs.cat("tracing_on") == "0\n"
    for path in ("emulator/ops", "emulator/trampolines", "emulator/touched_functions", "README"):
        tracefs.cat(path)
    assert daemon.process.poll() is None

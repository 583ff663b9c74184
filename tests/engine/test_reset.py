"""Every file reads as it did after boot, whatever was written to any of them."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from support.shell import Shell, isolated

from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory, TracefsFile
from ftracefs.files.disassembly import TextDirectory

# What counts on, or stamps with the time.
GOES_ON = re.compile(r"emulator/kernel|per_cpu/cpu\d+/stats|emulator/patch_log")
ENDLESS = re.compile(r".*trace_pipe(_raw)?|.*snapshot_raw")
RECORDS = re.compile(r"(.*/)?(trace|snapshot)|trace_stat/.*")
VALUES = (
    *("1", "0", "2", "100", "10000", "vfs_read", "function", "sched:sched_switch"),
    *("gcd 12 18", "gcd lcm", "gcd bpf_trampoline", "unload ext4"),
)
# Options nobody can switch on, and files whose text no write changes by itself.
EVENT_FILTER = re.compile(r"events/\w+/(\w+/)?filter")  # takes 0, which it has
CONSTANT = {"options/test_nop_refuse", "error_log", "events/enable"}


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    with isolated() as started:
        yield started


def files(directory: Directory, prefix: str = "") -> Iterator[tuple[str, TracefsFile]]:
    for name in directory:
        node = directory.lookup(name)
        if isinstance(node, TracefsFile):
            yield prefix + name, node
        elif not isinstance(node, TextDirectory):
            yield from files(node, f"{prefix}{name}/")


def texts(shell: Shell) -> dict[str, str]:
    """What every file reads that is not endless."""
    found = {}
    for path, file in files(shell.session.root):
        if file.mode & 0o400 and not ENDLESS.fullmatch(path) and not GOES_ON.fullmatch(path):
            with suppress(TracefsError):
                found[path] = shell.cat(path)
    # Where a module is loaded may change; that it is may not.
    found["emulator/modules"] = " ".join(re.findall(r"^\w+", found["emulator/modules"], re.M))
    found.pop("emulator/kallsyms")
    return found


def control_files(shell: Shell) -> list[str]:
    return [
        path
        for path, file in files(shell.session.root)
        if file.mode & 0o600 == 0o600 and not RECORDS.fullmatch(path)
    ]


def other_values(text: str) -> list[str]:
    """What a file that reads `text` might take."""
    words = [word for word in text.split() if word[0].isalpha()]
    return [*words, *(f"no{word}" for word in words), *VALUES]


def change(shell: Shell, path: str) -> bool:
    """Write until the file reads otherwise."""
    before = shell.cat(path)
    for value in other_values(before):
        with suppress(TracefsError):
            shell.echo(value, path)
        if shell.cat(path) != before:
            return True
    return False


def test_each_file_alone_goes_back(shell: Shell) -> None:
    first = texts(shell)
    stuck = set()
    for path in control_files(shell):
        if not change(shell, path):
            stuck.add(path)
        shell.session.reset()
        assert texts(shell) == first, path
    stuck = {path for path in stuck if not EVENT_FILTER.fullmatch(path)}
    assert stuck <= CONSTANT, "no value changes them"


def test_all_files_together_go_back(shell: Shell) -> None:
    first = texts(shell)
    shell.echo("vfs_read vfs_write", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    for path in control_files(shell):
        change(shell, path)
    shell.session.reset()
    assert texts(shell) == first


def test_profiles_and_the_deepest_stack_are_forgotten(shell: Shell) -> None:
    first = texts(shell)
    shell.echo("1", "function_profile_enabled")
    shell.echo("1", "emulator/sysctl/stack_tracer_enabled")
    shell.echo("lcm 12 18", "emulator/call")
    assert "gcd" in shell.cat("trace_stat/function0")
    assert "1) " in shell.cat("stack_trace")
    shell.session.reset()
    assert texts(shell) == first


def test_commands_and_filters_for_a_module_to_come_go(shell: Shell) -> None:
    first = texts(shell)
    for word in ("gcd:traceoff:3", "lcm:stacktrace", "vfs_*:snapshot", "*:mod:no_such_module"):
        shell.echo(word, "set_ftrace_filter", append=True)
    shell.echo("gcd:dump", "set_ftrace_filter", append=True)
    shell.echo("gcd 12 18", "emulator/call")
    assert shell.cat("emulator/console") != first["emulator/console"]
    shell.session.reset()
    assert texts(shell) == first


def test_kernel_text_is_as_after_boot(shell: Shell) -> None:
    machine = shell.machine
    start, text = shell.session.image.segments[".text"]
    before = machine.run(lambda: machine.memory.read(start, len(text)))
    shell.echo("gcd lcm", "emulator/livepatch")
    shell.echo("kfree my_tramp", "emulator/direct")
    shell.echo("function_graph", "current_tracer")
    shell.mkdir("instances/a")
    shell.echo("function", "instances/a/current_tracer")
    assert machine.run(lambda: machine.memory.read(start, len(text))) != before
    shell.session.reset()
    assert machine.run(lambda: machine.memory.read(start, len(text))) == before
    assert list(shell.session.root.lookup("instances")) == []


def test_an_instance_in_use_is_told(shell: Shell) -> None:
    shell.mkdir("instances/a")
    with shell.opened("instances/a/trace_pipe"), pytest.raises(TracefsError) as caught:
        shell.session.reset()
    assert caught.value.errno == errno.EBUSY
    shell.session.reset()
    assert list(shell.session.root.lookup("instances")) == []


def test_records_and_names_are_gone(shell: Shell) -> None:
    shell.echo("function", "current_tracer")
    shell.echo("gcd 12 18", "emulator/call")
    shell.echo("marker", "trace_marker")
    shell.echo("1", "snapshot")
    shell.session.reset()
    assert "gcd" not in shell.cat("trace")
    assert "marker" not in shell.cat("trace") + shell.cat("snapshot")
    assert "Snapshot is freed" in shell.cat("snapshot")
    assert shell.cat("saved_cmdlines") == ""
    assert shell.cat("emulator/call") == ""
    shell.echo("after", "trace_marker")
    assert "after" in shell.cat("trace")

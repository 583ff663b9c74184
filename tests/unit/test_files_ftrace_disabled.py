"""When a call site does not hold what it should: ftrace is off for good, and the rest goes on."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from support.ftrace_kernel import assembled_module
from support.tracefs import Tree, tracefs

from ftracefs.errors import TracefsError


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs() as tree:
        site = tree.machine.image.labels["six_sum"]
        tree.machine.memory.set_u8(site + 2, 0x99)
        yield tree


def text(tree: Tree) -> bytes:
    start, code = tree.machine.image.segments[".text"]
    return tree.machine.memory.read(start, len(code))


def test_enabling_reports_the_site_and_writes_none(tree: Tree) -> None:
    before = text(tree)
    tree.echo("function", "current_tracer")
    assert text(tree) == before
    (report,) = tree.tracing.ftrace.bugs
    site = tree.machine.image.labels["six_sum"]
    assert report.splitlines() == [
        "------------[ ftrace bug ]------------",
        f"ftrace failed to modify [<{site:x}>] six_sum+0x0/0x30",
        " actual:   0f:1f:99:00:00",
        " expected: 0f:1f:44:00:00",
        "Setting ftrace call site to call ftrace function",
        "ftrace record flags: 10000001",
        " (1)  ",
        f" expected tramp: {tree.tracing.ftrace.ftrace_addr:x}",
    ]


def test_a_site_that_cannot_become_a_nop_again_keeps_its_call_and_records_nothing() -> None:
    with tracefs() as tree:
        tree.echo("function", "current_tracer")
        site = tree.machine.image.labels["six_sum"]
        trampoline = tree.tracing.ftrace.global_ops.trampoline
        tree.machine.memory.set_u8(site + 2, 0x99)
        before = text(tree)
        tree.echo("nop", "current_tracer")
        assert text(tree) == before
        report = tree.tracing.ftrace.bugs[0].splitlines()
        right = (trampoline - site - 5 & 0xFFFFFFFF).to_bytes(4, "little")
        assert report[2:5] == [
            f" actual:   e8:{(right[:1] + bytes([0x99]) + right[2:]).hex(':')}",
            f" expected: e8:{right.hex(':')}",
            "Setting ftrace call site to NOP",
        ]
        assert report[-1] == f" expected tramp: {trampoline:x}"
        assert tree.call("add_one_twice", 1) == 3
        assert "add_one" not in tree.read("trace")
        tree.echo("hello", "trace_marker")
        assert "hello" in tree.read("trace"), "markers are not concerned"


def test_function_is_accepted_and_traces_nothing(tree: Tree) -> None:
    tree.echo("function", "current_tracer")
    assert tree.read("current_tracer") == "function\n"
    tree.echo("add_one 1", "emulator/call")
    assert tree.read("emulator/call") == "add_one(1) = 2\n"
    assert "<-" not in tree.read("trace")
    assert "FUNCTION TRACING IS CORRUPTED" in tree.read("trace")
    tree.echo("nop", "current_tracer")
    tree.echo("function", "current_tracer")
    assert tree.read("enabled_functions") == ""


@pytest.mark.parametrize(
    "path",
    [
        "set_ftrace_filter",
        "set_ftrace_notrace",
        "available_filter_functions",
        "set_graph_function",
        "set_graph_notrace",
    ],
)
def test_the_filter_files_cannot_be_opened(tree: Tree, path: str) -> None:
    assert tree.read(path)
    tree.echo("function", "current_tracer")
    with pytest.raises(TracefsError) as error:
        tree.read(path)
    assert error.value.errno == errno.ENODEV


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("current_tracer", "function_graph"),
        ("emulator/livepatch", "add_one replacement"),
        ("emulator/direct", "add_one my_tramp"),
        ("emulator/sysctl/ftrace_enabled", "0"),
    ],
)
def test_nobody_else_gets_at_the_functions(tree: Tree, path: str, command: str) -> None:
    tree.echo("function", "current_tracer")
    with pytest.raises(TracefsError) as error:
        tree.echo(command, path)
    assert error.value.errno == errno.ENODEV
    assert tree.call("add_one", 1) == 2


def test_the_other_files_live(tree: Tree) -> None:
    tree.echo("function", "current_tracer")
    tree.echo("nop", "current_tracer")
    tree.echo("hello", "trace_marker")
    assert "hello" in tree.read("trace")
    tree.echo("0", "tracing_on")
    assert tree.read("tracing_on") == "0\n"
    for path in ("emulator/ops", "emulator/trampolines", "emulator/touched_functions", "README"):
        tree.read(path)


def fill_free_memory(tree: Tree) -> None:
    """Others take what has been given back."""
    machine = tree.machine

    def fill() -> None:
        for size in (64, 128, 256, 1024, 4096):
            for _ in range(100):
                machine.memory.write(machine.alloc(size, 64), b"\x5a" * size)

    tree.run(fill)


@pytest.mark.parametrize("command", ["traceoff", "traceoff:5"])
def test_a_command_whose_sites_cannot_be_changed_does_nothing_any_more(command: str) -> None:
    with tracefs() as tree:
        tree.echo(f"six_sum:{command}", "set_ftrace_filter")
        tree.write("set_ftrace_filter", f"add_one:{command}\n")
        tree.machine.memory.set_u8(tree.machine.image.labels["six_sum"] + 4, 0x99)
        tree.write("set_ftrace_filter", f"!*:{command}\n")
        assert "Setting ftrace call site to NOP" in tree.tracing.ftrace.bugs[0]
        fill_free_memory(tree)
        assert tree.call("add_one_twice", 1) == 3
        assert tree.read("tracing_on") == "1\n"


def test_a_module_with_a_live_patch_goes_all_the_same() -> None:
    source = "FUNC ext4_read\n    mov eax, 1\n    ret\nENDFUNC ext4_read\n"
    with tracefs(modules=[assembled_module("ext4", f"# A module.\n.text\n{source}")]) as tree:
        tree.echo("load ext4", "emulator/modules")
        tree.echo("ext4_read add_one", "emulator/livepatch")
        tree.machine.memory.set_u8(tree.machine.image.labels["six_sum"] + 4, 0x99)
        tree.echo("function", "current_tracer")
        assert tree.tracing.ftrace.ftrace_disabled
        tree.echo("unload ext4", "emulator/modules")
        assert tree.read("emulator/modules") == ""
        fill_free_memory(tree)
        assert tree.call("add_one", 1) == 2
        tree.echo("load ext4", "emulator/modules")
        tree.echo("ext4_read 5", "emulator/call")
        assert tree.read("emulator/call") == "ext4_read(5) = 1\n"

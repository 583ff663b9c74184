"""emulator/ops, trampolines, patching, touched_functions, sysctl: what the machine really does."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Iterator

import pytest
from support.ftrace_kernel import NAMES
from support.tracefs import TRUNC, Tree, W, tracefs

from ftracefs.errors import TracefsError
from ftracefs.files.sysctl import proc_dointvec
from ftracefs.ftrace import FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter_ips
from ftracefs.ftrace.ops import FTRACE_OPS_FL_SAVE_REGS

ENABLED = "emulator/sysctl/ftrace_enabled"


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs() as tree:
        yield tree


def trace_all(tree: Tree, *names: str) -> None:
    for name in names:
        tree.write("set_ftrace_filter", name + "\n")
    tree.echo("function", "current_tracer")


def count_calls(tree: Tree, *functions: str, flags: int = 0) -> FtraceOps:
    ftrace, labels = tree.tracing.ftrace, tree.machine.image.labels

    def work() -> FtraceOps:
        private = ftrace.machine.alloc(64)
        ops = ftrace.new_ops(labels["count_call"], private=private, flags=flags, name="counter")
        ftrace_set_filter_ips(ftrace, ops, [labels[f] for f in functions])
        ftrace.register_ftrace_function(ops)
        return ops

    return tree.run(work)


def blocks(text: str) -> dict[str, list[str]]:
    """Paragraphs by their first line."""
    parts = (part.splitlines() for part in text.split("\n\n"))
    return {part[0]: part[1:] for part in parts}


# --- ops ------------------------------------------------------------------------------------------


def test_ops_shows_who_is_registered_and_how_many_sites_lead_to_whom(tree: Tree) -> None:
    assert tree.read("emulator/ops") == (
        "ftrace_caller: calls ftrace_stub+0x0/0x10 with ftrace_list_end, called from 0 sites;"
        " ftrace_regs_caller: from 0 sites\n"
    )
    trace_all(tree)
    ops = count_calls(tree, "add_one", "double", flags=FTRACE_OPS_FL_SAVE_REGS)
    head, counter, top = blocks(tree.read("emulator/ops")).items()
    assert head[0].startswith("ftrace_caller: calls arch_ftrace_ops_list_func+0x0/")
    assert head[0].endswith("called from 0 sites; ftrace_regs_caller: from 2 sites")
    assert counter[0] == f"counter at {ops.address:#x}"
    assert counter[1] == [
        "    flags:       ENABLED SAVE_REGS INITIALIZED ALLOC_TRAMP",
        "    callback:    count_call+0x0/0x10",
        "    filter:      add_one double",
        "    notrace:     none",
        f"    trampoline:  {ops.trampoline:#x}, {ops.trampoline_size} bytes,"
        " calls count_call+0x0/0x10, called from 0 sites",
    ]
    assert top[0].startswith("global_ops at 0x")
    assert "    filter:      all functions" in top[1]
    assert top[1][-1].endswith(f"called from {len(NAMES) - 2} sites")


def test_ops_shows_the_target_of_a_direct_call(tree: Tree) -> None:
    tree.echo("add_one my_tramp", "emulator/direct")
    rows = tree.read("emulator/ops").splitlines()
    (line,) = (row for row in rows if "direct call" in row)
    assert re.fullmatch(r"    direct call: my_tramp\+0x0/0x\w+, called from 1 site", line)


# --- trampolines ----------------------------------------------------------------------------------


def code_of(lines: list[str]) -> bytes:
    """The bytes that a disassembly shows."""
    return b"".join(bytes.fromhex(re.sub(r"^\S+  ((?:\w\w ?)+).*", r"\1", s)) for s in lines)


def test_every_trampoline_is_shown_with_its_bytes_and_its_owner(tree: Tree) -> None:
    plain = list(blocks(tree.read("emulator/trampolines")))
    assert plain == [
        "ftrace_caller: for functions with several ops; called from 0 sites",
        "ftrace_regs_caller: for functions with several ops; called from 0 sites",
    ]
    trace_all(tree, "add_one", "double", "six_sum")
    counter = count_calls(tree, "double", flags=FTRACE_OPS_FL_SAVE_REGS)
    top = tree.tracing.ftrace.global_ops
    found = blocks(tree.read("emulator/trampolines"))
    assert list(found)[1:] == [
        "ftrace_regs_caller: for functions with several ops; called from 1 site",
        "trampoline of global_ops, a callback in line and a copy of ftrace_caller;"
        " called from 2 sites",
        "trampoline of counter, a copy of ftrace_regs_caller; called from 0 sites",
    ]
    for ops, lines in zip((top, counter), list(found.values())[2:], strict=True):
        shown, memory = code_of(lines), tree.machine.memory
        assert shown[:-8] == memory.read(ops.trampoline, len(shown) - 8)
        assert struct.unpack("<Q", shown[-8:]) == (ops.address,)
        assert sum(line.endswith(f"# op: {ops.name}") for line in lines) == 2
        called = tree.tracing.ftrace.kallsyms.sprint_symbol(ops.func)
        assert sum(line.endswith(f"# {called}") for line in lines) == 1
    assert any(line.endswith("# no direct call from a copy") for line in list(found.values())[3])


def test_a_template_is_shown_to_its_end(tree: Tree) -> None:
    _, regs_caller = blocks(tree.read("emulator/trampolines")).values()
    symbol = next(
        s for s in tree.tracing.guest.symbols if s.name == "ftrace_regs_caller" and s.size
    )
    assert code_of(regs_caller) == tree.machine.memory.read(symbol.address, symbol.size)
    assert regs_caller[-1].split()[1:] == ["c3", "ret"]


def test_the_engine_is_disassembled_like_the_kernel(tree: Tree) -> None:
    assert "<ftrace_caller>" in tree.read("emulator/text/ftrace_caller")
    assert "ret" in tree.read("emulator/text/klp_ftrace_handler")


# --- patching, touched_functions ------------------------------------------------------------------


def test_the_way_of_patching_is_chosen(tree: Tree) -> None:
    assert tree.read("emulator/patching") == "[int3] stop_machine\n"
    tree.echo("stop_machine", "emulator/patching")
    assert tree.read("emulator/patching") == "int3 [stop_machine]\n"
    trace_all(tree, "add_one")
    writes = [s.split() for s in tree.read("emulator/patch_log").splitlines() if " add_one" in s]
    assert writes[-1][1] == "stop_machine"
    assert tree.call("add_one", 1) == 2
    with pytest.raises(TracefsError) as error:
        tree.echo("kprobes", "emulator/patching")
    assert error.value.errno == errno.EINVAL
    tree.echo("int3", "emulator/patching")
    tree.echo("nop", "current_tracer")
    writes = [s.split() for s in tree.read("emulator/patch_log").splitlines() if " add_one" in s]
    assert [write[1] for write in writes[-3:]] == ["int3", "tail", "first"]


def test_a_callback_in_line_is_shown_and_can_be_refused(tree: Tree) -> None:
    def lines() -> list[str]:
        return next(
            lines
            for head, lines in blocks(tree.read("emulator/trampolines")).items()
            if "global_ops" in head
        )

    choice = "emulator/inline_callbacks"
    assert tree.read(choice) == "1\n"
    trace_all(tree, "add_one")
    assert lines()[0].endswith("# in line: what the callback does")
    tree.echo("0", choice)
    assert tree.read(choice) == "0\n"
    assert re.search(r" jmp 0x\w+ +# not in line", lines()[0])
    tree.echo("nop", "current_tracer")
    tree.echo("function", "current_tracer")
    template = tree.run(lambda: tree.machine.memory.read(tree.tracing.ftrace.ftrace_addr, 16))
    assert code_of(lines()[:4])[:16] == template
    with pytest.raises(TracefsError) as error:
        tree.echo("some", choice)
    assert error.value.errno == errno.EINVAL


def test_touched_functions_remembers(tree: Tree) -> None:
    assert tree.read("emulator/touched_functions") == ""
    trace_all(tree, "add_one")
    assert tree.read("emulator/touched_functions") == tree.read("enabled_functions")
    tree.echo("nop", "current_tracer")
    assert tree.read("enabled_functions") == ""
    assert tree.read("emulator/touched_functions").startswith("add_one (0)")


# --- sysctl/ftrace_enabled ------------------------------------------------------------------------


def test_ftrace_is_switched_off_and_on(tree: Tree) -> None:
    trace_all(tree)
    assert tree.read(ENABLED) == "1\n"
    before = tree.read("enabled_functions")
    tree.echo("0", ENABLED)
    assert tree.read(ENABLED) == "0\n"
    assert tree.read("enabled_functions") == ""
    assert tree.read("emulator/text/add_one").count("# call site: nop") == 1
    tree.echo("2", ENABLED)
    assert tree.read(ENABLED) == "2\n"
    assert tree.read("enabled_functions") == before


def test_a_live_patch_keeps_it_on(tree: Tree) -> None:
    tree.echo("add_one replacement", "emulator/livepatch")
    with pytest.raises(TracefsError) as error:
        tree.echo("0", ENABLED)
    assert error.value.errno == errno.EBUSY
    assert tree.read(ENABLED) == "1\n"
    assert tree.call("add_one", 5) == 105


def test_ftrace_that_is_disabled_for_good_has_no_switch(tree: Tree) -> None:
    tree.run(tree.tracing.ftrace.ftrace_kill)
    for work in (lambda: tree.read(ENABLED), lambda: tree.echo("1", ENABLED)):
        with pytest.raises(TracefsError) as error:
            work()
        assert error.value.errno == errno.ENODEV


@pytest.mark.parametrize(
    ("data", "value", "taken"),
    [
        (b"1\n", 1, 2),
        (b"  0x10 ", 16, 7),
        (b"-3", -3, 2),
        (b"010\n", 8, 4),
        (b"7 8\n", 7, 2),
        (b"-2147483648", -(1 << 31), 11),
    ],
)
def test_an_integer_is_read_as_the_kernel_does(data: bytes, value: int, taken: int) -> None:
    assert proc_dointvec(data) == (value, taken)


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"on", b"1x", b"--1", b"2147483648", b"+1", b"1" * 5000]
)
def test_what_is_no_int_is_refused(data: bytes) -> None:
    with pytest.raises(TracefsError) as error:
        proc_dointvec(data)
    assert error.value.errno == errno.EINVAL


def test_only_the_first_position_counts(tree: Tree) -> None:
    descriptor = tree.open(ENABLED)
    assert (descriptor.read(1), descriptor.read(10)) == (b"1", b"")
    descriptor.close()
    writer = tree.open(ENABLED, W | TRUNC)
    assert writer.write(b"3 0\n") == 2
    assert writer.write(b"0\n") == 2
    writer.close()
    assert tree.read(ENABLED) == "3\n"

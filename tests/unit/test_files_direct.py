"""emulator/direct: what it takes, shows and refuses, and the targets to try it with."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

import pytest
from support.tracefs import Tree, W, tracefs

from ftracefs.errors import TracefsError
from ftracefs.ftrace.bpf_trampoline import BpfAttachType, BpfTrampoline

FILE = "emulator/direct"


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs() as tree:
        yield tree


def site(tree: Tree, function: str) -> str:
    """What the disassembly says of the call site."""
    (line,) = (s for s in tree.read(f"emulator/text/{function}").splitlines() if "call site" in s)
    return line.partition("call site: ")[2]


def lines(tree: Tree) -> list[str]:
    return [line.partition(": ")[2] for line in tree.read("trace").splitlines() if "] " in line]


def test_a_function_and_its_target_are_written_and_read_back(tree: Tree) -> None:
    assert tree.read(FILE) == ""
    tree.echo("add_one direct_target", FILE)
    assert tree.read(FILE) == "add_one direct_target\n"
    assert site(tree, "add_one").startswith("direct_target+0x0/")
    assert tree.call("add_one", 5) == 1006
    tree.echo("double my_tramp", FILE)
    assert tree.read(FILE) == "add_one direct_target\ndouble my_tramp\n"
    tree.echo("!add_one", FILE)
    assert tree.read(FILE) == "double my_tramp\n"
    assert tree.call("add_one", 5) == 6
    assert site(tree, "add_one") == "nop"


def test_another_target_is_exchanged(tree: Tree) -> None:
    tree.echo("add_one direct_target", FILE)
    tree.echo("add_one my_tramp", FILE)
    assert tree.read(FILE) == "add_one my_tramp\n"
    assert tree.call("add_one", 5) == 6
    tree.echo("!add_one my_tramp", FILE)
    tree.echo("add_one direct_target", FILE)
    assert tree.call("add_one", 5) == 1006


def test_the_sample_says_where_it_was_called(tree: Tree) -> None:
    tree.echo("add_one my_tramp", FILE)
    tree.call("add_one", 5)
    ip = tree.machine.image.labels["add_one"] + 5
    assert lines(tree) == [f"my_direct_func: ip {ip:x}"]


def test_the_sample_programs_show_call_and_return(tree: Tree) -> None:
    tree.echo("six_sum bpf_trampoline", FILE)
    assert tree.call("six_sum", 1, 0, 0xABC) == 1 + 4 * 0xABC
    ip = tree.machine.image.labels["six_sum"]
    assert lines(tree) == [
        f"bpf_prog_fentry: ip {ip:x} arguments 1, 0, abc",
        f"bpf_prog_fexit: ip {ip:x} returned {1 + 4 * 0xABC:x}",
    ]


def test_beside_the_function_tracer_all_of_it_is_seen(tree: Tree) -> None:
    tree.echo("add_one bpf_trampoline", FILE)
    tree.echo("add_one replacement", "emulator/livepatch")
    tree.echo("add_one", "set_ftrace_filter")
    tree.echo("function", "current_tracer")
    assert "ftrace_regs_caller" in site(tree, "add_one")
    tree.echo("add_one_twice 1", "emulator/call")
    assert tree.read("emulator/call") == "add_one_twice(1) = 201\n"
    assert [line.split()[0] for line in lines(tree)] == [
        "add_one",
        "bpf_prog_fentry:",
        "bpf_prog_fexit:",
    ] * 2
    assert re.search(r"^add_one \(3\) R I D ->", tree.read("enabled_functions"), re.M)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", errno.EINVAL),
        ("add_one", errno.EINVAL),
        ("no_such_function my_tramp", errno.ENOENT),
        ("add_one no_such_function", errno.ENOENT),
        ("untraced my_tramp", errno.EINVAL),
        ("!add_one", errno.ENOENT),
    ],
)
def test_what_is_no_direct_call_is_refused(tree: Tree, text: str, code: int) -> None:
    with pytest.raises(TracefsError) as error:
        tree.run(lambda: tree.open(FILE, W).write(text.encode()))
    assert error.value.errno == code
    assert tree.read(FILE) == ""


def test_the_direct_calls_of_others_are_shown_and_left_alone(tree: Tree) -> None:
    ftrace = tree.tracing.ftrace
    made = tree.run(lambda: BpfTrampoline(ftrace, tree.machine.image.labels["add_one"]))
    program = ftrace.labels["bpf_prog_fexit"]
    tree.run(lambda: made.bpf_trampoline_link_prog(BpfAttachType.BPF_TRACE_FEXIT, program))
    assert tree.read(FILE) == f"add_one {made.name}\n"
    for text, code in (("!add_one", errno.ENOENT), ("add_one my_tramp", errno.EBUSY)):
        with pytest.raises(TracefsError) as error:
            tree.echo(text, FILE)
        assert error.value.errno == code
    assert tree.read(FILE) == f"add_one {made.name}\n"


def test_a_function_that_its_trampoline_calls_is_graphed_once(tree: Tree) -> None:
    tree.echo("add_one bpf_trampoline", FILE)
    tree.echo("add_one", "set_ftrace_filter")
    tree.echo("function_graph", "current_tracer")
    assert tree.call("add_one_twice", 1) == 3
    calls = [s.partition("|")[2].split() for s in tree.read("trace").splitlines() if "|  " in s]
    body = [["add_one()", "{"], ["/*", "ip"], ["/*", "ip"], ["}"]]
    assert [words[:2] for words in calls[-8:]] == body * 2
    assert [words[-2] for words in calls[-8:] if "returned" in words] == ["2", "3"]

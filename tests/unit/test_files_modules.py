"""emulator/modules: loading and unloading, and who keeps a module loaded."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

import pytest
from support.ftrace_kernel import NAMES, assembled_module
from support.tracefs import Tree, tracefs

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.image import Module
from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory

FILE = "emulator/modules"

EXT4 = assembled_module(
    "ext4",
    """# A module.
.text
FUNC ext4_read                   # one more than add_one
    push rbp
    mov rbp, rsp
    call add_one
    inc rax
    pop rbp
    ret
ENDFUNC ext4_read
FUNC ext4_ask                    # stops in the host
    push rbp
    mov rbp, rsp
    mov eax, HC_CALLBACK
    int HYPERCALL
    pop rbp
    ret
ENDFUNC ext4_ask
FUNC_NOTRACE ext4_handler        # a callback
    ret
ENDFUNC ext4_handler
FUNC init_module
    push rbp
    mov rbp, rsp
    inc qword ptr [rip + ext4_state]
    mov edi, 1
    call ext4_read
    xor eax, eax
    pop rbp
    ret
ENDFUNC init_module
FUNC cleanup_module
    push rbp
    mov rbp, rsp
    pop rbp
    ret
ENDFUNC cleanup_module
.data
OBJECT ext4_state
    .quad 0
ENDOBJECT ext4_state
""",
)
BROKEN = assembled_module(
    "broken",
    """# A module that does not want to be loaded.
.text
FUNC_NOTRACE init_module
    mov eax, -19
    ret
ENDFUNC init_module
""",
)
FAULTING = assembled_module(
    "faulting",
    """# A module whose init_module faults.
.text
FUNC_NOTRACE init_module
    mov rax, [0x10]
    ret
ENDFUNC init_module
""",
)


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs(modules=[EXT4, BROKEN, FAULTING]) as tree:
        yield tree
        assert tree.tracing.ftrace.bugs == []


def refused(tree: Tree, text: str) -> int:
    with pytest.raises(TracefsError) as error:
        tree.echo(text, FILE)
    return error.value.errno


def listing(tree: Tree) -> list[str]:
    return tree.read("available_filter_functions").splitlines()


def test_loading_adds_functions_names_and_text_and_unloading_takes_them(tree: Tree) -> None:
    assert (tree.read(FILE), listing(tree)) == ("", NAMES)
    text = tree.node("emulator/text")
    assert isinstance(text, Directory)
    tree.echo("load ext4", FILE)
    (line,) = tree.read(FILE).splitlines()
    assert re.fullmatch(r"ext4 \d+ 0 - Live 0xffffffffc0800000", line)
    assert listing(tree)[len(NAMES) :] == [
        f"{name} [ext4]" for name in ("ext4_read", "ext4_ask", "init_module", "cleanup_module")
    ]
    assert "ext4_read" in set(text)
    assert "modules:      ext4\n" in tree.read("emulator/kernel")
    tree.echo("ext4_read 5", "emulator/call")
    assert tree.read("emulator/call") == "ext4_read(5) = 7\n"
    tree.echo("unload ext4", FILE)
    assert (tree.read(FILE), listing(tree)) == ("", NAMES)
    assert "ext4_read" not in set(text)
    assert "[ext4]" not in tree.read("emulator/kallsyms")
    start, code = EXT4.segments[".text"]
    assert tree.machine.memory.read(start, len(code)) == b"\xcc" * len(code)
    with pytest.raises(TracefsError) as error:
        tree.echo("ext4_read 5", "emulator/call")
    assert error.value.errno == errno.ENOENT


def test_a_module_comes_back_as_it_was(tree: Tree) -> None:
    tree.echo("load ext4", FILE)
    before = tree.read("emulator/text/ext4_read")
    state = EXT4.labels["ext4_state"]
    tree.echo("unload ext4", FILE)
    tree.echo("load ext4", FILE)
    assert tree.read("emulator/text/ext4_read") == before
    assert tree.machine.memory.u64(state) == 1, "its data is new"


def test_its_functions_are_traced_from_init_module_on(tree: Tree) -> None:
    tree.echo("function", "current_tracer")
    tree.echo("load ext4", FILE)
    lines = [line.split(": ")[-1] for line in tree.read("trace").splitlines() if "<-" in line]
    assert lines[1:] == ["ext4_read <-init_module", "add_one <-ext4_read"]
    assert lines[0].startswith("init_module <-")
    tree.echo("unload ext4", FILE)
    cleanup = EXT4.labels["cleanup_module"]
    assert f": {cleanup:#x} <-" in tree.read("trace"), "traced, and without a name when it is gone"
    assert "[ext4]" not in tree.read("enabled_functions")


def test_a_filter_waits_for_the_module(tree: Tree) -> None:
    tree.echo("*read:mod:ext4", "set_ftrace_filter")
    tree.echo("function", "current_tracer")
    assert tree.read("enabled_functions") == ""
    tree.echo("load ext4", FILE)
    assert tree.read("set_ftrace_filter") == "ext4_read [ext4]\n"
    assert tree.read("enabled_functions").startswith("ext4_read [ext4] (1) ")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", errno.EINVAL),
        ("load", errno.EINVAL),
        ("ext4", errno.EINVAL),
        ("load ext4 now", errno.EINVAL),
        ("load xfs", errno.ENOENT),
        ("unload ext4", errno.ENOENT),
        ("load broken", errno.ENODEV),
        ("load faulting", errno.EFAULT),
    ],
)
def test_what_cannot_be_done_leaves_nothing_loaded(tree: Tree, text: str, code: int) -> None:
    assert refused(tree, text) == code
    assert (tree.read(FILE), listing(tree)) == ("", NAMES)
    tree.echo("load ext4", FILE)
    assert refused(tree, "load ext4") == errno.EEXIST


def test_a_module_that_something_leads_into_stays(tree: Tree) -> None:
    tree.echo("load ext4", FILE)
    ways = [
        ("emulator/livepatch", "add_one ext4_read", "!add_one"),
        ("emulator/direct", "add_one ext4_handler", "!add_one"),
        ("emulator/direct", "ext4_read my_tramp", "!ext4_read"),
    ]
    for path, command, undo in ways:
        tree.echo(command, path)
        assert refused(tree, "unload ext4") == errno.EBUSY
        assert tree.read(FILE).split()[2] == "1"
        tree.echo(undo, path)
    ftrace = tree.tracing.ftrace
    ops = ftrace.new_ops(EXT4.labels["ext4_handler"], name="mine")
    tree.run(lambda: ftrace.register_ftrace_function(ops))
    assert refused(tree, "unload ext4") == errno.EBUSY
    tree.run(lambda: ftrace.unregister_ftrace_function(ops))
    tree.echo("unload ext4", FILE)


ASKING = """FUNC {name}_ask                  # stops in the host
    push rbp
    mov rbp, rsp
    mov eax, HC_CALLBACK
    int HYPERCALL
    pop rbp
    ret
ENDFUNC {name}_ask
"""


def unload_from_inside(tree: Tree, module: Module) -> list[int]:
    """What unloading a module answers to somebody who has been called by it."""
    answers: list[int] = []

    def inside(_vcpu: object) -> None:
        try:
            tree.echo(f"unload {module.name}", FILE)
            answers.append(0)
        except TracefsError as error:
            answers.append(error.errno)

    tree.machine.hypercalls[CONSTANTS["HC_CALLBACK"]] = inside
    tree.echo(f"{module.name}_ask", "emulator/call")
    return answers


def test_a_module_that_somebody_is_in_stays() -> None:
    module = assembled_module("asking", "# A module.\n" + ASKING.format(name="asking"))
    with tracefs(modules=[module]) as tree:
        tree.echo("load asking", FILE)
        assert unload_from_inside(tree, module) == [errno.EBUSY]
        tree.echo("unload asking", FILE)
        assert tree.read(FILE) == ""


def test_a_module_that_says_it_is_used_stays() -> None:
    source = """# A module.
FUNC_NOTRACE cleanup_module
    mov eax, -16
    cmp qword ptr [rip + users], 0
    jne .Lout
    xor eax, eax
.Lout:
    ret
ENDFUNC cleanup_module
.data
OBJECT users
    .quad 1
ENDOBJECT users
"""
    module = assembled_module("used", source)
    with tracefs(modules=[module]) as tree:
        tree.echo("load used", FILE)
        assert refused(tree, "unload used") == errno.EBUSY
        assert tree.read(FILE).startswith("used ")
        tree.machine.memory.set_u64(module.labels["users"], 0)
        tree.echo("unload used", FILE)
        assert tree.read(FILE) == ""


def test_text_that_a_module_left_with_a_task_in_it_is_kept(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    tree.echo("load ext4", FILE)
    assert unload_from_inside(tree, EXT4) == [0]
    assert caplog.records == []
    assert tree.read("emulator/call") == "ext4_ask() = 3\n", "the call came to its end"
    assert (tree.read(FILE), listing(tree)) == ("", NAMES)


def test_live_patches_of_its_functions_go_with_it(tree: Tree) -> None:
    tree.echo("load ext4", FILE)
    tree.echo("ext4_read replacement", "emulator/livepatch")
    tree.echo("ext4_read 5", "emulator/call")
    assert tree.read("emulator/call") == "ext4_read(5) = 105\n"
    tree.echo("unload ext4", FILE)
    assert tree.read("emulator/livepatch") == ""
    tree.echo("load ext4", FILE)
    tree.echo("ext4_read 5", "emulator/call")
    assert tree.read("emulator/call") == "ext4_read(5) = 7\n"

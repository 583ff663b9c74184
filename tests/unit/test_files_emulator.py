"""emulator/: looking into the emulated kernel, and calling into it."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator

import pytest
from support.tracefs import PID, TRUNC, Tree, W, tracefs

from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory
from ftracefs.files.emulator import parse_call, result_text
from ftracefs.files.kernel_functions import KernelFunctions
from ftracefs.trace.tracing import FunctionCall


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs() as tree:
        yield tree


@pytest.fixture
def functions(tree: Tree) -> KernelFunctions:
    return KernelFunctions(tree.machine.image.symbols)


def kernel(tree: Tree) -> dict[str, str]:
    rows = (line.partition(":") for line in tree.read("emulator/kernel").splitlines())
    return {name: value.strip() for name, _, value in rows}


# --- call -----------------------------------------------------------------------------------------


def test_a_call_is_a_name_arguments_and_a_count(tree: Tree, functions: KernelFunctions) -> None:
    address = tree.machine.image.labels["six_sum"]
    call = parse_call(b"six_sum 1 0x10 -1 add_one x20\n", functions, 7)
    target = tree.machine.image.labels["add_one"]
    assert call == FunctionCall(7, "six_sum", address, (1, 16, (1 << 64) - 1, target), 20)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"\n", errno.EINVAL),
        (b"no_such_function", errno.ENOENT),
        (b"add_one 1 2 3 4 5 6 7", errno.EINVAL),
        (b"add_one what", errno.EINVAL),
        (b"add_one 1 x0", errno.EINVAL),
        (b"add_one 99999999999999999999", errno.ERANGE),
        (b"add_one " + b"1" * 5000, errno.ERANGE),
        (b"add_one 1 x1000000001", errno.ERANGE),
        (b"add_one 1 x" + b"1" * 5000, errno.ERANGE),
    ],
)
def test_what_is_no_call_is_refused(functions: KernelFunctions, text: bytes, code: int) -> None:
    with pytest.raises(TracefsError) as error:
        parse_call(text, functions, 1)
    assert error.value.errno == code


def test_reading_shows_the_last_result(tree: Tree) -> None:
    assert tree.read("emulator/call") == ""
    tree.echo("add_one 41", "emulator/call")
    assert tree.read("emulator/call") == "add_one(41) = 42\n"
    tree.echo("six_sum 1 1 0x1 1 1 1 x100", "emulator/call")
    assert tree.read("emulator/call") == "six_sum(1, 1, 0x1, 1, 1, 1) = 63 (100 times)\n"


def test_arguments_that_are_not_given_are_zero(tree: Tree) -> None:
    tree.echo("six_sum 1 1 1 1 1 1", "emulator/call")
    tree.echo("six_sum 5", "emulator/call")
    assert tree.read("emulator/call") == "six_sum(5) = 5\n"


def test_results_are_shown_as_what_they_look_like() -> None:
    assert result_text(16) == "16"
    assert result_text((1 << 64) - 9) == "-9 EBADF"
    assert result_text(0xFFFF888000001000) == "0xffff888000001000"


def test_a_call_is_traced(tree: Tree) -> None:
    tree.echo("function", "current_tracer")
    tree.echo("add_one_twice 1 x3", "emulator/call")
    assert tree.read("trace").count("add_one <-add_one_twice") == 6


def test_a_function_that_fails_is_an_error_and_the_machine_goes_on(tree: Tree) -> None:
    with pytest.raises(TracefsError) as error:
        tree.echo("with_registers 1 2 3", "emulator/call")
    assert error.value.errno == errno.EFAULT
    assert "with_registers(1, 2, 3): page fault" in tree.read("emulator/call")
    tree.echo("add_one 1", "emulator/call")
    assert tree.read("emulator/call") == "add_one(1) = 2\n"


def test_a_long_call_is_left_when_its_caller_is_interrupted(tree: Tree) -> None:
    file = tree.open("emulator/call", W | TRUNC).file
    run = tree.run(lambda: file.write(b"add_one 1 x1000000000", 0))
    assert callable(run)
    asked = iter([False, False, True])
    with pytest.raises(TracefsError) as error:
        run(lambda: next(asked))
    assert error.value.errno == errno.EINTR
    assert re.fullmatch(r"add_one\(1\) = 2 \(\d+ times\)\n", tree.read("emulator/call"))


# --- kernel, patch_log, kallsyms ------------------------------------------------------------------


def test_kernel_counts_patches_and_hypercalls(tree: Tree) -> None:
    before = kernel(tree)
    assert before["image"] == "test"
    assert before["vCPUs"] == "1"
    assert before["clock"] == "virtual"
    tree.echo("add_one", "set_ftrace_filter")
    tree.echo("function", "current_tracer")
    after = kernel(tree)
    assert int(after["text writes"]) > int(before["text writes"])
    tree.call("loop_add", 10000)
    assert kernel(tree)["hypercalls"] == after["hypercalls"]


def test_patch_log_shows_the_three_phases_of_a_patch(tree: Tree) -> None:
    tree.echo("add_one", "set_ftrace_filter")
    tree.echo("function", "current_tracer")
    writes = [line for line in tree.read("emulator/patch_log").splitlines() if " add_one" in line]
    assert [line.split()[1] for line in writes[-3:]] == ["int3", "tail", "first"]
    assert writes[-3].endswith("0f -> cc")
    assert writes[-1].endswith("cc -> e8")


def test_kallsyms_has_the_form_of_proc_kallsyms(tree: Tree) -> None:
    lines = tree.read("emulator/kallsyms").splitlines()
    assert all(re.fullmatch(r"[0-9a-f]{16} [A-Za-z] \S+(\t\[\w+\])?", line) for line in lines)
    address = tree.machine.image.labels["add_one"]
    assert f"{address:016x} T add_one" in lines
    assert any(line.endswith(" function_trace_call") for line in lines)
    kernel_part = [line for line in lines if line < "ffffffffc0"]
    assert kernel_part == sorted(kernel_part, key=lambda line: line[:16])


# --- text -----------------------------------------------------------------------------------------


def test_text_lists_every_function_and_makes_files_on_demand(tree: Tree) -> None:
    text = tree.node("emulator/text")
    assert isinstance(text, Directory)
    names = list(text)
    assert names == sorted(names)
    assert {"add_one", "untraced", "helper.isra.0"} <= set(names)
    assert "host_return_halt" not in names, "a label is no function"
    with pytest.raises(TracefsError) as error:
        text.lookup("no_such_function")
    assert error.value.errno == errno.ENOENT


def test_disassembly_shows_bytes_instructions_and_where_calls_lead(tree: Tree) -> None:
    address = tree.machine.image.labels["add_one_twice"]
    lines = tree.read("emulator/text/add_one_twice").splitlines()
    assert lines[0] == f"{address:016x} <add_one_twice>:"
    assert re.fullmatch(rf"{address:016x}  0f 1f 44 00 00 +nop +# call site: nop", lines[1])
    assert lines[2].split()[1:] == ["55", "push", "rbp"]
    calls = [line for line in lines if " call 0x" in line]
    assert len(calls) == 2
    assert all(line.endswith("# add_one+0x0/0x10") for line in calls)
    assert lines[-1].split()[1:] == ["c3", "ret"]


def test_the_call_site_says_what_it_is_now(tree: Tree) -> None:
    before = tree.read("emulator/text/double")
    site = before.splitlines()[2]
    assert "endbr64" in before.splitlines()[1]
    assert site.endswith("# call site: nop")
    tree.echo("double", "set_ftrace_filter")
    tree.echo("function", "current_tracer")
    line = tree.read("emulator/text/double").splitlines()[2]
    assert line.split()[1] == "e8"
    assert line.endswith("# call site: trampoline of global_ops, which calls function_trace_call")
    tree.echo("nop", "current_tracer")
    assert tree.read("emulator/text/double") == before


def test_the_size_is_the_text_s_length_whatever_has_been_patched_since(tree: Tree) -> None:
    names = [*tree.node("emulator/text")]  # type: ignore[misc]

    def lengths(read: Callable[[str], int]) -> dict[str, int]:
        return {name: read(f"emulator/text/{name}") for name in names}

    def sizes() -> dict[str, int]:
        return lengths(lambda path: tree.run(lambda: tree.node(path).size()))  # type: ignore[union-attr]

    seen = []
    for tracer in ("nop", "function", "function_graph", "nop"):
        tree.echo(tracer, "current_tracer")
        assert sizes() == sizes() == lengths(lambda path: len(tree.read(path)))
        seen.append(sizes())
    assert seen[0] == seen[3] != seen[1]


def test_a_function_without_a_call_site_has_none_marked(tree: Tree) -> None:
    assert "call site" not in tree.read("emulator/text/untraced")


def test_calls_run_as_their_writer(tree: Tree) -> None:
    seen: list[FunctionCall] = []
    original = tree.tracing.call_function

    def spy(call: FunctionCall) -> object:
        seen.append(call)
        return original(call)

    tree.tracing.call_function = spy  # type: ignore[assignment]
    tree.echo("add_one 1", "emulator/call")
    assert [call.pid for call in seen] == [PID]

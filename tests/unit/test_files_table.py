"""The tree as a whole: names, modes, filters, README, instances."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ftrace_kernel import NAMES
from support.tracefs import APPEND, TRUNC, Tree, W, tracefs

from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory, TracefsFile

ROOT = Path(__file__).resolve().parents[2]

# As `ls -la` of Linux 6.1 shows them.
TOP = {
    "README": 0o440,
    "available_events": 0o440,
    "available_filter_functions": 0o440,
    "available_tracers": 0o440,
    "buffer_size_kb": 0o640,
    "buffer_total_size_kb": 0o440,
    "buffer_percent": 0o640,
    "current_tracer": 0o640,
    "dyn_ftrace_total_info": 0o440,
    "enabled_functions": 0o440,
    "error_log": 0o640,
    "events": 0o750,
    "free_buffer": 0o200,
    "function_profile_enabled": 0o640,
    "instances": 0o750,
    "max_graph_depth": 0o640,
    "options": 0o750,
    "per_cpu": 0o750,
    "printk_formats": 0o440,
    "saved_cmdlines": 0o440,
    "saved_cmdlines_size": 0o640,
    "saved_tgids": 0o440,
    "set_event": 0o640,
    "set_event_notrace_pid": 0o640,
    "set_event_pid": 0o640,
    "set_ftrace_filter": 0o640,
    "set_ftrace_notrace": 0o640,
    "set_ftrace_notrace_pid": 0o640,
    "set_ftrace_pid": 0o640,
    "set_graph_function": 0o640,
    "set_graph_notrace": 0o640,
    "snapshot": 0o640,
    "stack_max_size": 0o640,
    "stack_trace": 0o440,
    "stack_trace_filter": 0o640,
    "timestamp_mode": 0o440,
    "trace": 0o640,
    "trace_clock": 0o640,
    "trace_marker": 0o220,
    "trace_marker_raw": 0o220,
    "trace_options": 0o640,
    "trace_pipe": 0o440,
    "trace_stat": 0o750,
    "tracing_cpumask": 0o640,
    "tracing_max_latency": 0o640,
    "tracing_on": 0o640,
    "tracing_thresh": 0o640,
}
PER_CPU = {
    "buffer_size_kb": 0o640,
    "snapshot": 0o640,
    "snapshot_raw": 0o440,
    "stats": 0o440,
    "trace": 0o640,
    "trace_pipe": 0o440,
    "trace_pipe_raw": 0o440,
}
EMULATOR = {
    "call": 0o640,
    "console": 0o440,
    "direct": 0o640,
    "inline_callbacks": 0o640,
    "kallsyms": 0o440,
    "kernel": 0o440,
    "livepatch": 0o640,
    "modules": 0o640,
    "ops": 0o440,
    "patch_log": 0o440,
    "patching": 0o640,
    "sysctl": 0o750,
    "text": 0o750,
    "touched_functions": 0o440,
    "trampolines": 0o440,
}


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs() as tree:
        yield tree


def modes(directory: object) -> dict[str, int]:
    assert isinstance(directory, Directory)
    return {name: directory.lookup(name).mode for name in directory}


def test_names_and_modes_are_those_of_linux() -> None:
    with tracefs(nr_cpus=2, pure=True) as tree:
        assert modes(tree.root) == TOP
        assert tree.root.mode == 0o700
        assert modes(tree.node("per_cpu")) == {"cpu0": 0o750, "cpu1": 0o750}
        assert modes(tree.node("per_cpu/cpu1")) == PER_CPU
        assert modes(tree.node("trace_stat")) == {"function0": 0o640, "function1": 0o640}


def test_only_emulator_comes_beside_them(tree: Tree) -> None:
    assert modes(tree.root) == {**TOP, "emulator": 0o750}
    assert modes(tree.node("emulator")) == EMULATOR


def files(directory: Directory, path: str = "") -> Iterator[tuple[str, TracefsFile]]:
    for name in directory:
        node = directory.lookup(name)
        if isinstance(node, TracefsFile):
            yield path + name, node
        elif name != "text":  # as many as functions
            yield from files(node, f"{path}{name}/")


def size_of(tree: Tree, file: TracefsFile) -> int:
    size = tree.run(file.size)
    return size if isinstance(size, int) else size()


def test_the_size_of_a_file_is_the_length_of_its_text(tree: Tree) -> None:
    for path, file in files(tree.root):
        if path.endswith(("trace_pipe", "pipe_raw", "snapshot_raw")):
            assert size_of(tree, file) >= 4096, path
        elif file.mode & 0o444:
            assert (path, size_of(tree, file)) == (path, len(tree.read(path).encode()))
        else:
            assert size_of(tree, file) == 0, path


# --- filters --------------------------------------------------------------------------------------


def test_a_filter_is_written_word_by_word_and_read_back_in_order(tree: Tree) -> None:
    assert tree.read("set_ftrace_filter") == "#### all functions enabled ####\n"
    assert tree.read("set_ftrace_notrace") == "#### no functions disabled ####\n"
    descriptor = tree.open("set_ftrace_filter", W | TRUNC)
    assert descriptor.write(b"loop_add add_one\n") == 9
    assert descriptor.write(b"add_one\n") == 8
    descriptor.close()
    assert tree.read("set_ftrace_filter") == "add_one\nloop_add\n"
    tree.write("set_ftrace_filter", "double\n", W | APPEND)
    assert tree.read("set_ftrace_filter") == "add_one\ndouble\nloop_add\n"
    tree.echo("add_*", "set_ftrace_filter")
    assert tree.read("set_ftrace_filter") == "add_one\nadd_one_twice\n"
    tree.echo("", "set_ftrace_filter")
    assert tree.read("set_ftrace_filter") == "#### all functions enabled ####\n"


def test_a_bad_word_is_einval_and_the_words_before_it_stay(tree: Tree) -> None:
    with pytest.raises(TracefsError) as error:
        tree.write("set_ftrace_filter", "add_one no_such_function double\n")
    assert error.value.errno == errno.EINVAL
    assert tree.read("set_ftrace_filter") == "add_one\n"


def test_filter_and_notrace_decide_what_is_patched(tree: Tree) -> None:
    tree.echo("add_*", "set_ftrace_filter")
    tree.echo("add_one_twice", "set_ftrace_notrace")
    tree.echo("function", "current_tracer")
    assert [line.split()[0] for line in tree.read("enabled_functions").splitlines()] == ["add_one"]
    tree.echo("double", "set_ftrace_filter")
    assert [line.split()[0] for line in tree.read("enabled_functions").splitlines()] == ["double"]
    tree.echo("nop", "current_tracer")
    assert tree.read("enabled_functions") == ""


def test_available_filter_functions_lists_every_call_site(tree: Tree) -> None:
    assert tree.read("available_filter_functions").split() == NAMES
    assert tree.read("dyn_ftrace_total_info").startswith(f"{len(NAMES)} pages:")


# --- texts ----------------------------------------------------------------------------------------


def test_readme_says_what_clients_look_for(tree: Tree) -> None:
    text = tree.read("README")
    assert len(text) >= 6144
    for pattern in (
        r"accepts: .* glob-matching-pattern",  # ftrace/func-filter-glob.tc
        r"Format: :mod:<module-name>",
        r"available_tracers",
        r"trace_pipe",
        r"x86-tsc:",
    ):
        assert re.search(pattern, text), pattern


def test_readme_promises_nothing_that_is_not_there(tree: Tree) -> None:
    text = tree.read("README")
    for syntax in (
        "Create/append/",
        "<symbol>[+<offset>]%return",
        "r[maxactive]",
        "$arg<N>",
        "x8/16/32/64",
        "[<module>:]<symbol>",
        "<attached-group>.<attached-event>",
        "s:[synthetic/]",
        "onchange(var)",
        "snapshot()",
        "trace(<synthetic_event>",
        "char name[]' >> synthetic_events",
        "<var1>=<field|var_ref|numeric_literal>",
    ):
        assert syntax not in text
    named = set(re.findall(r"^  (\w+(?:/\w+)?)/?\t", text, re.M))
    assert {name for name in named if name not in tree.root} <= {
        f"emulator/{name}" for name in EMULATOR
    } | {"per_cpu/cpuN", "trace_stat/functionN"}


def test_readme_is_readable_on_a_terminal(tree: Tree) -> None:
    for line in tree.read("README").splitlines():
        assert len(line.expandtabs()) <= 80, line
        assert line.isascii()


def test_a_pure_tree_does_not_speak_of_the_emulator() -> None:
    with tracefs(pure=True) as tree:
        assert "emulator" not in tree.read("README")


def test_error_log_is_emptied_by_truncation_only(tree: Tree) -> None:
    tree.run(lambda: tree.tr.tracing_log_err("here", "a bad command", "Bad command", 2))
    text = tree.read("error_log")
    assert re.fullmatch(
        r"\[    0\.\d{6}\] here: error: Bad command\n  Command: a bad command\n {13}\^\n", text
    )
    tree.write("error_log", "x")
    assert tree.read("error_log") == text
    tree.open("error_log", W | TRUNC).close()
    assert tree.read("error_log") == ""


# --- docs/files.md --------------------------------------------------------------------------------


def _rows() -> dict[str, str]:
    """The files that docs/files.md has a row for, with the mode it gives."""
    rows = {}
    for line in (ROOT / "docs/files.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 5:
            for name in re.findall(r"`([^`]+)`", cells[0]):
                rows[name] = cells[1]
    return rows


def test_every_file_has_a_row_with_its_mode_in_the_documentation(tree: Tree) -> None:
    rows = _rows()
    for name, mode in modes(tree.root).items():
        if name not in ("emulator", "events", "options", "per_cpu", "trace_stat"):
            assert rows.pop(name + "/" * (name == "instances")) == f"0{mode:o}", name
    for name, mode in modes(tree.node("emulator")).items():
        if name not in ("sysctl", "text"):
            assert rows.pop(f"emulator/{name}") == f"0{mode:o}", name
    for name, mode in modes(tree.node("emulator/sysctl")).items():
        assert rows.pop(f"emulator/sysctl/{name}") == f"0{mode:o}", name
    assert rows.pop("trace_stat/functionN") == f"0{tree.node('trace_stat/function0').mode:o}"
    options = modes(tree.node("options"))
    assert set(options.values()) == {0o640}
    assert rows.pop("options/OPTION") == "0640"
    for name in ("enable", "header_event", "header_page"):
        assert rows.pop(f"events/{name}") == f"0{tree.node(f'events/{name}').mode:o}"
    for name in ("format", "id"):
        mode = tree.node(f"events/ftrace/function/{name}").mode
        assert rows.pop(f"events/SYSTEM/EVENT/{name}") == f"0{mode:o}"
    # The test kernel has no event that could be enabled; the files are of one kind.
    for name in ("SYSTEM/enable", "SYSTEM/EVENT/enable"):
        assert rows.pop(f"events/{name}") == f"0{tree.node('events/enable').mode:o}"
    for name, mode in modes(tree.node("per_cpu/cpu0")).items():
        assert rows.pop(f"per_cpu/cpuN/{name}") == f"0{mode:o}", name
    assert rows.pop("emulator/text/FUNCTION") == f"0{tree.node('emulator/text/double').mode:o}"
    assert rows.pop("emulator/sh") == "0640"  # only a booted Linux has these
    assert rows.pop("emulator/sh_status") == "0440"
    assert not rows

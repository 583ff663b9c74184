"""The files that hold a value: tracer, tracing_on, sizes, clock, statistics, free_buffer."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Iterator

import pytest
from support.tracefs import RW, TRUNC, R, Tree, W, tracefs

from ftracefs.errors import TracefsError
from ftracefs.files.base import TracefsFile
from ftracefs.trace.options import TraceIter

CLOCKS = ["local", "global", "counter", "uptime", "perf"]
CLOCKS += ["mono", "mono_raw", "boot", "tai", "x86-tsc"]


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs() as tree:
        yield tree


@pytest.fixture
def two() -> Iterator[Tree]:
    with tracefs(nr_cpus=2) as tree:
        yield tree


def refusal(tree: Tree, path: str, data: bytes) -> int:
    """The errno of one write."""
    descriptor = tree.open(path, W)
    with pytest.raises(TracefsError) as error:
        descriptor.write(data)
    descriptor.close()
    return error.value.errno


# --- current_tracer -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [b"function", b"function\n", b" function \n\n", b"function\0x", b"\tfunction\xa0"]
)
def test_a_tracer_is_named_with_white_space_around_it(tree: Tree, text: bytes) -> None:
    tree.write("current_tracer", text)
    assert tree.read("current_tracer") == "function\n"


@pytest.mark.parametrize(
    "text", [b"foo", b"\n", b" ", b"nop\nfunction", b"NOP", b"func", b"fun ction", b"a" * 5000]
)
def test_another_word_is_einval_and_changes_nothing(tree: Tree, text: bytes) -> None:
    assert refusal(tree, "current_tracer", text) == errno.EINVAL
    assert tree.read("current_tracer") == "nop\n"


def test_only_100_bytes_of_a_tracers_name_are_looked_at(tree: Tree) -> None:
    tree.write("current_tracer", b" " * 92 + b"function")
    assert tree.read("current_tracer") == "function\n"
    assert refusal(tree, "current_tracer", b" " * 98 + b"nop") == errno.EINVAL


def test_a_change_of_tracer_empties_the_buffer_but_the_same_one_does_not(tree: Tree) -> None:
    tree.echo("one", "trace_marker")
    tree.echo("nop", "current_tracer")
    assert "one" in tree.read("trace")
    tree.echo("function", "current_tracer")
    assert "one" not in tree.read("trace")
    tree.echo("two", "trace_marker")
    tree.echo("function", "current_tracer")
    assert "two" in tree.read("trace")
    tree.echo("nop", "current_tracer")
    assert "two" not in tree.read("trace")


def test_the_function_tracer_patches_what_the_filter_names_and_nop_undoes_it(tree: Tree) -> None:
    text = tree.machine.image.segments[".text"]
    before = tree.machine.memory.read(text[0], len(text[1]))
    tree.echo("add_one", "set_ftrace_filter")
    tree.echo("function", "current_tracer")
    assert tree.call("loop_add", 3) == 3
    assert tree.read("trace").count("add_one <-loop_add") == 3
    tree.echo("nop", "current_tracer")
    assert tree.machine.memory.read(text[0], len(text[1])) == before
    tree.call("loop_add", 3)
    assert "add_one" not in tree.read("trace")


@pytest.mark.parametrize("path", ["trace_pipe", "per_cpu/cpu0/trace_pipe"])
def test_a_tracer_cannot_change_while_a_pipe_is_open(tree: Tree, path: str) -> None:
    pipe = tree.open(path)
    assert refusal(tree, "current_tracer", b"function") == errno.EBUSY
    tree.echo("nop", "current_tracer")
    pipe.close()
    tree.echo("function", "current_tracer")


def test_an_open_trace_does_not_keep_the_tracer(tree: Tree) -> None:
    tree.echo("nop", "current_tracer")
    trace = tree.open("trace")
    tree.echo("function", "current_tracer")
    trace.close()


def test_an_open_trace_keeps_a_small_buffer_from_being_expanded(tree: Tree) -> None:
    trace = tree.open("trace")
    assert refusal(tree, "current_tracer", b"function") == errno.EBUSY
    trace.close()


def test_available_tracers(tree: Tree) -> None:
    assert tree.read("available_tracers") == "function_graph function nop\n"
    for name in tree.read("available_tracers").split():
        tree.echo(name, "current_tracer")


def test_a_value_is_made_anew_for_each_read(tree: Tree) -> None:
    descriptor = tree.open("tracing_on", RW)
    assert descriptor.read(20) == b"1\n"
    descriptor.write(b"0")
    assert descriptor.read(20) == b""
    descriptor.offset = 0
    assert descriptor.read(1) == b"0"
    descriptor.close()


def test_a_sequence_stays_until_the_reader_goes_back_to_its_start(tree: Tree) -> None:
    descriptor = tree.open("trace_clock")
    assert descriptor.read(6) == b"[local"
    tree.write("trace_clock", "global")
    assert descriptor.read(9) == b"] global "
    descriptor.offset = 0
    assert descriptor.read(14) == b"local [global]"
    descriptor.close()


# --- tracing_on -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "shown"), [("2", "1"), ("01\n", "1"), ("+0", "0"), ("0\n", "0")])
def test_tracing_on_takes_any_number(tree: Tree, text: str, shown: str) -> None:
    tree.write("tracing_on", text)
    assert tree.read("tracing_on") == f"{shown}\n"


@pytest.mark.parametrize("text", [b"abc", b"-1", b"\n", b"0x1", b" 1", b"1 ", b"1abc", b"y"])
def test_tracing_on_takes_nothing_else(tree: Tree, text: bytes) -> None:
    assert refusal(tree, "tracing_on", text) == errno.EINVAL
    assert refusal(tree, "tracing_on", b"9" * 20) == errno.ERANGE


def test_nothing_is_recorded_with_tracing_off(tree: Tree) -> None:
    tree.echo("function", "current_tracer")
    tree.echo("0", "tracing_on")
    tree.call("add_one", 1)
    assert "add_one" not in tree.read("trace")


def test_the_function_tracer_starts_with_an_empty_buffer_when_tracing_goes_on(tree: Tree) -> None:
    tree.echo("function", "current_tracer")
    tree.call("add_one", 1)
    tree.echo("1", "tracing_on")
    assert "add_one" in tree.read("trace")
    tree.echo("0", "tracing_on")
    assert "add_one" in tree.read("trace")
    tree.echo("1", "tracing_on")
    assert "add_one" not in tree.read("trace")


def test_with_nop_the_buffer_stays_when_tracing_goes_on(tree: Tree) -> None:
    tree.echo("mark", "trace_marker")
    tree.echo("0", "tracing_on")
    tree.echo("1", "tracing_on")
    assert "mark" in tree.read("trace")


# --- sizes ----------------------------------------------------------------------------------------


def test_a_buffer_is_small_until_a_tracer_is_named(two: Tree) -> None:
    assert two.read("buffer_size_kb") == "7 (expanded: 1408)\n"
    assert two.read("buffer_total_size_kb") == "14 (expanded: 2816)\n"
    assert two.read("per_cpu/cpu0/buffer_size_kb") == "7\n"
    two.echo("mark", "trace_marker")
    two.echo("global", "trace_clock")
    assert two.read("buffer_size_kb") == "7 (expanded: 1408)\n"
    assert refusal(two, "current_tracer", b"foo") == errno.EINVAL
    assert two.read("buffer_size_kb") == "1410\n"
    assert two.read("buffer_total_size_kb") == "2820\n"


@pytest.mark.parametrize(
    ("asked", "given"),
    [("1", 7), ("4", 7), ("7", 7), ("8", 11), ("9", 11), ("100\n", 103), ("1408", 1410)],
)
def test_sizes_are_rounded_up_to_pages(tree: Tree, asked: str, given: int) -> None:
    tree.write("buffer_size_kb", asked)
    assert tree.read("buffer_size_kb") == f"{given}\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"0", errno.EINVAL),
        (b"abc", errno.EINVAL),
        (b"-1", errno.EINVAL),
        (b"0x10", errno.EINVAL),
        (b"1k", errno.EINVAL),
        (b"9" * 20, errno.ERANGE),
        (b"10000000000", errno.ENOMEM),
    ],
)
def test_a_refused_size_changes_nothing(tree: Tree, text: bytes, code: int) -> None:
    tree.write("buffer_size_kb", "100")
    assert refusal(tree, "buffer_size_kb", text) == code
    assert refusal(tree, "per_cpu/cpu0/buffer_size_kb", text) == code
    assert tree.read("buffer_size_kb") == "103\n"
    tree.echo("function", "current_tracer")
    tree.call("add_one", 1)
    assert "add_one" in tree.read("trace")


def test_two_to_the_54_wraps_to_the_least_buffer(tree: Tree) -> None:
    tree.write("buffer_size_kb", "18014398509481984")
    assert tree.read("buffer_size_kb") == "7\n"


def test_cpus_of_different_size_read_as_x(two: Tree) -> None:
    two.write("per_cpu/cpu1/buffer_size_kb", "100")
    assert two.read("buffer_size_kb") == "X\n"
    assert two.read("per_cpu/cpu0/buffer_size_kb") == "7\n"
    assert two.read("per_cpu/cpu1/buffer_size_kb") == "103\n"
    assert two.read("buffer_total_size_kb") == "110\n"
    two.write("buffer_size_kb", "1408")
    assert two.read("buffer_size_kb") == "1410\n"


def test_no_resizing_while_trace_is_open_for_reading(two: Tree) -> None:
    trace = two.open("per_cpu/cpu0/trace")
    assert refusal(two, "per_cpu/cpu0/buffer_size_kb", b"100") == errno.ENOMEM
    assert refusal(two, "buffer_size_kb", b"100") == errno.ENOMEM
    two.write("per_cpu/cpu1/buffer_size_kb", "100")
    trace.close()
    two.write("buffer_size_kb", "200")
    writer, pipe = two.open("trace", W), two.open("trace_pipe")
    two.write("buffer_size_kb", "100")
    assert two.read("buffer_size_kb") == "103\n"
    writer.close()
    pipe.close()


def test_buffer_total_size_kb_is_not_written(tree: Tree) -> None:
    assert refusal(tree, "buffer_total_size_kb", b"100") == errno.EINVAL


def test_free_buffer_shrinks_when_it_is_closed(tree: Tree) -> None:
    tree.write("buffer_size_kb", "1408")
    descriptor = tree.open("free_buffer", W)
    assert descriptor.write(b"whatever") == 8
    assert tree.read("buffer_size_kb") == "1410\n"
    descriptor.close()
    assert tree.read("buffer_size_kb") == "7\n"
    assert tree.read("tracing_on") == "1\n"


def test_free_buffer_stops_tracing_with_disable_on_free(tree: Tree) -> None:
    tree.run(lambda: tree.tr.set_tracer_flag(TraceIter.STOP_ON_FREE, True))
    tree.open("free_buffer", W).close()
    assert tree.read("tracing_on") == "0\n"


def test_free_buffer_is_not_read(tree: Tree) -> None:
    with pytest.raises(TracefsError) as error:
        tree.open("free_buffer", R).read(10)
    assert error.value.errno == errno.EINVAL


# --- trace_clock ----------------------------------------------------------------------------------


def test_every_clock_can_be_chosen_and_stamps_in_order(tree: Tree) -> None:
    assert tree.read("trace_clock") == "[local] " + " ".join(CLOCKS[1:]) + "\n"
    for clock in CLOCKS:
        tree.write("trace_clock", f" {clock} \n")
        shown = tree.read("trace_clock").split()
        assert shown == [f"[{c}]" if c == clock else c for c in CLOCKS]
        tree.echo("a", "trace_marker")
        tree.echo("b", "trace_marker")
        stamps = [float(line.split()[3][:-1]) for line in tree.read("trace").splitlines()[-2:]]
        assert stamps == sorted(stamps)


def test_the_counter_counts_readings(tree: Tree) -> None:
    tree.write("trace_clock", "counter")
    tree.echo("a", "trace_marker")
    tree.echo("b", "trace_marker")
    first, second = (int(line.split()[3][:-1]) for line in tree.read("trace").splitlines()[-2:])
    assert second == first + 1
    assert f"now ts: {second + 1}\n" in tree.read("per_cpu/cpu0/stats")


def test_any_choice_of_a_clock_empties_the_buffer(tree: Tree) -> None:
    tree.echo("mark", "trace_marker")
    assert refusal(tree, "trace_clock", b"foo") == errno.EINVAL
    assert "mark" in tree.read("trace")
    tree.write("trace_clock", "local")
    assert "mark" not in tree.read("trace")


@pytest.mark.parametrize("text", [b"Local", b"mono mono", b"\n", b"lo\0cal", b"local" + b" " * 59])
def test_other_words_are_no_clock(tree: Tree, text: bytes) -> None:
    assert refusal(tree, "trace_clock", text) == errno.EINVAL


def test_63_bytes_may_name_a_clock(tree: Tree) -> None:
    tree.write("trace_clock", b"mono" + b" " * 59)
    assert "[mono]" in tree.read("trace_clock")


def test_real_clocks_are_the_hosts() -> None:
    with tracefs(clock="real") as tree:
        for name, clock in (("mono", time.CLOCK_MONOTONIC), ("boot", time.CLOCK_BOOTTIME)):
            tree.write("trace_clock", name)
            before = time.clock_gettime(clock)
            tree.echo("mark", "trace_marker")
            after = time.clock_gettime(clock)
            stamp = float(tree.read("trace").splitlines()[-1].split()[3][:-1])
            assert before - 0.001 <= stamp <= after + 0.001


# --- stats ----------------------------------------------------------------------------------------


def test_stats_count_what_happened(tree: Tree) -> None:
    tree.write("buffer_size_kb", "1")
    tree.echo("add_one", "set_ftrace_filter")
    tree.echo("function", "current_tracer")
    tree.call("loop_add", 1000)
    lines = dict(line.split(": ") for line in tree.read("per_cpu/cpu0/stats").splitlines())
    entries, overrun = int(lines["entries"]), int(lines["overrun"])
    assert entries + overrun == 1000
    # Of the two pages left, the full one keeps the 20 bytes at its end that no record fits in.
    assert int(lines["bytes"]) == 28 * entries + 20
    assert lines["commit overrun"] == lines["dropped events"] == lines["read events"] == "0"
    pipe = tree.open("trace_pipe")
    pipe.read(10)
    pipe.close()
    assert "read events: 1\n" in tree.read("per_cpu/cpu0/stats")


def test_without_overwriting_the_newest_are_dropped(tree: Tree) -> None:
    tree.run(lambda: tree.tr.set_tracer_flag(TraceIter.OVERWRITE, False))
    tree.write("buffer_size_kb", "1")
    tree.echo("add_one", "set_ftrace_filter")
    tree.echo("function", "current_tracer")
    tree.call("loop_add", 1000)
    stats = tree.read("per_cpu/cpu0/stats")
    assert "entries: 290\n" in stats
    assert "dropped events: 710\n" in stats
    with pytest.raises(TracefsError) as error:
        tree.echo("mark", "trace_marker")
    assert error.value.errno == errno.EBADF


# --- what is only read ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "README",
        "available_filter_functions",
        "available_tracers",
        "dyn_ftrace_total_info",
        "enabled_functions",
        "per_cpu/cpu0/stats",
        "saved_cmdlines",
        "trace_pipe",
    ],
)
def test_read_only_files_open_for_writing_and_refuse_the_write(tree: Tree, path: str) -> None:
    for flags in (W, W | TRUNC, RW):
        descriptor = tree.open(path, flags)
        with pytest.raises(TracefsError) as error:
            descriptor.write(b"x")
        assert error.value.errno == errno.EINVAL
        descriptor.close()


def test_the_length_of_stats_is_no_reading_of_the_counter(tree: Tree) -> None:
    tree.echo("counter", "trace_clock")
    tree.write("trace_marker", "a")
    stats = tree.node("per_cpu/cpu0/stats")
    assert isinstance(stats, TracefsFile)
    lengths = [tree.run(stats.size) for _ in range(3)]
    texts = [tree.read("per_cpu/cpu0/stats") for _ in range(2)]
    assert lengths == [len(texts[0])] * 3
    before, after = (int(re.findall(r"now ts: (\d+)", text)[0]) for text in texts)
    assert after == before + 2  # each read of a file makes its text anew, the last one too

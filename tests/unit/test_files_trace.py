"""trace, trace_pipe and trace_marker."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

import pytest
from support.tracefs import PID, RW, TRUNC, R, Tree, W, tracefs

from ftracefs.errors import TracefsError
from ftracefs.files.base import Pending
from ftracefs.trace.options import TraceIter

HEADER = """\
# tracer: nop
#
# entries-in-buffer/entries-written: 0/0   #P:1
#
#                                _-----=> irqs-off/BH-disabled
#                               / _----=> need-resched
#                              | / _---=> hardirq/softirq
#                              || / _--=> preempt-depth
#                              ||| / _-=> migrate-disable
#                              |||| /     delay
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
"""
LINE = re.compile(r"^ +\S+-\d+ +\[\d{3}\] \S{5} +\d+\.\d{6}: \S+ <-\S+\n$")


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs() as tree:
        yield tree


@pytest.fixture
def two() -> Iterator[Tree]:
    with tracefs(nr_cpus=2, acting_cpu=1) as tree:
        yield tree


def marks(text: str | bytes | Pending) -> list[str]:
    """The texts of the markers in a trace."""
    assert not isinstance(text, Pending)
    shown = text if isinstance(text, str) else text.decode()
    return re.findall(r"tracing_mark_write: (.*)\n", shown)


def trace_functions(tree: Tree, *names: str) -> None:
    tree.echo(" ".join(names), "set_ftrace_filter")
    tree.echo("function", "current_tracer")


def failure(tree: Tree, path: str, flags: int = R) -> int:
    with pytest.raises(TracefsError) as error:
        tree.open(path, flags)
    return error.value.errno


# --- trace ----------------------------------------------------------------------------------------


def test_an_empty_trace_is_its_header(tree: Tree) -> None:
    assert tree.read("trace") == HEADER
    assert tree.read("per_cpu/cpu0/trace") == HEADER


def test_a_trace_shows_every_call_and_stays(tree: Tree) -> None:
    trace_functions(tree, "loop_add", "add_one")
    tree.call("loop_add", 2)
    text = tree.read("trace")
    assert "# tracer: function\n" in text
    assert "entries-written: 3/3 " in text
    lines = text.splitlines(keepends=True)[12:]
    assert all(LINE.match(line) for line in lines)
    assert [line.split()[4:] for line in lines] == [
        ["loop_add", "<-host_return"],
        ["add_one", "<-loop_add"],
        ["add_one", "<-loop_add"],
    ]
    assert tree.read("trace") == text


@pytest.mark.parametrize("size", [1, 7, 100, 4096])
def test_a_trace_read_in_pieces_does_not_tear(tree: Tree, size: int) -> None:
    trace_functions(tree, "add_one")
    tree.call("loop_add", 40)
    whole = tree.read("trace")
    descriptor = tree.open("trace")
    pieces = []
    while piece := descriptor.read(size):
        assert isinstance(piece, bytes)
        pieces.append(piece)
        tree.call("add_one", 1)
    descriptor.close()
    assert b"".join(pieces).decode() == whole


def test_going_back_to_the_start_shows_the_buffer_as_it_is_now(tree: Tree) -> None:
    descriptor = tree.open("trace")
    assert marks(descriptor.read(4096)) == []
    tree.echo("later", "trace_marker")
    assert descriptor.read(4096) == b""
    descriptor.offset = 0
    assert marks(descriptor.read(4096)) == ["later"]
    descriptor.close()


def test_what_comes_between_open_and_first_read_is_shown(tree: Tree) -> None:
    descriptor = tree.open("trace")
    tree.echo("early", "trace_marker")
    assert marks(descriptor.read(4096)) == ["early"]
    descriptor.close()


def test_a_reader_does_not_see_a_truncation_behind_its_back(tree: Tree) -> None:
    tree.write("trace_marker", "m3")
    descriptor = tree.open("trace")
    assert descriptor.read(5) == b"# tra"
    tree.open("trace", W | TRUNC).close()
    assert marks(descriptor.read(4096)) == ["m3"]
    descriptor.close()
    assert marks(tree.read("trace")) == []


def test_only_a_writers_truncation_empties_the_buffer(tree: Tree) -> None:
    tree.echo("mark", "trace_marker")
    tree.open("trace", R | TRUNC).close()
    tree.write("trace", "anything", W)
    assert marks(tree.read("trace")) == ["mark"]
    tree.open("trace", RW | TRUNC).close()
    assert marks(tree.read("trace")) == []


def test_truncating_one_cpus_trace_leaves_the_others(two: Tree) -> None:
    trace_functions(two, "add_one")
    for cpu in (0, 1):
        two.call("add_one", 1, cpu=cpu)
    two.echo("", "per_cpu/cpu0/trace")
    text = two.read("trace")
    assert text.count("add_one") == 1
    assert "[001]" in text
    assert "[001]" not in two.read("per_cpu/cpu0/trace")
    assert two.read("per_cpu/cpu1/trace").splitlines()[-1] == text.splitlines()[-1]


def test_the_records_of_all_cpus_are_merged_in_order_of_time(two: Tree) -> None:
    trace_functions(two, "add_one")
    for cpu in (0, 1, 1, 0, 1):
        two.call("add_one", 1, cpu=cpu)
    lines = two.read("trace").splitlines()[12:]
    assert [line.split()[1] for line in lines] == ["[000]", "[001]", "[001]", "[000]", "[001]"]
    assert [line.split()[0] for line in lines[:2]] == [f"script-{PID}", f"script-{PID + 1}"]
    assert "#P:2" in two.read("per_cpu/cpu0/trace")


def test_pause_on_trace_stops_recording_while_trace_is_open(tree: Tree) -> None:
    tree.run(lambda: tree.tr.set_tracer_flag(TraceIter.PAUSE_ON_TRACE, True))
    descriptor = tree.open("trace")
    with pytest.raises(TracefsError):
        tree.echo("lost", "trace_marker")
    assert tree.read("tracing_on") == "0\n"
    descriptor.close()
    assert tree.read("tracing_on") == "1\n"
    tree.echo("kept", "trace_marker")
    assert marks(tree.read("trace")) == ["kept"]


def test_overrun_is_counted_in_the_header(tree: Tree) -> None:
    tree.write("buffer_size_kb", "1")
    trace_functions(tree, "add_one")
    tree.call("loop_add", 1000)
    text = tree.read("trace")
    entries, written = re.findall(r"entries-written: (\d+)/(\d+)", text)[0]
    assert int(written) == 1000
    assert int(entries) == text.count("<-loop_add") < 1000


# --- trace_marker ---------------------------------------------------------------------------------


def test_a_marker_is_a_line_of_its_own_with_or_without_a_newline(tree: Tree) -> None:
    for text in ("hello", "with newline\n", "\n", "a\nb\n"):
        tree.write("trace_marker", text)
    lines = tree.read("trace").splitlines()[12:]
    assert [line.partition("tracing_mark_write: ")[2] for line in lines] == [
        "hello",
        "with newline",
        "",
        "a",
        "",
    ]
    assert lines[4] == "b"


def test_a_nul_ends_the_text_and_swallows_the_newline(tree: Tree) -> None:
    tree.write("trace_marker", b"nul\0inside")
    tree.write("trace_marker", "next")
    assert re.search(r"tracing_mark_write: nul +\S+-1000 ", tree.read("trace"))


def test_a_write_takes_1024_bytes(tree: Tree) -> None:
    descriptor = tree.open("trace_marker", W)
    assert [descriptor.write(b"a" * n) for n in (1, 1000, 1024, 4096)] == [1, 1000, 1024, 1024]
    descriptor.close()
    assert [len(mark) for mark in marks(tree.read("trace"))] == [1, 1000, 1024, 1024]


def test_a_marker_alone_has_no_name(tree: Tree) -> None:
    tree.echo("mark", "trace_marker")
    assert f"           <...>-{PID}    [000] ..... " in tree.read("trace")
    assert tree.read("saved_cmdlines") == ""


def test_the_function_tracer_lets_names_be_known(tree: Tree) -> None:
    trace_functions(tree, "add_one")
    tree.echo("mark", "trace_marker")
    assert f"          script-{PID}    [000] ..... " in tree.read("trace")
    assert tree.read("saved_cmdlines") == f"{PID} script\n"


def test_a_marker_fails_as_linux_lets_it(tree: Tree) -> None:
    descriptor = tree.open("trace_marker", W)
    tree.echo("0", "tracing_on")
    with pytest.raises(TracefsError) as error:
        descriptor.write(b"off")
    assert error.value.errno == errno.EBADF
    tree.echo("1", "tracing_on")
    tree.run(lambda: tree.tr.set_tracer_flag(TraceIter.MARKERS, False))
    with pytest.raises(TracefsError) as error:
        descriptor.write(b"off")
    assert error.value.errno == errno.EINVAL
    descriptor.close()


def test_trace_marker_has_nothing_to_read_and_no_offset(tree: Tree) -> None:
    descriptor = tree.open("trace_marker", RW)
    assert descriptor.file.nonseekable
    with pytest.raises(TracefsError) as error:
        descriptor.read(10)
    assert error.value.errno == errno.EINVAL


# --- trace_pipe -----------------------------------------------------------------------------------


def test_what_was_read_is_gone(tree: Tree) -> None:
    tree.echo("test input 1", "trace_marker")
    assert marks(tree.read("trace")) == marks(tree.read("trace")) == ["test input 1"]
    pipe = tree.open("trace_pipe")
    assert marks(pipe.read(8192)) == ["test input 1"]
    pipe.close()
    assert marks(tree.read("trace")) == []


def test_an_empty_pipe_waits_until_something_is_recorded(tree: Tree) -> None:
    pipe = tree.open("trace_pipe")
    with pytest.raises(TracefsError) as error:
        pipe.read(100)
    assert error.value.errno == errno.EAGAIN
    pending = pipe.read(100, nonblock=False)
    assert isinstance(pending, Pending)
    assert not pending.queue.wait(pending.ticket, 0)
    tree.echo("wake", "trace_marker")
    assert pending.queue.wait(pending.ticket, 10)
    assert marks(pipe.read(4096, nonblock=False)) == ["wake"]
    pipe.close()


def test_a_wake_up_reaches_only_who_reads_that_cpu(two: Tree) -> None:
    pipes = [two.open(f"per_cpu/cpu{cpu}/trace_pipe") for cpu in (0, 1)]
    pending = [pipe.read(100, nonblock=False) for pipe in pipes]
    assert all(isinstance(p, Pending) for p in pending)
    two.echo("on 1", "trace_marker")
    assert isinstance(pending[1], Pending)
    assert pending[1].queue.wait(pending[1].ticket, 10)
    assert isinstance(pending[0], Pending)
    assert not pending[0].queue.wait(pending[0].ticket, 0)
    for pipe in pipes:
        pipe.close()


def test_the_end_comes_with_tracing_off_once_something_was_read(tree: Tree) -> None:
    pipe = tree.open("trace_pipe")
    tree.echo("0", "tracing_on")
    assert isinstance(pipe.read(100, nonblock=False), Pending)
    tree.echo("1", "tracing_on")
    tree.echo("mark", "trace_marker")
    assert marks(pipe.read(100, nonblock=False)) == ["mark"]
    pending = pipe.read(100, nonblock=False)
    assert isinstance(pending, Pending)
    tree.echo("0", "tracing_on")
    assert pending.queue.wait(pending.ticket, 10)
    assert pipe.read(100, nonblock=False) == pipe.read(100, nonblock=False) == b""
    with pytest.raises(TracefsError) as error:
        pipe.read(100)
    assert error.value.errno == errno.EAGAIN
    tree.echo("1", "tracing_on")
    tree.echo("again", "trace_marker")
    assert marks(pipe.read(100, nonblock=False)) == ["again"]
    pipe.close()


def test_a_small_read_gets_what_it_asks_for_and_the_rest_of_a_line_next(tree: Tree) -> None:
    trace_functions(tree, "nothing")
    for number in range(3):
        tree.write("trace_marker", f"marker {number}")
    whole = tree.read("trace").partition("|         |\n")[2].encode()
    length = len(whole) // 3
    pipe = tree.open("trace_pipe")
    first, rest, last = pipe.read(100), pipe.read(100), pipe.read(100)
    assert isinstance(first, bytes)
    assert isinstance(rest, bytes)
    assert isinstance(last, bytes)
    assert (len(first), len(rest), len(last)) == (100, 2 * length - 100, length)
    assert first + rest + last == whole
    pipe.close()


def test_a_large_read_gets_as_many_whole_lines_as_fit(tree: Tree) -> None:
    tree.write("buffer_size_kb", "1408")
    trace_functions(tree, "add_one")
    tree.call("loop_add", 3000)
    whole = tree.read("trace").partition("|         |\n")[2].encode()
    pipe = tree.open("trace_pipe")
    got = b""
    while len(got) < len(whole):
        data = pipe.read(65536)
        assert isinstance(data, bytes)
        assert data.endswith(b"\n")
        assert len(data) > 65536 - 4096 or got + data == whole
        got += data
    assert got == whole
    pipe.close()


def test_a_page_wide_read_takes_whole_lines(tree: Tree) -> None:
    trace_functions(tree, "add_one")
    tree.call("loop_add", 100)
    pipe = tree.open("trace_pipe")
    data = pipe.read(4096)
    assert isinstance(data, bytes)
    assert data.endswith(b"\n")
    assert 4096 - 80 < len(data) <= 4096
    pipe.close()
    assert f"read events: {data.count(10)}\n" in tree.read("per_cpu/cpu0/stats")


def test_reads_of_any_size_are_cut_where_linux_cuts_them(tree: Tree) -> None:
    tree.write("buffer_size_kb", "1408")
    trace_functions(tree, "nothing")
    for _ in range(6):
        tree.write("trace_marker", "x" * 1000)
    length = len(tree.read("trace").splitlines()[-1]) + 1
    pipe = tree.open("trace_pipe")
    sizes = []
    for asked in (500, 5000, 4096, 4096):
        data = pipe.read(asked)
        assert isinstance(data, bytes)
        sizes.append(len(data))
    assert sizes == [500, length - 500, 3 * length, 2 * length]
    pipe.close()


def test_the_rest_of_a_line_comes_before_a_large_read(tree: Tree) -> None:
    trace_functions(tree, "add_one")
    tree.call("loop_add", 100)
    length = len(tree.read("trace").splitlines()[-1]) + 1
    pipe = tree.open("trace_pipe")
    sizes = []
    for asked in (1000, 1000, 100000):
        data = pipe.read(asked)
        assert isinstance(data, bytes)
        sizes.append(len(data))
    begun = -(-1000 // length)
    assert sizes == [1000, begun * length - 1000, (100 - begun) * length]
    pipe.close()


def test_lost_records_are_told(tree: Tree) -> None:
    tree.write("buffer_size_kb", "1")
    trace_functions(tree, "add_one")
    pipe = tree.open("trace_pipe")
    tree.call("add_one", 1)
    pipe.read(1 << 17)
    tree.call("loop_add", 1000)
    text = pipe.read(1 << 17)
    assert isinstance(text, bytes)
    lost = [int(n) for n in re.findall(rb"^CPU:0 \[LOST (\d+) EVENTS\]\n", text, re.M)]
    assert sum(lost) + text.count(b"<-loop_add") == 1000
    assert lost
    pipe.close()


def test_a_cpu_has_one_reader(two: Tree) -> None:
    pipe = two.open("trace_pipe", W)
    for path in ("trace_pipe", "per_cpu/cpu0/trace_pipe", "per_cpu/cpu1/trace_pipe"):
        assert failure(two, path) == errno.EBUSY
    pipe.close()
    first, second = (two.open(f"per_cpu/cpu{cpu}/trace_pipe") for cpu in (0, 1))
    assert failure(two, "per_cpu/cpu0/trace_pipe") == errno.EBUSY
    assert failure(two, "trace_pipe") == errno.EBUSY
    first.close()
    assert failure(two, "trace_pipe") == errno.EBUSY
    second.close()
    two.open("trace_pipe").close()


def test_a_pipe_has_no_offset_and_takes_no_write(tree: Tree) -> None:
    pipe = tree.open("trace_pipe", RW)
    assert pipe.file.nonseekable
    with pytest.raises(TracefsError) as error:
        pipe.write(b"x")
    assert error.value.errno == errno.EINVAL


def test_a_cpus_pipe_gives_that_cpus_records(two: Tree) -> None:
    trace_functions(two, "add_one")
    for cpu in (0, 1, 1):
        two.call("add_one", 1, cpu=cpu)
    pipe = two.open("per_cpu/cpu1/trace_pipe")
    text = pipe.read(4096)
    assert isinstance(text, bytes)
    assert text.count(b"[001]") == 2
    assert b"[000]" not in text
    pipe.close()
    assert two.read("trace").count("[000]") == 1


def test_a_clock_change_leaves_an_open_pipe_empty(tree: Tree) -> None:
    for number in range(3):
        tree.write("trace_marker", f"{number}")
    line = tree.read("trace").splitlines(keepends=True)[-1]
    pipe = tree.open("trace_pipe")
    assert marks(pipe.read(len(line))) == ["0"]
    tree.write("trace_clock", "global")
    for _ in range(2):
        with pytest.raises(TracefsError) as error:
            pipe.read(4096)
        assert error.value.errno == errno.EAGAIN
    pipe.close()


def test_the_same_script_gives_the_same_bytes() -> None:
    def trace() -> str:
        with tracefs(nr_cpus=2) as tree:
            trace_functions(tree, "*add*")
            tree.call("loop_add", 3)
            tree.echo("mark", "trace_marker")
            tree.call("add_one_twice", 3, cpu=1)
            return tree.read("trace") + tree.read("per_cpu/cpu1/stats")

    assert trace() == trace()


def test_a_pipe_keeps_the_latency_format_that_it_was_opened_with(tree: Tree) -> None:
    pipe = tree.open("trace_pipe")
    tree.echo("1", "options/latency-format")
    tree.write("trace_marker", "a")
    text = pipe.read(4096)
    assert isinstance(text, bytes)
    assert b"[000] ..... " in text
    pipe.close()
    pipe = tree.open("trace_pipe")
    tree.echo("0", "options/latency-format")
    tree.write("trace_marker", "a")
    text = pipe.read(4096)
    assert isinstance(text, bytes)
    assert b"us : tracing_mark_write: a\n" in text
    pipe.close()

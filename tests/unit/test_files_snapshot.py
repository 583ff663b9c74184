"""snapshot, snapshot_raw and what becomes of them: the answers are those of Linux 6.1."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Callable, Iterator

import pytest
from support.tracefs import RW, R, Tree, W, tracefs

from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory, Pending
from ftracefs.trace import trace_array
from ftracefs.trace.array_buffer import tracing_snapshot_instance, update_max_tr
from ftracefs.trace.tracers import Tracer

FREED = """\
# tracer: nop
#
#
# * Snapshot is freed *
#
# Snapshot commands:
# echo 0 > snapshot : Clears and frees snapshot buffer
# echo 1 > snapshot : Allocates snapshot buffer, if not already allocated.
#                      Takes a snapshot of the main buffer.
# echo 2 > snapshot : Clears snapshot buffer (but does not allocate or free)
#                      (Doesn't have to be '2' works with any number that
#                       is not a '0' or '1')
"""
ALLOCATED = FREED.replace("freed", "allocated")
PER_CPU_COMMANDS = """\
# echo 0 > snapshot : Invalid for per_cpu snapshot file.
# echo 1 > snapshot : Not supported with this kernel.
#                     Must use main snapshot file to allocate.
# echo 2 > snapshot : Clears this cpu's snapshot buffer (but does not allocate)
#                      (Doesn't have to be '2' works with any number that
#                       is not a '0' or '1')
"""


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs() as tree:
        yield tree


def marks(text: str) -> list[str]:
    return re.findall(r"tracing_mark_write: (.*)\n", text)


def mark(tree: Tree, text: str) -> None:
    tree.write("trace_marker", text)


def both(tree: Tree) -> tuple[list[str], list[str]]:
    """What `trace` and `snapshot` show."""
    return marks(tree.read("trace")), marks(tree.read("snapshot"))


def failure(action: Callable[[], object]) -> int:
    with pytest.raises(TracefsError) as error:
        action()
    return error.value.errno


def room(tree: Tree) -> int:
    """How many pages the machine still has."""
    memory = tree.machine.memory

    def take_all() -> int:
        pages = []
        try:
            while True:
                pages.append(memory.alloc(1 << 12))
        except MemoryError:
            pass
        for page in pages:
            memory.free(page)
        return len(pages)

    return tree.run(take_all)


# --- text -----------------------------------------------------------------------------------------


def test_an_empty_snapshot_says_what_can_be_done(tree: Tree) -> None:
    assert tree.read("snapshot") == FREED
    tree.echo("1", "snapshot")
    assert tree.read("snapshot") == ALLOCATED
    text = tree.read("per_cpu/cpu0/snapshot")
    assert text == ALLOCATED[: ALLOCATED.index("# echo 0")] + PER_CPU_COMMANDS
    tree.echo("0", "snapshot")
    assert tree.read("snapshot") == FREED


def test_a_snapshot_is_printed_like_the_trace_it_was(tree: Tree) -> None:
    tree.echo("add_one", "set_ftrace_filter")
    tree.echo("function", "current_tracer")
    tree.call("loop_add", 3)
    before = tree.read("trace")
    tree.echo("1", "snapshot")
    assert tree.read("snapshot") == before
    assert "entries-written: 0/0 " in tree.read("trace")


def test_who_takes_a_snapshot_is_named_from_then_on(tree: Tree) -> None:
    mark(tree, "m")
    assert "<...>-1000 " in tree.read("trace")
    tree.echo("0", "tracing_on")
    tree.echo("1", "snapshot")
    assert "<...>-1000 " in tree.read("snapshot")
    tree.echo("1", "tracing_on")
    tree.echo("1", "snapshot")
    assert tree.read("saved_cmdlines") == "1000 script\n"
    assert "script-1000 " in tree.read("trace")


def test_a_snapshot_never_has_the_latency_format(tree: Tree) -> None:
    mark(tree, "m")
    before = tree.read("trace").replace(" <...>-", "script-")
    tree.echo("1", "options/latency-format")
    tree.echo("1", "snapshot")
    assert tree.read("snapshot") == before


def test_what_was_overwritten_is_told_in_the_snapshot(tree: Tree) -> None:
    tree.echo("4", "buffer_size_kb")
    for number in range(25):
        mark(tree, f"{number}".ljust(900))
    tree.echo("1", "snapshot")
    assert "entries-in-buffer/entries-written: 5/25 " in tree.read("snapshot")
    assert "entries-in-buffer/entries-written: 0/0 " in tree.read("trace")


# --- taking one -----------------------------------------------------------------------------------


def test_a_second_snapshot_brings_the_first_ones_records_back(tree: Tree) -> None:
    mark(tree, "a1")
    tree.echo("1", "snapshot")
    assert both(tree) == ([], ["a1"])
    mark(tree, "a2")
    tree.echo("1", "snapshot")
    assert both(tree) == (["a1"], ["a2"])
    mark(tree, "a3")
    assert both(tree) == (["a1", "a3"], ["a2"])


def test_2_and_more_empty_it_and_leave_the_room(tree: Tree) -> None:
    mark(tree, "a")
    tree.echo("1", "snapshot")
    mark(tree, "b")
    tree.echo("3", "snapshot")
    assert both(tree) == (["b"], [])
    assert tree.read("snapshot") == ALLOCATED


def test_emptying_the_trace_leaves_the_snapshot(tree: Tree) -> None:
    mark(tree, "a")
    tree.echo("1", "snapshot")
    mark(tree, "b")
    tree.echo("", "trace")
    assert both(tree) == ([], ["a"])
    tree.open("snapshot", W | 0o1000).close()  # nor does O_TRUNC empty a snapshot
    assert both(tree) == ([], ["a"])


def test_another_clock_empties_both(tree: Tree) -> None:
    mark(tree, "a")
    tree.echo("1", "snapshot")
    mark(tree, "b")
    tree.echo("global", "trace_clock")
    assert both(tree) == ([], [])


def test_another_tracer_leaves_the_snapshot(tree: Tree) -> None:
    mark(tree, "a")
    tree.echo("1", "snapshot")
    tree.echo("function", "current_tracer")
    assert marks(tree.read("snapshot")) == ["a"]


def test_tracing_off_stays_off_on_both_sides(tree: Tree) -> None:
    tree.echo("0", "tracing_on")
    tree.echo("1", "snapshot")
    assert tree.read("tracing_on") == "0\n"
    assert failure(lambda: mark(tree, "off")) == errno.EBADF
    tree.echo("1", "tracing_on")
    mark(tree, "on1")
    tree.echo("1", "snapshot")
    mark(tree, "on2")
    assert both(tree) == (["on2"], ["on1"])


def test_while_a_reader_pauses_the_trace_no_snapshot_is_taken(tree: Tree) -> None:
    tree.echo("100", "buffer_size_kb")
    mark(tree, "a")
    tree.echo("1", "options/pause-on-trace")
    reader = tree.open("trace")
    assert tree.read("tracing_on") == "0\n"
    assert failure(lambda: mark(tree, "b")) == errno.EBADF
    tree.echo("1", "snapshot")
    assert marks(tree.read("snapshot")) == []
    reader.close()
    assert tree.read("tracing_on") == "1\n"
    with_snapshot = tree.open("snapshot")  # which pauses nothing
    mark(tree, "c")
    with_snapshot.close()
    assert both(tree) == (["a", "c"], [])


def test_any_reader_who_leaves_takes_a_pause_along(tree: Tree) -> None:
    early = tree.open("trace")
    tree.echo("1", "options/pause-on-trace")
    late = tree.open("trace")
    assert failure(lambda: mark(tree, "a")) == errno.EBADF
    early.close()
    mark(tree, "b")
    late.close()
    mark(tree, "c")
    assert both(tree) == (["b", "c"], [])


@pytest.mark.parametrize("text", ["", "\n", "-1", "abc", "1x", " 1"])
def test_what_is_no_number_is_refused_and_expands_the_buffer(tree: Tree, text: str) -> None:
    descriptor = tree.open("snapshot", W)
    assert failure(lambda: descriptor.write(text.encode())) == errno.EINVAL
    assert tree.read("buffer_size_kb") == "1410\n"
    assert tree.read("snapshot") == FREED


def test_of_one_cpu_it_can_only_be_emptied() -> None:
    with tracefs(nr_cpus=2, acting_cpu=1) as tree:
        mark(tree, "on 1")
        tree.tracing.acting_cpu = lambda: 0
        mark(tree, "on 0")
        tree.echo("1", "snapshot")
        for value in "0", "1":
            path = "per_cpu/cpu1/snapshot"
            assert failure(lambda v=value, p=path: tree.echo(v, p)) == errno.EINVAL  # type: ignore[misc]
        assert marks(tree.read("per_cpu/cpu1/snapshot")) == ["on 1"]
        tree.echo("2", "per_cpu/cpu1/snapshot")
        assert marks(tree.read("per_cpu/cpu1/snapshot")) == []
        assert marks(tree.read("snapshot")) == ["on 0"]


# --- size -----------------------------------------------------------------------------------------


def test_a_snapshot_is_as_large_as_the_trace_and_goes_with_it(tree: Tree) -> None:
    sizes = tree.tr.max_buffer.buffer
    tree.echo("100", "buffer_size_kb")
    assert sizes.size(0) == 2 * 4080
    tree.echo("1", "snapshot")
    assert sizes.size(0) == 26 * 4080
    tree.echo("50", "buffer_size_kb")
    assert sizes.size(0) == 13 * 4080
    tree.echo("60", "per_cpu/cpu0/buffer_size_kb")
    tree.echo("1", "snapshot")
    assert tree.read("per_cpu/cpu0/buffer_size_kb") == "63\n"


def test_freeing_gives_the_memory_back(tree: Tree) -> None:
    tree.echo("64", "buffer_size_kb")
    before = room(tree)
    tree.echo("1", "snapshot")
    assert room(tree) < before - 10
    for _ in range(2):
        tree.echo("0", "snapshot")
        assert room(tree) == before
        tree.echo("1", "snapshot")
        mark(tree, "x")


def test_no_room_for_a_snapshot_is_enomem_and_changes_nothing(tree: Tree) -> None:
    mark(tree, "a")
    memory = tree.machine.memory
    hogs: list[int] = []

    def hog() -> None:
        size = 1 << 28
        while size >= 1 << 16:
            try:
                hogs.append(memory.alloc(size))
            except MemoryError:
                size >>= 1

    tree.run(hog)
    assert failure(lambda: tree.echo("1", "snapshot")) == errno.ENOMEM
    assert marks(tree.read("trace")) == ["a"]
    assert tree.read("snapshot") == FREED
    tree.run(lambda: [memory.free(address) for address in hogs])
    tree.echo("1", "snapshot")
    assert both(tree) == ([], ["a"])


def test_a_reader_keeps_the_snapshot_from_being_made_larger(tree: Tree) -> None:
    tree.echo("100", "buffer_size_kb")
    reader = tree.open("snapshot")
    assert failure(lambda: tree.echo("1", "snapshot")) == errno.EBUSY
    reader.close()
    tree.echo("1", "snapshot")
    reader = tree.open("snapshot")
    assert failure(lambda: tree.echo("200", "buffer_size_kb")) == errno.ENOMEM
    assert tree.read("buffer_size_kb") == "103\n"
    tree.echo("1", "snapshot")  # of one size already
    reader.close()


def test_a_reader_holds_what_he_reads_wherever_it_is_swapped_to(tree: Tree) -> None:
    tree.echo("100", "buffer_size_kb")
    tree.echo("1", "snapshot")
    reader = tree.open("trace")
    tree.echo("1", "snapshot")  # what he reads is the snapshot now
    tree.echo("0", "snapshot")
    assert tree.tr.max_buffer.buffer.size(0) == 26 * 4080
    assert tree.read("snapshot") == FREED
    reader.close()
    tree.echo("1", "snapshot")
    tree.echo("0", "snapshot")
    assert tree.tr.max_buffer.buffer.size(0) == 2 * 4080


def test_a_descriptor_both_reads_and_takes_snapshots(tree: Tree) -> None:
    tree.echo("1", "snapshot")
    mark(tree, "a")
    descriptor = tree.open("snapshot", RW)
    assert descriptor.write(b"1\n") == 2
    descriptor.offset = 0
    text = descriptor.read(4096)
    assert isinstance(text, bytes)
    assert marks(text.decode()) == ["a"]
    descriptor.close()


# --- readers of both ------------------------------------------------------------------------------


def test_a_pipe_reads_what_is_written_after_the_snapshot(tree: Tree) -> None:
    pipe = tree.open("trace_pipe")
    mark(tree, "a")
    mark(tree, "b")
    first = pipe.read(60)
    tree.echo("1", "snapshot")
    mark(tree, "c")
    rest = pipe.read(4096), pipe.read(4096)
    text = b"".join(part for part in (first, *rest) if isinstance(part, bytes)).decode()
    assert marks(text) == ["a", "c"]
    assert marks(tree.read("snapshot")) == ["b"]
    pipe.close()


def test_a_sleeping_reader_is_woken_by_what_comes_after_the_snapshot(tree: Tree) -> None:
    pipe = tree.open("trace_pipe")
    pending = pipe.read(4096, nonblock=False)
    assert isinstance(pending, Pending)
    tree.echo("1", "snapshot")
    mark(tree, "a")
    assert pending.queue.wait(pending.ticket, 0)
    pipe.close()


def test_snapshot_raw_gives_the_pages_of_the_snapshot_once(tree: Tree) -> None:
    raw = tree.open("per_cpu/cpu0/snapshot_raw")
    assert failure(lambda: raw.read(4096)) == errno.EAGAIN
    mark(tree, "j1")
    tree.echo("1", "snapshot")
    mark(tree, "j2")
    page = raw.read(1 << 16)
    assert isinstance(page, bytes)
    assert len(page) == 4096
    assert struct.unpack_from("<Q", page, 8) == (32,)
    assert b"j1\n" in page
    assert b"j2\n" not in page
    assert failure(lambda: raw.read(4096)) == errno.EAGAIN
    assert tree.read("snapshot") == ALLOCATED
    raw.close()


def test_who_sleeps_on_snapshot_raw_is_woken_by_a_snapshot(tree: Tree) -> None:
    mark(tree, "a")
    raw = tree.open("per_cpu/cpu0/snapshot_raw", R)
    pending = raw.read(4096, nonblock=False)
    assert isinstance(pending, Pending)
    assert not pending.queue.wait(pending.ticket, 0)
    tree.echo("1", "snapshot")
    assert pending.queue.wait(pending.ticket, 0)
    assert isinstance(raw.read(4096), bytes)
    raw.close()


def test_an_open_snapshot_raw_keeps_the_tracer(tree: Tree) -> None:
    raw = tree.open("per_cpu/cpu0/snapshot_raw")
    assert failure(lambda: tree.echo("function", "current_tracer")) == errno.EBUSY
    raw.close()
    tree.echo("function", "current_tracer")


def test_stats_are_those_of_what_is_written(tree: Tree) -> None:
    for number in range(3):
        mark(tree, f"{number}")
    tree.echo("1", "snapshot")
    mark(tree, "one")
    stats = tree.read("per_cpu/cpu0/stats")
    assert stats.startswith("entries: 1\noverrun: 0\n")
    tree.echo("1", "snapshot")
    assert tree.read("per_cpu/cpu0/stats").startswith("entries: 3\noverrun: 0\n")


# --- instances ------------------------------------------------------------------------------------


def test_an_instance_has_a_snapshot_of_its_own_and_gives_it_back(tree: Tree) -> None:
    tree.echo("64", "buffer_size_kb")
    instances = tree.node("instances")
    assert isinstance(instances, Directory)
    before = room(tree)
    tree.run(lambda: instances.mkdir("a"))
    tree.write("instances/a/trace_marker", "in a")
    mark(tree, "at the top")
    tree.echo("1", "instances/a/snapshot")
    assert marks(tree.read("instances/a/snapshot")) == ["in a"]
    assert both(tree) == (["at the top"], [])
    tree.echo("1", "snapshot")
    assert marks(tree.read("instances/a/per_cpu/cpu0/snapshot")) == ["in a"]
    assert both(tree) == ([], ["at the top"])
    tree.echo("0", "snapshot")
    tree.run(lambda: instances.rmdir("a"))
    assert room(tree) == before


def test_guest_code_takes_the_snapshot_of_the_instance_it_names(tree: Tree) -> None:
    instances = tree.node("instances")
    assert isinstance(instances, Directory)
    tree.run(lambda: instances.mkdir("a"))
    tree.echo("1", "snapshot")
    tree.echo("1", "instances/a/snapshot")
    tree.write("instances/a/trace_marker", "in a")
    mark(tree, "at the top")
    (instance,) = (tr for tr in tree.tracing.trace_arrays() if tr.name == "a")
    tree.run(lambda: tracing_snapshot_instance(instance))
    assert marks(tree.read("instances/a/snapshot")) == ["in a"]
    assert both(tree) == (["at the top"], [])


# --- tracers that keep the snapshot for themselves ------------------------------------------------

WORST = Tracer("worst", use_max_tr=True, print_max=True)


@pytest.fixture
def worst(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A kernel with a tracer whose worst case is the snapshot, and which is in charge."""
    monkeypatch.setattr(trace_array, "TRACE_TYPES", (*trace_array.TRACE_TYPES, WORST))
    tree.echo("64", "buffer_size_kb")
    tree.echo("worst", "current_tracer")
    return tree


def test_such_a_tracer_brings_its_snapshot_and_takes_it_along(worst: Tree) -> None:
    sizes = worst.tr.max_buffer.buffer
    assert sizes.size(0) == 17 * 4080
    worst.echo("100", "buffer_size_kb")
    assert sizes.size(0) == 26 * 4080
    worst.echo("nop", "current_tracer")
    assert sizes.size(0) == 2 * 4080
    assert worst.read("snapshot") == FREED


def test_the_trace_shows_its_worst_case_and_empties_that(worst: Tree) -> None:
    mark(worst, "a")
    assert marks(worst.read("trace")) == []
    worst.run(lambda: update_max_tr(worst.tr, 0))
    mark(worst, "b")
    assert marks(worst.read("trace")) == ["a"]
    assert re.findall(rb"b\n", drained(worst))
    worst.echo("", "trace")
    assert marks(worst.read("trace")) == []


def drained(tree: Tree) -> bytes:
    pipe = tree.open("trace_pipe")
    text = pipe.read(4096)
    assert isinstance(text, bytes)
    pipe.close()
    return text


def test_nobody_else_may_read_or_take_its_snapshot(worst: Tree) -> None:
    for value in "0", "1", "2":
        assert failure(lambda v=value: worst.echo(v, "snapshot")) == errno.EBUSY  # type: ignore[misc]
    reader = worst.open("snapshot")
    assert failure(lambda: reader.read(4096)) == errno.EBUSY
    reader.close()
    assert worst.node("snapshot").size() == 0  # type: ignore[union-attr]
    assert failure(lambda: worst.open("per_cpu/cpu0/snapshot_raw")) == errno.EBUSY


def test_an_open_snapshot_raw_is_of_no_use_to_such_a_tracer(tree: Tree) -> None:
    raw = tree.open("per_cpu/cpu0/snapshot_raw")
    tree.tr.current_trace = WORST
    assert failure(lambda: raw.read(4096)) == errno.EBUSY
    raw.close()
    tree.tr.current_trace = trace_array.NOP_TRACE


def test_the_command_snapshot_says_sorry_to_it(worst: Tree) -> None:
    worst.run(lambda: tracing_snapshot_instance(worst.tr))
    text = drained(worst).decode()
    assert re.findall(r"tracing_snapshot_instance_cond: (.*)\n", text) == [
        "*** LATENCY TRACER ACTIVE ***",
        "*** Can not use snapshot (sorry) ***",
    ]
    assert worst.read("tracing_on") == "1\n"

"""The function profiler: counts and times in guest memory, and the text that is made of them."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

import numpy as np
import pytest
from support.ftrace_kernel import assembled_module, many_functions
from support.graph_kernel import Suspended, graph_kernel
from support.shell import isolated
from support.tracefs import Tree, W, tracefs

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError

HEADERS = """\
  Function                               Hit    Time            Avg             s^2
  --------                               ---    ----            ---             ---
"""
PROFILE = (
    "  recurse                                 10    100.000 us      10.000 us       36.666 us   \n"
    "  loop_add                                 1    21.000 us       21.000 us       0.000 us    \n"
    "  add_one                                 10    10.000 us       1.000 us        0.000 us    \n"
    "  outer                                    1    5.000 us        5.000 us        0.000 us    \n"
    "  middle                                   1    3.000 us        3.000 us        0.000 us    \n"
    "  inner                                    1    1.000 us        1.000 us        0.000 us    \n"
)
GOLDEN_RATIO_64 = 0x61C8864680B583EB


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs(image=graph_kernel(), poison=True) as tree:
        yield tree


def stat(tree: Tree, cpu: int = 0) -> str:
    text = tree.read(f"trace_stat/function{cpu}")
    assert text.startswith(HEADERS)
    return text[len(HEADERS) :]


def hits(tree: Tree, cpu: int = 0) -> dict[str, int]:
    lines = (line.split() for line in stat(tree, cpu).splitlines())
    return {words[0]: int(words[1]) for words in lines}


def times(tree: Tree) -> dict[str, float]:
    return {line.split()[0]: float(line.split()[2]) for line in stat(tree).splitlines()}


def refusal(tree: Tree, text: str, path: str) -> int:
    with pytest.raises(TracefsError) as error:
        tree.write(path, text, W)
    return error.value.errno


# --- what is counted and shown --------------------------------------------------------------------


def test_the_text_is_that_of_the_kernel(tree: Tree) -> None:
    # On the virtual clock every reading is a microsecond later than the one before.
    tree.echo("1", "function_profile_enabled")
    tree.call("outer", 5)
    tree.call("loop_add", 10)
    tree.call("recurse", 9)
    assert stat(tree) == PROFILE


def test_with_equal_times_the_function_called_last_comes_first(tree: Tree) -> None:
    tree.echo("1", "function_profile_enabled")
    for function in ("inner", "two_results", "double", "add_one"):
        tree.call(function, 1)
    assert list(hits(tree)) == ["add_one", "double", "two_results", "inner"]


def test_a_name_is_cut_to_its_column() -> None:
    name = "a_function_with_a_name_of_more_than_thirty_letters"
    with tracefs(image=many_functions([name])) as tree:
        tree.echo("1", "function_profile_enabled")
        tree.call(tree.machine.image.symbols[-1].address)
        assert stat(tree).startswith(f"  {name[:30]}           1    1.000 us   ")


def test_every_result_comes_back(tree: Tree) -> None:
    def results() -> list[int]:
        return [
            tree.call("outer", 5),
            tree.call("sum_of_results", 7),
            tree.call("recurse", 70),
            tree.call("call_tail_call", 1),
            tree.call("interrupted", 3),
            tree.call("six_sum", 1, 2, 3, 4, 5, 6),
            tree.call("loop_add", 9),
        ]

    untraced = results()
    tree.echo("1", "function_profile_enabled")
    assert results() == untraced
    tree.echo("0", "options/graph-time")
    assert results() == untraced
    assert hits(tree)["recurse"] == 2 * CONSTANTS["FTRACE_RETFUNC_DEPTH"]
    tree.echo("0", "function_profile_enabled")
    assert results() == untraced


def test_each_cpu_counts_for_itself() -> None:
    with tracefs(image=graph_kernel(), nr_cpus=2) as tree:
        tree.echo("1", "function_profile_enabled")
        tree.call("loop_add", 3, cpu=0)
        tree.call("loop_add", 4, cpu=1)
        tree.call("inner", 4, cpu=1)
        assert hits(tree, 0) == {"loop_add": 1, "add_one": 3}
        assert hits(tree, 1) == {"loop_add": 1, "add_one": 4, "inner": 1}


def test_the_table_in_guest_memory_is_the_kernels() -> None:
    names = [f"f{number}" for number in range(2500)]
    with tracefs(image=many_functions(names)) as tree:
        tree.echo("1", "function_profile_enabled")
        ips = [s.address for s in tree.machine.image.symbols if s.section == ".text.many"]
        for ip in ips:
            tree.call(ip)
        memory = tree.machine.memory
        array = tree.tracing.ftrace.fgraph.graph_ops.private
        table = memory.u64(memory.u64(array) + CONSTANTS["PROFILE_STAT_HASH"])
        found = []
        for key in range(1 << CONSTANTS["FTRACE_PROFILE_HASH_BITS"]):
            link = table + 8 * key
            while record := memory.u64(link):
                assert memory.u64(record + CONSTANTS["PROFILE_PPREV"]) == link
                ip, *figures = memory.array(record + CONSTANTS["PROFILE_IP"], 32, np.uint64)
                assert int(ip) * GOLDEN_RATIO_64 % 2**64 >> 54 == key
                assert figures == [1, 1000, 10**6]
                found.append(int(ip))
                link = record + CONSTANTS["PROFILE_NEXT"]
        assert sorted(found) == ips
        assert list(hits(tree)) == names[::-1]


def test_without_a_record_left_a_function_is_not_counted() -> None:
    functions = "".join(
        f"FUNC new{number}\n    ret\nENDFUNC new{number}\n"
        for number in range(CONSTANTS["PROFILES_PER_PAGE"])
    )
    module = assembled_module("late", ".text\n" + functions)
    with tracefs(modules=[module]) as tree:
        tree.echo("1", "function_profile_enabled")
        tree.echo("add_one 1", "emulator/call")
        tree.echo("load late", "emulator/modules")
        for number in range(CONSTANTS["PROFILES_PER_PAGE"]):
            tree.call(module.labels[f"new{number}"])
        assert tree.call("add_one", 1) == 2
        assert len(hits(tree)) == CONSTANTS["PROFILES_PER_PAGE"]
        assert hits(tree)["add_one"] == 2
        assert f"new{CONSTANTS['PROFILES_PER_PAGE'] - 1}" not in hits(tree)


def test_a_million_calls_are_a_million_hits_and_raise_no_hypercall() -> None:
    def hypercalls() -> int:
        found = re.search(r"^hypercalls: +(\d+)$", shell.cat("emulator/kernel"), re.MULTILINE)
        assert found is not None
        return int(found[1])

    with isolated() as shell:
        shell.echo("1", "function_profile_enabled")
        before = hypercalls()
        shell.echo("gcd 12 18 x1000000", "emulator/call")
        assert hypercalls() - before < 100
        assert re.search(r"^  gcd +1000000 ", shell.cat("trace_stat/function0"), re.MULTILINE)


# --- options --------------------------------------------------------------------------------------


def test_without_graph_time_a_functions_time_is_its_own(tree: Tree) -> None:
    tree.echo("0", "options/graph-time")
    tree.echo("1", "function_profile_enabled")
    tree.call("outer", 5)
    assert times(tree) == {"outer": 2.0, "middle": 2.0, "inner": 1.0}
    tree.echo("1", "options/graph-time")
    tree.call("outer", 5)
    assert times(tree) == {"outer": 7.0, "middle": 5.0, "inner": 2.0}


def test_what_is_not_profiled_is_its_callers_time(tree: Tree) -> None:
    tree.echo("outer inner", "set_ftrace_filter")
    tree.echo("0", "options/graph-time")
    tree.echo("1", "function_profile_enabled")
    tree.call("outer", 5)
    assert times(tree) == {"outer": 2.0, "inner": 1.0}


def test_time_asleep_counts_unless_sleep_time_is_off(tree: Tree) -> None:
    tree.echo("ping take_turn", "set_ftrace_filter")
    found = []
    for sleep_time in ("1", "0"):
        other = tree.machine.alloc(4096) + 512
        stack = tree.machine.alloc(CONSTANTS["STACK_BYTES"]) + CONSTANTS["STACK_BYTES"]
        tree.echo(sleep_time, "options/sleep-time")
        tree.echo("1", "function_profile_enabled")
        tree.call("ping", other, stack - 64)
        found.append(times(tree)["ping"])
        tree.echo("0", "function_profile_enabled")
    assert found[0] == 7.0
    assert found[1] < 7.0


def test_functions_faster_than_tracing_thresh_are_not_shown(tree: Tree) -> None:
    tree.echo("1", "function_profile_enabled")
    tree.call("outer", 5)
    tree.echo("3", "tracing_thresh")
    assert list(hits(tree)) == ["outer", "middle"]
    tree.echo("0", "tracing_thresh")
    assert list(hits(tree)) == ["outer", "middle", "inner"]


# --- coming and going -----------------------------------------------------------------------------


def test_it_reads_as_0_or_1_and_takes_numbers(tree: Tree) -> None:
    assert tree.read("function_profile_enabled") == "0\n"
    assert stat(tree) == ""
    tree.echo("7", "function_profile_enabled")
    assert tree.read("function_profile_enabled") == "1\n"
    assert refusal(tree, "x", "function_profile_enabled") == errno.EINVAL
    assert refusal(tree, "1" * 30, "function_profile_enabled") == errno.ERANGE
    assert refusal(tree, "1", "trace_stat/function0") == errno.EINVAL
    tree.echo("0", "function_profile_enabled")
    assert tree.read("function_profile_enabled") == "0\n"


def test_it_and_the_graph_tracer_keep_each_other_out(tree: Tree) -> None:
    tree.echo("function_graph", "current_tracer")
    assert refusal(tree, "1", "function_profile_enabled") == errno.EBUSY
    assert tree.read("function_profile_enabled") == "0\n"
    tree.echo("nop", "current_tracer")
    tree.echo("1", "function_profile_enabled")
    assert refusal(tree, "function_graph", "current_tracer") == errno.EBUSY
    assert tree.read("current_tracer") == "nop\n"
    tree.call("inner", 1)
    assert hits(tree) == {"inner": 1}


def test_beside_the_function_tracer_both_see_each_call(tree: Tree) -> None:
    tree.echo("outer inner", "set_ftrace_filter")
    tree.echo("function", "current_tracer")
    tree.echo("1", "function_profile_enabled")
    tree.call("outer", 1)
    assert [line.split(": ")[1] for line in tree.read("trace").splitlines() if ": " in line][
        -2:
    ] == [
        "outer <-host_return",
        "inner <-middle",
    ]
    assert hits(tree) == {"outer": 1, "inner": 1}
    tree.echo("middle", "set_ftrace_filter")
    tree.call("outer", 1)
    assert hits(tree) == {"outer": 1, "inner": 1, "middle": 1}
    assert tree.read("trace").splitlines()[-1].endswith("middle <-outer")


def test_tracing_on_is_no_business_of_it(tree: Tree) -> None:
    tree.echo("0", "tracing_on")
    tree.echo("1", "function_profile_enabled")
    tree.call("inner", 1)
    assert hits(tree) == {"inner": 1}


def test_switched_off_it_keeps_what_it_has_and_text_is_as_before(tree: Tree) -> None:
    address, data = tree.machine.image.segments[".text"]
    before = tree.machine.memory.read(address, len(data))
    tree.echo("1", "function_profile_enabled")
    tree.call("inner", 1)
    assert tree.machine.memory.read(address, len(data)) != before
    tree.echo("0", "function_profile_enabled")
    assert tree.machine.memory.read(address, len(data)) == before
    tree.call("inner", 1)
    assert hits(tree) == {"inner": 1}
    tree.echo("1", "function_profile_enabled")
    assert stat(tree) == ""


def test_a_call_that_is_open_when_it_goes_returns_and_is_not_timed(tree: Tree) -> None:
    tree.echo("1", "function_profile_enabled")
    call = Suspended(tree.machine, 5)
    tree.echo("0", "function_profile_enabled")
    assert call.resume() == 6
    assert hits(tree) == {"inner": 1, "stops_deeper": 1, "stops": 1}
    assert times(tree) == {"inner": 1.0, "stops_deeper": 0.0, "stops": 0.0}


def test_a_reader_sees_new_figures_of_old_functions_until_it_starts_anew(tree: Tree) -> None:
    tree.echo("1", "function_profile_enabled")
    tree.call("inner", 1)
    descriptor = tree.open("trace_stat/function0")
    tree.call("inner", 1)
    tree.call("double", 1)
    text = descriptor.read(4096)
    assert isinstance(text, bytes)
    assert re.findall(rb"\n  (\w+) +(\d+) ", text) == [(b"inner", b"2")]
    descriptor.offset = 0
    tree.echo("0", "function_profile_enabled")
    tree.echo("1", "function_profile_enabled")
    assert descriptor.read(4096) == HEADERS.encode()
    with pytest.raises(TracefsError) as error:
        descriptor.read(4096)
    assert error.value.errno == errno.EBUSY


def test_with_ftrace_disabled_it_cannot_be_switched_on() -> None:
    with tracefs() as tree:
        site = tree.machine.image.labels["six_sum"]
        tree.machine.memory.set_u8(site + 2, 0x99)
        assert refusal(tree, "1", "function_profile_enabled") == errno.ENODEV
        assert tree.read("function_profile_enabled") == "0\n"


def test_records_are_read_as_numbers_of_64_bits(tree: Tree) -> None:
    """A sum of squares runs over; what is shown of it is what the kernel would show."""
    tree.echo("1", "function_profile_enabled")
    tree.call("inner", 1)
    tree.call("inner", 1)
    (record,) = tree.run(lambda: tree.tracing.ftrace.profiler.function_stats(0))
    words = tree.machine.memory.array(int(record), CONSTANTS["PROFILE_SIZE"], np.uint64)
    words[4:] = [10**13, 5]
    variance = (2 * 5 - 10**26) % 2**64 // 2000
    text = f"{variance // 1000}"
    assert stat(tree) == f"  inner {2:>36}    10000000000 us     5000000000 us     {text} us \n"


def test_without_room_for_the_tables_it_stays_off_and_takes_nothing(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, left = tree.machine.memory, 3
    alloc, taken = memory.alloc, []

    def scarce(size: int, align: int = 4096) -> int:
        if len(taken) == left:
            raise MemoryError
        taken.append(alloc(size, align))
        return taken[-1]

    monkeypatch.setattr(memory, "alloc", scarce)
    monkeypatch.setattr(memory, "free", taken.remove)
    assert refusal(tree, "1", "function_profile_enabled") == errno.ENOMEM
    assert taken == []
    monkeypatch.undo()
    tree.echo("1", "function_profile_enabled")
    tree.call("inner", 1)
    assert hits(tree) == {"inner": 1}

"""The function graph tracer's text, against what Linux 6.1 printed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.graph_records import (
    graph_entry,
    graph_return,
)
from support.graph_rig import NAMES, GraphRig, Sym
from support.model_writer import function_record, print_record

from emulated_kernel.kallsyms import Kallsyms
from ftracefs.ring_buffer.entries import Entries, merge
from ftracefs.trace.options import TRACE_DEFAULT_FLAGS, TraceIter
from ftracefs.trace.output.event_output import TRACE_GRAPH_ENT
from ftracefs.trace.output.graph import GraphPrinter, _is_leaf, next_of_cpu
from ftracefs.trace.output.graph_layout import (
    DEFAULT_GRAPH_FLAGS,
    GraphFlags,
    print_graph_headers_flags,
)
from ftracefs.trace.output.graph_text import print_graph_proc, trace_print_graph_duration
from ftracefs.trace.output.header import TraceHeader
from ftracefs.trace.output.symbol_text import SymbolText
from ftracefs.trace.output.trace_text import TraceText

ALL_COLUMNS = DEFAULT_GRAPH_FLAGS | (
    GraphFlags.ABS_TIME | GraphFlags.PROC | GraphFlags.OVERRUN | GraphFlags.TAIL
)
NO_COLUMNS = GraphFlags(0)


@pytest.fixture
def rig() -> GraphRig:
    return GraphRig()


READ = """\
 0)               |  vfs_read() {
 0)               |    rw_verify_area() {
 0)               |      security_file_permission() {
 0)               |        apparmor_file_permission() {
 0)               |          aa_file_perm() {
 0) + 33.199 us   |            __rcu_read_lock();
 0)   2.884 us    |            __rcu_read_unlock();
 0) ! 224.484 us  |          }
 0) ! 227.659 us  |        }
 0)   1.192 us    |        bpf_lsm_file_permission();
 0) ! 234.458 us  |      }
 0) ! 237.974 us  |    }
 0)   5.969 us    |    __get_task_ioprio();
 0)               |    shmem_file_read_iter() {
 0)               |      touch_atime() {
 0)               |        atime_needs_update() {
 0)               |          current_time() {
 0)   1.102 us    |            ktime_get_coarse_real_ts64();
 0)   3.705 us    |          }
 0) + 15.132 us   |        }
 0)   1.502 us    |        __mnt_want_write();
 0) + 47.300 us   |      }
 0) ! 174.590 us  |    }
 0) ! 611.079 us  |  }
"""
PIPE = """\
 0) + 49.343 us   |  vfs_open();
 ------------------------------------------
 0)     dd-308     =>    cat-309    
 ------------------------------------------

 0)               |  vfs_read() {
 ------------------------------------------
 0)    cat-309     =>     dd-308    
 ------------------------------------------

 0) + 22.323 us   |  vfs_read();
 0) ! 187.008 us  |  vfs_write();
 ------------------------------------------
 0)     dd-308     =>    cat-309    
 ------------------------------------------

 0) ! 208.821 us  |  } /* vfs_read */
 0) + 14.712 us   |  vfs_write();
"""  # noqa: W291
TWO_CPUS = """\
 0) + 64.495 us   |  vfs_read();
 0)   2.925 us    |  vfs_read();
 ------------------------------------------
 0)     dd-255     =>     dd-256    
 ------------------------------------------

 0) + 65.838 us   |  vfs_read();
 1) + 67.801 us   |  vfs_read();
 1)   3.075 us    |  vfs_read();
 0)   6.109 us    |  vfs_read();
 ------------------------------------------
 1)     dd-255     =>    cat-309    
 ------------------------------------------

 1) + 70.695 us   |  vfs_read();
"""  # noqa: W291
MARKERS = """\
 0)               |  ksys_write() {
 0)               |    vfs_write() {
 0)               |      /* hello */
 0) ! 308.351 us  |    }
 0) ! 343.944 us  |  }
 0)               |  vfs_write() {
 0)               |  /* no newline */
 0) ! 184.394 us  |  }
 0)               |  /* outside */
"""


# --- the whole ------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [READ, TWO_CPUS, MARKERS])
def test_calls_and_returns_become_nested_braces(text: str) -> None:
    rig = GraphRig(2)
    rig.write_text(text, pid=255)
    assert rig.text() == text


def test_a_task_switch_gets_a_banner_and_a_brace_of_another_call_a_name(rig: GraphRig) -> None:
    # Who opened a brace is kept by CPU and depth, so calls of another task make the name necessary.
    rig.write_text(PIPE, pid=308)
    assert rig.text() == PIPE


def test_returns_without_their_calls_are_named(rig: GraphRig) -> None:
    text = (
        " 0) + 36.334 us   |    } /* __fdget_pos */\n"
        " 0) + 32.559 us   |      } /* shmem_file_read_iter */\n"
        " 0) + 50.164 us   |    } /* vfs_read */\n"
        " 0) ! 115.703 us  |  } /* ksys_read */\n"
    )
    rig.write_text(text)
    assert rig.text() == text


def test_a_call_is_a_leaf_only_if_its_own_return_comes_next_on_its_cpu(rig: GraphRig) -> None:
    read, write = (rig.functions.address(name) for name in ("vfs_read", "vfs_write"))
    rig.write(graph_entry(read, 0, pid=105))
    rig.write(graph_return(write, 0, 1500, pid=105))
    rig.write(graph_entry(read, 0, pid=105))
    rig.write(graph_return(read, 0, 1500, pid=112))
    assert [line[18:] for line in rig.text().splitlines() if ")  " in line and "|" in line] == [
        "|  vfs_read() {",
        "|  } /* vfs_write */",
        "|  vfs_read() {",
        "|  }",
    ]


def test_records_of_another_cpu_do_not_come_between_a_leaf_and_its_return() -> None:
    rig = GraphRig(2)
    read = rig.functions.address("vfs_read")
    for cpu in (0, 1):
        rig.write(graph_entry(read, 0, pid=105 + cpu), cpu=cpu)
    for cpu in (1, 0):
        rig.write(graph_return(read, 0, 1632, pid=105 + cpu), cpu=cpu)
    assert rig.text() == (" 0)   1.632 us    |  vfs_read();\n 1)   1.632 us    |  vfs_read();\n")


def test_blocks_of_any_size_give_the_same_text() -> None:
    rig = GraphRig(2)
    rig.write_text(TWO_CPUS + MARKERS + READ, pid=255)
    whole = rig.text()
    entries = merge(rig.buffer.snapshot())
    for size in (1, 2, 3, 7, 20):
        printer = GraphPrinter(rig.context())
        text = b"".join(
            printer.block(entries, start, min(start + size, len(entries)))
            for start in range(0, len(entries), size)
        )
        assert text.decode() == whole


def test_an_open_trace_file_prints_header_and_calls(rig: GraphRig) -> None:
    rig.write_text(READ)
    trace = TraceText("head\n", rig.buffer.snapshot(), rig.context())
    assert trace.read(0, 1 << 16).decode() == "head\n" + READ
    assert trace.read(9, 20).decode() == ("head\n" + READ)[9:29]


# --- columns --------------------------------------------------------------------------------------


def _ksys_read(rig: GraphRig) -> None:
    ksys_read, vfs_read = (rig.functions.address(n) for n in ("ksys_read", "vfs_read"))
    rig.write(graph_entry(ksys_read, 0, pid=112), now=6_035_863_999)
    rig.write(graph_entry(vfs_read, 1, pid=112), now=6_035_898_000)
    rig.write(graph_return(vfs_read, 1, 62_053, pid=112), now=6_035_960_000)
    rig.write(graph_return(ksys_read, 0, 122_473, pid=112), now=6_035_970_000)


ALL = """\
    6.035863 |   0)    head-112    |               |  ksys_read() {
    6.035898 |   0)    head-112    | + 62.053 us   |    vfs_read();
    6.035970 |   0)    head-112    | ! 122.473 us  |  } /* ksys_read */
 (Overruns: 0)
"""


@pytest.mark.parametrize(
    ("columns", "on", "off", "text"),
    [
        (ALL_COLUMNS, 0, 0, ALL),
        (
            ALL_COLUMNS,
            TraceIter.LATENCY_FMT,
            0,
            "    6.035863 |   0)    head-112    |  ...1. |               |  ksys_read() {\n"
            "    6.035898 |   0)    head-112    |  ...1. | + 62.053 us   |    vfs_read();\n"
            "    6.035970 |   0)    head-112    |  ..... | ! 122.473 us  |  } /* ksys_read */\n"
            " (Overruns: 0)\n",
        ),
        (
            ALL_COLUMNS,
            0,
            TraceIter.CONTEXT_INFO,
            "ksys_read() {\n  vfs_read();\n} /* ksys_read */\n (Overruns: 0)\n",
        ),
        (
            GraphFlags.ABS_TIME | GraphFlags.PROC,
            0,
            0,
            "    6.035863 |     head-112    | ksys_read() {\n"
            "    6.035898 |     head-112    |   vfs_read();\n"
            "    6.035970 |     head-112    | }\n",
        ),
        (NO_COLUMNS, 0, 0, "ksys_read() {\n  vfs_read();\n}\n"),
        (
            NO_COLUMNS,
            TraceIter.LATENCY_FMT,
            0,
            " ...1. | ksys_read() {\n ...1. |   vfs_read();\n ..... | }\n",
        ),
        (
            DEFAULT_GRAPH_FLAGS & ~GraphFlags.CPU,
            0,
            0,
            "              |  ksys_read() {\n+ 62.053 us   |    vfs_read();\n! 122.473 us  |  }\n",
        ),
        (
            DEFAULT_GRAPH_FLAGS & ~GraphFlags.DURATION,
            0,
            0,
            " 0) ksys_read() {\n 0)   vfs_read();\n 0) }\n",
        ),
        (
            DEFAULT_GRAPH_FLAGS & ~GraphFlags.OVERHEAD,
            0,
            0,
            " 0)               |  ksys_read() {\n"
            " 0)   62.053 us   |    vfs_read();\n"
            " 0)   122.473 us  |  }\n",
        ),
    ],
)
def test_columns(rig: GraphRig, columns: GraphFlags, on: int, off: int, text: str) -> None:
    _ksys_read(rig)
    assert rig.text(columns, TraceIter(on), TraceIter(off)) == text


@pytest.mark.parametrize(
    "on",
    [
        TraceIter.RAW,
        TraceIter.HEX,
        TraceIter.BIN,
        TraceIter.PRINTK_MSGONLY,
        TraceIter.VERBOSE,
        TraceIter.SYM_ADDR,
        TraceIter.SYM_OFFSET,
    ],
)
def test_other_formats_do_not_touch_it(rig: GraphRig, on: TraceIter) -> None:
    rig.write_text(MARKERS)
    assert rig.text(on=on) == MARKERS


def test_the_widest_cpu_number_makes_the_column() -> None:
    rig = GraphRig(12)
    rig.write_text("  9)   1.000 us    |  vfs_read();\n")
    assert rig.text() == "  9)   1.000 us    |  vfs_read();\n"


def test_the_overrun_of_a_return_is_told(rig: GraphRig) -> None:
    read = rig.functions.address("vfs_read")
    rig.write(graph_return(read, 0, 1000, pid=105, overrun=17))
    text = rig.text(DEFAULT_GRAPH_FLAGS | GraphFlags.OVERRUN)
    assert text == " 0)   1.000 us    |  } /* vfs_read */\n (Overruns: 17)\n"


def test_module_functions_and_unknown_addresses(rig: GraphRig) -> None:
    kallsyms = Kallsyms()
    kallsyms.add("ext4", [Sym("ext4_sync_file", 0xFFFFFFFFC0800000)], module="ext4")
    rig.write(graph_entry(0xFFFFFFFFC0800000, 0, pid=105))
    rig.write(graph_entry(0xFFFFFFFFC0900010, 1, pid=105))
    context = replace(rig.context(), symbols=SymbolText(kallsyms))
    entries = merge(rig.buffer.snapshot())
    assert GraphPrinter(context).block(entries, 0, 2).decode() == (
        " 0)               |  ext4_sync_file [ext4]() {\n"
        " 0)               |    0xffffffffc0900010() {\n"
    )


def test_names_follow_the_symbols(rig: GraphRig) -> None:
    rig.write_text(" 0)   1.000 us    |  vfs_read();\n")
    entries = merge(rig.buffer.snapshot())
    kallsyms = Kallsyms()
    symbols = SymbolText(kallsyms)
    context = replace(rig.context(), symbols=symbols)
    for name in ("one", "another"):
        kallsyms.add("kernel", [Sym(name, rig.functions.address("vfs_read"))])
        assert f"|  {name}();" in GraphPrinter(context).block(entries, 0, 2).decode()


# --- durations and tasks --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0.000 us    "),
        (999, "0.999 us    "),
        (1632, "1.632 us    "),
        (33_199, "33.199 us   "),
        (611_079, "611.079 us  "),
        (1_072_864, "1072.864 us "),
        (10_311_729, "10311.72 us "),
        (500_594_199, "500594.1 us "),
        (1_234_567_890, "1234567 us  "),
        (12_345_678_901, "12345678 us "),
        (123_456_789_012, "123456789 us "),
    ],
)
def test_a_duration_has_at_most_seven_digits(ns: int, text: str) -> None:
    assert trace_print_graph_duration(ns) == text


@pytest.mark.parametrize(
    ("ns", "mark"),
    [
        (10_000, " "),
        (10_001, "+"),
        (100_001, "!"),
        (1_000_001, "#"),
        (10_000_001, "*"),
        (100_000_001, "@"),
        (1_000_000_001, "$"),
    ],
)
def test_long_durations_are_marked(rig: GraphRig, ns: int, mark: str) -> None:
    read = rig.functions.address("vfs_read")
    rig.write(graph_entry(read, 0, pid=105))
    rig.write(graph_return(read, 0, ns, pid=105))
    assert rig.text()[3:6] == f" {mark} "


@pytest.mark.parametrize(
    ("pid", "text"),
    [
        (308, "    dd-308    "),
        (112, "   head-112   "),
        (77, "  migrati-77  "),
        (0, "   <idle>-0   "),
        (4321, "  <...>-4321  "),
        (1234567, "<...>-1234567 "),
        (12345678, "<...>-12345678"),
        (123456789, "<...>-123456789"),
    ],
)
def test_a_task_stands_in_the_middle_with_seven_letters_of_its_name(pid: int, text: str) -> None:
    assert print_graph_proc(NAMES, pid) == text


# --- other records --------------------------------------------------------------------------------


def test_a_comment_stands_a_step_deeper_than_the_call_printed_last(rig: GraphRig) -> None:
    text = (
        " 0)               |  ksys_write() {\n"
        " 0)               |  /* one */\n"
        " 0)               |    vfs_write() {\n"
        " 0)               |      /* two */\n"
        " 0)   1.000 us    |      rw_verify_area();\n"
        " 0)               |      /* three */\n"
        " 0)   5.000 us    |    }\n"
        " 0)               |  /* four */\n"
    )
    rig.write_text(text)
    assert rig.text() == text


def test_a_comment_has_columns_and_only_one_line_break_is_taken_off(rig: GraphRig) -> None:
    rig.write(print_record(b"two\n\n", pid=112, bits=0x100), now=1_000_000_000)
    assert rig.text(ALL_COLUMNS, on=TraceIter.LATENCY_FMT) == (
        "    1.000000 |   0)    head-112    |  ...1. |               |  /* two\n */\n"
    )


def test_raw_data_is_a_comment_too(rig: GraphRig) -> None:
    payload = (18).to_bytes(8, "little") + bytes.fromhex("01020304") + b"abcdef\0\0"
    rig.write(payload)
    assert rig.text() == (" 0)               |  /* # 4030201 buf: 61 62 63 64 65 66 00 00 */\n")


def test_function_records_keep_their_own_form(rig: GraphRig) -> None:
    read = rig.functions.address("vfs_read")
    rig.write(graph_entry(read, 0, pid=105), now=1_000_000)
    rig.write(function_record(read, read, pid=112), now=2_000_000)
    rig.write(graph_return(read, 0, 1000, pid=105), now=3_000_000)
    assert rig.text() == (
        " 0)               |  vfs_read() {\n"
        "            head-112     [000] .....     0.002000: vfs_read <-vfs_read\n"
        " 0)   1.000 us    |  }\n"
    )


def test_an_empty_buffer_has_no_lines(rig: GraphRig) -> None:
    assert rig.text() == ""


def test_next_of_cpu_is_the_next_record_of_the_same_cpu() -> None:
    assert next_of_cpu(np.array([0, 1, 0, 2, 1, 0])).tolist() == [2, 4, 5, -1, -1, -1]
    assert next_of_cpu(np.array([3, 3])).tolist() == [1, -1]


# --- headers --------------------------------------------------------------------------------------

LATENCY = """\
# tracer: function_graph
#
# function_graph latency trace v1.1.5 on 6.1.0-57-amd64
# --------------------------------------------------------------------
# latency: 0 us, #12/12, CPU#0 | (M:desktop VP:0, KP:0, SP:0 HP:0 #P:1)
#    -----------------
#    | task: -0 (uid:0 nice:0 policy:0 rt_prio:0)
#    -----------------
#
"""


def _header(columns: GraphFlags, on: int = 0, off: int = 0, entries: int = 12) -> str:
    flags = TRACE_DEFAULT_FLAGS & ~TraceIter(off) | TraceIter(on)
    header = TraceHeader("function_graph", flags, entries, entries, 1, release="6.1.0-57-amd64")
    return print_graph_headers_flags(header, columns)


@pytest.mark.parametrize(
    ("columns", "heads"),
    [
        (
            DEFAULT_GRAPH_FLAGS,
            "# CPU  DURATION                  FUNCTION CALLS\n"
            "# |     |   |                     |   |   |   |\n",
        ),
        (
            DEFAULT_GRAPH_FLAGS | GraphFlags.PROC,
            "# CPU  TASK/PID         DURATION                  FUNCTION CALLS\n"
            "# |     |    |           |   |                     |   |   |   |\n",
        ),
        (
            DEFAULT_GRAPH_FLAGS | GraphFlags.ABS_TIME,
            "#     TIME        CPU  DURATION                  FUNCTION CALLS\n"
            "#      |          |     |   |                     |   |   |   |\n",
        ),
        (
            GraphFlags.ABS_TIME | GraphFlags.PROC,
            "#     TIME         TASK/PID                      FUNCTION CALLS\n"
            "#      |            |    |                       |   |   |   |\n",
        ),
        (
            DEFAULT_GRAPH_FLAGS & ~GraphFlags.CPU,
            "#  DURATION                  FUNCTION CALLS\n"
            "#   |   |                     |   |   |   |\n",
        ),
        (
            DEFAULT_GRAPH_FLAGS & ~GraphFlags.DURATION,
            "# CPU               FUNCTION CALLS\n# |                 |   |   |   |\n",
        ),
        (NO_COLUMNS, "#               FUNCTION CALLS\n#               |   |   |   |\n"),
    ],
)
def test_the_header_has_the_heads_of_the_columns(columns: GraphFlags, heads: str) -> None:
    assert _header(columns) == "# tracer: function_graph\n#\n" + heads


def test_the_header_in_latency_format() -> None:
    assert _header(ALL_COLUMNS, on=TraceIter.LATENCY_FMT) == LATENCY + (
        "#                                       _-----=> irqs-off        \n"
        "#                                      / _----=> need-resched    \n"
        "#                                     | / _---=> hardirq/softirq \n"
        "#                                     || / _--=> preempt-depth   \n"
        "#                                     ||| /                      \n"
        "#     TIME        CPU  TASK/PID       ||||     DURATION                  FUNCTION CALLS\n"
        "#      |          |     |    |        ||||      |   |                     |   |   |   |\n"
    )
    assert _header(NO_COLUMNS, on=TraceIter.LATENCY_FMT) == LATENCY + (
        "#  _-----=> irqs-off        \n"
        "# / _----=> need-resched    \n"
        "#| / _---=> hardirq/softirq \n"
        "#|| / _--=> preempt-depth   \n"
        "#||| /                      \n"
        "#||||                  FUNCTION CALLS\n"
        "#||||                  |   |   |   |\n"
    )


def test_there_may_be_no_heads() -> None:
    bare = "# tracer: function_graph\n#\n"
    assert _header(ALL_COLUMNS, off=TraceIter.CONTEXT_INFO) == bare
    assert _header(ALL_COLUMNS, on=TraceIter.LATENCY_FMT, entries=0) == bare


def test_a_short_record_at_the_very_end_of_the_pages_is_no_return() -> None:
    words = np.zeros(10, dtype=np.uint32)
    words[0], words[7] = TRACE_GRAPH_ENT, 900  # a call, and an event of three words
    entries = Entries(
        words,
        at=np.array([0, 7]),
        length=np.array([20, 12]),
        ts=np.array([1, 2], dtype=np.uint64),
        cpu=np.array([0, 0]),
        end=np.array([24, 40]),
    )
    assert _is_leaf(entries, np.array([0, 1]), np.array([1, -1])).tolist() == [False, False]

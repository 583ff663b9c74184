"""Records as text, against what Linux 6.1 prints for the same records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.model_writer import function_record, print_record
from support.output_rig import KSYS_READ, MARK, NAMES, NONE, Rig, read_all, symbols

from emulated_kernel.machine.memory import Memory
from ftracefs.ring_buffer.entries import merge
from ftracefs.ring_buffer.per_cpu import Stats
from ftracefs.trace.options import TRACE_DEFAULT_FLAGS, TraceIter
from ftracefs.trace.output.header import TraceHeader
from ftracefs.trace.output.lines import LinePrinter, format_entries
from ftracefs.trace.output.output_context import OutputContext
from ftracefs.trace.output.stats import tracing_stats
from ftracefs.trace.output.symbol_text import SymbolText
from ftracefs.trace.output.trace_context import trace_find_mark, trace_print_lat_fmt
from ftracefs.trace.output.trace_pipe import TracePipe
from ftracefs.trace.output.trace_text import TraceText


@pytest.fixture(scope="module")
def memory() -> Memory:
    return Memory()


@pytest.fixture
def rig(memory: Memory) -> Rig:
    return Rig(memory)


# --- function records -----------------------------------------------------------------------------


def test_a_function_record(rig: Rig) -> None:
    rig.read_calls(5_424_389_000, 5_427_678_500)
    assert rig.text() == (
        "            bash-105     [000] .....     5.424389: vfs_read <-ksys_read\n"
        "            bash-105     [000] .....     5.427679: vfs_read <-ksys_read\n"
    )


@pytest.mark.parametrize(
    ("on", "off", "line"),
    [
        (
            TraceIter.SYM_OFFSET,
            NONE,
            "            bash-105     [000] .....     5.898460: "
            "vfs_read+0x0/0x310 <-ksys_read+0x6b/0xf0\n",
        ),
        (
            TraceIter.SYM_ADDR,
            NONE,
            "            bash-105     [000] .....     5.898460: "
            "vfs_read <ffffffff813669e0> <-ksys_read <ffffffff813675bb>\n",
        ),
        (
            NONE,
            TraceIter.PRINT_PARENT,
            "            bash-105     [000] .....     5.898460: vfs_read\n",
        ),
        (
            NONE,
            TraceIter.IRQ_INFO,
            "            bash-105     [000]      5.898460: vfs_read <-ksys_read\n",
        ),
        (NONE, TraceIter.CONTEXT_INFO, "vfs_read <-ksys_read\n"),
        (
            TraceIter.RECORD_TGID,
            NONE,
            "            bash-105     (-------) [000] .....     5.898460: vfs_read <-ksys_read\n",
        ),
        (TraceIter.RAW, NONE, "105 0 5898460123 ffffffff813669e0 ffffffff813675bb\n"),
        (
            TraceIter.HEX,
            NONE,
            "00000069 00000000 000000015f935bdb ffffffff813669e0 ffffffff813675bb \n",
        ),
        (
            TraceIter.BIN,
            NONE,
            "i\0\0\0\0\0\0\0\xdb[\x93_\x01\0\0\0"
            "\xe0\x69\x36\x81\xff\xff\xff\xff\xbb\x75\x36\x81\xff\xff\xff\xff",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, TraceIter) else "",
)
def test_an_option_changes_the_line(rig: Rig, on: TraceIter, off: TraceIter, line: str) -> None:
    rig.read_calls(5_898_460_123)
    assert rig.text(on, off) == line


def test_a_known_tgid_has_seven_columns(rig: Rig) -> None:
    rig.read_calls(184_359_569_000)
    context = replace(rig.options(TraceIter.RECORD_TGID), tgids={105: 105})
    assert format_entries(rig.entries(), context) == (
        b"            bash-105     (    105) [000] .....   184.359569: vfs_read <-ksys_read\n"
    )


def test_names_known_unknown_idle_and_pids_of_any_width(rig: Rig) -> None:
    for now, pid in enumerate([232, 242, 0, 4_194_303, 12_345_678]):
        rig.read_calls(now * 1_000_000, pid=pid)
    assert [line[:31] for line in rig.text().splitlines()] == [
        "              dd-232     [000] ",
        "           <...>-242     [000] ",
        "          <idle>-0       [000] ",
        "           <...>-4194303 [000] ",
        "           <...>-12345678 [000]",
    ]


@pytest.mark.parametrize(
    ("flags", "preempt_count", "columns"),
    [
        (0, 0, "....."),
        (0x01, 1, "d..1."),
        (0x05, 2, "dn.2."),
        (0x24, 0, ".N..."),
        (0x20, 0, ".p..."),
        (0x08, 0xF, "..hf."),
        (0x10, 0x21, "..s12"),
        (0x18, 0x10, "..H.1"),
        (0x40, 0, "..z.."),
        (0x48, 0, "..Z.."),
        (0x80, 0, "b...."),
        (0x81, 0, "D...."),
        (0x02, 0, "X...."),
    ],
)
def test_the_state_columns(flags: int, preempt_count: int, columns: str, rig: Rig) -> None:
    assert trace_print_lat_fmt(flags, preempt_count) == columns
    rig.read_calls(0, bits=preempt_count << 8 | flags)
    assert rig.text().split("[000] ")[1][:5] == columns


def test_addresses_without_symbol_are_printed_as_numbers(rig: Rig) -> None:
    rig.write(0, function_record(0xFFFFFFFFC020E083, 0))
    rig.write(0, function_record(0x1234, 0xFFFFFFFFC0800010))
    assert [line.split(": ")[1] for line in rig.text().splitlines()] == [
        "0xffffffffc020e083",
        "0x00001234 <-ext4_sync_file",
    ]
    assert "<-ext4_sync_file+0x10/0x40 [ext4]\n" in rig.text(TraceIter.SYM_OFFSET)


def test_texts_of_addresses_follow_the_symbols(memory: Memory) -> None:
    kallsyms = symbols()
    texts = SymbolText(kallsyms)
    rig = Rig(memory)
    rig.context = OutputContext(texts, NAMES)
    rig.write(0, function_record(0xFFFFFFFFC0800000, KSYS_READ))
    assert "ext4_sync_file <-" in rig.text()
    kallsyms.remove("ext4")
    assert "0xffffffffc0800000 <-" in rig.text()


# --- time -----------------------------------------------------------------------------------------


def times(rig: Rig, *, in_ns: bool = True) -> list[str]:
    context = replace(rig.context, clock_in_ns=in_ns)
    lines = format_entries(rig.entries(), context).decode().splitlines()
    return [line.split(".....")[1].split(": ")[0] for line in lines]


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (0, "     0.000000"),
        (499, "     0.000000"),
        (500, "     0.000001"),
        (999_999_500, "     1.000000"),
        (99_999_999_999_499, " 99999.999999"),
        (100_000_000_000_000, " 100000.000000"),
        (1_796_008_008_480_771_000, " 1796008008.480771"),
    ],
)
def test_a_time_in_nanoseconds_is_shown_in_rounded_microseconds(
    rig: Rig, now: int, text: str
) -> None:
    rig.read_calls(now)
    assert times(rig) == [text]


@pytest.mark.parametrize(("now", "text"), [(6, "            6"), (73013603624, "  73013603624")])
def test_a_clock_that_counts_something_else_is_shown_as_it_is(
    rig: Rig, now: int, text: str
) -> None:
    rig.read_calls(now)
    assert times(rig, in_ns=False) == [text]


def test_times_far_apart_keep_their_columns(rig: Rig) -> None:
    rig.read_calls(1, 5_000_000_000, 99_999 * 10**9, 123_456 * 10**9, 10**17)
    assert times(rig) == [
        "     0.000000",
        "     5.000000",
        " 99999.000000",
        " 123456.000000",
        " 100000000.000000",
    ]


# --- print records --------------------------------------------------------------------------------

MARKERS = [b"hello", b"with newline\n", b"", b"\n", b"a\nb\n", b"nul\0inside", b"\xff\x01bin"]


def test_markers_are_printed_as_they_were_written(rig: Rig) -> None:
    for number, text in enumerate(MARKERS):
        rig.write(number * 1000, print_record(text, ip=MARK, pid=344))
    head = "           <...>-344     [000] .....     0.00000"
    assert rig.text() == (
        f"{head}0: tracing_mark_write: hello\n"
        f"{head}1: tracing_mark_write: with newline\n"
        f"{head}2: tracing_mark_write: \n"
        f"{head}3: tracing_mark_write: \n"
        f"{head}4: tracing_mark_write: a\nb\n"
        f"{head}5: tracing_mark_write: nul"
        f"{head}6: tracing_mark_write: \xff\x01bin\n"
    )


def test_markers_in_the_other_formats(rig: Rig) -> None:
    rig.write(174_197_120_213, print_record(b"hello", ip=MARK, pid=344))
    assert rig.text(TraceIter.RAW) == "344 0 174197120213 # ffffffff811c36bd hello\n"
    assert rig.text(TraceIter.HEX) == "00000158 00000000 000000288ef51cd5 type: 5\n\n"
    assert rig.text(TraceIter.BIN) == "X\x01\0\0\0\0\0\0\xd5\x1c\xf5\x8e(\0\0\0type: 5\n"
    assert rig.text(TraceIter.PRINTK_MSGONLY) == "hello\n"
    assert "tracing_mark_write: hello" in rig.text(TraceIter.PRINTK_MSGONLY, TraceIter.PRINTK)


def test_raw_markers_show_their_bytes(rig: Rig) -> None:
    head = function_record(0, 0, pid=346)[:8]
    record = b"\x12\0" + head[2:] + b"\x01\0\0\0abcdef" + bytes(10)
    rig.write(174_239_230_030, record)
    bytes_shown = "# 1 buf: 61 62 63 64 65 66 00 00 00 00 00 00 00 00 00 00\n"
    assert rig.text().endswith(f"   174.239230: {bytes_shown}")
    assert rig.text(TraceIter.RAW) == f"346 0 174239230030 {bytes_shown}"
    assert rig.text(TraceIter.HEX).endswith(" type: 18\n\n")


def test_records_of_an_unknown_type_are_named_by_number(rig: Rig) -> None:
    rig.write(0, b"\x63\0" + function_record(0, 0)[2:])
    assert rig.text().endswith(": Unknown type 99\n")
    assert rig.text(TraceIter.RAW) == "1 0 0 99 ?\n"
    assert rig.text(TraceIter.HEX) == "00000001 00000000 0000000000000000 \n"


def test_mixed_records_keep_their_order(rig: Rig) -> None:
    for number in range(20):
        if number % 3:
            rig.read_calls(number * 1000)
        else:
            rig.write(number * 1000, print_record(b"mark %d" % number, ip=MARK))
    bodies = [line.split(": ", 1)[1] for line in rig.text().splitlines()]
    assert bodies == [
        "vfs_read <-ksys_read" if number % 3 else f"tracing_mark_write: mark {number}"
        for number in range(20)
    ]


# --- latency format -------------------------------------------------------------------------------


def test_the_latency_format(rig: Rig) -> None:
    rig.read_calls(13_147_000, 13_584_000, 13_797_000)
    assert rig.text(TraceIter.LATENCY_FMT) == (
        "    bash-105       0..... 13147us!: vfs_read <-ksys_read\n"
        "    bash-105       0..... 13584us!: vfs_read <-ksys_read\n"
        "    bash-105       0..... 13797us : vfs_read <-ksys_read\n"
    )


def test_the_latency_format_counts_from_when_the_buffer_was_emptied(rig: Rig) -> None:
    rig.read_calls(10_100_000)
    context = replace(rig.options(TraceIter.LATENCY_FMT), time_start=10_000_000)
    assert b"  100us : " in format_entries(rig.entries(), context)
    assert b"..... 100000: " in format_entries(rig.entries(), replace(context, clock_in_ns=False))


def test_the_verbose_latency_format(rig: Rig) -> None:
    rig.read_calls(10_110_313_000, 10_110_662_000)
    context = replace(
        rig.options(TraceIter.LATENCY_FMT | TraceIter.VERBOSE), time_start=10_106_416_000
    )
    assert format_entries(rig.entries(), context) == (
        b"            bash     105   0 0 00000000 00000000 [009a4569] 3.897ms (+0.349ms): "
        b"vfs_read <-ksys_read\n"
        b"            bash     105   0 0 00000000 00000001 [009a46c6] 4.246ms (+0.000ms): "
        b"vfs_read <-ksys_read\n"
    )


def test_a_long_time_to_the_next_record_is_marked() -> None:
    limits = [10_000, 10_001, 100_001, 1_000_001, 10_000_001, 100_000_001, 1_000_000_001]
    assert "".join(map(trace_find_mark, limits)) == " +!#*@$"


# --- headers --------------------------------------------------------------------------------------

HEADER = TraceHeader("function", TRACE_DEFAULT_FLAGS, 218, 5003, 1)


def test_the_header() -> None:
    assert HEADER.text() == (
        "# tracer: function\n"
        "#\n"
        "# entries-in-buffer/entries-written: 218/5003   #P:1\n"
        "#\n"
        "#                                _-----=> irqs-off/BH-disabled\n"
        "#                               / _----=> need-resched\n"
        "#                              | / _---=> hardirq/softirq\n"
        "#                              || / _--=> preempt-depth\n"
        "#                              ||| / _-=> migrate-disable\n"
        "#                              |||| /     delay\n"
        "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
        "#              | |         |   |||||     |         |\n"
    )


def test_the_header_with_tgids() -> None:
    header = replace(HEADER, flags=TRACE_DEFAULT_FLAGS | TraceIter.RECORD_TGID)
    assert header.text().splitlines()[4:] == [
        "#                                          _-----=> irqs-off/BH-disabled",
        "#                                         / _----=> need-resched",
        "#                                        | / _---=> hardirq/softirq",
        "#                                        || / _--=> preempt-depth",
        "#                                        ||| / _-=> migrate-disable",
        "#                                        |||| /     delay",
        "#           TASK-PID       TGID    CPU#  |||||  TIMESTAMP  FUNCTION",
        "#              | |           |       |   |||||     |         |",
    ]


def test_the_header_without_state_columns() -> None:
    header = replace(HEADER, flags=TRACE_DEFAULT_FLAGS & ~TraceIter.IRQ_INFO)
    assert header.text().splitlines()[4:] == [
        "#           TASK-PID     CPU#     TIMESTAMP  FUNCTION",
        "#              | |         |         |         |",
    ]


@pytest.mark.parametrize(
    "flags",
    [TRACE_DEFAULT_FLAGS | TraceIter.VERBOSE, TRACE_DEFAULT_FLAGS & ~TraceIter.CONTEXT_INFO],
)
def test_verbose_and_no_context_leave_only_the_tracers_name(flags: TraceIter) -> None:
    assert replace(HEADER, flags=flags).text() == "# tracer: function\n#\n"


def test_the_latency_header() -> None:
    flags = TRACE_DEFAULT_FLAGS | TraceIter.LATENCY_FMT
    header = replace(HEADER, flags=flags, entries=3, written=3, release="6.1.0-57-amd64")
    assert header.text() == (
        "# tracer: function\n"
        "#\n"
        "# function latency trace v1.1.5 on 6.1.0-57-amd64\n"
        "# --------------------------------------------------------------------\n"
        "# latency: 0 us, #3/3, CPU#0 | (M:desktop VP:0, KP:0, SP:0 HP:0 #P:1)\n"
        "#    -----------------\n"
        "#    | task: -0 (uid:0 nice:0 policy:0 rt_prio:0)\n"
        "#    -----------------\n"
        "#\n"
        "#                    _------=> CPU#            \n"
        "#                   / _-----=> irqs-off/BH-disabled\n"
        "#                  | / _----=> need-resched    \n"
        "#                  || / _---=> hardirq/softirq \n"
        "#                  ||| / _--=> preempt-depth   \n"
        "#                  |||| / _-=> migrate-disable \n"
        "#                  ||||| /     delay           \n"
        "#  cmd     pid     |||||| time  |   caller     \n"
        "#     \\   /        ||||||  \\    |    /       \n"
    )
    assert replace(header, entries=0).text() == "# tracer: function\n#\n"


def test_a_dead_tracer_says_so() -> None:
    assert "# WARNING: FUNCTION TRACING IS CORRUPTED\n" in replace(HEADER, is_dead=True).text()


def test_the_stats_file() -> None:
    stats = Stats(218, 4785, 0, 6124, 0, 0)
    assert tracing_stats(stats, 24_124_388_000, 24_206_846_000, True) == (
        "entries: 218\n"
        "overrun: 4785\n"
        "commit overrun: 0\n"
        "bytes: 6124\n"
        "oldest event ts:    24.124388\n"
        "now ts:    24.206846\n"
        "dropped events: 0\n"
        "read events: 0\n"
    )
    assert "oldest event ts: 6\nnow ts: 9\n" in tracing_stats(stats, 6, 9, False)


# --- a whole trace --------------------------------------------------------------------------------


def two_overrun_cpus(memory: Memory) -> Rig:
    """Both CPUs have lost records; the first 140 of what is left are of CPU 0."""
    rig = Rig(memory, nr_cpus=2)
    rig.read_calls(*range(0, 300_000, 1000))
    rig.read_calls(*range(285_000_500, 285_300_500, 1000), cpu=1)
    return rig


def test_after_an_overrun_the_start_of_each_cpu_but_the_first_is_marked(memory: Memory) -> None:
    rig = two_overrun_cpus(memory)
    context = replace(rig.context, annotate=True)
    lines = format_entries(rig.entries(), context).decode().splitlines()
    marks = [index for index, line in enumerate(lines) if line.startswith("#")]
    assert [lines[index] for index in marks] == ["##### CPU 1 buffer started ####"]
    assert "[000]" in lines[marks[0] - 1]
    assert "[001]" in lines[marks[0] + 1]
    without = replace(context, flags=TRACE_DEFAULT_FLAGS & ~TraceIter.ANNOTATE)
    assert b"#####" not in format_entries(rig.entries(), without)
    assert b"#####" not in format_entries(rig.entries(), rig.context)


def test_a_cpu_that_starts_within_two_records_is_not_marked(memory: Memory) -> None:
    rig = Rig(memory, nr_cpus=3)
    rig.read_calls(1000, cpu=0)
    rig.read_calls(2000, cpu=1)
    rig.read_calls(3000, cpu=2)
    text = format_entries(rig.entries(), replace(rig.context, annotate=True))
    assert text.count(b"#####") == 1
    assert b"##### CPU 2 buffer started ####\n" in text


@pytest.mark.parametrize("on", [NONE, TraceIter.LATENCY_FMT])
def test_a_trace_reads_the_same_in_any_pieces(memory: Memory, on: TraceIter) -> None:
    rig = Rig(memory, nr_cpus=2, size=1 << 20)
    rig.read_calls(*range(0, 20_000_000, 1000))
    rig.read_calls(*range(500, 10_000_500, 1000), cpu=1)
    context = replace(rig.options(on), annotate=True)
    whole = b"head\n" + format_entries(rig.entries(), context)
    trace = TraceText("head\n", rig.buffer.snapshot(), context)
    rig.buffer.reset()
    pieces, offset = [], 0
    for size in [1, 7, 100_000, 4096, 1 << 20, 1 << 20, 1 << 20]:
        pieces.append(trace.read(offset, size))
        offset += len(pieces[-1])
    assert b"".join(pieces) == whole
    assert trace.read(10, 20) == whole[10:30]
    assert trace.read(offset, 10) == b""


def test_lines_and_text_are_the_same(memory: Memory) -> None:
    rig = two_overrun_cpus(memory)
    context = replace(rig.context, annotate=True)
    lines = LinePrinter(context).lines(rig.entries())
    assert b"".join(lines) == format_entries(rig.entries(), context)
    assert len(lines) == len(rig.entries())


# --- trace_pipe -----------------------------------------------------------------------------------


def test_a_pipe_gives_each_record_once(rig: Rig) -> None:
    rig.read_calls(*range(0, 200_000, 1000))
    expected = format_entries(rig.entries(), rig.context)
    pipe = TracePipe(rig.buffer)
    assert read_all(pipe, rig.context) == expected
    assert pipe.is_empty()
    stats = rig.buffer.cpus[0].stats()
    assert (stats.entries, stats.read_events, stats.bytes) == (0, 200, 0)


def test_a_read_takes_whole_lines_and_consumes_those_only(rig: Rig) -> None:
    rig.read_calls(*range(0, 100_000, 1000))
    line = len(format_entries(rig.entries()[0:1], rig.context))
    pipe = TracePipe(rig.buffer)
    assert len(pipe.read(4096, rig.context)) == 4095 // line * line
    assert rig.buffer.entries() == 100 - 4095 // line
    assert len(pipe.read(1 << 20, rig.context)) == 100 * line - 4095 // line * line


def test_a_read_smaller_than_a_line_consumes_it_and_leaves_the_rest(rig: Rig) -> None:
    rig.write(0, print_record(b"one", ip=MARK, pid=105))
    rig.write(1000, print_record(b"two", ip=MARK, pid=105))
    pipe = TracePipe(rig.buffer)
    assert pipe.read(10, rig.context) == b"          "
    assert rig.buffer.entries() == 1
    assert pipe.read(30, rig.context) == b"  bash-105     [000] .....    "
    assert pipe.read(4096, rig.context) == b" 0.000000: tracing_mark_write: one\n"
    assert pipe.read(4096, rig.context).endswith(b"two\n")


def test_a_read_goes_on_until_it_has_what_was_asked_for(rig: Rig) -> None:
    rig.read_calls(0, 1000, 2000)
    line = len(format_entries(rig.entries()[0:1], rig.context))
    pipe = TracePipe(rig.buffer)
    assert len(pipe.read(line + 1, rig.context)) == line + 1
    assert rig.buffer.entries() == 1


def test_lost_records_are_told_before_the_next_one(memory: Memory) -> None:
    rig = two_overrun_cpus(memory)
    text = read_all(TracePipe(rig.buffer), rig.context).decode().splitlines()
    assert [index for index, line in enumerate(text) if "LOST" in line] == [0, 156]
    assert (text[0], text[156]) == ("CPU:0 [LOST 145 EVENTS]", "CPU:1 [LOST 145 EVENTS]")
    assert "[001]" in text[157]


def test_an_unknown_number_of_lost_records_has_no_number(rig: Rig) -> None:
    rig.read_calls(0)
    entries = merge(rig.buffer.snapshot(), {0: -1})
    assert format_entries(entries, rig.context).startswith(b"CPU:0 [LOST EVENTS]\n ")


def test_a_pipe_never_marks_where_a_cpu_starts(memory: Memory) -> None:
    rig = two_overrun_cpus(memory)
    context = replace(rig.context, annotate=True)
    assert b"#####" not in read_all(TracePipe(rig.buffer), context)


def test_a_pipe_merges_cpus_whose_pages_end_at_different_times(memory: Memory) -> None:
    rig = Rig(memory, nr_cpus=3, size=1 << 16)
    rig.read_calls(*range(0, 1_000_000, 1000), cpu=0)  # seven pages
    rig.read_calls(*range(0, 1_000_000, 30_000), cpu=1)  # one page over the same time
    rig.read_calls(*range(500_000, 900_000, 1000), cpu=2)
    expected = format_entries(rig.entries(), rig.context)
    assert read_all(TracePipe(rig.buffer), rig.context, 700) == expected


def test_equal_times_at_the_end_of_a_page_stay_in_order_of_cpus(memory: Memory) -> None:
    rig = Rig(memory, nr_cpus=2, size=1 << 16)
    rig.read_calls(*[7] * 300, cpu=0)
    rig.read_calls(*[7] * 10, cpu=1)
    text = read_all(TracePipe(rig.buffer), rig.context).splitlines()
    assert [b"[001]" in line for line in text] == [False] * 300 + [True] * 10


def test_records_written_while_reading_come_too(rig: Rig) -> None:
    pipe = TracePipe(rig.buffer)
    got = b""
    for number in range(400):
        rig.read_calls(number * 1000)
        if number % 7 == 0:
            got += pipe.read(200, rig.context)
    got += read_all(pipe, rig.context)
    times_read = [int(line.split(b": ")[0][-6:]) for line in got.splitlines()]
    assert times_read == list(range(400))


def test_a_reset_takes_back_what_was_not_read(rig: Rig) -> None:
    rig.read_calls(*range(0, 100_000, 1000))
    pipe = TracePipe(rig.buffer)
    line = len(format_entries(rig.entries()[0:1], rig.context))
    pipe.read(3 * line, rig.context)
    rig.buffer.reset()
    assert pipe.read(4096, rig.context) == b""
    assert pipe.is_empty()
    rig.read_calls(5_000_000)
    assert b"0.005000: vfs_read" in read_all(pipe, rig.context)


def test_another_reader_of_whole_pages_takes_its_part(rig: Rig) -> None:
    rig.read_calls(*range(0, 100_000, 1000))
    pipe = TracePipe(rig.buffer)
    line = len(format_entries(rig.entries()[0:1], rig.context))
    pipe.read(line, rig.context)
    assert rig.buffer.cpus[0].read_page() is not None
    assert pipe.read(4096, rig.context) == b""
    assert rig.buffer.cpus[0].stats().read_events == 100


def test_options_switched_while_reading_hold_from_the_next_read_on(rig: Rig) -> None:
    rig.read_calls(*range(0, 10_000, 1000))
    pipe = TracePipe(rig.buffer)
    line = len(format_entries(rig.entries()[0:1], rig.context))
    assert b"<-ksys_read" in pipe.read(line, rig.context)
    assert pipe.read(4096, rig.options(off=TraceIter.PRINT_PARENT)).count(b"<-") == 0


def test_a_name_learnt_while_reading_is_shown_from_then_on(rig: Rig) -> None:
    rig.read_calls(0, 1000, pid=77)
    pipe = TracePipe(rig.buffer)
    line = len(format_entries(rig.entries()[0:1], rig.context))
    assert b"<...>-77" in pipe.read(line, rig.context)
    assert b"cat-77" in pipe.read(line, replace(rig.context, names={77: "cat"}))


def test_one_cpu_alone(memory: Memory) -> None:
    rig = two_overrun_cpus(memory)
    text = read_all(TracePipe(rig.buffer, 1), rig.context)
    assert b"[000]" not in text
    assert text.startswith(b"CPU:1 [LOST 145 EVENTS]\n")
    assert rig.buffer.entries(0) == 155


def test_a_line_larger_than_a_read_can_hold_is_replaced(rig: Rig) -> None:
    rig.write(0, print_record(b"x" * 4040, ip=MARK))
    rig.read_calls(1000)
    text = read_all(TracePipe(rig.buffer), rig.context)
    assert text.startswith(b"[LINE TOO BIG]\n")
    assert text.count(b"\n") == 2

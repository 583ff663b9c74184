"""The files that switch events: set_event, enable at every level, and what is enabled then."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import partial

import pytest
from support.events import bring, events, process, texts
from support.shell import CALLER, Shell, isolated

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.text_poke import NOP5
from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory, TracefsFile
from ftracefs.trace.events.table import EVENT_CALLS

SYSTEM = "events/sched"
SWITCH, WAKING = f"{SYSTEM}/sched_switch/enable", f"{SYSTEM}/sched_waking/enable"


@pytest.fixture(scope="module")
def _shell() -> Iterator[Shell]:
    with isolated() as made:
        yield made


@pytest.fixture
def shell(_shell: Shell) -> Iterator[Shell]:
    """A session in which nothing is enabled, before and after."""
    yield _shell
    _shell.echo("", "set_event")
    assert _shell.cat("set_event") == ""


def write(shell: Shell, path: str, data: bytes, flags: int = 0) -> int:
    """One open, one write, one close; what the write answers."""
    node = shell.node(path)
    assert isinstance(node, TracefsFile)
    file = shell.machine.run(lambda: node.open(os.O_WRONLY | flags, CALLER))
    try:
        taken = shell.machine.run(partial(file.write, data, 0))
    except TracefsError as error:
        return -error.errno
    finally:
        shell.machine.run(file.fput)
    assert isinstance(taken, int)
    return taken


def is_patched(shell: Shell, event: str) -> bool:
    """Whether the kernel's text leads to the event's probe."""
    tracing, memory = shell.session.tracing, shell.machine.memory
    (call,) = [call for call in EVENT_CALLS if call.name == event]
    (first, *_) = tracing.tracepoints.sites(event)
    array = memory.u64(tracing.image.labels[f"__tracepoint_{event}"] + CONSTANTS["TP_FUNCS"])
    if memory.read(first, 5) == NOP5:
        assert array == 0
        return False
    probes = []
    while array and (func := memory.u64(array + CONSTANTS["TPF_FUNC"])):
        probes.append(func)
        array += CONSTANTS["TPF_SIZE"]
    return tracing.label(f"trace_event_raw_event_{call.probe}") in probes


def enabled(shell: Shell) -> list[str]:
    return [line.partition(":")[2] for line in shell.cat("set_event").splitlines()]


IRQ = ["softirq_raise", "softirq_exit", "softirq_entry", "irq_handler_exit", "irq_handler_entry"]
SCHED = [
    *("sched_process_exec", "sched_process_fork", "sched_process_wait", "sched_process_exit"),
    *("sched_process_free", "sched_migrate_task", "sched_switch"),
    *("sched_wakeup_new", "sched_wakeup", "sched_waking"),
]
ALL = [*IRQ, *SCHED, "cpu_idle"]


def test_available_events_lists_them_by_id(shell: Shell) -> None:
    systems = {"irq": IRQ, "sched": SCHED, "power": ["cpu_idle"]}
    assert shell.cat("available_events") == "".join(
        f"{system}:{name}\n" for system, names in systems.items() for name in names
    )


# As Linux answers each of these on a fresh boot.
@pytest.mark.parametrize(
    ("data", "taken", "names"),
    [
        (b"sched:sched_switch\n", 19, ["sched_switch"]),
        (b"sched:sched_switch", 18, ["sched_switch"]),
        (b"sched_wakeup", 12, ["sched_wakeup"]),
        (b"sched:sched_switch sched:sched_wakeup\n", 19, ["sched_switch"]),
        (b"  sched:sched_switch  sched:sched_waking", 21, ["sched_switch"]),
        (b"sched", 5, SCHED),
        (b"sched:", 6, SCHED),
        (b"sched:*\n", 8, SCHED),
        (b"irq", 3, IRQ),
        (b"*:*", 3, ALL),
        (b":", 1, ALL),
        (b"*:", 2, ALL),
        (b":sched_switch", 13, ["sched_switch"]),
        (b"*:sched_switch", 14, ["sched_switch"]),
        (b"\n", 1, []),
        (b"   ", 3, []),
        (b"sched:sched_switch\0x", 19, ["sched_switch"]),
        (b"nosuch:*", -errno.EINVAL, []),
        (b"nosuch", -errno.EINVAL, []),
        (b"*", -errno.EINVAL, []),
        (b"sched:nosuch", -errno.EINVAL, []),
        (b"sched:sched_sw*", -errno.EINVAL, []),
        (b"ftrace:function", -errno.EINVAL, []),
        (b"ftrace:*", -errno.EINVAL, []),
        (b"ftrace:print", -errno.EINVAL, []),
        (b"!", -errno.EINVAL, []),
        (b"x" * 127, -errno.EINVAL, []),
        (b"x" * 128, -errno.EINVAL, []),
        (b"x" * 500, -errno.EINVAL, []),
        (b"\xff\xfe", -errno.EINVAL, []),
    ],
)
def test_a_word_written_to_set_event(
    shell: Shell, data: bytes, taken: int, names: list[str]
) -> None:
    assert write(shell, "set_event", data) == taken
    assert enabled(shell) == names
    assert {name for name in ALL if is_patched(shell, name)} == set(names)


def test_words_add_up_and_an_exclamation_mark_takes_away(shell: Shell) -> None:
    shell.echo("sched:sched_switch", "set_event", append=True)
    shell.echo("sched_wakeup sched_waking", "set_event", append=True)
    assert enabled(shell) == ["sched_switch", "sched_wakeup", "sched_waking"]
    shell.echo("!sched_wakeup", "set_event", append=True)
    assert enabled(shell) == ["sched_switch", "sched_waking"]
    assert write(shell, "set_event", b"!sched:sched_exit") == -errno.EINVAL
    shell.echo("!sched:*", "set_event", append=True)
    assert enabled(shell) == []


def test_opening_with_truncation_disables_everything(shell: Shell) -> None:
    shell.echo("*:*", "set_event")
    assert write(shell, "set_event", b" ", os.O_TRUNC) == 1
    assert enabled(shell) == []


def test_a_word_is_not_kept_for_the_next_write(shell: Shell) -> None:
    node = shell.node("set_event")
    assert isinstance(node, TracefsFile)
    file = shell.machine.run(lambda: node.open(os.O_WRONLY, CALLER))
    for part in (b"sched:sched", b"_switch"):
        with pytest.raises(TracefsError) as error:
            shell.machine.run(partial(file.write, part, 0))
        assert error.value.errno == errno.EINVAL
    shell.machine.run(file.fput)


@pytest.mark.parametrize("path", [SWITCH, f"{SYSTEM}/enable", "events/enable"])
def test_enable_takes_0_and_1_and_nothing_else(shell: Shell, path: str) -> None:
    for data, answer in (
        (b"1", 1),
        (b"01", 2),
        (b"1\n", 2),
        (b"2", -errno.EINVAL),
        (b"-1", -errno.EINVAL),
        (b"abc", -errno.EINVAL),
        (b"1x", -errno.EINVAL),
        (b" 1", -errno.EINVAL),
        (b"18446744073709551616", -errno.ERANGE),
    ):
        assert write(shell, path, data) == answer, data
        assert shell.cat(path) == "1\n"
    assert write(shell, path, b"0") == 1
    assert shell.cat(path) == "0\n"
    assert not is_patched(shell, "sched_switch")


def test_enable_of_many_shows_an_x_when_they_differ(shell: Shell) -> None:
    paths = f"{SYSTEM}/enable", "events/enable"
    assert [shell.cat(path) for path in paths] == ["0\n", "0\n"]
    shell.echo("1", SWITCH)
    assert [shell.cat(path) for path in paths] == ["X\n", "X\n"]
    shell.echo("1", f"{SYSTEM}/enable")
    assert [shell.cat(path) for path in paths] == ["1\n", "X\n"]
    shell.echo("1", "events/enable")
    assert [shell.cat(path) for path in paths] == ["1\n", "1\n"]
    shell.echo("0", WAKING)
    assert [shell.cat(path) for path in paths] == ["X\n", "X\n"]
    shell.echo("0", "events/enable")
    assert [shell.cat(path) for path in paths] == ["0\n", "0\n"]


def test_switching_on_what_is_on_changes_no_text(shell: Shell) -> None:
    shell.echo("1", SWITCH)
    writes = shell.session.ftrace.text_poke.writes
    shell.echo("1", SWITCH)
    shell.echo("sched:sched_switch", "set_event", append=True)
    assert shell.session.ftrace.text_poke.writes == writes


def test_the_directories_hold_what_linux_has_for_each_kind(shell: Shell) -> None:
    def names(path: str) -> list[str]:
        node = shell.node(path)
        assert isinstance(node, Directory)
        assert node.mode == 0o750
        return list(node)

    assert names("events") == [
        *("enable", "ftrace", "header_event", "header_page", "irq", "power", "sched"),
    ]
    assert names("events/sched") == sorted(["enable", "filter", *SCHED])
    assert names("events/irq") == sorted(["enable", "filter", *IRQ])
    assert names("events/sched/sched_switch") == ["enable", "filter", "format", "id"]
    assert names("events/ftrace/function") == ["format", "id"]
    assert names("events/ftrace/funcgraph_entry") == ["format"]
    assert len(names("events/ftrace")) == 18
    assert shell.cat("events/sched/sched_switch/id") == "319\n"
    assert shell.cat("events/ftrace/print/id") == "5\n"


@pytest.mark.parametrize("name", ["id", "format"])
def test_what_only_tells_cannot_be_written(shell: Shell, name: str) -> None:
    assert write(shell, f"{SYSTEM}/sched_switch/{name}", b"1") == -errno.EINVAL


def test_names_are_wanted_while_an_event_is_enabled(shell: Shell) -> None:
    names = shell.session.tracing.saved_cmdlines
    assert names.cmdline_ref == 0
    shell.echo("1", SWITCH)
    shell.echo("1", WAKING)
    assert names.cmdline_ref == 2
    shell.echo("norecord-cmd", "trace_options")
    assert names.cmdline_ref == 0
    shell.echo("record-cmd", "trace_options")
    assert names.cmdline_ref == 2
    shell.echo("norecord-cmd", "trace_options")
    shell.echo("0", SWITCH)
    shell.echo("1", SWITCH)
    assert names.cmdline_ref == 0
    shell.echo("record-cmd", "trace_options")
    shell.echo("0", "events/enable")
    assert names.cmdline_ref == 0


def test_soft_mode_has_the_probe_there_and_records_nothing(shell: Shell) -> None:
    manager = shell.session.tracing.global_trace.events
    file = manager.find_event_file("sched", "sched_switch")
    assert file is not None
    first, second = process(shell, 2100, "first"), process(shell, 2101, "second")

    def soft(enable: bool) -> None:
        shell.machine.run(
            lambda: manager.trace_event_enable_disable(file, enable, soft_disable=True)
        )

    def records() -> int:
        shell.echo("", "trace")
        bring(shell, first)
        bring(shell, second)
        return len(events(shell))

    soft(True)
    assert (shell.cat(SWITCH), is_patched(shell, "sched_switch"), records()) == ("0*\n", True, 0)
    shell.echo("1", SWITCH)
    assert shell.cat(SWITCH) == "1*\n"
    assert records() > 0
    shell.echo("0", SWITCH)
    assert (shell.cat(SWITCH), is_patched(shell, "sched_switch"), records()) == ("0*\n", True, 0)
    soft(True)
    soft(False)
    assert shell.cat(SWITCH) == "0*\n"
    soft(False)
    assert (shell.cat(SWITCH), is_patched(shell, "sched_switch")) == ("0\n", False)


def test_the_disassembly_marks_the_tracepoint(shell: Shell) -> None:
    def marked() -> list[str]:
        lines = shell.cat("emulator/text/__schedule").splitlines()
        return [line.split("  ", 1)[1] for line in lines if "# tracepoint" in line]

    (off,) = marked()
    assert off.startswith("0f 1f 44 00 00 ")
    assert off.endswith("# tracepoint sched_switch: nop")
    shell.echo("1", SWITCH)
    (on,) = marked()
    assert on.startswith("e9 ")
    assert "# tracepoint sched_switch: __schedule+0x" in on
    assert "__SCT__tp_func_sched_switch" in shell.cat("emulator/text/__schedule")


def test_enabling_expands_the_buffer() -> None:
    with isolated() as shell:
        assert "expanded" in shell.cat("buffer_size_kb")
        shell.echo("1", SWITCH)
        assert shell.cat("buffer_size_kb") == "1410\n"
        assert texts(shell, "sched_switch") == []

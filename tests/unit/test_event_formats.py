"""The format files of all events, as recorded of Debian's Linux 6.1, and what guest code knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulated_kernel.images.builtin import load_builtin
from ftracefs.guest import load_guest
from ftracefs.trace.events.call import TraceEventCall
from ftracefs.trace.events.fields import array, event_fields, field, string
from ftracefs.trace.events.header import header_event, header_page
from ftracefs.trace.events.table import EVENT_CALLS, EVENTS

RECORDED = Path(__file__).resolve().parents[1] / "conformance" / "events"


def recorded(system: str) -> dict[str, str]:
    texts = (RECORDED / f"{system}.txt").read_text().split("name: ")[1:]
    return {text.split("\n", 1)[0]: f"name: {text}" for text in texts}


@pytest.mark.parametrize("system", ["ftrace", "irq", "sched", "power"])
def test_formats_are_those_of_linux_byte_for_byte(system: str) -> None:
    ours = {call.name: call.format() for call in EVENT_CALLS if call.system == system}
    assert ours == recorded(system)


def test_ids_ascend_and_name_one_event_each() -> None:
    ids = [call.id for call in EVENT_CALLS]
    assert ids == sorted(set(ids))


def test_whatever_can_be_enabled_has_a_printer() -> None:
    assert {call.id for call in EVENT_CALLS if call.can_be_enabled} <= set(EVENTS)


def test_header_files_describe_the_page() -> None:
    assert header_page() == (
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
        "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
        "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
        "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n"
    )
    assert header_event() == (
        "# compressed entry header\n"
        "\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n"
        "\tpadding     : type == 29\n\ttime_extend : type == 30\n\ttime_stamp : type == 31\n"
        "\tdata max type_len  == 28\n"
    )


def test_fields_are_laid_out_as_a_c_compiler_does() -> None:
    declared = (
        field("char", "a"),
        field("u64", "b"),
        array("char", "c", 3),
        field("u16", "d"),
        string("e"),
    )
    assert [(f.name, f.offset, f.size) for f in event_fields(declared)] == [
        ("a", 8, 1),
        ("b", 16, 8),
        ("c", 24, 3),
        ("d", 28, 2),
        ("e", 32, 4),
    ]


# What the guest's sources call the record of an event.
PREFIXES = {
    "softirq_raise": "SOFTIRQ",
    "softirq_entry": "SOFTIRQ",
    "softirq_exit": "SOFTIRQ",
    "irq_handler_entry": "IRQ_HANDLER_ENTRY",
    "irq_handler_exit": "IRQ_HANDLER_EXIT",
    "cpu_idle": "CPU",
    "sched_switch": "SCHED_SWITCH",
    "sched_wakeup": "SCHED_WAKEUP",
    "sched_waking": "SCHED_WAKEUP",
    "sched_wakeup_new": "SCHED_WAKEUP",
    "sched_migrate_task": "SCHED_MIGRATE",
    "sched_process_exit": "SCHED_PROCESS",
    "sched_process_free": "SCHED_PROCESS",
    "sched_process_wait": "SCHED_PROCESS",
    "sched_process_fork": "SCHED_PROCESS_FORK",
    "sched_process_exec": "SCHED_PROCESS_EXEC",
}
SWITCHABLE = [call for call in EVENT_CALLS if call.can_be_enabled]


@pytest.mark.parametrize("call", SWITCHABLE, ids=lambda call: call.name)
def test_guest_code_writes_each_field_where_the_format_says(call: TraceEventCall) -> None:
    guest = load_guest(load_builtin().labels)
    prefix = PREFIXES[call.name]
    for each in call.fields:
        assert guest.constants[f"{prefix}_{each.name.upper()}"] == each.offset
    end = max(each.offset + each.size for each in call.fields)
    assert guest.constants[f"{prefix}_BYTES"] == end
    assert f"trace_event_raw_event_{call.probe}" in guest.labels

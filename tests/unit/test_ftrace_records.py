"""Records of call sites, and which of them a word means."""

from __future__ import annotations

import numpy as np
import pytest

from emulated_kernel.asm_link import Symbol
from emulated_kernel.kallsyms import Kallsyms
from ftracefs.ftrace.hashes import EMPTY_HASH
from ftracefs.ftrace.match import match_records, simple_strtoul
from ftracefs.ftrace.records import FTRACE_FL_DISABLED, FTRACE_FL_ENABLED, FtraceRecords

BASE = 0xFFFFFFFF81000000
MODULE = 0xFFFFFFFFC0800000


def symbol(name: str, address: int, size: int = 16, kind: str = "T") -> Symbol:
    return Symbol(name, address, size, ".text", kind)


KERNEL = [
    symbol("vfs_open", BASE),
    symbol("vfs_read", BASE + 0x20),  # with an endbr64 in front of its site
    symbol("weak_one", BASE + 0x40, 0x40),  # a second site in it is an overridden function's
    symbol("name_show", BASE + 0x80, kind="t"),
    symbol("name_show", BASE + 0x90, kind="t"),
]
MODULE_SYMBOLS = [symbol("ext4_read", MODULE), symbol("ext4_open", MODULE + 0x20)]
KERNEL_SITES = [BASE, BASE + 0x24, BASE + 0x40, BASE + 0x60, BASE + 0x80, BASE + 0x90]
MODULE_SITES = [MODULE + 0x20, MODULE]


@pytest.fixture
def kallsyms() -> Kallsyms:
    symbols = Kallsyms()
    symbols.add("kernel", KERNEL)
    symbols.add("ext4", MODULE_SYMBOLS, module="ext4")
    return symbols


@pytest.fixture
def records(kallsyms: Kallsyms) -> FtraceRecords:
    made = FtraceRecords()
    made.add(np.array(KERNEL_SITES, dtype=np.uint64), kallsyms, None)
    made.add(np.array(MODULE_SITES, dtype=np.uint64), kallsyms, "ext4")
    return made


def names(records: FtraceRecords, word: str, module: str | None = None) -> list[str] | None:
    hash = match_records(
        records, EMPTY_HASH, word.encode(), None if module is None else module.encode()
    )
    if hash is None:
        return None
    return [line.decode() for line in records.lines(np.flatnonzero(records.in_hash(hash)))]


def test_available_filter_functions_lists_the_kernel_then_its_modules(
    records: FtraceRecords,
) -> None:
    assert records.available_filter_functions.decode().splitlines() == [
        "vfs_open",
        "vfs_read",
        "weak_one",
        "__ftrace_invalid_address___32",
        "name_show",
        "name_show",
        "ext4_read [ext4]",
        "ext4_open [ext4]",
    ]


def test_a_site_of_an_overridden_function_is_out_of_the_game(records: FtraceRecords) -> None:
    assert records.has(FTRACE_FL_DISABLED).tolist() == [n == 3 for n in range(8)]
    assert names(records, "*invalid*") is None


@pytest.mark.parametrize(
    ("start", "end", "site"),
    [
        (BASE, BASE, BASE),
        (BASE + 0x20, BASE + 0x20, 0),
        (BASE + 0x20, BASE + 0x2F, BASE + 0x24),
        (BASE - 0x1000, BASE - 1, 0),
        (MODULE, MODULE + 0xFFF, MODULE),
        (MODULE + 0x21, MODULE + 0xFFF, 0),
    ],
)
def test_a_site_is_found_by_range(records: FtraceRecords, start: int, end: int, site: int) -> None:
    assert records.ftrace_location_range(start, end) == site


@pytest.mark.parametrize(
    ("word", "module", "expected"),
    [
        ("vfs_*", None, ["vfs_open", "vfs_read"]),
        ("name_show", None, ["name_show", "name_show"]),
        ("*_read", None, ["vfs_read", "ext4_read [ext4]"]),
        ("*", "ext4", ["ext4_read [ext4]", "ext4_open [ext4]"]),
        ("", "ext4", ["ext4_read [ext4]", "ext4_open [ext4]"]),
        ("*", "*", ["ext4_read [ext4]", "ext4_open [ext4]"]),
        ("", "", ["ext4_read [ext4]", "ext4_open [ext4]"]),
        ("*_read", "ex*", ["ext4_read [ext4]"]),
        ("vfs_read", "ext4", None),
        ("vfs*", "!ext4", ["vfs_open", "vfs_read"]),
        ("", "!", ["vfs_open", "vfs_read", "weak_one", "name_show", "name_show"]),
        ("1", None, ["vfs_open"]),
        ("8", None, ["ext4_open [ext4]"]),
        ("1", "ext4", ["vfs_open"]),
        ("9", None, None),
        ("0", None, None),
        ("", None, None),
        ("nosuch", None, None),
    ],
)
def test_a_word_means_records(
    records: FtraceRecords, word: str, module: str | None, expected: list[str] | None
) -> None:
    assert names(records, word, module) == expected


def test_a_word_that_begins_with_an_exclamation_mark_takes_out(records: FtraceRecords) -> None:
    all_of_it = match_records(records, EMPTY_HASH, b"*")
    assert all_of_it is not None
    assert all_of_it.count == 7
    without = match_records(records, all_of_it, b"!*_read")
    assert without is not None
    assert without.count == 5
    assert match_records(records, without, b"!nosuch") is None
    assert match_records(records, EMPTY_HASH, b"!vfs_read") is not None


# Linux: simple_strtoul in base 0, cut to 64 bits.
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1abc", 1),
        ("010", 8),
        ("08", 0),
        ("0x10", 16),
        ("0X1fz", 31),
        ("0x", 0),
        ("0xg", 0),
        ("18446744073709551617", 1),
    ],
)
def test_index_numbers_are_read_as_c_reads_them(text: str, value: int) -> None:
    assert simple_strtoul(text.encode()) == value


def test_an_unloaded_module_takes_its_records_with_it(
    records: FtraceRecords, kallsyms: Kallsyms
) -> None:
    records.flags[1] |= np.uint64(FTRACE_FL_ENABLED | 1)
    kallsyms.add("xfs", [symbol("xfs_read", MODULE + 0x1000)], module="xfs")
    records.add(np.array([MODULE + 0x1000], dtype=np.uint64), kallsyms, "xfs")
    assert sorted(records.remove("ext4").tolist()) == sorted(MODULE_SITES)
    assert records.available_filter_functions.decode().splitlines()[-1] == "xfs_read [xfs]"
    assert records.counts.tolist() == [0, 1, 0, 0, 0, 0, 0]
    assert records.module(6) == "xfs"
    assert records.row(MODULE) is None
    assert records.row(MODULE + 0x1000) == 6


def test_symbols_reach_to_the_next_and_modules_are_named(kallsyms: Kallsyms) -> None:
    assert kallsyms.sprint_symbol(BASE + 0x1F) == "vfs_open+0x1f/0x20"
    assert kallsyms.sprint_symbol(MODULE + 2) == "ext4_read+0x2/0x20 [ext4]"
    assert kallsyms.sprint_symbol(BASE + 0x9F) == "name_show+0xf/0x10"
    assert kallsyms.sprint_symbol(BASE + 0xA0) == f"{BASE + 0xA0:#x}"
    assert kallsyms.kallsyms_lookup_name("name_show") == BASE + 0x80
    kallsyms.remove("ext4")
    assert kallsyms.kallsyms_lookup(MODULE) is None


def test_of_two_symbols_at_one_address_the_one_with_a_size_answers() -> None:
    symbols = Kallsyms()
    symbols.add("kernel", [symbol("alias", BASE, 0), symbol("real", BASE), symbol("also", BASE)])
    assert symbols.sprint_symbol(BASE + 1) == "real+0x1/0x10"
    assert symbols.kallsyms_lookup_name("alias") == BASE

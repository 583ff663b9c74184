"""Symbols by address and by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulated_kernel.kallsyms import Kallsyms

TEXT, DATA, MODULE = 0xFFFFFFFF81000000, 0xFFFFFFFF82000000, 0xFFFFFFFFC0800000


@dataclass(frozen=True)
class Sym:
    name: str
    address: int
    size: int
    section: str = ".text"
    kind: str = "T"


@pytest.fixture
def kallsyms() -> Kallsyms:
    made = Kallsyms()
    made.add(
        "kernel",
        [
            Sym("second", TEXT + 0x20, 0x11),
            Sym("first", TEXT, 0x1D),
            Sym("alias_of_first", TEXT, 0x1D, kind="t"),
            Sym("jiffies", DATA, 8, ".data", "D"),
        ],
    )
    made.add("dummy", [Sym("dummy_init", MODULE, 0x10, kind="t")], module="dummy")
    return made


def test_a_symbol_reaches_up_to_the_next_one(kallsyms: Kallsyms) -> None:
    assert kallsyms.sprint_symbol(TEXT + 0x1F) == "first+0x1f/0x20"
    assert kallsyms.sprint_symbol(TEXT + 0x20) == "second+0x0/0x11"


def test_the_last_symbol_of_a_section_ends_with_itself(kallsyms: Kallsyms) -> None:
    assert kallsyms.kallsyms_lookup(TEXT + 0x30) is not None
    assert kallsyms.kallsyms_lookup(TEXT + 0x31) is None
    assert kallsyms.sprint_symbol(TEXT + 0x31) == "0xffffffff81000031"


@pytest.mark.parametrize("address", [0, TEXT - 1, DATA + 8, MODULE + 0x10, (1 << 64) - 1])
def test_an_address_in_no_symbol_has_none(kallsyms: Kallsyms, address: int) -> None:
    assert kallsyms.kallsyms_lookup(address) is None


def test_of_two_names_for_one_address_the_first_given_answers(kallsyms: Kallsyms) -> None:
    location = kallsyms.kallsyms_lookup(TEXT)
    assert location is not None
    assert location.name == "first"
    assert kallsyms.kallsyms_lookup_name("alias_of_first") == TEXT


def test_a_symbol_of_a_module_names_it_and_goes_with_it(kallsyms: Kallsyms) -> None:
    before = kallsyms.generation
    assert kallsyms.sprint_symbol(MODULE + 4) == "dummy_init+0x4/0x10 [dummy]"
    kallsyms.remove("dummy")
    assert kallsyms.kallsyms_lookup(MODULE + 4) is None
    assert kallsyms.kallsyms_lookup_name("dummy_init") is None
    assert kallsyms.generation != before


def test_of_several_symbols_of_one_name_the_lowest_is_found() -> None:
    made = Kallsyms()
    made.add("kernel", [Sym("name_show", TEXT + 0x40, 8), Sym("name_show", TEXT, 8)])
    assert made.kallsyms_lookup_name("name_show") == TEXT


def test_the_file_lists_the_kernel_in_order_of_address_and_then_the_modules(
    kallsyms: Kallsyms,
) -> None:
    assert kallsyms.text() == (
        "ffffffff81000000 T first\n"
        "ffffffff81000000 t alias_of_first\n"
        "ffffffff81000020 T second\n"
        "ffffffff82000000 D jiffies\n"
        "ffffffffc0800000 t dummy_init\t[dummy]\n"
    )


@given(st.lists(st.integers(TEXT - 4, TEXT + 0x40), max_size=30))
def test_many_addresses_at_once_are_found_as_one_by_one(addresses: list[int]) -> None:
    made = Kallsyms()
    made.add("kernel", [Sym(f"f{n}", TEXT + 8 * n, 5) for n in (0, 1, 4, 6)])
    numbers = made.numbers(np.array(addresses, dtype=np.uint64))
    found = [made.location(int(n), a) for n, a in zip(numbers, addresses, strict=True)]
    assert found == [made.kallsyms_lookup(address) for address in addresses]


def test_no_symbols_at_all_answer_nothing() -> None:
    made = Kallsyms()
    assert made.kallsyms_lookup(TEXT) is None
    assert made.numbers(np.array([TEXT], dtype=np.uint64)).tolist() == [-1]
    assert made.text() == ""

"""Kernels number the registers in their ORC tables in two ways."""

from __future__ import annotations

import struct

import pytest

from emulated_kernel.images.linux import orc_registers


def table(*entries: tuple[int, int]) -> bytes:
    """By which register the stack is found, and by which rbp."""
    return b"".join(struct.pack("<hhBB", 8, -16, sp | bp << 4, 2) for sp, bp in entries)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([(0, 0), (5, 1), (5, 0), (4, 1), (3, 0), (8, 4)], (5, 1, 8)),
        ([(0, 0), (3, 8), (3, 0), (4, 8), (5, 0), (10, 4)], (3, 8, 10)),
    ],
    ids=["up to 7.0", "in 7.2"],
)
def test_the_register_by_which_most_frames_are_found_is_the_stack_pointer(
    entries: list[tuple[int, int]], expected: tuple[int, int, int]
) -> None:
    found = orc_registers(table(*entries))
    names = ("orc_reg_sp", "orc_reg_prev_sp", "orc_reg_bp_indirect")
    assert tuple(found[name] for name in names) == expected

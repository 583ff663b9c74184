"""Masks of CPUs as they are written and read."""

from __future__ import annotations

import errno

import pytest

from ftracefs.errors import TracefsError
from ftracefs.trace.cpumask import bitmap_parse, cpumask_text


@pytest.mark.parametrize(
    ("text", "nr_cpus", "mask"),
    [
        (b"1", 2, 1),
        (b"3\n", 2, 3),
        (b"F", 4, 15),
        (b" 1", 2, 1),
        (b"1 ", 2, 1),
        (b"1,", 2, 1),
        (b",1", 2, 1),
        (b"00000001", 2, 1),
        (b"", 2, 0),
        (b"\n", 2, 0),
        (b" ", 2, 0),
        (b"1\n2", 2, 1),
        (b"1\x002", 2, 1),
        (b"1,00000002", 40, (1 << 32) + 2),
        (b"x00000001", 2, 1),
    ],
)
def test_a_mask_is_read(text: bytes, nr_cpus: int, mask: int) -> None:
    assert bitmap_parse(text, nr_cpus) == mask


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"4", errno.EOVERFLOW),
        (b"ff", errno.EOVERFLOW),
        (b"000000001", errno.EOVERFLOW),
        (b"0,1", errno.EOVERFLOW),
        (b"1 2", errno.EOVERFLOW),
        (b"00000000,00000001", errno.EOVERFLOW),
        (b"0x1", errno.EINVAL),
        (b"g", errno.EINVAL),
        (b"1g", errno.EINVAL),
        (b"-1", errno.EINVAL),
        (b"0-1", errno.EINVAL),
    ],
)
def test_what_is_no_mask_of_two_cpus_is_refused(text: bytes, number: int) -> None:
    with pytest.raises(TracefsError) as refused:
        bitmap_parse(text, 2)
    assert refused.value.errno == number


def test_a_mask_has_as_many_digits_as_the_cpus_take() -> None:
    assert cpumask_text(3, 2) == "3"
    assert cpumask_text(1, 8) == "01"
    assert cpumask_text((1 << 32) + 2, 36) == "1,00000002"

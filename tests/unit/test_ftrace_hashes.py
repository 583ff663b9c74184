"""Sets of call sites and their image in guest memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ftracefs.ftrace.hashes import (
    EMPTY_HASH,
    FTRACE_HASH_FL_MOD,
    FtraceHash,
    FtraceOpsHash,
    as_ips,
    ftrace_hash_empty,
    hash_contains_ip,
    hash_table,
)

SITES = st.sets(st.integers(0, 5000).map(lambda n: 0xFFFFFFFF81000000 + 4 * n), max_size=60)


def found_by_guest(table: list[int], ip: int) -> bool:
    """The search of guest code."""
    at = ip >> 4
    for _ in table:
        at &= len(table) - 1
        if table[at] == ip:
            return True
        if not table[at]:
            return False
        at += 1
    raise AssertionError("no free slot")


@given(SITES, SITES)
def test_guest_code_finds_what_is_in_the_table_and_nothing_else(
    members: set[int], others: set[int]
) -> None:
    table = hash_table(FtraceHash(as_ips(members))).tolist()
    assert len(table) & (len(table) - 1) == 0
    assert all(found_by_guest(table, ip) for ip in members)
    assert not any(found_by_guest(table, ip) for ip in others - members)


@given(SITES, SITES)
def test_hashes_are_sets(left: set[int], right: set[int]) -> None:
    hash = FtraceHash(as_ips(left))
    assert set(hash.add(as_ips(right)).ips.tolist()) == left | right
    assert set(hash.remove(as_ips(right)).ips.tolist()) == left - right
    assert set(hash.ips.tolist()) == left
    probes = as_ips(left | right | {7})
    assert dict(zip(probes.tolist(), hash.contains(probes).tolist(), strict=True)) == {
        ip: ip in left for ip in left | right | {7}
    }


@given(SITES, SITES, SITES)
def test_a_pair_of_hashes_lets_through(
    filtered: set[int], notrace: set[int], probes: set[int]
) -> None:
    pair = FtraceOpsHash(FtraceHash(as_ips(filtered)), FtraceHash(as_ips(notrace)))
    ips = as_ips(probes | filtered | notrace)
    assert hash_contains_ip(pair, ips).tolist() == [
        (not filtered or ip in filtered) and ip not in notrace for ip in ips.tolist()
    ]


def test_a_filter_that_waits_for_a_module_lets_nothing_through() -> None:
    waiting = EMPTY_HASH.with_flags(FTRACE_HASH_FL_MOD)
    assert not ftrace_hash_empty(waiting)
    assert not hash_contains_ip(FtraceOpsHash(waiting), np.array([16], dtype=np.uint64)).any()
    assert hash_table(waiting).any() == False  # noqa: E712

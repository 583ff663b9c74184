"""Objects by their number, and numbers for objects: lib/idr.S over the tree of mm/xarray.S."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.guest import U64, Guest

examples = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
INDEX = st.one_of(st.integers(0, 200), st.integers(0, U64), st.just(1 << 40))
ENOSPC = -28


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    guest = Guest(cpus=1, boot=True)
    try:
        yield guest
    finally:
        guest.close()


@examples
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["store", "erase", "load", "find"]), INDEX), max_size=30
    )
)
def test_xarray_against_a_dictionary(guest: Guest, steps: list[tuple[str, int]]) -> None:
    guest.reset()
    array, model = guest.words([0, 0, 0]), {}
    for number, (step, index) in enumerate(steps, 0x1000):
        if step == "store":
            assert guest.call("xa_store", array, index, number) == model.get(index, 0)
            model[index] = number
        elif step == "erase":
            assert guest.call("xa_erase", array, index) == model.pop(index, 0)
        elif step == "load":
            assert guest.call("xa_load", array, index) == model.get(index, 0)
        else:
            at = guest.words([index])
            later = [i for i in sorted(model) if i >= index]
            assert guest.call("xa_find", array, at, U64) == (model[later[0]] if later else 0)
            assert not later or guest.memory.u64(at) == later[0]
    for index in model:
        guest.call("xa_erase", array, index)
    assert guest.memory.u64(array + 8) == 0  # all nodes are gone again


@examples
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["alloc", "cyclic", "remove"]), st.integers(0, 12)), max_size=30
    )
)
def test_numbers_are_given_out_once(guest: Guest, steps: list[tuple[str, int]]) -> None:
    guest.reset()
    idr, model, following = guest.words([0, 0, 0]), {}, 0
    for number, (step, least) in enumerate(steps, 0x2000):
        if step == "remove":
            assert guest.call("idr_remove", idr, least) == model.pop(least, 0)
            continue
        cyclic = step == "cyclic"
        candidates = [i for i in range(least, 10) if i not in model]
        if cyclic:
            candidates.sort(key=lambda i: i < max(least, following))
        function = "idr_alloc_cyclic" if cyclic else "idr_alloc"
        got = guest.call_int(function, idr, number, least, 10)
        assert got == (candidates[0] if candidates else ENOSPC)
        if candidates:
            model[got] = number
            following = got + 1 if cyclic else following
        assert all(guest.call("idr_find", idr, i) == model.get(i, 0) for i in range(10))


def test_plain_numbers(guest: Guest) -> None:
    guest.reset()
    ida = guest.words([0, 0, 0])
    assert [guest.call_int("ida_alloc_range", ida, 3, 5) for _ in range(4)] == [3, 4, 5, ENOSPC]
    guest.call("ida_free", ida, 4)
    assert guest.call_int("ida_alloc_range", ida, 0, 5) == 0
    assert guest.call_int("ida_alloc_range", ida, 3, 5) == 4
    assert guest.call_int("ida_alloc_range", ida, -1, 5) == ENOSPC

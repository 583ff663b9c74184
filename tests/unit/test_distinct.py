"""np.unique's answers without np.unique."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from emulated_kernel.distinct import distinct, first_of_each

VALUES = st.lists(st.integers(0, 5), max_size=20)


@given(VALUES)
def test_distinct_values_ascend(values: list[int]) -> None:
    array = np.array(values, dtype=np.uint64)
    assert distinct(array).tolist() == sorted(set(values))
    assert distinct(array).dtype == array.dtype


@given(VALUES)
def test_each_value_is_found_where_it_stands_first(values: list[int]) -> None:
    array = np.array(values, dtype=np.int64)
    assert first_of_each(array).tolist() == [values.index(value) for value in sorted(set(values))]

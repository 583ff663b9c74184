"""Fixtures of the engine tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.shell import Shell, isolated


@pytest.fixture
def shell() -> Iterator[Shell]:
    """An isolated session with a virtual clock."""
    with isolated() as made:
        yield made

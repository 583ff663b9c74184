"""events/enable of a kernel that has no events."""

from __future__ import annotations

import errno
import os
from typing import cast

import pytest

from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller
from ftracefs.files.events import enable
from ftracefs.trace.trace_array import TraceArray


class Expanding:
    """As much of a trace array as the file touches."""

    expanded = False

    def tracing_update_buffers(self) -> None:
        self.expanded = True


def test_switching_all_events_off_is_taken() -> None:
    tr = Expanding()
    opened = enable(cast(TraceArray, tr)).open(os.O_RDWR, Caller(1))
    assert opened.read(4096, 0, False) == b"0\n"
    assert not tr.expanded
    assert opened.write(b"0\n", 0) == 2
    assert tr.expanded  # as in Linux any number expands the buffer
    assert opened.read(4096, 0, False) == b"0\n"


@pytest.mark.parametrize("data", [b"1", b"2", b"-1", b"abc", b"\n"])
def test_anything_else_is_rejected_with_einval(data: bytes) -> None:
    opened = enable(cast(TraceArray, Expanding())).open(os.O_WRONLY, Caller(1))
    with pytest.raises(TracefsError) as raised:
        opened.write(data, 0)
    assert raised.value.errno == errno.EINVAL

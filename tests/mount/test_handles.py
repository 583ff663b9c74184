"""Which open files are about to be gone, and how long anybody waits. No mount is needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from ftracefs.files.base import OpenFile, TracefsFile
from ftracefs.mount.handles import GRACE, Handle, Handles
from ftracefs.mount.inodes import Inodes


@pytest.fixture
def handles() -> Handles:
    return Handles()


def opened(handles: Handles, path: str = "file") -> Handle:
    handle = Handle(
        handles.reserve(), path, TracefsFile(), Inodes(0, 0).of(path), OpenFile(), writable=True
    )
    handles.enter(handle)
    return handle


def seconds(action: Callable[[], None]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


def settle(handles: Handles) -> float:
    return seconds(lambda: handles.settle(lambda handle: True))


def test_nobody_waits_for_a_file_in_use(handles: Handles) -> None:
    opened(handles)
    assert settle(handles) < GRACE / 2


def test_a_flushed_file_is_waited_for_until_it_is_released(handles: Handles) -> None:
    handle = opened(handles)
    handles.flushed(handle)
    waiter = threading.Thread(target=settle, args=(handles,))
    waiter.start()
    handles.leave(handle.number)
    waiter.join(GRACE * 10)
    assert not waiter.is_alive()
    assert len(handles) == 0


def test_the_wait_ends_when_the_file_is_used_again(handles: Handles) -> None:
    handle = opened(handles)
    handles.flushed(handle)
    with handles.using(handle):
        assert settle(handles) < GRACE / 2
    assert settle(handles) < GRACE / 2


def test_a_file_flushed_during_a_read_is_not_about_to_be_gone(handles: Handles) -> None:
    handle = opened(handles)
    with handles.using(handle):
        handles.flushed(handle)
        assert settle(handles) < GRACE / 2
    # The read is over and another close may have been the last one.
    assert settle(handles) >= GRACE


def test_a_file_that_stayed_is_not_waited_for_as_long_again(handles: Handles) -> None:
    handle = opened(handles)
    handles.flushed(handle)
    assert settle(handles) >= GRACE
    handles.flushed(handle)
    assert settle(handles) < GRACE


def test_only_files_of_concern_are_waited_for(handles: Handles) -> None:
    handles.flushed(opened(handles, "trace_pipe"))
    assert seconds(lambda: handles.settle(lambda handle: handle.path != "trace_pipe")) < GRACE / 2

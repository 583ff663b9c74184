"""Which open files are about to be gone, and how long anybody waits. No mount is needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from support.daemon import TIMEOUT

from ftracefs.files.base import OpenFile, TracefsFile
from ftracefs.mount.handles import GRACE, RELEASE_TIMEOUT, Handle, Handles
from ftracefs.mount.inodes import Inodes


class Worker:
    """Whether a thread of libfuse's has a request that nobody has seen yet."""

    may_come = True

    def __call__(self) -> bool:
        return self.may_come


@pytest.fixture
def worker() -> Worker:
    return Worker()


@pytest.fixture
def handles(worker: Worker) -> Handles:
    return Handles(worker)


def opened(handles: Handles, path: str = "file") -> Handle:
    handle = Handle(
        handles.reserve(), path, TracefsFile(), Inodes(0, 0).of(path), OpenFile(), writable=True
    )
    handles.enter(handle)
    return handle


class Waits:
    """How long `settle` waits, added up in place of the waiting."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._seconds = 0.0
        monkeypatch.setattr(threading.Condition, "wait_for", self._wait_for)
        monkeypatch.setattr(threading.Condition, "wait", self._wait)
        monkeypatch.setattr(time, "monotonic", lambda: self._seconds)

    def _wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        if not condition():
            self._seconds += timeout
        return condition()

    def _wait(self, timeout: float) -> bool:
        self._seconds += timeout
        return False

    def __call__(
        self, handles: Handles, concerns: Callable[[Handle], bool] = lambda handle: True
    ) -> float:
        self._seconds = 0.0
        handles.settle(concerns)
        return self._seconds


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> Waits:
    return Waits(monkeypatch)


def test_nobody_waits_for_a_file_in_use(handles: Handles, waited: Waits) -> None:
    opened(handles)
    assert waited(handles) == 0


def test_a_flushed_file_is_waited_for_until_it_is_released(handles: Handles) -> None:
    handle = opened(handles)
    handles.flushed(handle)
    waiter = threading.Thread(target=handles.settle, args=(lambda handle: True,))
    waiter.start()
    handles.leave(handle.number)
    waiter.join(TIMEOUT)
    assert not waiter.is_alive()
    assert len(handles) == 0


def test_a_release_that_has_come_is_waited_for_longer(handles: Handles, waited: Waits) -> None:
    handle = opened(handles)
    handles.releasing(handle)
    assert waited(handles) == RELEASE_TIMEOUT
    handles.leave(handle.number)
    assert waited(handles) == 0


def test_the_wait_ends_when_the_file_is_used_again(handles: Handles, waited: Waits) -> None:
    handle = opened(handles)
    handles.flushed(handle)
    with handles.using(handle):
        assert waited(handles) == 0
    assert waited(handles) == 0


def test_a_file_flushed_during_a_read_is_not_about_to_be_gone(
    handles: Handles, waited: Waits
) -> None:
    handle = opened(handles)
    with handles.using(handle):
        handles.flushed(handle)
        assert waited(handles) == 0
    # The read is over and another close may have been the last one.
    assert waited(handles) == pytest.approx(GRACE, rel=0.1)


def test_a_release_that_cannot_come_is_not_waited_for(
    handles: Handles, worker: Worker, waited: Waits
) -> None:
    handles.flushed(opened(handles))
    worker.may_come = False
    assert waited(handles) == 0


def test_a_release_may_come_behind_one_that_goes_on(
    handles: Handles, worker: Worker, waited: Waits
) -> None:
    handles.flushed(opened(handles))
    handles.releasing(opened(handles, "trace_pipe"))
    worker.may_come = False
    assert waited(handles, lambda handle: handle.path == "file") == pytest.approx(GRACE, rel=0.1)


def test_only_files_of_concern_are_waited_for(handles: Handles, waited: Waits) -> None:
    handles.flushed(opened(handles, "trace_pipe"))
    assert waited(handles, lambda handle: handle.path != "trace_pipe") == 0

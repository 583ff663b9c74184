"""Python's state of a thread that C made: kept between callbacks, and gone with the thread."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from ftracefs.mount.thread_state import keep_thread_state

THREADS = 20

_libc = ctypes.CDLL(None)
_start_routine = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Local(threading.local):
    name = "none"


def _in_pthread(first: Callable[[], None], at_exit: Any) -> None:
    """Two callbacks on a new thread, Python's hands off it in between; waits for its end."""

    @_start_routine
    def start(_: int | None) -> None:
        # What is registered first is called last.
        _libc.__cxa_thread_atexit_impl(at_exit, None, at_exit)
        first()

    thread = ctypes.c_ulong()
    assert _libc.pthread_create(ctypes.byref(thread), None, start, None) == 0
    assert _libc.pthread_join(thread, None) == 0


def _thread_states() -> int:
    """How many thread states the interpreter has."""
    api = ctypes.pythonapi
    api.PyInterpreterState_Get.restype = ctypes.c_void_p
    for name in ("PyInterpreterState_ThreadHead", "PyThreadState_Next"):
        function = getattr(api, name)
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
    state = api.PyInterpreterState_ThreadHead(api.PyInterpreterState_Get())
    count = 0
    while state is not None:
        count += 1
        state = api.PyThreadState_Next(state)
    return count


def _names_seen(*, keeps: bool) -> list[str]:
    """The name that a thread's second callback finds when the first has set it."""
    local, seen = _Local(), []

    @_destructor
    def look(_: int | None) -> None:
        seen.append(local.name)

    def first() -> None:
        if keeps:
            # The last registered: called while the state is still there.
            keep_thread_state()
            _libc.__cxa_thread_atexit_impl(look, None, look)
        local.name = "set"

    _in_pthread(first, look)
    return seen


def test_what_a_callback_leaves_in_its_thread_is_there_in_the_next_one_when_kept() -> None:
    assert _names_seen(keeps=False) == ["none"]
    assert _names_seen(keeps=True) == ["set", "none"], "kept, and let go of when the thread ended"


def test_no_thread_state_is_left_when_the_threads_have_ended() -> None:
    during = []

    @_destructor
    def count(_: int | None) -> None:
        during.append(_thread_states())

    before = _thread_states()
    for _ in range(THREADS):
        _in_pthread(keep_thread_state, count)
    assert during == [before + 1] * THREADS
    assert _thread_states() == before


def test_a_thread_of_python_s_own_may_ask_for_it_too() -> None:
    before = _thread_states()
    for _ in range(THREADS):
        thread = threading.Thread(target=lambda: (keep_thread_state(), keep_thread_state()))
        thread.start()
        thread.join()
    # The last thread may still be on its way out of C when join returns.
    assert _thread_states() <= before + 1

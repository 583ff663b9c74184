"""Threads that libfuse made keep their Python thread state from one request to the next.

Without, CPython makes one for each callback and destroys it after: a mapping for its frames, page
faults, an unmapping, which is half of what a small request costs. A state that is kept is let go
of on its own thread, when that ends; a C library that has no way to be told of that keeps none.
"""

from __future__ import annotations

import ctypes
import threading

_LOCKED = 0  # PyGILState_LOCKED: who releases goes on having the interpreter

_ensure = ctypes.pythonapi.PyGILState_Ensure
_release = ctypes.pythonapi.PyGILState_Release


class _Own(threading.local):
    """What is known of a thread; it is gone with the thread's state."""

    is_kept = False


_own = _Own()


def _let_go(_: int | None) -> None:
    if _own.is_kept:
        _own.is_kept = False
        _release(_LOCKED)


_LET_GO = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_let_go)
# What C++ destroys its thread_local objects with, before any key of pthreads is cleared.
_at_thread_exit = getattr(ctypes.CDLL(None), "__cxa_thread_atexit_impl", None)
if _at_thread_exit is not None:
    _at_thread_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]


def keep_thread_state() -> None:
    """To be called in each callback on a thread that is not Python's own."""
    if _own.is_kept:
        return
    # Its last argument says whose code it is, by any address in it, and must not be 0.
    if _at_thread_exit is not None and _at_thread_exit(_LET_GO, None, _LET_GO) == 0:
        _ensure()
        _own.is_kept = True

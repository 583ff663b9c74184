"""Who has the machine: one thread at a time, which runs guest code and touches an engine's state.

A thread that comes with work takes the machine, does the work itself and gives the machine back, to
who has waited longest. Handing the work to another thread would cost more than most of it does.
The machine's own thread does what belongs to nobody: timers, long work in slices with others
between them, and all work of the main thread, where a KeyboardInterrupt could end it anywhere.

Who has the machine never waits for another thread, and work given by who has it runs at once.
Where a module says that something happens on the machine thread, who has the machine is meant.

A slice that does not come to an end is ended by the watchdog. That stop is not one to resume from
(a read-modify-write may be half done), so whoever asked for the slice gets GuestTimeout.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, Protocol, TypeVar

from emulated_kernel.errors import EmulatedKernelError, MachineOffError

T = TypeVar("T")
log = logging.getLogger(__name__)

BUDGET_S = 5.0  # a slice of a few milliseconds is normal
_WATCH_S = 0.5
_NOBODY = 0  # no thread's number: that of one that has ended may be another one's
_EARLY = 0.1  # of its period that a timer may come too early, when another one has come


class _Job(Generic[T]):
    """Work handed to the machine thread, and its result."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._done = threading.Lock()
        self._done.acquire()
        self._result: T | None = None
        self._error: BaseException | None = None

    def execute(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error
        self._done.release()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self._done.release()

    def wait(self) -> T:
        with self._done:
            if self._error is not None:
                raise self._error
            return self._result  # type: ignore[return-value]


class _SlicedJob(_Job[T]):
    """Work in slices: a generator whose return value is the result."""

    def __init__(self, slices: Generator[None, None, T]) -> None:
        super().__init__(lambda: None)  # type: ignore[arg-type, return-value]
        self._slices = slices

    def step(self) -> bool:
        """Run one slice; True when there is another."""
        try:
            next(self._slices)
        except StopIteration as stop:
            self._result = stop.value
        except BaseException as error:
            self._error = error
        else:
            return True
        self._done.release()
        return False


class Stoppable(Protocol):
    """A vCPU that another thread can stop, in a state that is not one to go on from."""

    def force_stop(self) -> None: ...


class MachineThread:
    """A thread that does what it is given, one thing after the other. A machine is one."""

    def __init__(self) -> None:
        self.after_slice: list[Callable[[], None]] = []
        self._queue: deque[_Job[Any]] = deque()
        self._timers: list[tuple[float, int, float, Callable[[], None]]] = []
        self._timer_ids = itertools.count()
        self._owner: int | None = None  # the thread that has the machine
        self._waiting: deque[tuple[int, threading.Lock]] = deque()  # those that want it
        self._lock = threading.Lock()  # for all of these
        self._wake = threading.Condition(self._lock)  # for the machine's own thread
        self._main_thread = threading.main_thread().ident
        self._sleeps_until = -math.inf  # of the machine's own thread
        self._closing = False
        self._off = threading.Event()
        self._slice_since = 0.0
        self._running: Stoppable | None = None  # and when it began its slice
        self._timed_out = False
        self._thread = threading.Thread(target=self._main, name="machine", daemon=True)
        self._watchdog = threading.Thread(target=self._watch, name="machine-watchdog", daemon=True)

    def _start_thread(self) -> None:
        """Begin with the work: the machine is made."""
        self._thread.start()
        self._watchdog.start()

    # --- work ------------------------------------------------------------------------------------

    def run(self, work: Callable[[], T]) -> T:
        """Do `work` while nobody else has the machine, and return its result."""
        me = threading.get_ident()
        if self._owner == me:
            return work()
        if me == self._main_thread:
            return self._wait_for(_Job(work))
        self._take()
        try:
            return work()
        finally:
            self._give_back()

    @property
    def is_mine(self) -> bool:
        """Whether this thread has the machine."""
        return self._owner == threading.get_ident()

    def run_sliced(self, slices: Generator[None, None, T]) -> T:
        """Run a generator on the machine's own thread, other work between its steps."""
        if self._owner == threading.get_ident():
            raise EmulatedKernelError("sliced work cannot be waited for by who has the machine")
        return self._wait_for(_SlicedJob(slices))

    def _take(self) -> None:
        """Have the machine: at once, or when everybody has had it who came before.

        MachineOffError when it is switched off meanwhile.
        """
        me = threading.get_ident()
        with self._lock:
            self._check_on(me)
            if self._owner is None:
                self._owner, turn = me, None
            else:
                turn = threading.Lock()
                turn.acquire()
                self._waiting.append((me, turn))
                self._interrupt_background()
        if turn is not None:
            turn.acquire()
        try:
            self._check_on(me)
        except MachineOffError:
            self._hand_over()
            raise

    def _check_on(self, me: int) -> None:
        if self._closing and (me != self._thread.ident or self._owner == _NOBODY):
            raise MachineOffError("the machine is switched off")

    def _give_back(self) -> None:
        try:
            for callback in tuple(self.after_slice):  # which they may change
                callback()
        finally:
            self._hand_over()

    def _hand_over(self) -> None:
        with self._lock:
            self._owner = None
            if self._waiting:
                self._owner, turn = self._waiting.popleft()
                turn.release()
            elif self._sleeps_until > -math.inf and self._background_changed():
                due = self._background_due()
                if due is not None and due < self._sleeps_until:
                    self._wake.notify()

    def set_after_slice(self, callback: Callable[[], None], on: bool) -> None:
        """Have `callback` called when the machine is given back, or no longer."""
        if on != (callback in self.after_slice):
            if on:
                self.after_slice.append(callback)
            else:
                self.after_slice.remove(callback)

    def every(
        self, period_s: float, work: Callable[[], int | None], first_s: float | None = None
    ) -> Callable[[], None]:
        """Do `work` on the machine thread each `period_s` seconds; returns how to end that.

        It begins after `first_s` seconds, or a period. What `work` returns is in how many periods
        it is to be done again.
        """
        ended = False

        def tick() -> None:
            if not ended:
                periods = work() or 1
                self._add_timer(period_s, tick, period_s * periods)

        def end() -> None:
            nonlocal ended
            ended = True

        self._add_timer(period_s, tick, period_s if first_s is None else first_s)
        return end

    def _add_timer(self, period: float, work: Callable[[], None], delay: float) -> None:
        with self._wake:
            entry = (time.monotonic() + delay, next(self._timer_ids), period, work)
            heapq.heappush(self._timers, entry)
            self._wake.notify()

    def _wait_for(self, job: _Job[T]) -> T:
        """Leave it to the machine's own thread."""
        with self._wake:
            if self._closing:
                raise MachineOffError("the machine is switched off")
            self._queue.append(job)
            self._wake.notify()
            self._interrupt_background()
        return job.wait()

    def close(self) -> None:
        """Switch the machine off; work that has not begun fails."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
            self._interrupt_background()
        self._off.set()
        if self._owner != threading.get_ident():
            self._thread.join()

    def _main(self) -> None:
        while self._wait_for_work():
            self._take()
            try:
                self._do_next()
            finally:
                self._give_back()
        self._take()  # for good: whoever has it now comes to an end first
        self._owner = _NOBODY
        error = MachineOffError("the machine is switched off")
        for left in self._queue:
            left.fail(error)

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to do; False when the machine is switched off."""
        with self._wake:
            while not self._closing:
                due, now = self._due(), time.monotonic()
                if self._queue or (due is not None and due <= now):
                    return True
                self._sleeps_until = math.inf if due is None else due
                self._wake.wait(None if due is None else due - now)
                self._sleeps_until = -math.inf
        return False

    def _do_next(self) -> None:
        """The timers that are due, and a piece of work or a slice of one; or else the guest."""
        with self._wake:
            job = self._queue.popleft() if self._queue and not self._closing else None
            timers = self._pop_timers()
            nobody_waits = job is None and not self._waiting and not self._closing
            if nobody_waits:
                self._allow_background()
        for timer in timers:
            self._run_timer(timer)
        if isinstance(job, _SlicedJob):
            if job.step():
                with self._wake:
                    self._queue.append(job)
        elif job is not None:
            job.execute()
        elif nobody_waits:
            self._background()

    def _pop_timers(self) -> list[Callable[[], None]]:
        """Those that are due, and with them those that nearly are, which saves a wake-up."""
        now = time.monotonic()
        timers: list[Callable[[], None]] = []
        while self._timers:
            due, _, period, timer = self._timers[0]
            if due > now + (period * _EARLY if timers else 0):
                break
            heapq.heappop(self._timers)
            timers.append(timer)
        return timers

    def _due(self) -> float | None:
        """When there is something to do that nobody has to ask for, by the monotonic clock."""
        background = self._background_due()
        if not self._timers:
            return background
        timer = self._timers[0][0]
        return timer if background is None else min(timer, background)

    # A machine whose guest runs all the time, and not when somebody asks for it, says so here.

    def _background_due(self) -> float | None:
        """When the guest is to run on: 0 at once, None not before something else happens."""
        return None

    def _background_changed(self) -> bool:
        """Whether the guest may be due earlier than when this was last asked."""
        return True

    def _background(self) -> None:
        """Let the guest run until `_interrupt_background`, or for a slice."""

    def _interrupt_background(self) -> None:
        """Somebody has work: from any thread, with the lock held."""

    def _allow_background(self) -> None:
        """Nobody has work: with the lock held."""

    def _on_watch(self) -> None:
        """Now and then, on a thread of its own."""

    def _run_timer(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            log.exception("a timer of the machine failed")

    def _watch(self) -> None:
        while not self._off.wait(_WATCH_S):
            self._on_watch()
            cpu = self._running
            if cpu is not None and time.monotonic() - self._slice_since > BUDGET_S:
                self._timed_out = True
                cpu.force_stop()

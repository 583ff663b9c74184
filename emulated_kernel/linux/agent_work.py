"""A process of the agent's, and its work: generators of steps, each given the last's result."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")

DEVICE_OPEN, DEVICE_READ, DEVICE_WRITE, DEVICE_POLL, DEVICE_FLUSH, DEVICE_RELEASE = range(6)
SLEEP = "sleep"  # what an operation of the device answers that has to wait


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A system call, by its number. Its result is what it returns."""

    number: int
    arguments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """Calls of a kernel function, in process context. The result is the last one's rax."""

    address: int
    arguments: tuple[int, ...] = ()
    count: int = 1


@dataclass(frozen=True, slots=True)
class Poke:
    """Words for the process's own memory, at `Agents.words`. Its result means nothing."""

    words: tuple[int, ...]


Step = SystemCall | Call | Poke
Program = Generator[Step, int, T]


class Work(Generic[T]):
    """A program for a process, and what came of it.

    `file_op` is the operation of the device in which `perform` is called, outside of any hook; what
    it returns is the operation's answer. With SLEEP the process sleeps there until `go_on`.
    """

    def __init__(
        self,
        program: Program[T],
        file_op: int | None = None,
        perform: Callable[[], int | str] = lambda: 0,
    ) -> None:
        self._program = program
        self.file_op = file_op
        self.perform = perform
        self.answer: int | str | None = None  # given already, and not taken yet
        self.has_begun = False
        self.sleeps = False
        self._is_done = False
        self._settled = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None

    def step(self, result: int | None) -> Step | None:
        """The next one, given what the last one's result was; None at the end."""
        self.has_begun = True
        try:
            return next(self._program) if result is None else self._program.send(result)
        except StopIteration as stop:
            self._result = stop.value
        except BaseException as error:
            self._error = error
        self._end()
        return None

    def _end(self) -> None:
        self._is_done = True
        self._settled.set()

    def fall_asleep(self) -> None:
        """Its process sleeps in the operation."""
        self.sleeps = True
        self._settled.set()

    def go_on(self, perform: Callable[[], int | str]) -> None:
        """The operation is asked for again, and this is to be done there."""
        self.perform = perform
        self._settled.clear()
        self.sleeps = False

    def fail(self, error: BaseException) -> None:
        """It will not come to its end."""
        if not self.is_done:
            self._error = error
            self._end()

    @property
    def is_done(self) -> bool:
        return self._is_done

    @property
    def is_settled(self) -> bool:
        """Whether it is done, or sleeps."""
        return self._settled.is_set()

    def wait(self, timeout: float) -> bool:
        return self._settled.wait(timeout)

    def result(self) -> T:
        assert self.is_done
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


@dataclass(slots=True, eq=False)
class AgentProcess:
    """A process of the guest, `task` being its task_struct, known by its stack canary.

    `frame` is where its registers are in the kernel, `is_given_up` that it ends when its call does,
    `has_words` that the page in which Poke puts its words is its own.
    """

    pid: int
    task: int
    canary: int
    rsp: int
    work: deque[Work[Any]] = field(default_factory=deque)
    is_in_step: bool = False
    is_calling: bool = False
    is_given_up: bool = False
    has_words: bool = False
    frame: int = 0
    preempt_count: int = 0

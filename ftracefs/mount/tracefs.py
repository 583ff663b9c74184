"""What a mount is asked for, and what it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ftracefs.files.base import Directory
from ftracefs.mount.callers import Callers


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `ftracefs mount` that decide what stands behind the files."""

    kernel: Path | None = None  # None is the built-in kernel
    modules: tuple[Path, ...] = ()  # object files, beside the kernel's own modules
    cpus: int = 2
    clock: Literal["real", "virtual"] = "real"
    isolated: bool = False
    pure: bool = False
    at_terminal: bool = False  # somebody waits there, and may be shown what lasts


@dataclass(frozen=True, slots=True)
class Tracefs:
    """A tree of files and who runs their operations; `close` ends what is behind them.

    `reset` puts every file back to its first value. `kallsyms` is the text of the kernel's symbols,
    as /proc/kallsyms has it.
    """

    root: Directory
    callers: Callers
    close: Callable[[], None]
    reset: Callable[[], None] | None = None
    kallsyms: Callable[[], str] = str


Build = Callable[[Options], Tracefs]

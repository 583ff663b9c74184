"""A measured figure, and a table of them: how far each is from what it is to reach."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table.

    `value` is the median of several runs and `best` the best of them, in `unit`; `reach` is what it
    is to come to, at most, or at least where more is better. `peer` is the same of a real Linux 6.1
    under QEMU's TCG.
    """

    name: str
    value: float
    unit: str
    best: float | None = None
    reach: float | None = None
    more_is_better: bool = False
    peer: float | None = None

    @property
    def is_reached(self) -> bool | None:
        """Whether the median is where it is to be; None when nothing is said."""
        if self.reach is None:
            return None
        return self.value >= self.reach if self.more_is_better else self.value <= self.reach

    @property
    def to_limit(self) -> float | None:
        """The median over what is to be reached: below 1 is better, whichever way it counts."""
        if self.reach is None or not self.value or not self.reach:
            return None
        ratio = self.value / self.reach
        return 1 / ratio if self.more_is_better else ratio

    @property
    def to_peer(self) -> float | None:
        """How many times better than the peer."""
        if self.peer is None or not self.value or not self.peer:
            return None
        return self.value / self.peer if self.more_is_better else self.peer / self.value


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def of_runs(name: str, runs: list[float], unit: str, **more: object) -> Figure:
    """A figure from the values of several runs."""
    better = max if more.get("more_is_better") else min
    return Figure(name, median(runs), unit, better(runs), **more)  # type: ignore[arg-type]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 10 else f"{value:.1f}"


def table(figures: Iterable[Figure]) -> str:
    """All of them, a line each."""
    rows = [("figure", "median", "best", "unit", "reach", "of limit", "QEMU", "times better")]
    for figure in figures:
        sign = "≥ " if figure.more_is_better else "≤ "
        mark = {True: "", False: " MISSED", None: ""}[figure.is_reached]
        rows.append(
            (
                figure.name,
                _number(figure.value),
                _number(figure.best),
                figure.unit,
                "" if figure.reach is None else sign + _number(figure.reach),
                _number(figure.to_limit) + mark,
                _number(figure.peer),
                _number(figure.to_peer),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    left = {0, 3}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def write_json(path: Path, figures: Iterable[Figure], loads: Mapping[str, float]) -> None:
    """The same for programs, with the machine and its load before each group."""
    host = {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cpu": _cpu(),
        "load": dict(loads),
    }
    rows = [asdict(figure) for figure in figures]
    path.write_text(json.dumps({"host": host, "figures": rows}, indent=1) + "\n")


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor()

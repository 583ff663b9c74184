"""The clock of the board: an MC146818 that shows the host's date, in BCD. Nothing can be set."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

_INDEX, _DATA = 0x70, 0x71
_REGISTER_A, _REGISTER_B, _REGISTER_D = 0x0A, 0x0B, 0x0D
_DIVIDER, _24_HOURS, _VALID = 0x26, 0x02, 0x80


def _bcd(value: int) -> int:
    return value // 10 << 4 | value % 10


class Cmos:
    """`now` gives the date as seconds since 1970."""

    ports = (_INDEX, _DATA)

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._index = 0

    def read(self, port: int) -> int:
        if port == _INDEX:
            return self._index
        date = time.gmtime(self._now())
        values = {
            0: _bcd(date.tm_sec),
            2: _bcd(date.tm_min),
            4: _bcd(date.tm_hour),
            6: (date.tm_wday + 1) % 7 + 1,
            7: _bcd(date.tm_mday),
            8: _bcd(date.tm_mon),
            9: _bcd(date.tm_year % 100),
            _REGISTER_A: _DIVIDER,
            _REGISTER_B: _24_HOURS,
            _REGISTER_D: _VALID,
        }
        return values.get(self._index & 0x7F, 0)

    def write(self, port: int, value: int) -> None:
        if port == _INDEX:
            self._index = value

    def save(self) -> dict[str, Any]:
        """What `restore` takes."""
        return {"index": self._index}

    def restore(self, saved: dict[str, Any]) -> None:
        self._index = saved["index"]

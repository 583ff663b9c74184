"""The timer: an 8254 with its three channels, and port 0x61, which gates the third.

Channel 0 is line 0. Left out: BCD, read-back, what the other modes do between two readings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

HZ = 1193182
_CONTROL, _GATE = 0x43, 0x61
_LOW, _HIGH = 1, 2
_PERIODIC = (2, 3)
_REFRESH_HZ = 66000  # how fast the refresh bit of port 0x61 toggles


@dataclass(slots=True)
class _Channel:
    mode: int = 0
    access: int = _LOW | _HIGH
    reload: int = 0x10000
    started: float = 0.0
    low: int | None = None  # the first byte of a value that comes in two
    latch: int | None = None
    reads_high: bool = False

    def count(self, now: float) -> int:
        ticks = int((now - self.started) * HZ)
        if self.mode in _PERIODIC:
            return (self.reload - ticks % self.reload) & 0xFFFF
        return (self.reload - ticks) & 0xFFFF

    def control(self, value: int, now: float) -> None:
        access = value >> 4 & 3
        if access == 0:
            self.latch, self.reads_high = self.count(now), False
            return
        mode = value >> 1 & 7
        self.access, self.mode = access, mode if mode < 6 else mode & 3
        self.low = self.latch = None
        self.reads_high = False

    def read(self, now: float) -> int:
        count = self.count(now) if self.latch is None else self.latch
        if self.access == _LOW | _HIGH and not self.reads_high:
            self.latch, self.reads_high = count, True
            return count & 0xFF
        self.latch, self.reads_high = None, False
        return count & 0xFF if self.access == _LOW else count >> 8

    def write(self, value: int, now: float) -> bool:
        """Take a byte; True when it was the last one of a value, and counting begins."""
        if self.access == _LOW | _HIGH:
            if self.low is None:
                self.low = value
                return False
            value, self.low = self.low | value << 8, None
        elif self.access == _HIGH:
            value <<= 8
        self.reload, self.started = value or 0x10000, now
        return True


class Pit:
    """`now` gives seconds; `changed` is called when `deadline` has."""

    ports = (0x40, 0x41, 0x42, _CONTROL, _GATE)

    def __init__(self, now: Callable[[], float], changed: Callable[[], None]) -> None:
        self._now, self._changed = now, changed
        self._channels = [_Channel() for _ in range(3)]
        self._gate = 0
        self.deadline: float | None = None  # when channel 0 is to raise its line

    def read(self, port: int) -> int:
        if port == _GATE:
            speaker = self._channels[2]
            elapsed = self._now() - speaker.started
            is_over = elapsed * HZ >= speaker.reload
            refresh = int(elapsed * _REFRESH_HZ) & 1
            return self._gate & 0x0F | 0x20 * is_over | 0x10 * refresh
        return 0xFF if port == _CONTROL else self._channels[port & 3].read(self._now())

    def write(self, port: int, value: int) -> None:
        if port == _GATE:
            if value & 1 and not self._gate & 1:
                self._channels[2].started = self._now()
            self._gate = value
        elif port == _CONTROL:
            if value >> 6 < 3:
                self._channels[value >> 6].control(value, self._now())
                if value >> 6 == 0 and value & 0x30:
                    self._set_deadline(None)
        else:
            channel = self._channels[port & 3]
            if channel.write(value, self._now()) and port & 3 == 0:
                self._set_deadline(channel.started + channel.reload / HZ)

    def _set_deadline(self, deadline: float | None) -> None:
        self.deadline = deadline
        self._changed()

    def stop(self) -> None:
        """There is nobody to interrupt any more."""
        self._set_deadline(None)

    def expire(self) -> bool:
        """Whether channel 0 is due; then its next deadline is set."""
        now = self._now()
        if self.deadline is None or now < self.deadline:
            return False
        channel = self._channels[0]
        if channel.mode in _PERIODIC:
            period = channel.reload / HZ
            self._set_deadline(max(self.deadline + period, now))
        else:
            self._set_deadline(None)
        return True

    def save(self) -> dict[str, Any]:
        """What `restore` takes; times are told from now on."""
        now = self._now()
        channels = [asdict(channel) for channel in self._channels]
        for channel in channels:
            channel["started"] -= now
        left = None if self.deadline is None else self.deadline - now
        return {"channels": channels, "gate": self._gate, "left": left}

    def restore(self, saved: dict[str, Any]) -> None:
        now = self._now()
        self._channels = [_Channel(**channel) for channel in saved["channels"]]
        for channel in self._channels:
            channel.started += now
        self._gate = saved["gate"]
        left = saved["left"]
        self._set_deadline(None if left is None else now + left)

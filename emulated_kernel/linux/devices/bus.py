"""The I/O ports: which device answers where. Nobody there reads as all ones, PCI's slots too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Device(Protocol):
    """What sits behind some ports; it is told the port's own number."""

    @property
    def ports(self) -> Iterable[int]: ...
    def read(self, port: int) -> int: ...
    def write(self, port: int, value: int) -> None: ...


class Bus:
    """All ports. A device sees single bytes."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self._at = {port: device for device in devices for port in device.ports}

    def read(self, port: int, size: int) -> int:
        device = self._at.get(port)
        if device is None:
            return (1 << 8 * size) - 1
        value = device.read(port) & 0xFF
        for index in range(1, size):
            value |= self.read(port + index, 1) << 8 * index
        return value

    def write(self, port: int, size: int, value: int) -> None:
        for index in range(size):
            device = self._at.get(port + index)
            if device is not None:
                device.write(port + index, value >> 8 * index & 0xFF)

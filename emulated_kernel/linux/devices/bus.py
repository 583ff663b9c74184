"""The I/O ports: which device answers where. Nobody there reads as all ones, PCI's slots too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable


class Device(Protocol):
    """What sits behind some ports; it is told the port's own number."""

    @property
    def ports(self) -> Iterable[int]: ...
    def read(self, port: int) -> int: ...
    def write(self, port: int, value: int) -> None: ...


@runtime_checkable
class Sender(Device, Protocol):
    """A device that sends what is written to `data_port`.

    While `only_sends`, nothing else comes of more bytes there, which `send_out` may be given
    together.
    """

    data_port: int

    @property
    def only_sends(self) -> bool: ...
    def send_out(self, data: bytes) -> None: ...


class Bus:
    """All ports. A device sees single bytes."""

    def __init__(self, devices: Iterable[Device]) -> None:
        devices = list(devices)
        self._at = {port: device for device in devices for port in device.ports}
        self._senders = {d.data_port: d for d in devices if isinstance(d, Sender)}

    def only_sends(self, port: int) -> bool:
        """Whether more bytes to `port` may be given to `send` together."""
        sender = self._senders.get(port)
        return sender is not None and sender.only_sends

    def send(self, port: int, data: bytes) -> None:
        """Bytes that have been written to `port` while it `only_sends`."""
        self._senders[port].send_out(data)

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

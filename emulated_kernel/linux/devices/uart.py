"""A serial line: a 16550A. What the guest sends goes out at once; what it is sent waits here.

Left out: baud rates, line errors, break, the receive timeout (an interrupt comes for each byte).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_RECEIVE, _TRANSMIT = 1, 2  # bits of the interrupt enable register
_DLAB, _LOOP = 0x80, 0x10
_NOTHING, _SENDER_EMPTY, _DATA_READY = 1, 2, 4  # of the interrupt identification register
_FIFO_ON = 0xC0
_SENDER_IDLE, _READY = 0x60, 0x01  # of the line status register
_MODEM_LINES = 0xB0  # carrier, data set ready, clear to send


class Uart:
    """The line at `base`. `output` gets the bytes sent, `interrupt` raises the line."""

    def __init__(
        self, base: int, output: Callable[[bytes], None], interrupt: Callable[[], None]
    ) -> None:
        self.ports = range(base, base + 8)
        self.data_port = base
        self._base, self._output, self._interrupt = base, output, interrupt
        self._ier = self._lcr = self._mcr = self._scratch = self._fcr = 0
        self._divisor = [1, 0]
        self._sender_empty = False  # told by an interrupt that nobody has asked about yet
        self._waiting = bytearray()

    def send(self, data: bytes) -> None:
        """Bytes for the guest."""
        self._waiting += data
        self._tell()

    @property
    def only_sends(self) -> bool:
        """Whether more bytes just go out: that the sender is empty has been told already."""
        return self._sender_empty and not self._lcr & _DLAB and not self._mcr & _LOOP

    def send_out(self, data: bytes) -> None:
        """Bytes of the guest's, when they just go out."""
        self._output(data)

    @property
    def waiting(self) -> int:
        """Bytes that the guest has not read yet."""
        return len(self._waiting)

    def _tell(self) -> None:
        if (self._ier & _RECEIVE and self._waiting) or (
            self._ier & _TRANSMIT and self._sender_empty
        ):
            self._interrupt()

    def read(self, port: int) -> int:
        register = port - self._base
        has_divisor = bool(self._lcr & _DLAB)
        match register:
            case 0 | 1 if has_divisor:
                return self._divisor[register]
            case 0:
                byte = self._waiting.pop(0) if self._waiting else 0
                self._tell()
                return byte
            case 1:
                return self._ier
            case 2:
                return self._identification() | (_FIFO_ON if self._fcr & 1 else 0)
            case 3:
                return self._lcr
            case 4:
                return self._mcr
            case 5:
                return _SENDER_IDLE | (_READY if self._waiting else 0)
            case 6:
                return self._modem_status()
        return self._scratch

    def _identification(self) -> int:
        if self._ier & _RECEIVE and self._waiting:
            return _DATA_READY
        if self._ier & _TRANSMIT and self._sender_empty:
            self._sender_empty = False
            return _SENDER_EMPTY
        return _NOTHING

    def _modem_status(self) -> int:
        mcr = self._mcr
        if not mcr & _LOOP:
            return _MODEM_LINES
        return (mcr & 2) << 3 | (mcr & 1) << 5 | (mcr & 4) << 4 | (mcr & 8) << 4

    def write(self, port: int, value: int) -> None:
        register = port - self._base
        has_divisor = bool(self._lcr & _DLAB)
        match register:
            case 0 | 1 if has_divisor:
                self._divisor[register] = value
            case 0:
                if not self._mcr & _LOOP:
                    self._output(bytes((value,)))
                self._sender_empty = True
                self._tell()
            case 1:
                if value & _TRANSMIT and not self._ier & _TRANSMIT:
                    self._sender_empty = True
                self._ier = value & 0x0F
                self._tell()
            case 2:
                self._fcr = value
                if value & 2:
                    self._waiting.clear()
            case 3:
                self._lcr = value
            case 4:
                self._mcr = value
            case 7:
                self._scratch = value

    def save(self) -> dict[str, Any]:
        """What `restore` takes."""
        return {
            "registers": [self._ier, self._lcr, self._mcr, self._scratch, self._fcr],
            "divisor": self._divisor,
            "sender_empty": self._sender_empty,
            "waiting": self._waiting.decode("latin-1"),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        self._ier, self._lcr, self._mcr, self._scratch, self._fcr = saved["registers"]
        self._divisor = saved["divisor"]
        self._sender_empty = saved["sender_empty"]
        self._waiting = bytearray(saved["waiting"].encode("latin-1"))

"""The keyboard controller, of which there is only the line that resets the machine."""

from __future__ import annotations

from emulated_kernel.errors import EmulatedKernelError

_COMMAND = 0x64
_PULSE_RESET, _PULSES = 0xF0, 0x01


class MachineReset(EmulatedKernelError):
    """The guest wants to be started anew."""


class Keyboard:
    """Nobody at the data port; a pulse on the reset line raises MachineReset."""

    ports = (_COMMAND,)

    def read(self, port: int) -> int:
        return 0xFF

    def write(self, port: int, value: int) -> None:
        if value & _PULSE_RESET == _PULSE_RESET and not value & _PULSES:
            raise MachineReset("the guest has reset its machine")

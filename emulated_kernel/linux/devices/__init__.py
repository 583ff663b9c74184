"""The devices of a PC, as far as a kernel wants them that has no I/O APIC and no PCI."""

from __future__ import annotations

from emulated_kernel.linux.devices.bus import Bus, Device
from emulated_kernel.linux.devices.cmos import Cmos
from emulated_kernel.linux.devices.keyboard import Keyboard, MachineReset
from emulated_kernel.linux.devices.pic import Pic
from emulated_kernel.linux.devices.pit import Pit
from emulated_kernel.linux.devices.uart import Uart

__all__ = ["Bus", "Cmos", "Device", "Keyboard", "MachineReset", "Pic", "Pit", "Uart"]

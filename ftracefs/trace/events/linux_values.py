"""What the texts of a booted Linux's events say of that kernel: its enums, strings and variables.

All of it is data that Linux keeps where it is, so it is read on whatever thread makes a text.
"""

from __future__ import annotations

from contextlib import suppress

from emulated_kernel.errors import EmulatedKernelError, ImageError
from emulated_kernel.linux.vmlinux import Vmlinux
from emulated_kernel.machine.memory import Memory
from ftracefs.trace.events.print_helpers import hashed_pointer, is_shown, raw_pointer

_NSEC_PER_SEC = 1_000_000_000
_STRING_MAX = 256
_POINTERS_KEPT = 1 << 16
_VARIABLES = ("jiffies", "vmemmap_base")


class LinuxValues:
    """For one booted kernel."""

    def __init__(self, memory: Memory, vmlinux: Vmlinux) -> None:
        self._memory = memory
        self._vmlinux = vmlinux
        self._hashed: dict[int, bytes] = {}
        start, end = (vmlinux.symbols.get(name) for name in ("_stext", "_end"))
        self._own = range(start or 0, end or 0)

    def enumerator(self, name: str) -> int | None:
        with suppress(ImageError):
            return self._vmlinux.btf.enumerator(name)
        return None

    def size(self, name: str) -> int | None:
        with suppress(ImageError):
            return self._vmlinux.btf.size(name)
        return None

    def has_variable(self, name: str) -> bool:
        return name in _VARIABLES and name in self._vmlinux.symbols

    def variable(self, name: str) -> int:
        if name == "HZ":
            return _NSEC_PER_SEC // max(self._read("tick_nsec"), 1)
        return self._read(name)

    def _read(self, name: str) -> int:
        address = self._vmlinux.symbols.get(name)
        return 0 if address is None else self._memory.u64(address)

    def string(self, address: int) -> bytes | None:
        """A string in the kernel's own image (trace_safe_str)."""
        if address not in self._own:
            return None
        with suppress(EmulatedKernelError):
            return self._memory.cstring(address, min(_STRING_MAX, self._own.stop - address))
        return None

    @property
    def has_pointers(self) -> bool:
        return self._pointer_key != (0, 0)

    @property
    def _pointer_key(self) -> tuple[int, int]:
        """The kernel's secret (ptr_key), which it has once it has random numbers."""
        at = self._vmlinux.symbols.get("ptr_key")
        return (0, 0) if at is None else (self._memory.u64(at), self._memory.u64(at + 8))

    def hashed(self, address: int) -> bytes:
        found = self._hashed.get(address)
        if found is None:
            if not self.has_pointers:
                return raw_pointer(address) if is_shown(address) else b"(____ptrval____)"
            found = hashed_pointer(address, self._pointer_key)
            if len(self._hashed) >= _POINTERS_KEPT:
                self._hashed.clear()
            self._hashed[address] = found
        return found

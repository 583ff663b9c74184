"""What can go wrong inside the emulated machine."""

from __future__ import annotations


class EmulatedKernelError(Exception):
    """Base of all errors of this package."""


class ImageError(EmulatedKernelError):
    """A kernel image that cannot be assembled, loaded or booted.

    It is one line whatever a file's name or a kernel's own text has in it.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class GuestFault(EmulatedKernelError):
    """Guest code raised an exception that its kernel has no answer for (an oops).

    `vector` is the x86 exception number, `rip` the address of the instruction, `address` the
    faulting linear address of a page fault (else 0).
    """

    def __init__(self, message: str, *, vector: int, rip: int, address: int = 0) -> None:
        super().__init__(message)
        self.vector = vector
        self.rip = rip
        self.address = address


class GuestTimeout(EmulatedKernelError):
    """A guest function did not return within its budget."""


class CallInterrupted(EmulatedKernelError):
    """Whoever wanted a guest function called wants it no more."""


class AssemblerError(ImageError):
    """Sources that cannot be assembled: `file:line: what: the line`, one line for each."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class MachineOffError(EmulatedKernelError):
    """The machine has been switched off: what was asked of it will not be done."""


class ModuleError(EmulatedKernelError):
    """A module that cannot be loaded or unloaded; `errno` says why."""

    def __init__(self, errno: int, message: str) -> None:
        super().__init__(message)
        self.errno = errno


class GuestDeadError(EmulatedKernelError):
    """The guest runs no more."""

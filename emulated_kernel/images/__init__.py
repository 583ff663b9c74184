"""The kernels that can be run, each as a KernelImage.

To tell what is a Linux loads nothing: numpy starts threads, with which nobody enters a namespace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from emulated_kernel.errors import ImageError

if TYPE_CHECKING:
    from emulated_kernel.image import KernelImage

HOST_KERNEL = Path("linux")
"""What stands for the running host's kernel, else Debian's."""


_ELF_ENTRY_LIMIT = 1 << 32  # of a Linux it is a physical address


def is_linux(path: Path) -> bool:
    """Whether what is to be run is a Linux: the name for one, a vmlinuz, or its ELF file."""
    if path == HOST_KERNEL:
        return True
    try:
        with path.open("rb") as file:
            head = file.read(0x206)
    except OSError:
        return False
    if head[:4] == b"\x7fELF":
        return len(head) > 32 and 0 < int.from_bytes(head[24:32], "little") < _ELF_ENTRY_LIMIT
    return head[0x202:0x206] == b"HdrS"


def load_image(path: Path | None, modules: Sequence[Path] = ()) -> KernelImage:
    """The kernel in a file, or the built-in one, and beside its own modules those in other files.

    Raises ImageError, with the reason in one line.
    """
    image = _load_kernel(path)
    if modules:
        from emulated_kernel.images.elf_object import load_objects

        image = replace(image, modules=[*image.modules, *load_objects(image, modules)])
    return image


def _load_kernel(path: Path | None) -> KernelImage:
    if path is None:
        from emulated_kernel.images.builtin import load_builtin

        return load_builtin()
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror}") from error
    if magic != b"\x7fELF":
        raise ImageError(f"{path}: neither a vmlinuz for x86-64 nor an ELF file")
    from emulated_kernel.images.elf import load_elf

    return load_elf(path)

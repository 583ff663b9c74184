"""The kernels that can be run, each as a KernelImage."""

from __future__ import annotations

from pathlib import Path

from emulated_kernel.errors import ImageError
from emulated_kernel.image import KernelImage


def load_image(path: Path | None) -> KernelImage:
    """The kernel in a file, or the built-in one. Raises ImageError, with the reason in one line."""
    if path is None:
        from emulated_kernel.images.builtin import load_builtin

        return load_builtin()
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror}") from error
    if magic != b"\x7fELF":
        raise ImageError(f"{path}: not an ELF file")
    from emulated_kernel.images.elf import load_elf

    return load_elf(path)

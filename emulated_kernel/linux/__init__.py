"""A real Linux as the emulated kernel: a distribution's vmlinuz, x86-64, 5.10 and later.

    vmlinux = load_vmlinuz(Path("/boot/vmlinuz-6.1.0-57-cloud-amd64"))
    vmlinux.release                         "6.1.0-57-cloud-amd64"; `banner` is all of /proc/version
    vmlinux.segments, vmlinux.entry         what to load where, and where to begin: physical
    vmlinux.symbols.address("vfs_read")     of per-CPU variables the offset in each CPU's area
    vmlinux.mcount                          the call sites; `mcount_after_boot` without freed ones
    vmlinux.text, .init_text, .init         ranges of virtual addresses; `init` is freed after boot
    vmlinux.read(address, size)             bytes of the file by virtual address

What comes from a file is not trusted: whatever is wrong with one is an ImageError of one line.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from emulated_kernel.errors import ImageError
from emulated_kernel.linux.bzimage import extract_vmlinux
from emulated_kernel.linux.elf_file import parse_elf
from emulated_kernel.linux.kallsyms_tables import read_kallsyms
from emulated_kernel.linux.vmlinux import Vmlinux

__all__ = ["Vmlinux", "load_vmlinuz"]


def load_vmlinuz(path: Path) -> Vmlinux:
    """The kernel in a vmlinuz or vmlinux. Raises ImageError, with the reason in one line."""
    try:
        data = path.read_bytes()
        elf = parse_elf(extract_vmlinux(data))
        vmlinux = Vmlinux(path.name, hashlib.sha256(data).hexdigest(), elf, read_kallsyms(elf))
        vmlinux.release, vmlinux.mcount  # noqa: B018 - they raise
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror}") from error
    except ImageError as error:
        raise ImageError(f"{path}: {error}") from error
    return vmlinux

"""A real Linux as the emulated kernel: a distribution's vmlinuz, x86-64, 5.10 and later.

    vmlinux = load_vmlinuz(Path("/boot/vmlinuz-6.1.0-57-cloud-amd64"))
    vmlinux.release                         "6.1.0-57-cloud-amd64"; `banner` is all of /proc/version
    vmlinux.segments, vmlinux.entry         what to load where, and where to begin: physical
    vmlinux.symbols.address("vfs_read")     of per-CPU variables the offset in each CPU's area
    vmlinux.mcount                          the call sites; `mcount_after_boot` without freed ones
    vmlinux.text, .init_text, .init         ranges of virtual addresses; `init` is freed after boot
    vmlinux.btf.offset("task_struct", "pid")  where members lie; `size`, `enum`, `has`, `member`
    vmlinux.read(address, size)             bytes of the file by virtual address

What comes from a file is not trusted: whatever is wrong with one is an ImageError of one line.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from emulated_kernel.cache_files import default_directory
from emulated_kernel.errors import ImageError
from emulated_kernel.linux import parsed_cache
from emulated_kernel.linux.btf import Btf
from emulated_kernel.linux.bzimage import extract_vmlinux
from emulated_kernel.linux.elf_file import parse_elf
from emulated_kernel.linux.kallsyms_tables import read_kallsyms
from emulated_kernel.linux.vmlinux import Vmlinux, btf_data

__all__ = ["Vmlinux", "cache_directory", "load_vmlinuz"]


def cache_directory() -> Path | None:
    """Where kernels are kept; None where there is no home."""
    directory = default_directory()
    return None if directory is None else directory / "linux"


def load_vmlinuz(path: Path) -> Vmlinux:
    """The kernel in a vmlinuz or vmlinux. Raises ImageError, with the reason in one line."""
    try:
        return _load(path.name, path.read_bytes(), cache_directory())
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror}") from error
    except ImageError as error:
        raise ImageError(f"{path}: {error}") from error


def _load(name: str, data: bytes, directory: Path | None) -> Vmlinux:
    digest = hashlib.sha256(data).hexdigest()
    if directory is not None and (kept := parsed_cache.read(directory, digest)):
        return Vmlinux(name, digest, *kept)
    elf = parse_elf(extract_vmlinux(data))
    symbols = read_kallsyms(elf)
    vmlinux = Vmlinux(name, digest, elf, symbols, Btf(btf_data(elf, symbols)))
    vmlinux.check()
    if directory is not None:
        parsed_cache.write(directory, digest, elf, symbols, vmlinux.btf)
    return vmlinux

"""Kernels that were unpacked and read once, on disk by the SHA-256 of the file they came in.

Two files each: the vmlinux, mapped and not read, and what took time to find in it.
"""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from emulated_kernel.cache_files import keep_file, touch
from emulated_kernel.errors import ImageError
from emulated_kernel.linux.btf import Btf
from emulated_kernel.linux.elf_file import ElfFile, parse_elf
from emulated_kernel.linux.symbols import KernelSymbols
from emulated_kernel.linux.vmlinux import btf_data

KEPT, MOST_BYTES = 4, 192 << 20
_FORMAT = 1  # counts up when what is written down changes
_PAGE = 4096


def _files(directory: Path, digest: str) -> tuple[Path, Path]:
    name = f"{digest}-{_FORMAT}"
    return directory / f"{name}.vmlinux", directory / f"{name}.npz"


def read(directory: Path, digest: str) -> tuple[ElfFile, KernelSymbols, Btf] | None:
    """What `write` was given, or None."""
    image, found = _files(directory, digest)
    try:
        with image.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        elf = parse_elf(data)
        with found.open("rb") as file, np.load(file) as arrays:
            if len(data) != int(arrays["size"]):
                return None
            symbols = KernelSymbols(
                arrays["addresses"], arrays["kinds"].tobytes(), arrays["text"].tobytes()
            )
            btf = Btf(btf_data(elf, symbols), arrays["btf"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, ImageError):
        return None
    touch(image)
    touch(found)
    return elf, symbols, btf


def write(directory: Path, digest: str, elf: ElfFile, symbols: KernelSymbols, btf: Btf) -> None:
    """Keep a kernel, and not too many others."""
    image, found = _files(directory, digest)
    arrays: dict[str, Any] = {
        "size": np.int64(len(elf.data)),
        "addresses": symbols.addresses,
        "kinds": np.frombuffer(symbols.kinds, dtype=np.uint8),
        "text": np.frombuffer(symbols.text, dtype=np.uint8),
        "btf": btf.starts,
    }
    size = sum(array.nbytes for array in arrays.values())
    try:
        _keep(image, lambda stream: _write_sparse(stream, elf.data), len(elf.data))
        _keep(found, lambda stream: np.savez(stream, **arrays), size)
    except OSError:
        pass


def _keep(file: Path, write: Callable[[BinaryIO], object], size: int) -> None:
    keep_file(file, write, size, f"*{file.suffix}", KEPT, MOST_BYTES)


def _write_sparse(stream: BinaryIO, data: memoryview) -> None:
    """Pages of zeros, a quarter of a kernel's image, take no room."""
    whole = len(data) // _PAGE * _PAGE
    pages = np.frombuffer(data[:whole], dtype=np.uint64).reshape(-1, _PAGE // 8)
    written = np.concatenate([[False], pages.any(axis=1), [False]])
    edges = np.flatnonzero(np.diff(written.astype(np.int8))).reshape(-1, 2)
    for start, end in (edges * _PAGE).tolist():
        stream.seek(start)
        stream.write(data[start:end])
    stream.seek(whole)
    stream.write(data[whole:])
    stream.truncate(len(data))

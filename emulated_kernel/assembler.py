"""Assembles the kernel's .S sources: text in, bytes at addresses and symbols out.

Keystone encodes single instructions that hold no symbol and no decimal number, because that is what
it does without fault; labels, constants, macros, sections and jumps are ours (`asm_source`,
`asm_instruction`, `asm_link`). The result is what GNU `as` and `ld` make of the same sources, byte
for byte. There is no relocatable output: the sources of an image are assembled together, at their
final addresses.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from emulated_kernel import asm_cache
from emulated_kernel.assembly import Assembly, Symbol
from emulated_kernel.cache_files import default_directory
from emulated_kernel.errors import AssemblerError

__all__ = ["AssemblerError", "Assembly", "Symbol", "assemble", "load"]


class _Encoder:
    """Instruction text to bytes, remembered. One engine serves one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._engine: Any = None

    def __call__(self, text: str) -> bytes:
        code = self._known.get(text)
        if code is None:
            with self._lock:
                code = self._known[text] = self._assemble(text)
        return code

    def _assemble(self, text: str) -> bytes:
        # Importing keystone takes longer than loading a whole image from the cache, and so does
        # what `assemble` imports.
        from keystone import KsError

        from emulated_kernel.asm_expression import Refused

        if self._engine is None:
            self._engine = self._open()
        try:
            code, _ = self._engine.asm(text, 0, as_bytes=True)
        except KsError as error:
            what = str(error.message).partition(" (")[0].lower()
            raise Refused(f"cannot be encoded ({what})") from None
        if not code:
            raise Refused("cannot be encoded")
        return bytes(code)

    @staticmethod
    def _open() -> Any:
        """An engine that reads decimal numbers as such: the radix of a new one is heap garbage."""
        from keystone import KS_ARCH_X86, KS_MODE_64, Ks

        rejected = []
        while True:
            engine = Ks(KS_ARCH_X86, KS_MODE_64)
            if engine.asm("mov eax, 10", as_bytes=True)[0] == b"\xb8\x0a\0\0\0":
                return engine
            # Freed, it would come back with the same memory.
            rejected.append(engine)


_encode = _Encoder()


def assemble(
    sources: Mapping[str, str],
    bases: Mapping[str, int],
    constants: Mapping[str, int] | None = None,
    externs: Mapping[str, int] | None = None,
    *,
    gs_base: int | None = None,
) -> Assembly:
    """Assemble the sources of one image (file name -> text) at the addresses of its sections.

    `constants` are numbers, as offsets of structures; `externs` are addresses of symbols of another
    image. With `gs_base` a `gs:` operand becomes one at that address, in the 2 GiB at either end,
    so that gs may be somebody else's. Raises AssemblerError with every error found, one a line.
    """
    from emulated_kernel.asm_instruction import InstructionReader
    from emulated_kernel.asm_link import link
    from emulated_kernel.asm_source import read_sources

    program = read_sources(sources, constants or {})
    reader = InstructionReader(program.constants, _encode, gs_base)
    return link(program, reader.read, bases, externs or {})


def load(
    paths: Iterable[str | os.PathLike[str]],
    bases: Mapping[str, int],
    constants: Mapping[str, int] | None = None,
    externs: Mapping[str, int] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    gs_base: int | None = None,
) -> Assembly:
    """`assemble` files, or take the result from the cache if nothing that goes in has changed."""
    sources = read_files(paths)
    directory = Path(cache_dir) if cache_dir is not None else default_directory()
    key = _key(sources, bases, constants or {}, externs or {}, gs_base)
    assembly = asm_cache.read(directory, key)
    if assembly is None:
        assembly = assemble(sources, bases, constants, externs, gs_base=gs_base)
        asm_cache.write(directory, key, assembly)
    return assembly


def read_files(paths: Iterable[str | os.PathLike[str]]) -> dict[str, str]:
    """File texts under names relative to the directory the files have in common."""
    files = [Path(path).absolute() for path in paths]
    if len(set(files)) != len(files):
        raise AssemblerError("a source is listed twice")
    root = os.path.commonpath([file.parent for file in files]) if files else ""
    return {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}


def _key(
    sources: Mapping[str, str],
    bases: Mapping[str, int],
    constants: Mapping[str, int],
    externs: Mapping[str, int],
    gs_base: int | None,
) -> str:
    content = hashlib.sha256()
    for module in sorted(Path(__file__).parent.glob("asm*.py")):
        content.update(module.read_bytes())
    inputs = (list(sources.items()), list(bases.items()), sorted(constants.items()))
    content.update(repr((*inputs, sorted(externs.items()), gs_base)).encode())
    return content.hexdigest()

"""Assembled images on disk, so that only the first start pays for the assembler.

One JSON file an image, named by a hash of everything that went in. Whatever goes wrong here costs
time, never correctness: a file that cannot be read or written is as good as none.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

from emulated_kernel.asm_link import Assembly, Symbol

KEPT = 24
_SUFFIX = ".image.json"


def default_directory() -> Path | None:
    """`$XDG_CACHE_HOME/ftracefs`, else `~/.cache/ftracefs`; None where there is no home."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if configured.is_absolute():
        return configured / "ftracefs"
    try:
        return Path.home() / ".cache" / "ftracefs"
    except RuntimeError:
        return None


def read(directory: Path | None, key: str) -> Assembly | None:
    if directory is None:
        return None
    file = directory / f"{key}{_SUFFIX}"
    try:
        assembly = _decode(json.loads(file.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zlib.error, RecursionError):
        return None
    try:
        os.utime(file)
    except OSError:
        pass
    return assembly


def write(directory: Path | None, key: str, assembly: Assembly) -> None:
    if directory is None:
        return
    text = json.dumps(_encode(assembly), separators=(",", ":"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=directory, prefix=f".{key[:16]}-")
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(text)
            Path(name).replace(directory / f"{key}{_SUFFIX}")
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        _drop_oldest(directory)
    except OSError:
        pass


def _drop_oldest(directory: Path) -> None:
    files = sorted(directory.glob(f"*{_SUFFIX}"), key=lambda file: file.stat().st_mtime)
    for file in files[:-KEPT]:
        file.unlink(missing_ok=True)


def _encode(assembly: Assembly) -> dict[str, Any]:
    return {
        "segments": {
            section: [address, len(data), base64.b64encode(zlib.compress(data)).decode()]
            for section, (address, data) in assembly.segments.items()
        },
        "symbols": assembly.symbols,
        "labels": assembly.labels,
        "mcount": assembly.mcount,
        "constants": assembly.constants,
    }


def _decode(document: dict[str, Any]) -> Assembly:
    segments = {}
    for section, (address, length, text) in document["segments"].items():
        data = zlib.decompress(base64.b64decode(text, validate=True))
        if len(data) != length:
            raise binascii.Error("wrong length")
        segments[section] = (_number(address), data)
    return Assembly(
        segments=segments,
        symbols=[
            Symbol(str(name), _number(address), _number(size), str(section), str(kind))
            for name, address, size, section, kind in document["symbols"]
        ],
        labels={name: _number(value) for name, value in document["labels"].items()},
        mcount=[_number(value) for value in document["mcount"]],
        constants={name: _number(value) for name, value in document["constants"].items()},
    )


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError("not a number")
    return value

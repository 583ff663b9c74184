"""Assembled images on disk, so that only the first start pays for the assembler.

One JSON file an image, named by a hash of everything that went in. Whatever goes wrong here costs
time, never correctness: a file that cannot be read or written is as good as none.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from pathlib import Path
from typing import Any

from emulated_kernel.assembly import Assembly, Symbol
from emulated_kernel.cache_files import keep_newest, touch, write_file

KEPT = 24
_SUFFIX = ".image.json"


def read(directory: Path | None, key: str) -> Assembly | None:
    if directory is None:
        return None
    file = directory / f"{key}{_SUFFIX}"
    try:
        assembly = _decode(json.loads(file.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zlib.error, RecursionError):
        return None
    touch(file)
    return assembly


def write(directory: Path | None, key: str, assembly: Assembly) -> None:
    if directory is None:
        return
    text = json.dumps(_encode(assembly), separators=(",", ":"))
    try:
        write_file(directory / f"{key}{_SUFFIX}", lambda stream: stream.write(text.encode("ascii")))
        keep_newest(directory, f"*{_SUFFIX}", KEPT)
    except OSError:
        pass


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

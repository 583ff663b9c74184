"""Files kept between runs, in a directory of the user's.

Whatever goes wrong here costs time, never correctness: a file that cannot be written is as good as
none. A file is whole or not there at all.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def default_directory() -> Path | None:
    """`$XDG_CACHE_HOME/ftracefs`, else `~/.cache/ftracefs`; None where there is no home."""
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if configured.is_absolute():
        return configured / "ftracefs"
    try:
        return Path.home() / ".cache" / "ftracefs"
    except RuntimeError:
        return None


def write_file(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Have `write` write a file, its directory made where it is missing. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:16]}-")
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def touch(file: Path) -> None:
    """A file that was of use is kept before others."""
    try:
        os.utime(file)
    except OSError:
        pass


def keep_newest(directory: Path, pattern: str, kept: int) -> None:
    """Remove all but the `kept` files of a pattern that were of use last. Raises OSError."""
    files = sorted(directory.glob(pattern), key=_last_use)
    for file in files[:-kept]:
        file.unlink(missing_ok=True)


def _last_use(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:  # somebody else has just removed it
        return 0.0

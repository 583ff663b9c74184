"""Files kept between runs, in a directory of the user's.

Whatever goes wrong here costs time, never correctness: a file that cannot be written is as good as
none. A file is whole or not there at all.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

_HALF_WRITTEN = ".*-*"  # as temporary names are made here, and directories of those who fetch
_GIVEN_UP_S = 3600.0  # without a change
_FULL = (errno.ENOSPC, errno.EDQUOT)


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


def keep_file(
    file: Path,
    write: Callable[[BinaryIO], object],
    size: int,
    pattern: str,
    kept: int,
    most_bytes: int | None = None,
) -> None:
    """Write a file of a pattern, and keep not more of them than `keep_newest` lets. Raises OSError.

    On a disk that is full the ones of least use make room, as much as `size`, and it is tried once
    more.
    """
    try:
        write_file(file, write)
    except OSError as error:
        if error.errno not in _FULL or not _make_room(file.parent, pattern, size):
            raise
        write_file(file, write)
    keep_newest(file.parent, pattern, kept, most_bytes)


def _make_room(directory: Path, pattern: str, size: int) -> bool:
    """Remove the oldest files of a pattern until they have freed `size` bytes; whether any was."""
    freed = 0
    for _, taken, file in _by_age(directory, pattern):
        if freed >= size:
            break
        file.unlink(missing_ok=True)
        freed += taken
    return freed > 0


def touch(file: Path) -> None:
    """A file that was of use is kept before others."""
    try:
        os.utime(file)
    except OSError:
        pass


def keep_newest(
    directory: Path,
    pattern: str,
    kept: int,
    most_bytes: int | None = None,
    is_in_use: Callable[[Path], bool] = lambda file: False,
) -> None:
    """Remove all files of a pattern but those that were of use last: at most `kept`, and not more
    than take `most_bytes` on disk, but always one. Raises OSError.

    Who has one open or mapped may go on using it. What writers who were killed have left half
    written goes, too.
    """
    taken = 0
    for number, (_, size, file) in enumerate(reversed(_by_age(directory, pattern))):
        taken += size
        is_too_much = number >= kept or (most_bytes is not None and taken > most_bytes)
        if number and is_too_much and not is_in_use(file):
            file.unlink(missing_ok=True)
    for file, stat in _found(directory, _HALF_WRITTEN):
        if stat.st_mtime < time.time() - _GIVEN_UP_S and not file.match(pattern):
            _remove(file)


def _by_age(directory: Path, pattern: str) -> list[tuple[float, int, Path]]:
    """When files were of use last, what they take on disk, and they; the oldest first."""
    found = _found(directory, pattern)
    return sorted((stat.st_mtime, stat.st_blocks * 512, file) for file, stat in found)


def _found(directory: Path, pattern: str) -> Iterator[tuple[Path, os.stat_result]]:
    for file in directory.glob(pattern):
        try:
            yield file, file.stat(follow_symlinks=False)
        except FileNotFoundError:
            pass  # somebody else has just removed it


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        shutil.rmtree(path, ignore_errors=True)

"""The initramfs of this host, told by its digest without being made.

To ask the loader for libraries and to read them all takes longer than to restore a guest. So it is
kept which files an archive was made of: as long as these are there as they were, so is the archive.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emulated_kernel.cache_files import keep_newest, touch, write_file
from emulated_kernel.linux.host_programs import PATH, host_programs
from emulated_kernel.linux.initramfs import initramfs, static_busybox

PROGRAMS = ("sh", "cat", "chrt")
KEPT = 4
_SUFFIX = ".archive.json"
_LOADERS_CACHE = "/etc/ld.so.cache"  # ld.so(8)
_LOADERS_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_SETTLED_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Archive:
    """`digest` is the SHA-256 of what `make` makes."""

    digest: str
    make: Callable[[], bytes]


def host_archive(cache: Path | None, sources: str) -> Archive:
    """`sources` is a digest of the code that makes it; what is found out is kept in `cache`."""
    began = time.time_ns()
    busybox = static_busybox()
    asked = [sources, str(busybox), *(shutil.which(name, path=PATH) for name in PROGRAMS)]
    asked += [os.environ.get(name) for name in _LOADERS_VARIABLES]
    file = None
    if cache is not None:
        file = cache / f"{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]}{_SUFFIX}"
        digest = _kept(file)
        if digest is not None:
            touch(file)
            return Archive(digest, lambda: _make(busybox)[0])
    data, paths = _make(busybox)
    digest = hashlib.sha256(data).hexdigest()
    if file is not None:
        _keep(file, digest, paths, began)
    return Archive(digest, lambda: data)


def _make(busybox: Path | None) -> tuple[bytes, list[str]]:
    """The archive, and the files of the host that it depends on."""
    programs = host_programs(PROGRAMS)
    paths = [_LOADERS_CACHE, *([] if busybox is None else [str(busybox)])]
    paths += filter(None, (shutil.which(name, path=PATH) for name in PROGRAMS))
    own = {f"bin/{name}" for name in PROGRAMS}
    paths += [f"/{f.name}" for f in programs if f.data and f.name not in own]
    return initramfs(None if busybox is None else busybox.read_bytes(), programs), paths


def _identity(path: str) -> list[int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _kept(file: Path) -> str | None:
    try:
        known = json.loads(file.read_bytes())
        digest, files = known["digest"], known["files"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    is_same = all(_identity(path) == identity for path, identity in files)
    return str(digest) if is_same else None


def _keep(file: Path, digest: str, paths: list[str], began: int) -> None:
    files = {path: _identity(path) for path in paths}
    changed = [found[-1] for found in files.values() if found is not None]
    if max(changed, default=0) > began - _SETTLED_NS:
        return  # perhaps after it was read
    text = json.dumps({"digest": digest, "files": files})
    try:
        write_file(file, lambda stream: stream.write(text.encode()))
        keep_newest(file.parent, f"*{_SUFFIX}", KEPT)
    except OSError:
        pass

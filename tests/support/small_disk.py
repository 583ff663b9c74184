"""A disk that is soon full: a tmpfs that only one process and its children see."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_UNSHARE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
_MOUNT = 'mount -t tmpfs -o size="$1" none "$2"; shift 2; exec "$@"'


def on_small_disk(directory: Path, size: str, *command: str | Path) -> list[str]:
    """`command`, to be run where `directory` is a disk of that size. Skips where there is none."""
    if subprocess.run([*_UNSHARE, "true"], capture_output=True, timeout=60).returncode:
        pytest.skip("no mount namespace can be made here")
    directory.mkdir(exist_ok=True)
    words = [*_UNSHARE, "sh", "-ec", _MOUNT, "sh", size, directory, *command]
    return [str(word) for word in words]

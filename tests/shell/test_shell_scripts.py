"""Shell scripts against a mount, each in a mount of its own, as a tool's author would write them.

`isolated/` runs with `--isolated`, `mirrored/` with callers in the guest. A script starts in the
mount point and fails by its exit code; `# needs: ...` in one skips it where that is missing.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.daemon import MountedDaemon, environment
from support.mounts import require_fuse

HERE = Path(__file__).parent
SCRIPTS = sorted(HERE.glob("*/*.sh"))
NEEDS = re.compile(r"^# needs: (.*)$", re.M)
HAS: dict[str, Callable[[], bool]] = {
    "root": lambda: os.geteuid() == 0,  # who may ask for the kernel's process events
    "two CPUs": lambda: len(os.sched_getaffinity(0)) >= 2,
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_script(script: Path, tmp_path: Path) -> None:
    require_fuse()
    for need in NEEDS.findall(script.read_text()):
        if not HAS[need]():
            pytest.skip(f"needs {need}")
    options = ["--isolated"] if script.parent.name == "isolated" else []
    with MountedDaemon(tmp_path, *options) as daemon:
        done = subprocess.run(
            ["bash", str(script)],
            cwd=daemon.path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        trace = (daemon.path / "trace").read_text()
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{trace[-3000:]}"

"""Shell scripts against a mount, each in a mount of its own, as a tool's author would write them.

`isolated/` runs with `--isolated`, `mirrored/` with callers in the guest. A script starts in the
mount point and fails by its exit code; a line `# needs: two CPUs` skips it on a smaller host.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.daemon import MountedDaemon, environment
from support.mounts import require_fuse

HERE = Path(__file__).parent
SCRIPTS = sorted(HERE.glob("*/*.sh"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_script(script: Path, tmp_path: Path) -> None:
    require_fuse()
    if "# needs: taskset, two CPUs" in script.read_text() and len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
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

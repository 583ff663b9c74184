"""Each client as root, and as a user without rights."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.clients import Client, require_user
from support.mounts import require_fuse


@pytest.fixture(params=["root", "nobody"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Client:
    """Runs scripts under `ftracefs run`."""
    require_fuse()
    require_user(request.param)
    return Client(request.param, tmp_path)

"""A real Linux for the tests: the host's own kernel, or Debian's fetched through apt and kept.

FTRACEFS_TEST_LINUX may name the file of another one.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from emulated_kernel.errors import ImageError
from emulated_kernel.linux import cache_directory
from emulated_kernel.linux.find import find_linux


@cache
def _found() -> Path | str:
    if given := os.environ.get("FTRACEFS_TEST_LINUX"):
        return Path(given)
    try:
        return find_linux(cache_directory())
    except ImageError as error:
        return str(error)


def require_linux() -> Path:
    """The file of a kernel. Skip, or fail where FTRACEFS_REQUIRE_LINUX=1, if there is none."""
    found = _found()
    if isinstance(found, Path):
        return found
    if os.environ.get("FTRACEFS_REQUIRE_LINUX") == "1":
        pytest.fail(found)
    pytest.skip(found)

"""instances/: where mkdir makes a trace array of its own.

Left out: all of it. The directory is there, since clients look for it.
"""

from __future__ import annotations

import errno

from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory


class Instances(Directory):
    def mkdir(self, name: str) -> None:
        raise TracefsError(errno.ENODEV, "there are no instances yet")

    def rmdir(self, name: str) -> None:
        raise TracefsError(errno.ENOENT, name)

"""instances/: where mkdir makes a trace array of its own (instance_mkdir, instance_rmdir)."""

from __future__ import annotations

import errno
from collections.abc import Callable

from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory, TracefsFile
from ftracefs.trace.trace_array import TraceArray
from ftracefs.trace.tracing import Tracing

NOT_COUNTED = frozenset({"format"})  # an open one does not keep an instance from going


class Instances(Directory):
    """The instances of `tracing`; `create_dir` makes the files of one (trace_array_create_dir)."""

    def __init__(self, tracing: Tracing, create_dir: Callable[[TraceArray], Directory]) -> None:
        super().__init__()
        self._tracing = tracing
        self._create_dir = create_dir
        self._trace_arrays: dict[str, TraceArray] = {}

    def mkdir(self, name: str) -> None:
        """instance_mkdir. EEXIST; ENOMEM."""
        self.before_change()
        tr = self._tracing.trace_array_create(name)
        directory = self._create_dir(tr)

        def adopt(file_name: str, file: TracefsFile) -> None:
            if file_name not in NOT_COUNTED:
                file.owner = tr
            if self._adopt is not None:
                self._adopt(file_name, file)

        directory.adopt(adopt)
        self._trace_arrays[name] = tr
        self._entries[name] = directory

    def rmdir(self, name: str) -> None:
        """instance_rmdir. ENOENT; EBUSY while a file of the instance is open."""
        self.before_change()
        tr = self._trace_arrays.get(name)
        if tr is None:
            raise TracefsError(errno.ENOENT, name)
        self._tracing.remove_instance(tr)
        del self._trace_arrays[name], self._entries[name]

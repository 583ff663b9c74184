"""events/: the directory of trace events, and `enable`, which is about all of them.

Models system_enable_read and system_enable_write of kernel/trace/trace_events.c. Left out: every
event. `enable` is there because clients and the kernel's own tests switch all events off first.
"""

from __future__ import annotations

import errno

from ftracefs.errors import TracefsError
from ftracefs.files.base import TracefsFile
from ftracefs.files.simple import ValueFile
from ftracefs.trace.parsers import kstrtoul_from_user
from ftracefs.trace.trace_array import TraceArray


def enable(tr: TraceArray) -> TracefsFile:
    def system_enable_write(data: bytes) -> None:
        value = kstrtoul_from_user(data)
        tr.tracing_update_buffers()
        # Linux: without any event, 0 would be EINVAL and a read '?'; no kernel is without events.
        if value != 0:
            raise TracefsError(errno.EINVAL, "there is no event to enable")

    return ValueFile(lambda: "0\n", system_enable_write)

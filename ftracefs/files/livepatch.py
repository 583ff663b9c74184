"""emulator/livepatch: functions whose calls go to a replacement (Linux: a module does that)."""

from __future__ import annotations

from ftracefs.files.base import TracefsFile
from ftracefs.files.redirect import RedirectFile
from ftracefs.trace.tracing import Tracing


def livepatch(tracing: Tracing) -> TracefsFile:
    """`emulator/livepatch`. A function may be patched again; `!FUNCTION` takes all of it back."""
    patches = tracing.ftrace.livepatch
    return RedirectFile(
        tracing.ftrace,
        lambda: ((func.old_func, func.new_func) for func in patches.patched()),
        patches.klp_patch_func,
        lambda function, target: patches.klp_unpatch_func(function, target or None),
    )

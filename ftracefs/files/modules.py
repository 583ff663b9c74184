"""emulator/modules: loading and unloading modules (Linux: what insmod and rmmod call).

Reading gives /proc/modules: name, bytes, users, dependencies, state, address.
"""

from __future__ import annotations

import errno

from emulated_kernel.errors import ModuleError
from emulated_kernel.image import Module
from ftracefs.errors import TracefsError
from ftracefs.files.base import TracefsFile
from ftracefs.files.simple import SeqFile
from ftracefs.trace.parsers import c_string
from ftracefs.trace.tracing import Tracing


def modules(tracing: Tracing) -> TracefsFile:
    """`emulator/modules`."""
    loader = tracing.modules
    acts = {"load": loader.load_module, "unload": loader.delete_module}

    def line(module: Module) -> str:
        size = sum(len(data) for _, data in module.segments.values())
        users = len(loader.used_by(module))
        address, _ = module.segments[".text"]
        return f"{module.name} {size} {users} - Live {address:#018x}\n"

    def show() -> str:
        return "".join(line(module) for module in reversed(loader.loaded.values()))

    def store(data: bytes) -> None:
        words = c_string(data).decode("utf-8", "replace").split()
        if len(words) != 2 or words[0] not in acts:
            raise TracefsError(errno.EINVAL, "load NAME or unload NAME")
        try:
            acts[words[0]](words[1])
        except ModuleError as error:
            raise TracefsError(error.errno, str(error)) from error

    return SeqFile(show, store)

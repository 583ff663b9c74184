"""emulator/: what Linux has no file for, because there nobody can look from outside.

kernel              what is running, and how often its text was written
call                run a function of the kernel
patching            how live text is written
inline_callbacks    whether trampolines may have a callback in line
patch_log           the last writes to it, byte by byte
touched_functions   the file of that name in newer kernels
console             what printk has shown
kallsyms            /proc/kallsyms of the emulated kernel

The others have modules of their own: text/ (disassembly), ops, trampolines, livepatch, direct,
modules, sysctl/.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import replace

from emulated_kernel.text_poke import PokeMethod
from ftracefs.errors import TracefsError
from ftracefs.files.base import Caller, DeferredWrite, OpenFile, TracefsFile
from ftracefs.files.kernel_functions import KernelFunctions, LoadedFunctions
from ftracefs.files.simple import SeqFile, ValueFile
from ftracefs.ftrace.registration import set_inline_callbacks
from ftracefs.trace.parsers import c_string, kstrtoul_from_user, strim
from ftracefs.trace.tracing import FunctionCall, Tracing

MAX_ARGUMENTS = 6
MAX_COUNT = 10**9
_MAX_DIGITS = 70  # more than any number of 64 bits has
_BATCH_S = 0.05  # how long a caller may have to wait until an interrupt is noticed
_MAX_ERRNO = 4095
_U64 = (1 << 64) - 1


def kernel(tracing: Tracing) -> TracefsFile:
    """`emulator/kernel`."""
    functions = LoadedFunctions(tracing)
    return ValueFile(lambda: kernel_text(tracing, len(functions())))


def kernel_text(tracing: Tracing, functions: int) -> str:
    """What is running; `functions` is how many there are."""
    machine, ftrace, poke = tracing.machine, tracing.ftrace, tracing.ftrace.text_poke
    rows = {
        "image": tracing.image.name,
        "functions": f"{functions} ({len(ftrace.records.ip)} can be traced)",
        "modules": " ".join(tracing.modules.loaded) or "none",
        "vCPUs": str(machine.nr_cpus),
        "clock": machine.clock.kind,
        "text patches": f"{poke.sites_patched} sites in {poke.batches} batches",
        "text writes": str(poke.writes),
        "int3 hits": str(poke.int3_hits),
        "hypercalls": str(machine.hypercall_count),
    }
    if ftrace.ftrace_disabled:
        rows["ftrace"] = "disabled: text is not what it was thought to be, see the log"
    return "".join(f"{name + ':':<14}{value}\n" for name, value in rows.items())


def patch_log(tracing: Tracing) -> TracefsFile:
    """`emulator/patch_log`."""
    return SeqFile(tracing.ftrace.text_poke.patch_log)


def console(tracing: Tracing) -> TracefsFile:
    """`emulator/console`."""
    return SeqFile(tracing.console.text)


def patching(tracing: Tracing) -> TracefsFile:
    """`emulator/patching`."""
    poke = tracing.ftrace.text_poke

    def show() -> str:
        names = (f"[{m.value}]" if m is poke.method else m.value for m in PokeMethod)
        return " ".join(names) + "\n"

    def store(data: bytes) -> None:
        name = strim(data).decode("utf-8", "replace")
        method = next((m for m in PokeMethod if m.value == name), None)
        if method is None:
            raise TracefsError(errno.EINVAL, f"no way of patching {name!r}")
        poke.method = method

    return ValueFile(show, store)


def inline_callbacks(tracing: Tracing) -> TracefsFile:
    """`emulator/inline_callbacks`."""
    ftrace = tracing.ftrace

    def store(data: bytes) -> None:
        set_inline_callbacks(ftrace, kstrtoul_from_user(data) != 0)

    return ValueFile(lambda: f"{int(ftrace.inline_callbacks)}\n", store)


def touched_functions(tracing: Tracing) -> TracefsFile:
    """`emulator/touched_functions`."""
    return SeqFile(tracing.ftrace.touched_functions)


def kallsyms(tracing: Tracing) -> TracefsFile:
    """`emulator/kallsyms`."""
    return SeqFile(lambda: tracing.ftrace.kallsyms.text())


# --- call -----------------------------------------------------------------------------------------


def parse_call(data: bytes, functions: KernelFunctions, pid: int) -> FunctionCall:
    """`FUNCTION [ARG…] [xCOUNT]`; an argument is a number or the name of a symbol.

    EINVAL for what cannot be read, ENOENT for a name that the kernel does not have.
    """
    words = c_string(data).decode("utf-8", "replace").split()
    if not words:
        raise TracefsError(errno.EINVAL, "which function?")
    name, *rest = words
    count = 1
    if rest and rest[-1][0] == "x" and rest[-1][1:].isdecimal():
        digits = rest.pop()[1:].lstrip("0")
        count = int(digits[:_MAX_DIGITS] or "0")
        if count > MAX_COUNT:
            raise TracefsError(errno.ERANGE, f"at most {MAX_COUNT} times")
    if not count or len(rest) > MAX_ARGUMENTS:
        raise TracefsError(errno.EINVAL, f"{count} times {len(rest)} arguments")
    address = functions.address(name)
    if address is None:
        raise TracefsError(errno.ENOENT, f"no function {name}")
    return FunctionCall(pid, name, address, tuple(_argument(w, functions) for w in rest), count)


def _argument(word: str, functions: KernelFunctions) -> int:
    if len(word) > _MAX_DIGITS and word.lstrip("+-").isdecimal():
        raise TracefsError(errno.ERANGE, "no 64-bit number")
    try:
        value = int(word, 0)
    except ValueError:
        address = functions.symbol(word)
        if address is None:
            raise TracefsError(errno.EINVAL, f"{word} is no number and no symbol") from None
        return address
    if not -(1 << 63) <= value <= _U64:
        raise TracefsError(errno.ERANGE, word)
    return value & _U64


def result_text(value: int) -> str:
    """A return value: a number, an error with its name, or an address."""
    signed = value - (1 << 64) if value >> 63 else value
    if signed >= 0:
        return str(value)
    if signed < -_MAX_ERRNO:
        return f"{value:#x}"
    return f"{signed} {errno.errorcode.get(-signed, '')}".rstrip()


class CallFile(TracefsFile):
    """`emulator/call`: the text of the last call is shared by everybody."""

    def __init__(self, tracing: Tracing) -> None:
        self.tracing = tracing
        self.functions = LoadedFunctions(tracing)
        self.last = ""

    def open(self, flags: int, caller: Caller) -> OpenFile:
        return _CallOpen(self, caller)


class _CallOpen(OpenFile):
    def __init__(self, file: CallFile, caller: Caller) -> None:
        self._file = file
        self._caller = caller

    def read(self, size: int, offset: int, nonblock: bool) -> bytes:
        return self._file.last.encode()[offset : offset + size]

    def write(self, data: bytes, offset: int) -> int | DeferredWrite:
        call = parse_call(data, self._file.functions(), self._caller.pid)
        words = c_string(data).decode("utf-8", "replace").split()
        shown = ", ".join(words[1 : 1 + len(call.arguments)])

        def run(is_interrupted: Callable[[], bool]) -> int:
            self._run(call, f"{call.name}({shown})", is_interrupted)
            return len(data)

        return run

    def _run(self, call: FunctionCall, shown: str, is_interrupted: Callable[[], bool]) -> None:
        """Call it in batches; EINTR between two of them, and where a call can be ended within one.
        EFAULT when the function failed."""
        done, batch = 0, 1
        arguments = call.arguments + (0,) * (MAX_ARGUMENTS - len(call.arguments))
        call = replace(call, arguments=arguments, is_interrupted=is_interrupted)
        while done < call.count:
            batch = min(batch, call.count - done)
            started = time.monotonic()
            try:
                result = self._file.tracing.call_function(replace(call, count=batch))
            except TracefsError as error:
                self._file.last = f"{shown}: {error}\n"
                raise
            times = f" ({done + batch} times)" if call.count > 1 else ""
            if result.failure:
                self._file.last = f"{shown}: {result.failure}\n"
                raise TracefsError(errno.EFAULT, f"{shown}: {result.failure}")
            done += batch
            self._file.last = f"{shown} = {result_text(result.value)}{times}\n"
            if is_interrupted():
                raise TracefsError(errno.EINTR, os.strerror(errno.EINTR))
            elapsed = max(time.monotonic() - started, 1e-6)
            batch = max(1, min(batch * 16, int(batch * _BATCH_S / elapsed)))

"""A booted guest on disk, so that the next start need not boot it.

The file is the guest's RAM as it is, pages of zeros being holes, and behind it what else there is
to a machine: the processor's state and the devices', as JSON with a length. On restore RAM is that
file, mapped private: only what the guest touches is copied. The guest's time goes on where it
stood.

All of it has checksums. That of RAM is computed by a thread while the machine is made, and waited
for before the guest runs. A start has no time for a hash, nor need it find more than what happens
to a disk: the 70 MB of a guest take SHA-256 46 ms, CRC-32 29, and sums of products, of which CRC-32
is taken then, 9.

A file is replaced as a whole and never written to again, so whoever has it mapped may keep it.
"""

from __future__ import annotations

import base64
import binascii
import ctypes as C
import errno
import json
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from emulated_kernel.cache_files import keep_file, touch
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.linux.agent import Agents
from emulated_kernel.linux.memory import GUEST_BYTES
from emulated_kernel.linux.pc import PcMachine
from emulated_kernel.linux.shell import Shell
from emulated_kernel.machine.cpu_state import UnicornMismatch

SUFFIX = ".snapshot"
KEPT, MOST_BYTES = 4, 384 << 20
_UNIT = 1 << 18  # what is written, or left out, as one
_FOOTER = struct.Struct("<8sQQ")  # magic, bytes of the state, their checksum
_MAGIC = b"ftfsnap2"
_STATE_LIMIT = 16 << 20
_WORDS = 512  # of 8 bytes, in a page
# Odd, so that no change of one word leaves the sum of its page as it was.
_MULTIPLIERS = np.arange(_WORDS, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) | np.uint64(1)
_MAP_FIXED = 0x10
_TSC_TOLERANCE = 1000  # one part in that many


class SnapshotError(EmulatedKernelError):
    """There is a file, but no guest can be made of it."""


def save(machine: PcMachine, shell: Shell, agents: Agents, file: Path) -> None:
    """Keep the machine as it is now; on the machine thread. Raises OSError."""
    ram = machine.memory.ram_array[:GUEST_BYTES]
    written = np.concatenate([[False], ram.reshape(-1, _UNIT).any(axis=1), [False]])
    runs = (np.flatnonzero(np.diff(written)).reshape(-1, 2) * _UNIT).tolist()
    checksums = {"runs": runs, "ram": _checksum(ram.data, runs)}
    state = json.dumps({**_state(machine, shell, agents), **checksums}).encode()

    def write(stream: BinaryIO) -> None:
        for start, end in runs:
            stream.seek(start)
            stream.write(ram[start:end].data)
        stream.seek(GUEST_BYTES)
        stream.write(state)
        stream.write(_FOOTER.pack(_MAGIC, len(state), zlib.crc32(state)))

    size = sum(end - start for start, end in runs) + len(state) + _FOOTER.size
    keep_file(file, write, size, f"*{SUFFIX}", KEPT, MOST_BYTES)


def _state(machine: PcMachine, shell: Shell, agents: Agents) -> dict[str, Any]:
    return {
        "cpu": base64.b64encode(machine.cpu.state.save()).decode(),
        "tsc": machine.time.tsc,
        "tsc_khz": machine.tsc_khz,
        "machine": machine.save_devices(),
        "console": machine.console.text().decode("latin-1"),
        "shell": shell.save(),
        "agents": agents.save(),
    }


class Snapshot:
    """A file that `save` has written. Raises SnapshotError; FileNotFoundError if there is none."""

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from error
        except OSError as error:
            raise SnapshotError(error.strerror or str(error)) from error
        try:
            self._state = _read_state(self._descriptor)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._wrong: str | None = None
        self._check = threading.Thread(target=self._check_ram, name="snapshot-check", daemon=True)
        self._check.start()

    def close(self) -> None:
        """A guest that was restored keeps its RAM."""
        self._check.join()
        os.close(self._descriptor)

    @property
    def tsc_khz(self) -> int:
        """How fast time goes by what the guest was told."""
        return int(self._state["tsc_khz"])

    def is_for(self, tsc_khz: int) -> bool:
        """Whether the guest can go on where time goes `tsc_khz` fast."""
        return abs(self.tsc_khz - tsc_khz) * _TSC_TOLERANCE <= self.tsc_khz

    def check(self) -> None:
        """Wait until all of RAM has been looked at. Raises SnapshotError."""
        self._check.join()
        if self._wrong is not None:
            raise SnapshotError(self._wrong)

    def _check_ram(self) -> None:
        try:
            self._wrong = self._difference()
        except OSError as error:
            self._wrong = error.strerror or str(error)

    def _difference(self) -> str | None:
        with (
            mmap.mmap(self._descriptor, GUEST_BYTES, prot=mmap.PROT_READ) as file,
            memoryview(file) as ram,
        ):
            runs: list[list[int]] = self._state["runs"]
            if _checksum(ram, runs) != self._state["ram"]:
                return "damaged: RAM is not what was saved"
            ends = [0, *(end for run in runs for end in run), GUEST_BYTES]
            for start, end in zip(ends[::2], ends[1::2], strict=True):
                for first, last in _not_holes(self._descriptor, start, end):
                    if np.frombuffer(ram[first:last], dtype=np.uint8).any():
                        return "damaged: something stands where RAM was empty"
        return None

    def restore(self, machine: PcMachine, shell: Shell, agents: Agents) -> None:
        """Make a machine that has not run yet what was saved; on the machine thread.

        Raises SnapshotError; then the machine is not to be used.
        """
        cpu, state = machine.cpu.state, self._state
        try:
            saved = base64.b64decode(state["cpu"], validate=True)
            _map(self._descriptor, machine.memory.host_address)
            cpu.restore(saved)
            machine.time.tsc = state["tsc"]
            machine.restore_devices(state["machine"])
            machine.console.restore(state["console"].encode("latin-1"))
            shell.restore(state["shell"])
            agents.restore(state["agents"])
        except (OSError, KeyError, TypeError, ValueError, binascii.Error) as error:
            raise SnapshotError(f"cannot be restored: {error!r}") from error
        except UnicornMismatch as error:
            raise SnapshotError(str(error)) from error
        self.check()
        touch(self._file)


def _read_state(descriptor: int) -> dict[str, Any]:
    try:
        size = os.fstat(descriptor).st_size
        footer = os.pread(descriptor, _FOOTER.size, max(size - _FOOTER.size, 0))
        magic, length, checksum = _FOOTER.unpack(footer)
        if magic != _MAGIC:
            raise SnapshotError("truncated, or of another version")
        if length > _STATE_LIMIT or size != GUEST_BYTES + length + _FOOTER.size:
            raise SnapshotError(f"damaged: {size} bytes")
        text = os.pread(descriptor, length, GUEST_BYTES)
        if zlib.crc32(text) != checksum:
            raise SnapshotError("damaged: the machine's state is not what was saved")
        state: dict[str, Any] = json.loads(text)
    except (OSError, ValueError, struct.error) as error:
        raise SnapshotError(f"damaged: {error}") from error
    return state


def _checksum(ram: memoryview, runs: list[list[int]]) -> int:
    checksum = 0
    for start, end in runs:  # few: each call waits for its turn among Python's threads
        pages = np.frombuffer(ram[start:end], dtype=np.uint64).reshape(-1, _WORDS)
        checksum = zlib.crc32((pages @ _MULTIPLIERS).data, checksum)
    return checksum


def _not_holes(descriptor: int, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the file has something; all of it where its file system knows no holes."""
    while at < end:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            at = min(os.lseek(descriptor, start, os.SEEK_HOLE), end)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            start, at = at, end
        if start < end:
            yield start, at


def _map(descriptor: int, address: int) -> None:
    """Have the guest's RAM be the file's, private, in place of what is mapped there."""
    library = C.CDLL(None, use_errno=True)
    library.mmap.restype = C.c_void_p
    library.mmap.argtypes = [C.c_void_p, C.c_size_t, C.c_int, C.c_int, C.c_int, C.c_long]
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    at = library.mmap(address, GUEST_BYTES, protection, flags, descriptor, 0)
    if at != address:
        raise OSError(C.get_errno(), "mmap")

"""What the host's /proc tells about a process: nothing else of it is read."""

from __future__ import annotations

import os
import queue
import threading
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STAT_BYTES = 4096  # more than it ever has
# Fields of /proc/PID/stat behind the parenthesised name, counted from `state` (proc(5)).
_PPID, _CHILD_FAULTS, _PRIORITY, _START_TIME, _PROCESSOR = 1, 8, 15, 19, 36
_MAX_RT_PRIO, _DEFAULT_PRIO = 100, 120


UNKNOWN_START = -1  # the start time of a process that was gone before anybody looked at it


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A thread of the host: a pid is only unique together with the start time (clock ticks).

    `child_faults` are the minor page faults of the children it has waited for: they tell that there
    were some. `prio` is the kernel's: 100 less is what /proc shows, realtime tasks are below 100.
    """

    pid: int
    start_time: int
    ppid: int
    comm: str
    cpu: int
    child_faults: int = 0
    prio: int = _DEFAULT_PRIO


def read_process(pid: int) -> HostProcess | None:
    """The process behind `pid`, or None when there is none any more."""
    # Asked with every system call of a caller's, so by the shortest way; one read gives all.
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        stat = os.read(descriptor, _STAT_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    name_end = stat.rindex(b")")
    comm = stat[stat.index(b"(") + 1 : name_end].decode("utf-8", "replace")
    fields = stat[name_end + 2 :].split()
    return HostProcess(
        pid=pid,
        start_time=int(fields[_START_TIME]),
        ppid=int(fields[_PPID]),
        comm=comm,
        cpu=int(fields[_PROCESSOR]),
        child_faults=int(fields[_CHILD_FAULTS]),
        prio=int(fields[_PRIORITY]) + _MAX_RT_PRIO,
    )


def exists(pid: int) -> bool:
    """Whether there is a process of that pid, which may have ended but not been waited for."""
    return (_PROC / str(pid)).exists()


def is_stopped(pid: int) -> bool:
    """Whether the process neither runs nor waits, by a signal or a debugger."""
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] in b"Tt"


def read_tgid(process: HostProcess) -> int:
    """The process that a thread belongs to; its own pid when that cannot be told."""
    now = read_process(process.pid)
    if now is None or now.start_time != process.start_time:
        return process.pid
    try:
        status = (_PROC / str(process.pid) / "status").read_bytes()
    except OSError:
        return process.pid
    lines = (line.partition(b":") for line in status.splitlines())
    return next((int(value) for name, _, value in lines if name == b"Tgid"), process.pid)


# How long anybody waits to learn about a process that cannot be looked at.
PATIENCE_S = 0.05


def read_other_process(pid: int) -> HostProcess | None:
    """The same for a process that is not waiting for us to answer a request of its own.

    Linux lets nobody look at a process in the middle of execve, where it may wait for the answer to
    its closing of a file of ours. So the machine thread, which gives it, must not wait in turn.
    """
    found: queue.SimpleQueue[HostProcess | None] = queue.SimpleQueue()
    threading.Thread(target=lambda: found.put(read_process(pid)), daemon=True).start()
    try:
        return found.get(timeout=PATIENCE_S)
    except queue.Empty:
        return None

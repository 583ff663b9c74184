"""A mount from its start to its end, in the process that serves it.

FUSE runs in a thread of its own and the main thread owns the signals: with FUSE on the main thread
no Python signal handler would ever run. The way down is always the same: sleeping readers get end
of file, then the mount is taken away, then FUSE's loop ends by itself.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from ftracefs.mount import answers, binding, mountpoint
from ftracefs.mount.mountpoint import MountError
from ftracefs.mount.operations import Operations
from ftracefs.mount.tracefs import Tracefs

log = logging.getLogger("ftracefs.mount")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# How long the mount may stay busy before it is detached under those who use it, and how long FUSE
# may take to end after that.
BUSY_TIMEOUT = 1.0
DETACHED_TIMEOUT = 0.5
RETRY_INTERVAL = 0.05

FUSE_OPTIONS: dict[str, str | int | bool] = {
    "fsname": mountpoint.FSNAME,
    "subtype": mountpoint.SUBTYPE,
    "default_permissions": True,
    "use_ino": True,
    "hard_remove": True,
    "atomic_o_trunc": True,
    "big_writes": True,
    "noexec": True,
    # A new file must show at once. Every use of a name is looked up and brings fresh attributes
    # with it, so those may live a second.
    "entry_timeout": 0,
    "negative_timeout": 0,
    "attr_timeout": 1,
    # A page that is spliced is asked for alone: after an answer for less than was to be read ahead
    # the host's kernel takes the file to end there.
    "max_readahead": 0,
}

_ENDED = "the mount is gone"
_OWNERLESS = "the command has ended"


class _Events:
    """What the main thread waits for, put by any thread or a signal handler.

    A signal may be taken by any thread that does not block it, and Python's handler runs in the
    main thread when that comes to it next: so it waits for a byte, which C's handler writes, and
    not for a lock. Its pipe stays open, since nobody knows who is the last to put.
    """

    def __init__(self) -> None:
        self._texts: deque[str] = deque()
        self._read, self.wakeup_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.wakeup_fd, False)

    def put(self, text: str) -> None:
        self._texts.append(text)
        os.write(self.wakeup_fd, b"!")

    def get(self) -> str:
        while not self._texts:
            os.read(self._read, 1)
        return self._texts.popleft()


class _Session(threading.Thread):
    """FUSE's loop; says so on `events` when it ends."""

    def __init__(self, operations: Operations, path: Path, events: _Events) -> None:
        super().__init__(name="fuse", daemon=True)
        self.failure: BaseException | None = None
        self._operations = operations
        self._path = path
        self._events = events

    def run(self) -> None:
        # Inherited by libfuse's workers: the signals are the main thread's.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            # Others may in where the modes let them, if FUSE lets whoever mounts say so.
            options = {**FUSE_OPTIONS, "allow_other": os.geteuid() == 0}
            binding.serve(self._operations, str(self._path), **options)
        except BaseException as failure:
            self.failure = failure
        finally:
            self._events.put(_ENDED)


def serve(
    tracefs: Tracefs, path: Path, on_ready: Callable[[], None], owner: int | None = None
) -> bool:
    """Mount at the resolved `path` and serve until a signal, a stop request or an unmount.

    To be called on the main thread. `on_ready` is called once the mount answers. False when
    somebody still holds a file of the detached mount: end the process to let go of it. With
    `owner`, a pidfd, that is so too when this process has ended: the mount's namespace was his.
    MountError when it could not be mounted.
    """
    events = _Events()

    def mounted() -> None:
        if mount := mountpoint.mounted_at(path):
            answers.sign(mount.device)
        on_ready()

    operations = Operations(
        tracefs.root,
        tracefs.callers,
        on_mounted=mounted,
        on_stop=lambda: events.put("asked to stop"),
        reset=tracefs.reset,
    )
    session = _Session(operations, path, events)
    handlers = {
        number: signal.signal(number, lambda n, _: events.put(signal.Signals(n).name))
        for number in SIGNALS
    }
    wakeup_fd = signal.set_wakeup_fd(events.wakeup_fd)
    if owner is not None:
        threading.Thread(target=_watch, args=(owner, events), name="owner", daemon=True).start()
    try:
        session.start()
        if (event := events.get()) != _ENDED:
            log.info("stopping: %s", event)
            operations.close()
            if event == _OWNERLESS or not _take_down(path, session):
                return False
        session.join()
    finally:
        signal.set_wakeup_fd(wakeup_fd)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if session.failure is not None:
        raise MountError(f"{path}: FUSE could not mount") from session.failure
    log.info("%s is unmounted", path)
    return True


def _watch(owner: int, events: _Events) -> None:
    poll = select.poll()
    poll.register(owner, select.POLLIN)
    poll.poll()
    events.put(_OWNERLESS)


def _take_down(path: Path, session: threading.Thread) -> bool:
    """Unmount and see FUSE end; False when it goes on because files are held open."""
    deadline = time.monotonic() + BUSY_TIMEOUT
    # Once it is gone the place is free: what is mounted there a moment later is somebody else's.
    while session.is_alive() and (reason := mountpoint.unmount(path)):
        session.join(RETRY_INTERVAL)
        if session.is_alive() and time.monotonic() > deadline:
            log.warning("detaching %s: %s", path, reason)
            mountpoint.unmount(path, lazy=True)
            session.join(DETACHED_TIMEOUT)
            return not session.is_alive()
    session.join(BUSY_TIMEOUT + DETACHED_TIMEOUT)
    return not session.is_alive()

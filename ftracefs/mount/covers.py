"""What a command of `ftracefs run` sees in place of the host's files.

Clients look for tracefs by path, or by the type `tracefs` in /proc/mounts, and mount the host's own
if they find none. So the mount is at both of its usual places, /proc/mounts names it as a tracefs,
and no other tracefs or debugfs can be reached. Beside that clients read the host's symbols and
number of CPUs, and write some sysctls of tracing; those are the emulated kernel's, or copies that
nobody else sees.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ftracefs.mount import namespace
from ftracefs.mount.mountpoint import Mount, MountError, parse_mountinfo

SYS_KERNEL = Path("/sys/kernel")
TRACING = SYS_KERNEL / "tracing"
DEBUG = SYS_KERNEL / "debug"
DEBUG_TRACING = DEBUG / "tracing"

KALLSYMS = Path("/proc/kallsyms")
SYSCTL = Path("/proc/sys/kernel")
MOUNTS = Path("/proc/mounts")
CPUS = Path("/sys/devices/system/cpu")

# Sysctls that clients write; a host without one has no need of a cover.
SYSCTLS = (
    "ftrace_dump_on_oops",
    "ftrace_enabled",
    "kptr_restrict",
    "sched_rt_runtime_us",
    "stack_tracer_enabled",
    "traceoff_on_warning",
    "tracepoint_printk",
)

_TRACING_TYPES = ("tracefs", "debugfs")


# Where the daemon puts the kernel's symbols, before `cover`.
SYMBOLS = DEBUG / "kallsyms"


@dataclass(frozen=True, slots=True)
class Covers:
    """The files that covers are made of: a directory, reached by its open descriptor."""

    directory: int

    def path(self, name: str) -> Path:
        """Of a file there."""
        return Path(f"/proc/self/fd/{self.directory}", name)

    def file(self, name: str, text: str = "") -> Path:
        """A new file of that name."""
        path = self.path(name)
        path.write_text(text, encoding="ascii", errors="replace")
        return path


def prepare() -> Covers:
    """Make the place to mount on, which is `TRACING`; in a namespace of our own."""
    if not SYS_KERNEL.is_dir():
        raise MountError(f"{SYS_KERNEL} is not there: is sysfs mounted?")
    if not (TRACING.is_dir() and DEBUG.is_dir()):
        _copy_of_sys_kernel()
    # FUSE wants it empty, and must not look into what the host may have there.
    namespace.tmpfs(TRACING)
    # Its files are bound elsewhere, and it is covered itself in the end.
    namespace.tmpfs(DEBUG)
    return Covers(os.open(DEBUG, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def _copy_of_sys_kernel() -> None:
    """A directory to which two can be added, with everything in it that sysfs has there."""
    descriptor = os.open(SYS_KERNEL, os.O_PATH | os.O_CLOEXEC)
    before = Path(f"/proc/self/fd/{descriptor}")
    names = [(path.name, path.is_dir()) for path in before.iterdir() if not path.is_symlink()]
    namespace.tmpfs(SYS_KERNEL)
    for name, is_directory in names:
        target = SYS_KERNEL / name
        if is_directory:
            target.mkdir()
        else:
            target.touch()
        namespace.bind(before / name, target)
    os.close(descriptor)
    for directory in (TRACING, DEBUG):
        directory.mkdir(exist_ok=True)


def cover(covers: Covers, cpus: int) -> None:
    """Once the tracefs is mounted at `TRACING`: put the rest in its place."""
    range_of_cpus = covers.file("cpus", f"0-{cpus - 1}\n" if cpus > 1 else "0\n")
    for name in ("possible", "present", "online"):
        namespace.bind(range_of_cpus, CPUS / name)
    ours = TRACING / "emulator/sysctl"
    for name in SYSCTLS:
        target = SYSCTL / name
        if (ours / name).exists():
            if target.exists():
                namespace.bind(ours / name, target)
        elif target.exists():
            namespace.bind(covers.file(name, _text_of(target)), target)
    symbols = TRACING / "emulator/kallsyms"
    namespace.bind(symbols if symbols.exists() else covers.path(SYMBOLS.name), KALLSYMS)
    mounts = covers.file("mounts")
    namespace.tmpfs(DEBUG)
    DEBUG_TRACING.mkdir()
    namespace.bind(TRACING, DEBUG_TRACING)
    for mount in _other_tracing_mounts():
        namespace.tmpfs(mount.path)
    mounts.write_bytes(mount_table(_mountinfo(), Path("/proc/self/mounts").read_bytes()))
    namespace.bind_link(mounts, MOUNTS)
    os.close(covers.directory)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return "0\n"


def _mountinfo() -> list[Mount]:
    return parse_mountinfo(Path("/proc/self/mountinfo").read_bytes())


def _shows(mount: Mount) -> bool:
    """Whether one who goes to the mount's path arrives in it."""
    try:
        device = mount.path.stat().st_dev
    except OSError:
        return False
    return f"{os.major(device)}:{os.minor(device)}" == mount.device


def _other_tracing_mounts() -> list[Mount]:
    return [mount for mount in _mountinfo() if mount.fstype in _TRACING_TYPES and _shows(mount)]


def mount_table(mountinfo: list[Mount], mounts: bytes) -> bytes:
    """/proc/mounts with the tracefs as one, in front, and without those that are covered."""
    ours = b"tracefs %s tracefs rw,nosuid,nodev,noexec,relatime 0 0\n"
    hidden = {os.fsencode(mount.path) for mount in mountinfo if mount.is_ours}
    lines = [ours % os.fsencode(path) for path in (TRACING, DEBUG_TRACING)]
    for line in mounts.splitlines(keepends=True):
        fields = line.split(b" ")
        if fields[2].decode("ascii", "replace") in _TRACING_TYPES or fields[1] in hidden:
            continue
        lines.append(line)
    return b"".join(lines)


def verify() -> None:
    """MountError if a client could reach another tracefs than the one mounted at `TRACING`."""
    first = next(m for m in reversed(_mountinfo()) if m.path == TRACING)
    if not first.is_ours or not _shows(first):
        raise MountError(f"{TRACING} is not the mount")
    if DEBUG_TRACING.stat().st_dev != TRACING.stat().st_dev:
        raise MountError(f"{DEBUG_TRACING} is not the mount")
    if others := _other_tracing_mounts():
        raise MountError(f"{others[0].path}: a {others[0].fstype} of the host can be reached")
    named = [line.split() for line in MOUNTS.read_bytes().splitlines()]
    places = [os.fsdecode(fields[1]) for fields in named if fields[2] == b"tracefs"]
    if places != [str(TRACING), str(DEBUG_TRACING)]:
        raise MountError(f"{MOUNTS} names other tracefs: {places}")

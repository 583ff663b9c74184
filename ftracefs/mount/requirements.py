"""What a mount needs of the host, asked without loading libfuse."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

CAP_SYS_ADMIN = 21
FUSE_DEVICE = Path("/dev/fuse")

# Import name and name on the package index.
PACKAGES = (
    ("unicorn", "unicorn"),
    ("keystone", "keystone-engine"),
    ("capstone", "capstone"),
    ("numpy", "numpy"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One requirement: whether it is met, and what is there or what to do."""

    name: str
    is_met: bool
    detail: str
    is_needed: bool = True

    def __str__(self) -> str:
        state = "ok" if self.is_met else "missing" if self.is_needed else "no"
        return f"{state:8} {self.name:17} {self.detail}"


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("Python", sys.version_info >= (3, 11), f"{version} (3.11 or newer is needed)")


def _device() -> Finding:
    try:
        os.close(os.open(FUSE_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return Finding(
            str(FUSE_DEVICE), False, "not there: modprobe fuse; docker run --device /dev/fuse"
        )
    except OSError as error:
        return Finding(str(FUSE_DEVICE), False, f"cannot be opened: {error.strerror}")
    return Finding(str(FUSE_DEVICE), True, "can be opened")


def has_capability(number: int, which: str = "CapEff") -> bool:
    """Whether this process has the capability, in effect or in another of its sets."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    for line in status.splitlines():
        if line.startswith(f"{which}:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def _fusermount() -> Finding:
    """libfuse 2 mounts by itself where it may and through `fusermount`, of that name, where not."""
    path = shutil.which("fusermount")
    if has_capability(CAP_SYS_ADMIN):
        helper = path or shutil.which("fusermount3") or shutil.which("umount")
        return Finding("fusermount", helper is not None, helper or "install fuse3")
    if path is None:
        return Finding("fusermount", False, "not in PATH: install fuse3")
    if os.geteuid() == 0 or not Path(path).stat().st_mode & stat.S_ISUID:
        return Finding(
            "fusermount", False, f"no right to mount: no CAP_SYS_ADMIN, and {path} cannot help"
        )
    return Finding("fusermount", True, path)


def _find_libfuse() -> str | None:
    import ctypes.util  # and it asks ldconfig

    return ctypes.util.find_library("fuse")


def _libfuse() -> Finding:
    name = os.environ.get("FUSE_LIBRARY_PATH")
    for find in [lambda: name] if name else [lambda: "libfuse.so.2", _find_libfuse]:
        try:
            if candidate := find():
                ctypes.CDLL(candidate)
                return Finding("libfuse 2", True, candidate)
        except OSError:
            continue
    return Finding("libfuse 2", False, "install libfuse2 (libfuse2t64 on newer systems)")


def _version(module: str, package: str) -> str | None:
    """The version of a package that is there; None when something else has its module's name."""
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.origin is not None:
        # Asking for the metadata takes longer to import than all else here.
        beside = Path(spec.origin).parent.glob(f"{package.replace('-', '_')}-*.dist-info")
        if found := next(beside, None):
            return found.name.removesuffix(".dist-info").rpartition("-")[2]
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _fusepy() -> Finding:
    if importlib.util.find_spec("fuse") is None:
        return Finding("fusepy", False, "pip install fusepy==3.0.1")
    if (version := _version("fuse", "fusepy")) is not None:
        return Finding("fusepy", True, version)
    return Finding(
        "fusepy", False, "another package's module `fuse` is installed: use a fresh environment"
    )


def _package(module: str, package: str) -> Finding:
    if importlib.util.find_spec(module) is None:
        return Finding(package, False, f"pip install {package}")
    return Finding(package, True, _version(module, package) or "version unknown")


def _user_namespaces() -> Finding:
    """Whether a plain user may make namespaces: a mount that needs neither root nor fusermount."""
    limits: tuple[tuple[str, Callable[[int], bool]], ...] = (
        ("/proc/sys/user/max_user_namespaces", lambda value: value > 0),
        ("/proc/sys/kernel/unprivileged_userns_clone", lambda value: value != 0),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", lambda value: value == 0),
    )
    for path, allows in limits:
        try:
            if not allows(int(Path(path).read_text(encoding="ascii"))):
                return Finding("user namespaces", False, f"{path} forbids them", is_needed=False)
        except (OSError, ValueError):
            continue
    is_there = Path("/proc/self/ns/user").exists()
    detail = "allowed" if is_there else "not in this kernel"
    return Finding("user namespaces", is_there, detail, is_needed=False)


def fuse_findings() -> list[Finding]:
    """What FUSE itself needs, in the order in which one would mend it."""
    checks: list[Callable[[], Finding]] = [_device, _fusermount, _libfuse, _fusepy]
    return [check() for check in checks]


def run_findings() -> list[Finding]:
    """What `ftracefs run` needs: a namespace in place of fusermount."""
    checks: list[Callable[[], Finding]] = [_device, _libfuse, _fusepy]
    found = [check() for check in checks]
    if not has_capability(CAP_SYS_ADMIN):
        found.append(replace(_user_namespaces(), is_needed=True))
    return found


def findings() -> list[Finding]:
    """Everything a mount needs, and what is good to have."""
    packages = [_package(module, package) for module, package in PACKAGES]
    return [_python(), *fuse_findings(), *packages, _user_namespaces()]


def lacking(found: list[Finding]) -> list[Finding]:
    """Those that keep a mount from working."""
    return [finding for finding in found if finding.is_needed and not finding.is_met]

"""Which kernel `--kernel linux` means: the running host's own, else Debian's for cloud machines.

The latter comes through apt: fetched and kept, never installed. Where the package lists are empty,
as in a new container, they are fetched too, into a directory that is thrown away.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from emulated_kernel.cache_files import write_file
from emulated_kernel.errors import ImageError

BOOT, MODULES = Path("/boot"), Path("/lib/modules")  # where distributions have a vmlinuz
PACKAGE = "linux-image-cloud-amd64"
_TIMEOUT = 600  # of each command, in seconds
_LIMIT = 256 << 20  # of a vmlinuz
_GIVE_ONE = "give one: --kernel FILE, a vmlinuz for x86-64"


def find_linux(directory: Path | None, report: Callable[[str], None] = lambda _: None) -> Path:
    """The file of the kernel. What is fetched is kept in `directory`; `report` hears of what lasts.

    Raises ImageError, with what to do in one line.
    """
    host = os.uname()
    own = BOOT / f"vmlinuz-{host.release}"
    if host.machine == "x86_64":
        for path in (own, MODULES / host.release / "vmlinuz"):
            if os.access(path, os.R_OK):
                return path
    if directory is None:
        raise ImageError(
            f"{own} cannot be read and there is no home to keep another in; {_GIVE_ONE}"
        )
    if kept := _kept(directory):
        return kept
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ImageError(
            f"{own} cannot be read and no other be kept in {directory} ({error.strerror});"
            f" {_GIVE_ONE}, or make XDG_CACHE_HOME a directory"
        ) from error
    report(f"{own} cannot be read: fetching Debian's {PACKAGE}")
    try:
        return _fetch(directory)
    except (OSError, subprocess.SubprocessError, tarfile.TarError, ImageError) as error:
        reason = " ".join(_reason(error).split())
        raise ImageError(
            f"{own} cannot be read and {PACKAGE} not be fetched ({reason}); {_GIVE_ONE}"
        ) from error


def _kept(directory: Path) -> Path | None:
    kept = [path for path in directory.glob("vmlinuz-*") if os.access(path, os.R_OK)]
    return max(kept, key=lambda path: path.stat().st_mtime, default=None)


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError) and error.stderr:
        return str(error.stderr.decode("utf-8", "replace").strip().splitlines()[-1])
    return str(error)


def _run(command: Sequence[str], *, cwd: Path | None = None) -> str:
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=_TIMEOUT,
        env={**os.environ, "LC_ALL": "C"},
        cwd=cwd,
    )
    return done.stdout.decode("utf-8", "replace")


def _fetch(directory: Path) -> Path:
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise ImageError(f"there is no {tool}")
    with tempfile.TemporaryDirectory(dir=directory, prefix=".apt-") as scratch:
        options: list[str] = []
        name = _image_package(options)
        if name is None:
            options = _own_lists(Path(scratch))
            _run(["apt-get", *options, "update", "-qq"])
            name = _image_package(options)
        if name is None:
            raise ImageError("no such package")
        _run(["apt-get", *options, "download", "-qq", name], cwd=Path(scratch))
        (package,) = Path(scratch).glob("*.deb")
        return _unpack(package, directory)


def _own_lists(scratch: Path) -> list[str]:
    """Options that have apt keep its lists in a directory of ours."""
    for name in ("lists/partial", "cache/archives/partial"):
        (scratch / name).mkdir(parents=True)
    return ["-o", f"Dir::State::Lists={scratch}/lists", "-o", f"Dir::Cache={scratch}/cache"]


def _image_package(options: Sequence[str]) -> str | None:
    """The package with the kernel that PACKAGE stands for; since 7.0 there is one more between."""
    image = _dependency(options, PACKAGE, "linux-image-")
    return image and (_dependency(options, image, "linux-binary-") or image)


def _dependency(options: Sequence[str], package: str, start: str) -> str | None:
    """What a package depends on that is named so."""
    try:
        text = _run(["apt-cache", *options, "depends", "--important", package])
    except subprocess.CalledProcessError:
        return None
    words = (line.split() for line in text.splitlines())
    names = (word[1] for word in words if word[:1] == ["Depends:"] and len(word) == 2)
    return next((name for name in names if name.startswith(start)), None)


def _unpack(package: Path, directory: Path) -> Path:
    """Only the vmlinuz, out of a package of some thousand files."""
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                name, data = _vmlinuz_in(archive)
        finally:
            process.kill()
    file = directory / name
    write_file(file, lambda stream: stream.write(data))
    return file


def _vmlinuz_in(archive: tarfile.TarFile) -> tuple[str, bytes]:
    for member in archive:
        name = _name(Path(member.name))
        content = archive.extractfile(member) if name and member.size <= _LIMIT else None
        if name and content is not None:
            return name, content.read()
    raise ImageError("there is no vmlinuz in it")


def _name(path: Path) -> str | None:
    """What a file of a package is called here, if it is a kernel."""
    if path.parent.name == BOOT.name and path.name.startswith("vmlinuz-"):
        return path.name
    if path.parent.parent.name == MODULES.name and path.name == "vmlinuz":
        return f"vmlinuz-{path.parent.name}"
    return None

"""Which kernel `--kernel linux` is, with an apt that this test makes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.clients import as_nobody, require_user
from support.mounts import ROOT

from emulated_kernel.errors import ImageError
from emulated_kernel.linux import find
from emulated_kernel.linux.find import find_linux

APT = """#!/bin/sh
echo "$(basename "$0") $*" >>"$LOG"
case "$(basename "$0") $*" in
*" update "*)
    [ -z "$NO_NET" ] || { echo 'E: Failed to fetch: no net' >&2; exit 100; }
    : >"$LISTS"
    ;;
*depends*)
    [ -e "$LISTS" ] || { echo 'E: No packages found' >&2; exit 100; }
    cat "$DEPENDS/$(eval echo \\$$#)"
    ;;
*download*)
    [ -z "$NO_NET" ] || { printf 'W: x\\nE: Failed to fetch: no net\\n' >&2; exit 100; }
    : >"$(eval echo \\$$#)_1_amd64.deb"
    ;;
esac
"""
DPKG_DEB = """#!/bin/sh
exec cat "$ARCHIVE"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host without a kernel to read, and an apt with one in a package."""
    for name in ("BOOT", "MODULES"):
        monkeypatch.setattr(find, name, tmp_path / name.lower())
        (tmp_path / name.lower()).mkdir()
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name, script in {"apt-get": APT, "apt-cache": APT, "dpkg-deb": DPKG_DEB}.items():
        (bin_ / name).write_text(script)
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    for name in ("LOG", "LISTS", "ARCHIVE", "DEPENDS"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("NO_NET", "")
    (tmp_path / "LISTS").write_text("")
    depend(tmp_path, "linux-image-cloud-amd64", "linux-image-6.1.0-9-cloud-amd64")
    depend(tmp_path, "linux-image-6.1.0-9-cloud-amd64", "kmod", "linux-base")
    pack(tmp_path, "boot/config-6.1.0-9", "boot/vmlinuz-6.1.0-9-cloud-amd64", "lib/x")
    return tmp_path


def depend(home: Path, package: str, *others: str) -> None:
    (home / "DEPENDS").mkdir(exist_ok=True)
    lines = [package, *(f"  Depends: {other}" for other in others), "  Depends: <virtual>"]
    (home / "DEPENDS" / package).write_text("\n".join(lines) + "\n")


def pack(home: Path, *names: str) -> None:
    tree = home / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    subprocess.run(["tar", "-cf", home / "ARCHIVE", "-C", tree, "."], check=True, timeout=60)


def commands(home: Path) -> list[str]:
    log = home / "LOG"
    return [line.split(" -o ")[0] for line in log.read_text().splitlines()] if log.exists() else []


def own_kernel(home: Path) -> Path:
    own = home / "boot" / f"vmlinuz-{os.uname().release}"
    own.write_text("own")
    return own


def test_the_hosts_own_kernel_is_taken_first(home: Path) -> None:
    own = own_kernel(home)
    assert find_linux(home / "cache") == own
    assert find_linux(None) == own
    assert commands(home) == []


def test_it_may_lie_among_the_modules(home: Path) -> None:
    own = home / "modules" / os.uname().release / "vmlinuz"
    own.parent.mkdir()
    own.write_text("own")
    assert find_linux(home / "cache") == own
    assert commands(home) == []


PROGRAM = """
import sys
from pathlib import Path
from emulated_kernel.linux import find

home = Path(sys.argv[1])
find.BOOT, find.MODULES = home / "boot", home / "modules"
print(find.find_linux(Path.home() / "cache"))
"""


def test_one_that_only_root_can_read_is_passed_over(home: Path) -> None:
    require_user("nobody")
    own_kernel(home).chmod(0o600)
    home.chmod(0o755)
    for name in ("bin", "DEPENDS", "boot", "modules"):
        (home / name).chmod(0o755)
    for name in ("LOG", "LISTS"):
        (home / name).touch()
        (home / name).chmod(0o666)
    done = subprocess.run(
        as_nobody(sys.executable, "-c", PROGRAM, home, within_reach=(home,)),
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "/media/home/cache/vmlinuz-6.1.0-9-cloud-amd64\n"


def test_a_host_of_another_kind_is_not_asked_for_its_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_kernel(home)
    uname = os.uname()
    other = os.uname_result((*uname[:4], "aarch64"))
    monkeypatch.setattr(os, "uname", lambda: other)
    assert find_linux(home / "cache").parent == home / "cache"


def test_debians_is_fetched_once_and_kept(home: Path) -> None:
    told: list[str] = []
    found = find_linux(home / "cache", told.append)
    assert found == home / "cache" / "vmlinuz-6.1.0-9-cloud-amd64"
    assert found.read_text() == "boot/vmlinuz-6.1.0-9-cloud-amd64"
    assert len(told) == 1
    assert "fetching Debian's linux-image-cloud-amd64" in told[0]
    asked = commands(home)
    assert asked[-1] == "apt-get download -qq linux-image-6.1.0-9-cloud-amd64"
    assert not [line for line in asked if "update" in line or "install" in line]
    assert list((home / "cache").iterdir()) == [found]
    assert find_linux(home / "cache", told.append) == found
    assert commands(home) == asked
    assert len(told) == 1


def test_newer_packages_have_it_elsewhere(home: Path) -> None:
    depend(home, "linux-image-cloud-amd64", "linux-base-cloud-amd64", "linux-image-7.2-cloud-amd64")
    depend(home, "linux-image-7.2-cloud-amd64", "linux-base", "linux-binary-7.2-cloud-amd64")
    pack(home, "usr/lib/modules/7.2-cloud-amd64/vmlinuz", "usr/lib/modules/7.2-cloud-amd64/config")
    assert find_linux(home / "cache") == home / "cache" / "vmlinuz-7.2-cloud-amd64"
    assert commands(home)[-1] == "apt-get download -qq linux-binary-7.2-cloud-amd64"


def test_empty_package_lists_are_filled_in_a_directory_of_ours(home: Path) -> None:
    (home / "LISTS").unlink()
    assert find_linux(home / "cache").exists()
    (update,) = [line for line in (home / "LOG").read_text().splitlines() if " update " in line]
    assert f"Dir::State::Lists={home}/cache/" in update
    assert list((home / "cache").iterdir()) == [home / "cache" / "vmlinuz-6.1.0-9-cloud-amd64"]


def reason(home: Path) -> str:
    with pytest.raises(ImageError) as error:
        find_linux(home / "cache")
    text = str(error.value)
    assert "\n" not in text
    assert text.endswith("give one: --kernel FILE, a vmlinuz for x86-64")
    assert list((home / "cache").glob("*")) == []
    return text


def test_without_a_net_it_is_told_what_to_give(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_NET", "1")
    assert "(E: Failed to fetch: no net)" in reason(home)
    (home / "LISTS").unlink()
    assert "(E: Failed to fetch: no net)" in reason(home)


def test_without_apt_it_is_told_what_to_give(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home / "tree"))
    assert "(there is no apt-get)" in reason(home)


@pytest.mark.parametrize("names", [("boot/config-1",), ("vmlinuz-1",), ("x/vmlinuz",)])
def test_a_package_without_a_kernel_is_no_help(home: Path, names: tuple[str, ...]) -> None:
    pack(home, *names)
    assert "(there is no vmlinuz in it)" in reason(home)


def test_a_broken_package_is_no_help(home: Path) -> None:
    (home / "ARCHIVE").write_bytes(b"what is this?" * 100)
    assert "not be fetched (" in reason(home)


def test_where_nothing_can_be_kept_that_is_told_and_not_the_nets_fault(home: Path) -> None:
    (home / "file").write_text("")
    with pytest.raises(ImageError) as error:
        find_linux(home / "file" / "cache" / "linux")
    text = str(error.value)
    assert f"no other be kept in {home}/file/cache/linux (Not a directory)" in text
    assert "fetch" not in text
    assert text.endswith("or make XDG_CACHE_HOME a directory")
    assert commands(home) == []


def test_a_full_disk_leaves_no_half_of_a_kernel(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Path, write: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(find, "write_file", full)
    assert "No space left on device" in reason(home)
    assert list((home / "cache").iterdir()) == []


def test_two_that_fetch_it_at_once_both_have_it(home: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from emulated_kernel.linux import find;"
        " find.BOOT = Path('/nowhere/boot');"
        " find.MODULES = Path('/nowhere/modules'); print(find.find_linux(Path(sys.argv[1])))"
    )
    fetching = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(home / "cache")],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for _ in range(3)
    ]
    found = {process.communicate(timeout=60)[0].strip() for process in fetching}
    kept = home / "cache" / "vmlinuz-6.1.0-9-cloud-amd64"
    assert found == {str(kept)}
    assert kept.read_text() == "boot/vmlinuz-6.1.0-9-cloud-amd64"
    assert list((home / "cache").iterdir()) == [kept]


def test_without_a_home_it_is_told_what_to_give(home: Path) -> None:
    with pytest.raises(ImageError, match="give one: --kernel FILE"):
        find_linux(None)
    assert commands(home) == []

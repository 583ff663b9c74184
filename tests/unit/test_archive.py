"""The archive of a host's programs is made when one of them is another, and only then."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from emulated_kernel.linux import archive
from emulated_kernel.linux.archive import Archive, host_archive


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the host has its programs; they have been there for some time."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("sh", "cat"):
        shutil.copy(f"/bin/{name}", directory / name)
    monkeypatch.setattr(archive, "PATH", str(directory))
    monkeypatch.setattr("emulated_kernel.linux.host_programs.PATH", str(directory))
    monkeypatch.setattr(archive, "static_busybox", lambda: None)
    monkeypatch.setattr(archive, "_SETTLED_NS", -(10**12))
    return directory


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Something for each time that programs are read."""
    times: list[str] = []
    real = archive.host_programs

    def counted(names: tuple[str, ...]) -> object:
        times.append("made")
        return real(names)

    monkeypatch.setattr(archive, "host_programs", counted)
    return times


def check(found: Archive) -> str:
    assert hashlib.sha256(found.make()).hexdigest() == found.digest
    return found.digest


def test_the_digest_of_what_was_made_once_is_known(
    host: Path, tmp_path: Path, made: list[str]
) -> None:
    first = host_archive(tmp_path, "ours")
    assert made == ["made"]
    second = host_archive(tmp_path, "ours")
    assert made == ["made"]
    assert check(first) == check(second)
    assert made == ["made"] * 2  # by `make`


def _rewritten(file: Path) -> None:
    """In place, as long as before and of the same age."""
    kept = file.stat()
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(kept.st_atime_ns, kept.st_mtime_ns))


def _replaced(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(file.read_bytes() + b"x")
    other.chmod(0o755)
    other.replace(file)


@pytest.mark.parametrize("change", [_rewritten, _replaced, Path.unlink])
def test_another_program_is_another_archive(
    host: Path, tmp_path: Path, made: list[str], change: Callable[[Path], None]
) -> None:
    before = check(host_archive(tmp_path, "ours"))
    change(host / "cat")
    assert check(host_archive(tmp_path, "ours")) != before


def test_other_code_or_another_way_to_libraries_is_asked_anew(
    host: Path, tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = host_archive(tmp_path, "ours").digest
    assert host_archive(tmp_path, "theirs").digest == digest
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    assert host_archive(tmp_path, "ours").digest == digest
    assert made == ["made"] * 3


def test_what_has_just_been_changed_is_not_trusted(
    host: Path, tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_SETTLED_NS", 10**9)
    _rewritten(host / "cat")
    for _ in range(2):
        host_archive(tmp_path, "ours")
    assert made == ["made"] * 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"digest": "x", "files": 3}'])
def test_a_broken_note_is_made_anew(host: Path, tmp_path: Path, made: list[str], text: str) -> None:
    digest = host_archive(tmp_path, "ours").digest
    (file,) = tmp_path.glob("*.json")
    file.write_text(text)
    assert host_archive(tmp_path, "ours").digest == digest
    assert made == ["made"] * 2
    assert json.loads(file.read_text())["digest"] == digest


def test_without_a_cache_it_is_made_each_time(host: Path, made: list[str]) -> None:
    for cache in (None, None, Path("/proc/nothing")):
        check(host_archive(cache, "ours"))
    assert len(made) == 3

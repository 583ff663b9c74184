"""Snapshots on disk: whatever has happened to one is noticed, and the guest boots anew."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from support.linux_kernel import require_linux
from support.mounts import ROOT
from support.small_disk import on_small_disk

from emulated_kernel.linux import Vmlinux, load_vmlinuz
from emulated_kernel.linux.guest import start
from emulated_kernel.linux.memory import GUEST_BYTES
from emulated_kernel.linux.snapshot import SUFFIX, Snapshot, SnapshotError

pytestmark = pytest.mark.timeout(600)
HOLE = "something stands where RAM was empty"
RAM = "RAM is not what was saved"


@pytest.fixture(scope="module")
def vmlinux() -> Vmlinux:
    return load_vmlinuz(require_linux())


@pytest.fixture(scope="module")
def cache(vmlinux: Vmlinux, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with a whole snapshot in it."""
    directory = tmp_path_factory.mktemp("cache")
    start(vmlinux, cache=directory).close()
    return directory


@pytest.fixture
def file(cache: Path) -> Iterator[Path]:
    """The snapshot, to be damaged; in the end it is whole again."""
    (file,) = cache.glob(f"*{SUFFIX}")
    kept = file.with_suffix(".kept")
    copy(file, kept)
    yield file
    kept.replace(file)


def copy(source: Path, target: Path) -> None:
    """With its holes."""
    subprocess.run(["cp", "--sparse=always", source, target], check=True, timeout=60)


def complaint(file: Path) -> str | None:
    """What is said against it."""
    try:
        with closing(Snapshot(file)) as snapshot:
            snapshot.check()
    except SnapshotError as error:
        return str(error)
    return None


def flip(file: Path, at: int, bit: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)[0]
        stream.seek(at)
        stream.write(bytes([byte ^ 1 << bit]))


def runs(file: Path) -> list[list[int]]:
    with closing(Snapshot(file)) as snapshot:
        found: list[list[int]] = snapshot._state["runs"]
        return found


def places(file: Path, seed: int) -> Iterator[tuple[int, str]]:
    """Somewhere in each part of it, and what is said of that."""
    rng = random.Random(seed)
    size, used = file.stat().st_size, runs(file)
    for start_, end in [*rng.sample(used, 3), used[0], used[-1]]:
        yield from ((at, RAM) for at in (start_, end - 1, rng.randrange(start_, end)))
    holes = [(before[1], after[0]) for before, after in pairwise(used)]
    for start_, end in [*rng.sample(holes, 3), holes[0]]:
        yield from ((at, HOLE) for at in (start_, end - 1, rng.randrange(start_, end)))
    yield from ((rng.randrange(GUEST_BYTES, size - 24), "state is not what") for _ in range(4))
    yield from ((size - rng.randrange(1, 9), "state is not what") for _ in range(2))
    yield from ((size - 16 + rng.randrange(8), "damaged") for _ in range(2))
    yield size - 24, "of another version"


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_is_noticed_wherever_it_is(file: Path, seed: int) -> None:
    rng = random.Random(seed)
    assert complaint(file) is None
    for at, expected in places(file, seed):
        bit = rng.randrange(8)
        flip(file, at, bit)
        assert expected in (complaint(file) or ""), f"bit {bit} at {at:#x}"
        flip(file, at, bit)  # an empty place is no hole any more, and is empty
    assert complaint(file) is None


@pytest.mark.parametrize("seed", range(3))
def test_pages_that_changed_places_or_came_from_elsewhere_are_noticed(
    file: Path, seed: int
) -> None:
    rng = random.Random(seed)
    start_, end = max(runs(file), key=lambda run: run[1] - run[0])
    first, second = rng.sample(range(start_, end, 4096), 2)
    with file.open("r+b") as stream:
        pages = [os.pread(stream.fileno(), 4096, at) for at in (first, second)]
        os.pwrite(stream.fileno(), pages[1], first)
        assert (complaint(file) is None) == (pages[0] == pages[1])
        os.pwrite(stream.fileno(), pages[0], second)
        assert (complaint(file) is None) == (pages[0] == pages[1])


def test_a_file_of_another_length_is_noticed(file: Path) -> None:
    size = file.stat().st_size
    for length in (size - 1, size - 25, GUEST_BYTES, GUEST_BYTES // 2, 4096, 24, 1, 0):
        os.truncate(file, length)
        assert complaint(file) is not None, length
    os.truncate(file, size)
    assert complaint(file) is not None


def test_what_is_behind_the_end_is_noticed(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(bytes(1))
    assert complaint(file) is not None


def test_what_is_no_file_is_no_snapshot(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError):
        Snapshot(tmp_path)
    with pytest.raises(FileNotFoundError):
        Snapshot(tmp_path / "missing")


def test_a_snapshot_is_not_for_a_host_where_time_goes_otherwise(file: Path) -> None:
    with closing(Snapshot(file)) as snapshot:
        assert snapshot.is_for(snapshot.tsc_khz + 100)
        assert not snapshot.is_for(snapshot.tsc_khz * 21 // 20)


@pytest.mark.parametrize("what", ["RAM", "an end"])
def test_a_damaged_one_is_made_anew_and_that_is_told_in_a_line(
    vmlinux: Vmlinux, file: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    if what == "RAM":
        flip(file, runs(file)[3][0] + 12345, 3)
    else:
        os.truncate(file, GUEST_BYTES + 100)
    with caplog.at_level(logging.INFO):
        guest = start(vmlinux, cache=file.parent)
    try:
        assert not guest.was_restored
        assert guest.shell.is_ready
    finally:
        guest.close()
    (line,) = [record.getMessage() for record in caplog.records if "anew" in record.getMessage()]
    assert str(file) in line
    assert "\n" not in line
    assert complaint(file) is None
    again = start(vmlinux, cache=file.parent)
    again.close()
    assert again.was_restored


# --- where and when it is kept --------------------------------------------------------------------

START = """
import logging, resource, sys
from pathlib import Path
from emulated_kernel.linux import load_vmlinuz
from emulated_kernel.linux.guest import start
logging.basicConfig(format="%(message)s")
if sys.argv[3] != "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, 2 * (int(sys.argv[3]),))
guest = start(load_vmlinuz(Path(sys.argv[1])), cache=Path(sys.argv[2]))
ready = guest.shell.is_ready
assert guest.machine.run(lambda: guest.shell.start(b"echo $((6 * 7))")) == ready
assert not ready or guest.shell.wait(lambda: guest.shell.is_ready, 100)
print("restored" if guest.was_restored else "booted", guest.shell.output.decode().strip())
guest.close()
"""


def arguments(cache: Path, limit: int = 0) -> list[str]:
    return [START, str(require_linux()), str(cache), str(limit)]


def started(command: list[str], cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(cache)},
    )


def starting(cache: Path, *, limit: int = 0) -> subprocess.Popen[str]:
    """A process that starts a guest in it; no file of its own is to be longer than `limit`."""
    return started([sys.executable, "-c", *arguments(cache, limit)], cache)


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        output, errors = process.communicate(timeout=300)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, errors
    return output.strip(), errors.strip()


def test_where_there_is_no_room_nothing_is_left_and_the_guest_runs(tmp_path: Path) -> None:
    output, errors = ended(starting(tmp_path, limit=32 << 20))
    assert output == "booted 42"
    assert errors.startswith("no snapshot is kept: ")
    assert "File too large" in errors
    assert "\n" not in errors
    assert not list(tmp_path.glob("*.snapshot"))
    assert not list(tmp_path.glob(".*"))


AFTER_AN_OLD_ONE = """
import subprocess, sys
from pathlib import Path

old = Path(sys.argv[3], "old.snapshot")
old.write_bytes(bytes(100 << 20))
subprocess.run([sys.executable, "-c", *sys.argv[1:]], check=True)
(new,) = old.parent.glob("*.snapshot")
assert new != old
"""


def test_on_a_full_disk_an_old_one_makes_room(tmp_path: Path) -> None:
    program = [sys.executable, "-c", AFTER_AN_OLD_ONE, *arguments(tmp_path)]
    process = started(on_small_disk(tmp_path, "180m", *program), tmp_path)
    assert ended(process) == ("booted 42", "")


def test_where_no_directory_can_be_made_the_guest_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    output, errors = ended(starting(tmp_path / "file" / "cache"))
    assert output == "booted 42"
    assert "Not a directory" in errors
    assert "\n" not in errors


def test_two_that_start_at_once_do_not_see_each_others_half_written_files(tmp_path: Path) -> None:
    processes = [starting(tmp_path) for _ in range(2)]
    halves = 0
    try:
        while any(process.poll() is None for process in processes):
            for file in tmp_path.glob(f"*{SUFFIX}"):
                halves += complaint(file) is not None
            time.sleep(0.02)  # not for synchronisation: how often one looks
        results = [ended(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert halves == 0
    assert [output for output, _ in results] == ["booted 42"] * 2
    assert [errors for _, errors in results] == [""] * 2
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == 1
    assert ended(starting(tmp_path)) == ("restored 42", "")

"""What is kept on disk between runs does not grow without end."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.mounts import ROOT
from support.small_disk import on_small_disk

from emulated_kernel.cache_files import keep_newest, touch, write_file

NOW = time.time()
SIZE = 1 << 16


def fill(directory: Path, count: int, suffix: str = ".thing") -> list[Path]:
    """Files of that many bytes, the oldest first."""
    files = [directory / f"{number:02}{suffix}" for number in range(count)]
    for age, file in enumerate(reversed(files)):
        write_file(file, lambda stream: stream.write(bytes([1]) * SIZE))
        os.utime(file, (NOW, NOW - 100 - age))
    return files


def names(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


def test_as_many_are_kept_as_there_may_be(tmp_path: Path) -> None:
    fill(tmp_path, 5)
    fill(tmp_path, 2, ".other")
    keep_newest(tmp_path, "*.thing", 3)
    assert names(tmp_path) == ["00.other", "01.other", "02.thing", "03.thing", "04.thing"]


def test_what_was_of_use_is_kept_before_others(tmp_path: Path) -> None:
    files = fill(tmp_path, 5)
    touch(files[0])
    keep_newest(tmp_path, "*.thing", 2)
    assert names(tmp_path) == ["00.thing", "04.thing"]


def test_no_more_is_kept_than_there_is_room_for(tmp_path: Path) -> None:
    files = fill(tmp_path, 5)
    block = files[0].stat().st_blocks * 512
    keep_newest(tmp_path, "*.thing", 4, most_bytes=2 * block + 1)
    assert names(tmp_path) == ["03.thing", "04.thing"]
    keep_newest(tmp_path, "*.thing", 4, most_bytes=1)
    assert names(tmp_path) == ["04.thing"]


def test_holes_take_no_room(tmp_path: Path) -> None:
    for number in range(3):
        write_file(tmp_path / f"{number}.thing", lambda stream: stream.truncate(1 << 30))
    keep_newest(tmp_path, "*.thing", 4, most_bytes=1 << 20)
    assert len(names(tmp_path)) == 3


def test_who_has_one_mapped_keeps_it(tmp_path: Path) -> None:
    files = fill(tmp_path, 2)
    with files[0].open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    keep_newest(tmp_path, "*.thing", 1)
    assert not files[0].exists()
    assert mapped[:] == bytes([1]) * SIZE


def test_one_that_is_in_use_stays(tmp_path: Path) -> None:
    files = fill(tmp_path, 3)
    keep_newest(tmp_path, "*.thing", 1, is_in_use=lambda file: file == files[0])
    assert names(tmp_path) == ["00.thing", "02.thing"]


def test_what_a_killed_writer_has_left_goes_after_a_while(tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def write(stream: object) -> None:
        (written,) = cache.iterdir()
        os.link(written, tmp_path / written.name)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(cache / "a.thing", write)
    assert names(cache) == []
    (left,) = (file for file in tmp_path.iterdir() if file != cache)
    left = left.rename(cache / left.name)
    fetched = cache / ".apt-x"
    fetched.mkdir()
    (fetched / "package.deb").touch()
    keep_newest(cache, "*.thing", 1)
    assert names(cache) == sorted([fetched.name, left.name])  # perhaps they are at it
    for path in (left, fetched):
        os.utime(path, (NOW, NOW - 7200))
    keep_newest(cache, "*.thing", 1)
    assert names(cache) == []


def test_one_whose_name_looks_half_written_is_one_of_the_pattern(tmp_path: Path) -> None:
    hidden = tmp_path / ".mnt-t.thing"
    hidden.touch()
    os.utime(hidden, (NOW, NOW - 7200))
    keep_newest(tmp_path, "*.thing", 1)
    assert names(tmp_path) == [hidden.name]


FILL = """
import os, sys
from pathlib import Path
from emulated_kernel.cache_files import keep_file, write_file

directory, size, others = Path(sys.argv[1]), int(sys.argv[2]) << 20, sys.argv[3:]
for age, name in enumerate(others):
    write_file(directory / name, lambda stream: stream.write(bytes(3 << 20)))
    os.utime(directory / name, (0, 1000 - age))
try:
    file = directory / "new.thing"
    keep_file(file, lambda stream: stream.write(b"x" * size), size, "*.thing", 9)
except OSError as error:
    print(error.strerror)
print(*sorted(f"{file.name}:{file.stat().st_size >> 20}" for file in directory.iterdir()))
"""


def left_on_a_full_disk(directory: Path, size: int, *others: str) -> list[str]:
    """A file of so many MiB is kept on a disk of ten, beside others of three, the newest first."""
    done = subprocess.run(
        on_small_disk(directory, "10m", sys.executable, "-c", FILL, directory, str(size), *others),
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_on_a_full_disk_those_of_least_use_make_room(tmp_path: Path) -> None:
    three = ("c.thing", "b.thing", "a.thing")
    assert left_on_a_full_disk(tmp_path, 2, *three) == ["b.thing:3 c.thing:3 new.thing:2"]
    assert left_on_a_full_disk(tmp_path, 4, *three) == ["c.thing:3 new.thing:4"]


def test_on_a_disk_that_stays_full_no_half_of_a_file_is_left(tmp_path: Path) -> None:
    full = "No space left on device"
    assert left_on_a_full_disk(tmp_path, 11, "b.thing", "a.thing") == [full, ""]
    assert left_on_a_full_disk(tmp_path, 8, "b.other", "a.thing") == [full, "b.other:3"]
    assert left_on_a_full_disk(tmp_path, 8, "b.other") == [full, "b.other:3"]

"""The module ext4: what is written is read back, and the disk is right at every moment."""

from __future__ import annotations

import errno
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ext4_disk import BLOCK, INCOMPAT_RECOVER, ROOT_INO, Disk
from support.ext4_kernel import Mounted
from support.syscalls import (
    O_APPEND,
    O_CREAT,
    O_DIRECTORY,
    O_EXCL,
    O_RDWR,
    O_WRONLY,
    Process,
)

from emulated_kernel.errors import ModuleError
from emulated_kernel.images.builtin import module_sources
from emulated_kernel.tasks import Asleep

NAME_MAX = 255
NEW_FILES = 53  # inodes that an empty disk has left
FIRST_FILES = {"motd", "hostname", "syslog"}
COMMIT_INTERVAL_S = 5
LOG_MAX = 4 * BLOCK
INODE_TABLE = 4


@pytest.fixture(scope="module")
def kernel() -> Iterator[Mounted]:
    made = Mounted()
    yield made
    made.close()


@pytest.fixture(scope="module")
def pids() -> Iterator[int]:
    return iter(range(500, 10_000))


@pytest.fixture
def sh(kernel: Mounted, pids: Iterator[int]) -> Iterator[Process]:
    """A process; its files go in the end, and with them all that they took."""
    process = kernel.process(next(pids))
    yield process
    clean(process)
    kernel.sync(process)
    disk = kernel.disk.replayed()
    assert disk.problems() == []
    assert set(disk.files()) == FIRST_FILES
    assert disk.free_blocks - kernel.free_blocks() in {0, 2}  # promised to the log
    process.exit()


def clean(process: Process) -> None:
    names = process.listdir("/mnt")
    assert isinstance(names, dict)
    for name in set(names) - FIRST_FILES - {".", "..", "lost+found"}:
        assert process.unlink(f"/mnt/{name}") == 0


def pattern(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def pwrite(process: Process, path: str, data: bytes, offset: int) -> int:
    fd = process.open(path, O_RDWR | O_CREAT)
    result = process.pwrite(fd, data, offset)
    assert process.close(fd) == 0
    return result


def truncate(process: Process, path: str, size: int) -> int:
    return process.call("truncate", process.path(path), size)


def size_of(process: Process, path: str) -> int:
    stat = process.stat(path)
    assert not isinstance(stat, int)
    return stat.size


# --- files ---------------------------------------------------------------------------------------


def test_the_first_files_are_there(kernel: Mounted, sh: Process) -> None:
    entries = sh.listdir("/mnt")
    assert isinstance(entries, dict)
    assert set(entries) == FIRST_FILES | {".", "..", "lost+found"}
    assert entries["."] == entries[".."] == (ROOT_INO, 4)
    text = sh.cat("/mnt/motd")
    assert isinstance(text, bytes)
    assert kernel.disk.replayed().contents()["motd"] == text


@pytest.mark.parametrize("size", [1, 100, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK, 100_000])
def test_what_is_written_is_read_back_from_the_disk(
    kernel: Mounted, sh: Process, size: int
) -> None:
    data = pattern(size)
    sh.save("/mnt/f", data)
    assert sh.cat("/mnt/f") == data
    kernel.sync(sh)
    kernel.forget_unused()
    assert sh.cat("/mnt/f") == data
    extent = kernel.disk.replayed().files()["f"].extents[0]
    kernel.forget_unused()
    kernel.poke_disk(extent.start, b"?")
    assert sh.cat("/mnt/f") == b"?" + data[1:]


def test_an_append_comes_behind_what_was_there(kernel: Mounted, sh: Process) -> None:
    data = b""
    for number in range(40):
        line = pattern(number * 17 % 500 + 1, number)
        fd = sh.open("/mnt/f", O_WRONLY | O_CREAT | O_APPEND)
        assert sh.write(fd, line) == len(line)
        assert sh.close(fd) == 0
        data += line
    assert sh.cat("/mnt/f") == data
    kernel.fsync(sh, "/mnt/f")
    assert kernel.disk.replayed().contents()["f"] == data


def test_holes_read_as_zeros_and_take_no_blocks(kernel: Mounted, sh: Process) -> None:
    assert pwrite(sh, "/mnt/f", b"end", 10 * BLOCK) == 3
    assert sh.cat("/mnt/f") == bytes(10 * BLOCK) + b"end"
    stat = sh.stat("/mnt/f")
    assert not isinstance(stat, int)
    assert stat.blocks == BLOCK // 512  # promised
    kernel.sync(sh)
    inode = kernel.disk.replayed().files()["f"]
    assert (inode.blocks, inode.size) == (BLOCK // 512, 10 * BLOCK + 3)
    assert [(e.first, e.length) for e in inode.extents] == [(10, 1)]


def test_what_is_cut_off_never_comes_back(kernel: Mounted, sh: Process) -> None:
    sh.save("/mnt/f", pattern(3 * BLOCK))
    kernel.sync(sh)
    assert truncate(sh, "/mnt/f", BLOCK + 50) == 0
    kernel.sync(sh)
    disk = kernel.disk.replayed()
    inode = disk.files()["f"]
    assert (inode.size, inode.blocks, disk.tail(inode)) == (BLOCK + 50, 16, bytes(BLOCK - 50))
    kernel.forget_unused()
    assert truncate(sh, "/mnt/f", 2 * BLOCK) == 0
    assert sh.cat("/mnt/f") == pattern(3 * BLOCK)[: BLOCK + 50] + bytes(BLOCK - 50)


def test_a_fault_in_a_mapped_file_brings_its_page_from_the_disk(
    kernel: Mounted, sh: Process
) -> None:
    data = pattern(2 * BLOCK + 100)
    sh.save("/mnt/f", data)
    kernel.sync(sh)
    kernel.forget_unused()
    fd = sh.open("/mnt/f")
    address = sh.call("mmap", 0, 3 * BLOCK, 1, 1, fd, 0)
    assert address > 0
    mapping = kernel.memory.u64(_inode_of(kernel, sh, fd) + kernel.constants["INODE_MAPPING"])
    for number in (2, 0):
        assert kernel.call("xas_load", mapping, number) == 0
        area = _area_of(kernel, sh, address)
        assert kernel.call("handle_mm_fault", area, address + number * BLOCK, 0, 0) == 0
        page = kernel.machine.call("xas_load", mapping, number)
        frame = (page - kernel.word("mem_map")) // kernel.constants["STRUCT_PAGE_BYTES"]
        content = kernel.memory.read(kernel.word("memory_start") + frame * BLOCK, BLOCK)
        assert content == data[number * BLOCK :][:BLOCK].ljust(BLOCK, b"\0")
    assert sh.call("munmap", address, 3 * BLOCK) == 0
    assert sh.close(fd) == 0


def _area_of(kernel: Mounted, process: Process, address: int) -> int:
    memory, constants = kernel.memory, kernel.constants
    mm = memory.u64(process.task.address + constants["TASK_MM"])
    area = memory.u64(mm + constants["MM_MMAP"])
    while memory.u64(area + constants["VMA_START"]) != address:
        area = memory.u64(area + constants["VMA_NEXT"])
    return area


def _inode_of(kernel: Mounted, process: Process, fd: int) -> int:
    memory, constants = kernel.memory, kernel.constants
    files = memory.u64(process.task.address + constants["TASK_FILES"])
    table = memory.u64(memory.u64(files + constants["FILES_FDT"]) + constants["FDT_FD"])
    return memory.u64(memory.u64(table + 8 * fd) + constants["FILE_INODE"])


def test_names_are_made_found_and_removed(kernel: Mounted, sh: Process) -> None:
    names = [f"{n:03}".ljust(1 + n * 37 % NAME_MAX, "x") for n in range(40)]
    for name in names:
        sh.save(f"/mnt/{name}", name.encode())
    assert kernel.disk.replayed().problems() == []
    for name in names[::3]:
        assert sh.unlink(f"/mnt/{name}") == 0
    kernel.sync(sh)
    kernel.forget_unused()
    left = {name: name.encode() for name in names if name not in names[::3]}
    entries = sh.listdir("/mnt", room=512)
    assert isinstance(entries, dict)
    assert set(entries) - FIRST_FILES == {".", "..", "lost+found", *left}
    for name, text in left.items():
        assert sh.cat(f"/mnt/{name}") == text
    on_disk = kernel.disk.replayed().contents()
    assert {name: on_disk[name] for name in left} == left
    assert sh.open(f"/mnt/{names[0]}") == -errno.ENOENT
    assert sh.open(f"/mnt/{names[1]}", O_CREAT | O_EXCL) == -errno.EEXIST
    assert sh.open("/mnt/" + "n" * (NAME_MAX + 1), O_CREAT) == -errno.ENAMETOOLONG


def test_a_file_without_a_name_lives_until_it_is_closed(kernel: Mounted, sh: Process) -> None:
    fd = sh.open("/mnt/f", O_RDWR | O_CREAT)
    assert sh.write(fd, b"still here") == 10
    free = kernel.free_blocks()
    assert sh.unlink("/mnt/f") == 0
    assert sh.pread(fd, 20, 0) == b"still here"
    assert kernel.free_blocks() == free
    assert sh.close(fd) == 0
    assert kernel.free_blocks() > free


def test_the_disk_has_room_for_so_many_files(sh: Process) -> None:
    made = 0
    while (fd := sh.open(f"/mnt/{made}", O_CREAT)) >= 0:
        assert sh.close(fd) == 0
        made += 1
    assert (made, fd) == (NEW_FILES - len(FIRST_FILES), -errno.ENOSPC)
    assert sh.unlink("/mnt/0") == 0
    fd = sh.open("/mnt/again", O_CREAT)
    assert fd >= 0
    assert sh.close(fd) == 0


def test_a_full_disk_refuses_and_takes_again(kernel: Mounted, sh: Process) -> None:
    fd = sh.open("/mnt/big", O_RDWR | O_CREAT)
    written = 0
    while (result := kernel.finish(lambda: sh.write(fd, pattern(10 * BLOCK)))) > 0:
        written += result
    assert result == -errno.ENOSPC
    assert sh.close(fd) == 0
    kernel.sync(sh)  # what was taken has found its place
    assert len(kernel.disk.replayed().contents()["big"]) == written
    sh_data = sh.cat("/mnt/big", chunk=10 * BLOCK)
    assert isinstance(sh_data, bytes)
    assert sh_data == (pattern(10 * BLOCK) * 20)[:written]
    assert truncate(sh, "/mnt/big", BLOCK) == 0
    fd = sh.open("/mnt/new", O_RDWR | O_CREAT)
    assert kernel.finish(lambda: sh.write(fd, pattern(20 * BLOCK))) == 20 * BLOCK
    assert sh.close(fd) == 0


def test_a_mapped_hole_on_a_full_disk_is_given_up_and_not_tried_for_ever(
    kernel: Mounted, sh: Process
) -> None:
    fd = sh.open("/mnt/big", O_RDWR | O_CREAT)
    while kernel.finish(lambda: sh.write(fd, pattern(10 * BLOCK))) > 0:
        pass
    kernel.sync(sh)
    assert kernel.finish(lambda: truncate(sh, "/mnt/big", 1000 * BLOCK)) == 0
    mapping = kernel.memory.u64(_inode_of(kernel, sh, fd) + kernel.constants["INODE_MAPPING"])
    holes = range(900, 920)
    for number in holes:  # as a store through a mapping leaves them
        assert sh.pread(fd, 1, number * BLOCK) == b"\0"
        page = kernel.machine.call("xas_load", mapping, number)
        assert kernel.machine.call("set_page_dirty", page) & 1
    kernel.settle()
    kernel.sync(sh)
    inode = kernel.disk.replayed().files()["big"]
    assert len([n for n in holes if inode.map(n)]) < len(holes)
    assert sh.close(fd) == 0


# --- where the blocks are ------------------------------------------------------------------------


def test_a_file_written_in_one_go_lies_in_one_piece(kernel: Mounted, sh: Process) -> None:
    data = pattern(40 * BLOCK)
    sh.save("/mnt/f", data)
    kernel.sync(sh)
    inode = kernel.disk.replayed().files()["f"]
    assert [(e.first, e.length, e.written) for e in inode.extents] == [(0, 40, True)]
    assert (inode.blocks, inode.leaf) == (40 * 8, 0)


def test_many_pieces_need_a_leaf_and_are_found_in_it(kernel: Mounted, sh: Process) -> None:
    pieces = {block: pattern(BLOCK, block) for block in random.Random(7).sample(range(60), 25)}
    for block, data in pieces.items():
        assert pwrite(sh, "/mnt/f", data, block * BLOCK) == BLOCK
        kernel.fsync(sh, "/mnt/f")
    inode = kernel.disk.replayed().files()["f"]
    assert inode.leaf
    assert inode.blocks == (len(pieces) + 1) * 8
    assert all(e.written for e in inode.extents)
    expected = b"".join(pieces.get(n, bytes(BLOCK)) for n in range(max(pieces) + 1))
    assert kernel.disk.replayed().contents()["f"] == expected
    kernel.forget_unused()
    assert sh.cat("/mnt/f") == expected
    assert truncate(sh, "/mnt/f", 0) == 0
    kernel.sync(sh)
    assert kernel.disk.replayed().files()["f"].blocks == 0


def test_a_block_is_written_before_its_extent_says_so(kernel: Mounted, sh: Process) -> None:
    sh.save("/mnt/f", pattern(2 * BLOCK))
    fd = sh.open("/mnt/f")
    inode = _inode_of(kernel, sh, fd)
    kernel.call("write_inode_now", inode, 0)
    journal = kernel.module.labels["ext4_journal"]
    kernel.machine.call(kernel.module.labels["jbd2_journal_commit_transaction"], journal)
    on_disk = kernel.disk.replayed()
    (extent,) = on_disk.files()["f"].extents
    assert (extent.length, extent.written) == (2, False)
    assert on_disk.block(extent.start) == pattern(2 * BLOCK)[:BLOCK]
    kernel.settle()  # ext4_end_io_rsv_work
    kernel.sync(sh)
    (extent,) = kernel.disk.replayed().files()["f"].extents
    assert extent.written
    assert sh.close(fd) == 0


# --- the journal ---------------------------------------------------------------------------------


def test_a_commit_puts_what_changed_into_the_log(kernel: Mounted, sh: Process) -> None:
    sh.save("/mnt/f", b"one")
    kernel.sync(sh)
    kernel.sync(sh)
    last = kernel.disk.log()[-1].sequence
    home = kernel.disk.block(INODE_TABLE)
    assert pwrite(sh, "/mnt/f", b"two", 3) == 3
    kernel.fsync(sh, "/mnt/f")
    disk = kernel.disk
    commit = disk.log()[-1]
    assert commit.sequence == last + 1
    assert set(commit.blocks) == {INODE_TABLE}
    assert disk.block(INODE_TABLE) == home  # not there yet
    assert commit.blocks[INODE_TABLE] != home
    assert disk.replayed().contents()["f"] == b"onetwo"
    assert [c.sequence for c in disk.log()] == list(range(disk.log()[0].sequence, last + 2))


def test_nothing_is_committed_that_did_not_change(kernel: Mounted, sh: Process) -> None:
    kernel.sync(sh)
    before = kernel.disk.log()
    kernel.sync(sh)
    kernel.sync(sh)
    assert kernel.disk.log() == before


def test_the_log_wraps_and_its_blocks_come_home(kernel: Mounted, sh: Process) -> None:
    seen = set()
    for number in range(60):
        assert pwrite(sh, "/mnt/f", pattern(50, number), 50 * number) == 50
        kernel.fsync(sh, "/mnt/f")
        log = kernel.disk.log()
        seen.add(log[0].sequence)
        assert kernel.disk.replayed().problems() == []
    assert len(seen) > 2  # the log began anew
    expected = b"".join(pattern(50, n) for n in range(60))
    assert kernel.disk.replayed().contents()["f"] == expected


def test_the_journals_thread_commits_after_five_seconds(kernel: Mounted, sh: Process) -> None:
    kernel.pass_time(0.1)
    kernel.sync(sh)
    assert pwrite(sh, "/mnt/f", b"late", 0) == 4
    last = kernel.disk.log()[-1].sequence
    kernel.pass_time(COMMIT_INTERVAL_S - 0.5)
    assert "f" not in kernel.disk.replayed().files()
    kernel.pass_time(1)
    log = kernel.disk.log()
    assert log[-1].sequence > last
    assert "f" in kernel.disk.replayed().files()


def test_fsync_from_another_cpu_sleeps_until_the_thread_is_done(
    kernel: Mounted, pids: Iterator[int], sh: Process
) -> None:
    other = kernel.process(next(pids), cpu=1)
    fd = other.open("/mnt/f", O_RDWR | O_CREAT)
    assert other.write(fd, b"far away") == 8
    kernel.settle()
    with pytest.raises(Asleep):
        other.call("fsync", fd)
    assert "f" not in kernel.disk.replayed().files()
    assert kernel.finish(lambda: other.call("fsync", fd)) == 0
    assert kernel.disk.replayed().contents()["f"] == b"far away"
    assert other.close(fd) == 0
    other.exit()


def test_a_commit_waits_for_the_handles_and_new_ones_for_the_commit(
    kernel: Mounted, pids: Iterator[int], sh: Process
) -> None:
    labels, call = kernel.module.labels, kernel.machine.call
    writer = kernel.process(next(pids))
    fd = writer.open("/mnt/f", O_RDWR | O_CREAT)
    kernel.settle()  # the handle is the idle task's
    handle = call(labels["jbd2_journal_start"], labels["ext4_journal"], 4)
    with pytest.raises(Asleep):
        sh.call("sync")
    with pytest.raises(Asleep):
        writer.write(fd, b"later")
    assert "f" not in kernel.disk.replayed().files()
    kernel.settle()
    call(labels["jbd2_journal_stop"], handle)
    kernel.sync(sh)
    assert kernel.disk.replayed().contents()["f"] == b""
    assert kernel.finish(lambda: writer.write(fd, b"later")) == 5
    assert writer.close(fd) == 0
    kernel.fsync(writer, "/mnt/f")
    assert kernel.disk.replayed().contents()["f"] == b"later"
    writer.exit()


def test_times_go_into_the_journal_too(kernel: Mounted, sh: Process) -> None:
    sh.save("/mnt/f", b"0123456789")
    kernel.fsync(sh, "/mnt/f")
    for _ in range(3):
        kernel.pass_time(2)
        assert pwrite(sh, "/mnt/f", b"x", 5) == 1  # no longer than before
        kernel.fsync(sh, "/mnt/f")
        stat = sh.stat("/mnt/f")
        assert not isinstance(stat, int)
        assert kernel.disk.replayed().files()["f"].mtime == stat.mtime[0]


# --- everything together -------------------------------------------------------------------------


class Model:
    """Random operations on files, and what they must contain."""

    def __init__(self, kernel: Mounted, process: Process, seed: int) -> None:
        self._kernel, self._process = kernel, process
        self._random = random.Random(seed)
        self._names = [f"file{n}" for n in range(6)] + ["long" * 50]
        self._files: dict[str, bytearray] = {}
        self._spread = self._random.choice([3, 40, 400]) * 1000

    def step(self) -> None:
        name = self._random.choice(self._names)
        content = self._files.setdefault(name, bytearray())
        path = f"/mnt/{name}"
        if self._process.stat(path) == -errno.ENOENT:
            self._process.save(path, b"")
        operations = (self._write, self._write, self._write, self._truncate, self._unlink)
        others = (self._read, self._fsync, self._sync, self._prune)
        self._random.choice([*operations, *others])(path, content)

    def _write(self, path: str, content: bytearray) -> None:
        data = self._random.randbytes(self._random.choice([1, 500, BLOCK, 20_000]))
        offset = self._random.choice([0, len(content), self._random.randrange(self._spread)])
        process = self._process
        fd = process.open(path, O_RDWR)
        written = self._kernel.finish(lambda: process.pwrite(fd, data, offset))
        assert process.close(fd) == 0
        if written < 0:
            assert written == -errno.ENOSPC
            return
        content.extend(bytes(max(offset - len(content), 0)))
        content[offset : offset + written] = data[:written]

    def _truncate(self, path: str, content: bytearray) -> None:
        size = self._random.choice([0, len(content) // 2, len(content) + 3000])
        assert self._kernel.finish(lambda: truncate(self._process, path, size)) == 0
        del content[size:]
        content.extend(bytes(size - len(content)))

    def _unlink(self, path: str, content: bytearray) -> None:
        assert self._kernel.finish(lambda: self._process.unlink(path)) == 0
        del self._files[path.removeprefix("/mnt/")]

    def _read(self, path: str, content: bytearray) -> None:
        found = self._process.cat(path, self._random.choice([1000, BLOCK, 65536]))
        assert found == bytes(content)

    def _fsync(self, path: str, content: bytearray) -> None:
        self._kernel.fsync(self._process, path)
        name = path.removeprefix("/mnt/")
        assert self._kernel.disk.replayed().contents()[name] == content

    def _sync(self, path: str, content: bytearray) -> None:
        self._kernel.sync(self._process)
        on_disk = self._kernel.disk.replayed().contents()
        assert {name: on_disk[name] for name in self._files} == self._files

    def _prune(self, path: str, content: bytearray) -> None:
        self._kernel.forget_unused()
        self._kernel.pass_time(self._random.choice([0.3, 3]))

    def check(self) -> None:
        for name in self._files:
            self._read(f"/mnt/{name}", self._files[name])
        self._sync("", bytearray())


@pytest.mark.parametrize("seed", range(6))
def test_the_disk_is_consistent_at_every_moment(kernel: Mounted, sh: Process, seed: int) -> None:
    model = Model(kernel, sh, seed)
    for _ in range(80):
        model.step()
        assert kernel.disk.replayed().problems() == []
    model.check()


@pytest.mark.skipif(shutil.which("e2fsck") is None, reason="e2fsck is not installed")
def test_e2fsck_has_no_complaint(kernel: Mounted, sh: Process, tmp_path: Path) -> None:
    model = Model(kernel, sh, 100)
    for _ in range(40):
        model.step()
    model.check()
    image = tmp_path / "vda1"
    image.write_bytes(kernel.disk.replayed().without_journal())
    checked = subprocess.run(["e2fsck", "-fn", image], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


# --- by itself, and going again ------------------------------------------------------------------


def test_a_line_a_second_goes_into_the_log_which_begins_anew(kernel: Mounted, sh: Process) -> None:
    before = size_of(sh, "/mnt/syslog")
    kernel.pass_time(10)
    text = sh.cat("/mnt/syslog")
    assert isinstance(text, bytes)
    assert 8 <= text[before:].count(b"\n") <= 10
    assert all(line.startswith(b"[") for line in text.splitlines())
    sizes = []
    for _ in range(40):
        kernel.pass_time(10, step=0.25)
        sizes.append(size_of(sh, "/mnt/syslog"))
    assert max(sizes) < LOG_MAX + 100
    assert sizes != sorted(sizes)
    assert kernel.disk.replayed().contents()["syslog"] in sh.cat("/mnt/syslog")  # type: ignore[operator]


def test_ext4_ambient_does_nothing_where_it_cannot_sleep_but_soon(kernel: Mounted) -> None:
    kernel.settle()  # the idle task is current
    lines = kernel.memory.u32(kernel.module.labels["ext4_log_lines"])
    kernel.machine.call(kernel.module.labels["ext4_ambient"])
    assert kernel.memory.u32(kernel.module.labels["ext4_log_lines"]) == lines
    kernel.settle()
    assert kernel.memory.u32(kernel.module.labels["ext4_log_lines"]) == lines + 1


def test_every_function_of_the_module_has_its_part(pids: Iterator[int]) -> None:
    kernel = Mounted()
    try:
        process = kernel.process(next(pids))
        model = Model(kernel, process, 0)
        for _ in range(80):
            model.step()
        clean(process)
        for tour in (
            test_names_are_made_found_and_removed,
            test_a_fault_in_a_mapped_file_brings_its_page_from_the_disk,
            test_a_full_disk_refuses_and_takes_again,
            test_a_mapped_hole_on_a_full_disk_is_given_up_and_not_tried_for_ever,
            test_many_pieces_need_a_leaf_and_are_found_in_it,
            test_the_log_wraps_and_its_blocks_come_home,
        ):
            tour(kernel, process)
            clean(process)
        kernel.sync(process)
        test_a_commit_waits_for_the_handles_and_new_ones_for_the_commit(kernel, pids, process)
        fd = process.open("/mnt", O_DIRECTORY)
        assert process.lseek(fd, 0) == kernel.finish(lambda: process.call("fsync", fd)) == 0
        process.exit()
        kernel.pass_time(2 * COMMIT_INTERVAL_S)
        assert kernel.functions() == kernel.called()
        assert len(kernel.functions()) > 120
    finally:
        kernel.close()


def test_the_module_goes_and_comes_again(pids: Iterator[int]) -> None:
    kernel = Mounted()
    try:
        process = kernel.process(next(pids))
        fd = process.open("/mnt/motd")
        with pytest.raises(ModuleError):
            kernel.unload()
        assert process.close(fd) == 0
        process.exit()
        held = []
        for _ in range(3):
            kernel.pass_time(3)
            address = kernel.memory.u64(kernel.module.labels["vda1"])
            size = len(kernel.disk.image)
            kernel.unload()
            left = Disk(kernel.memory.read(address, size))
            assert left.problems() == []
            assert left.log() == []
            assert not left.incompat & INCOMPAT_RECOVER
            held.append(kernel.holdings())
            process = kernel.process(next(pids))
            assert process.listdir("/mnt") == process.listdir("/mnt/.")
            assert process.open("/mnt/motd") == -errno.ENOENT
            process.exit()
            kernel.pass_time(2)
            kernel.load()
            process = kernel.process(next(pids))
            assert isinstance(process.cat("/mnt/motd"), bytes)
            process.exit()
        assert held[1] == held[2]
    finally:
        kernel.close()


def test_the_sources_are_the_modules_own() -> None:
    names = [path.name for path in module_sources("ext4")]
    assert names.index("ext4.inc") < names.index("ext4.S") < names.index("jbd2.S")

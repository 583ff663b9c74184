"""The module ext4: what is written is read back, and the disk is right at every moment."""

from __future__ import annotations

import errno
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ext4_disk import BLOCK, INCOMPAT_RECOVER, ROOT_INO, Disk
from support.ext4_kernel import (
    COMMIT_INTERVAL_S,
    FIRST_FILES,
    Mounted,
    clean,
    inode_of,
    meet_in_a_commit,
    page_content,
    pattern,
    pwrite,
    size_of,
    tidy_process,
    truncate,
    write_and_fsync_often,
)
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

NAME_MAX = 255
NEW_FILES = 53  # inodes that an empty disk has left
LOG_MAX = 4 * BLOCK
EI_RESERVED = 80  # of ext4_inode_info


@pytest.fixture(scope="module")
def kernel() -> Iterator[Mounted]:
    made = Mounted()
    yield made
    made.close()


@pytest.fixture
def sh(kernel: Mounted, pids: Iterator[int]) -> Iterator[Process]:
    with tidy_process(kernel, next(pids)) as process:
        yield process


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
    mapping = kernel.memory.u64(inode_of(kernel, sh, fd) + kernel.constants["INODE_MAPPING"])
    for number in (2, 0):
        assert kernel.call("xas_load", mapping, number) == 0
        area = _area_of(kernel, sh, address)
        assert kernel.call("handle_mm_fault", area, address + number * BLOCK, 0, 0) == 0
        content = kernel.memory.read(page_content(kernel, mapping, number), BLOCK)
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


def test_what_lies_behind_the_end_of_a_mapped_file_is_not_written(
    kernel: Mounted, sh: Process
) -> None:
    sh.save("/mnt/f", pattern(100))
    fd = sh.open("/mnt/f", O_RDWR)
    mapping = kernel.memory.u64(inode_of(kernel, sh, fd) + kernel.constants["INODE_MAPPING"])
    kernel.memory.write(page_content(kernel, mapping, 0) + 50, b"!" * 200)
    kernel.sync(sh)
    disk = kernel.disk.replayed()
    assert disk.contents()["f"] == pattern(100)[:50] + b"!" * 50
    assert disk.tail(disk.files()["f"]) == bytes(BLOCK - 100)
    assert sh.close(fd) == 0


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


def test_the_room_of_removed_names_is_used_again() -> None:
    kernel = Mounted()
    try:
        process = kernel.process()
        for number in range(45):
            process.save(f"/mnt/{number:080}", b"")
        size = size_of(process, "/mnt")
        clean(process)
        for number in range(12):  # each as long as three of them
            process.save(f"/mnt/{number:0{NAME_MAX}}", b"")
        assert size_of(process, "/mnt") == size == BLOCK
        process.exit()
    finally:
        kernel.close()


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
    mapping = kernel.memory.u64(inode_of(kernel, sh, fd) + kernel.constants["INODE_MAPPING"])
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
    inode = inode_of(kernel, sh, fd)
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


STATUS_WRITTEN, STATUS_UNWRITTEN, STATUS_DELAYED = 1, 2, 4


@pytest.mark.parametrize("seed", range(3))
def test_the_extent_status_list_knows_what_it_was_told(
    kernel: Mounted, sh: Process, seed: int
) -> None:
    labels, call = kernel.module.labels, kernel.machine.call
    rng = random.Random(seed)
    fd = sh.open("/mnt/f", O_RDWR | O_CREAT)
    inode = inode_of(kernel, sh, fd)
    info = kernel.memory.u64(inode + kernel.constants["INODE_FS_DATA"])
    room = kernel.machine.alloc(64)
    model: dict[int, tuple[int, int]] = {}  # block -> (where, status)
    for _ in range(300):
        first, length, start = rng.randrange(40), rng.randrange(1, 12), rng.randrange(1000)
        blocks = range(first, first + length)
        match rng.randrange(4):
            case 0:
                call(labels["ext4_es_remove_extent"], inode, first, blocks[-1])
                for block in blocks:
                    model.pop(block, None)
            case 1 if first not in model:
                assert call(labels["ext4_insert_delayed_block"], inode, first) == 0
                model[first] = (0, STATUS_DELAYED)
            case _:
                status = rng.choice([STATUS_WRITTEN, STATUS_UNWRITTEN])
                start = rng.choice([start, first + 100])  # so that some can be merged
                call(labels["ext4_es_insert_extent"], inode, first, length, start, status)
                promised = sum(model.get(b, (0, 0))[1] == STATUS_DELAYED for b in blocks)
                call(labels["ext4_da_update_reserve_space"], inode, promised)
                model |= {b: (start + b - first, status) for b in blocks}
        delayed = [b for b, (_, status) in model.items() if status == STATUS_DELAYED]
        assert kernel.memory.u32(info + EI_RESERVED) == len(delayed)
        for block in range(55):
            known = call(labels["ext4_es_lookup_extent"], inode, block, 0, room) & 1
            assert known == (block in model)
            if known:
                first, length, start, status = struct.unpack(
                    "<IIQI", kernel.memory.read(room + 16, 20)
                )
                assert first <= block < first + length
                assert model[block][1] == status
                assert status == STATUS_DELAYED or start + block - first == model[block][0]
    call(labels["ext4_es_remove_extent"], inode, 0, 100)
    assert sh.close(fd) == 0


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
    text = sh.cat("/mnt/syslog")
    assert isinstance(text, bytes)
    on_disk = kernel.disk.replayed().contents()["syslog"]
    assert text.startswith(on_disk.rstrip(b"\0"))  # its last block may be behind its size


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
            write_and_fsync_often,
        ):
            tour(kernel, process)
            clean(process)
        kernel.sync(process)
        meet_in_a_commit(kernel, process, next(pids))
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

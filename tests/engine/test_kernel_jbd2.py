"""The journal of the module ext4: whatever was committed survives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.ext4_disk import BLOCK
from support.ext4_kernel import (
    COMMIT_INTERVAL_S,
    Mounted,
    meet_in_a_commit,
    pattern,
    pwrite,
    tidy_process,
    write_and_fsync_often,
)
from support.syscalls import O_CREAT, O_RDWR, Process

from emulated_kernel.tasks import Asleep

INODE_TABLE = 4


@pytest.fixture(scope="module")
def kernel() -> Iterator[Mounted]:
    made = Mounted()
    yield made
    made.close()


@pytest.fixture
def sh(kernel: Mounted, pids: Iterator[int]) -> Iterator[Process]:
    with tidy_process(kernel, next(pids)) as process:
        yield process


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
    write_and_fsync_often(kernel, sh)


def test_a_block_that_looks_like_one_of_the_journal_is_disguised_in_it(
    kernel: Mounted, sh: Process
) -> None:
    labels, call = kernel.module.labels, kernel.machine.call
    magic = bytes.fromhex("c03b3998")
    kernel.sync(sh)
    kernel.settle()
    number = kernel.disk.nr_blocks - 1
    buffer = call(labels["ext4_sb_bread"], kernel.memory.u64(labels["ext4_sb"]), number, 0)
    handle = call(labels["jbd2_journal_start"], labels["ext4_journal"], 2)
    assert call(labels["jbd2_journal_get_write_access"], handle, buffer) == 0
    kernel.memory.write(kernel.memory.u64(buffer), magic + b"and more")
    assert call(labels["jbd2_journal_dirty_metadata"], handle, buffer) == 0
    assert call(labels["jbd2_journal_stop"], handle) == 0
    kernel.sync(sh)
    disk = kernel.disk
    assert disk.log()[-1].blocks[number].startswith(magic + b"and more")
    assert disk.image.count(bytes(4) + b"and more") == 1
    call(labels["jbd2_log_do_checkpoint"], labels["ext4_journal"])
    assert kernel.disk.block(number).startswith(magic + b"and more")
    assert kernel.disk.log() == []


def test_what_the_log_holds_of_a_freed_block_does_not_come_back_over_data(
    kernel: Mounted, sh: Process
) -> None:
    kernel.machine.call(
        kernel.module.labels["jbd2_log_do_checkpoint"], kernel.module.labels["ext4_journal"]
    )
    for block in range(1, 19, 2):
        assert pwrite(sh, "/mnt/f", b"x", block * BLOCK) == 1
    kernel.fsync(sh, "/mnt/f")
    leaf = kernel.disk.replayed().files()["f"].leaf
    assert leaf in kernel.disk.log()[-1].blocks
    assert sh.unlink("/mnt/f") == 0
    kernel.sync(sh)
    fd = sh.open("/mnt/big", O_RDWR | O_CREAT)
    written = b""
    while (done := kernel.finish(lambda: sh.write(fd, pattern(10 * BLOCK)))) > 0:
        written += pattern(10 * BLOCK)[:done]
    assert sh.close(fd) == 0
    kernel.fsync(sh, "/mnt/big")
    disk = kernel.disk.replayed()
    assert any(e.start <= leaf < e.start + e.length for e in disk.files()["big"].extents)
    assert disk.contents()["big"] == written


def test_the_journals_thread_commits_after_five_seconds(kernel: Mounted, sh: Process) -> None:
    kernel.pass_time(0.1)
    kernel.sync(sh)
    assert pwrite(sh, "/mnt/f", b"late", 0) == 4
    last = kernel.committed
    kernel.pass_time(COMMIT_INTERVAL_S - 0.5)
    assert "f" not in kernel.disk.replayed().files()
    kernel.pass_time(1)
    assert kernel.committed > last
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
    meet_in_a_commit(kernel, sh, next(pids))


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

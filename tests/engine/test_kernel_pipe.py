"""Pipes of the guest, poll and ioctl."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

import pytest
from support.syscalls import O_CREAT, O_NONBLOCK, O_RDWR, PAGE, Kernel, Process

from emulated_kernel.tasks import Asleep, TaskDied

PATTERN = bytes(i * 7 & 0xFF for i in range(3 * PAGE + 123))


def pipe(process: Process, flags: int = 0) -> tuple[int, int]:
    assert process.call("pipe2", process.buffer, flags) == 0
    return struct.unpack("<ii", process.get(8))  # type: ignore[return-value]


def test_a_pipe_hands_bytes_on_in_order(sh: Process) -> None:
    reader, writer = pipe(sh)
    assert sh.write(writer, b"hello ") == 6
    assert sh.write(writer, b"world") == 5
    assert sh.read(reader, 3) == b"hel"
    assert sh.read(reader, 100) == b"lo world"
    assert sh.lseek(reader, 0) == -errno.ESPIPE
    sh.close(writer)
    assert sh.read(reader, 1) == b""


def test_a_full_and_an_empty_pipe(sh: Process) -> None:
    reader, writer = pipe(sh, O_NONBLOCK)
    assert sh.read(reader, 1) == -errno.EAGAIN
    assert sh.write(writer, PATTERN * 8) == 16 * PAGE
    assert sh.write(writer, b"x") == -errno.EAGAIN
    text = b""
    while not isinstance(part := sh.read(reader, 10_000), int):
        text += part
    assert part == -errno.EAGAIN
    assert text == (PATTERN * 8)[: 16 * PAGE]
    for size in (1, 100, PAGE, 3 * PAGE, 5000) * 5:  # round the ring
        assert sh.write(writer, PATTERN[:size]) == size
        assert sh.read(reader, size) == PATTERN[:size]


def test_a_sleeping_reader_is_woken(sh: Process, kernel: Kernel, pids: Iterator[int]) -> None:
    reader, writer = pipe(sh)
    child = kernel.process(next(pids), ppid=sh.task.pid, comm="cat", cpu=1)
    with pytest.raises(Asleep):
        child.call("read", reader, child.buffer, 100)
    assert sh.write(writer, b"ping") == 4
    assert child.call("read") == 4
    assert child.get(4) == b"ping"
    with pytest.raises(Asleep):
        child.call("read", reader, child.buffer, 100)
    child.exit()
    assert sh.write(writer, b"x") == 1
    assert sh.read(reader, 1) == b"x"


def test_a_sleeping_writer_is_woken(sh: Process, kernel: Kernel, pids: Iterator[int]) -> None:
    reader, writer = pipe(sh)
    child = kernel.process(next(pids), ppid=sh.task.pid, comm="cat", cpu=1)
    child.put(PATTERN * 8)
    with pytest.raises(Asleep):
        child.call("write", writer, child.buffer, 17 * PAGE)
    assert sh.read(reader, 2 * PAGE) == PATTERN[: 2 * PAGE]
    assert child.call("write") == 17 * PAGE
    child.exit()


def test_polling(sh: Process) -> None:
    reader, writer = pipe(sh)
    file = sh.open("/etc/hostname")
    fds = [(reader, 1), (writer, 4), (file, 5), (66, 1), (-1, 1)]

    def poll(timeout: int = 0) -> tuple[int, list[int]]:
        data = b"".join(struct.pack("<ihh", fd, events, 0) for fd, events in fds)
        result = sh.call("poll", sh.put(data), len(fds), timeout)
        answer = sh.get(8 * len(fds))
        return result, [struct.unpack_from("<h", answer, 8 * i + 6)[0] for i in range(len(fds))]

    assert poll() == (3, [0, 4, 5, 0x20, 0])
    sh.write(writer, b"x")
    assert poll() == (4, [1, 4, 5, 0x20, 0])
    sh.close(writer)
    assert poll()[1][0] == 0x11  # the last byte, and that no more will come


def test_polling_sleeps_until_there_is_something(
    sh: Process, kernel: Kernel, pids: Iterator[int]
) -> None:
    reader, writer = pipe(sh)
    child = kernel.process(next(pids), ppid=sh.task.pid, comm="cat", cpu=1)
    child.put(struct.pack("<ihh", reader, 1, 0))
    with pytest.raises(Asleep):
        child.call("poll", child.buffer, 1, (1 << 64) - 1)
    sh.write(writer, b"x")
    assert child.call("poll") == 1
    assert child.get(8) == struct.pack("<ihh", reader, 1, 1)
    child.exit()


def test_writing_to_a_pipe_nobody_reads(sh: Process, kernel: Kernel, pids: Iterator[int]) -> None:
    child = kernel.process(next(pids), ppid=sh.task.pid, comm="cat")
    reader, writer = pipe(child)
    child.close(reader)
    with pytest.raises(TaskDied):
        child.write(writer, b"x")


def test_ioctl(sh: Process) -> None:
    reader, writer = pipe(sh)
    sh.write(writer, b"12345")
    assert sh.call("ioctl", reader, 0x541B, sh.buffer) == 0  # FIONREAD
    assert struct.unpack("<i", sh.get(4)) == (5,)
    sh.put(struct.pack("<i", 1))
    assert sh.call("ioctl", reader, 0x5421, sh.buffer) == 0  # FIONBIO
    sh.read(reader, 5)
    assert sh.read(reader, 1) == -errno.EAGAIN
    assert sh.call("ioctl", reader, 0x5401, sh.buffer) == -errno.ENOTTY
    sh.save("f", b"1234")
    fd = sh.open("f")
    sh.read(fd, 1)
    assert sh.call("ioctl", fd, 0x541B, sh.buffer) == 0
    assert struct.unpack("<i", sh.get(4)) == (3,)


def test_syncing(sh: Process) -> None:
    fd = sh.open("f", O_RDWR | O_CREAT)
    sh.write(fd, PATTERN)
    assert sh.call("fsync", fd) == 0
    assert sh.call("sync") == 0
    assert sh.call("fsync", 44) == -errno.EBADF
    reader, _ = pipe(sh)
    assert sh.call("fsync", reader) == -errno.EINVAL

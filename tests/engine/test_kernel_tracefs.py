"""The tracefs of the guest: its tree is the guest's, its file operations are the host's."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

import pytest
from support.syscalls import AT_FDCWD, O_CREAT, O_RDWR, O_WRONLY, PAGE, Kernel, Process

from emulated_kernel.tasks import Asleep

S_IFDIR, S_IFREG = 0o040000, 0o100000


class Host:
    """Answers the file operations of tracefs as told, and remembers what it was asked."""

    def __init__(self, kernel: Kernel, **answers: list[int]) -> None:
        self._names = {
            value: name.removeprefix("HOST_FOP_").lower()
            for name, value in kernel.constants.items()
            if name.startswith("HOST_FOP_")
        }
        self._answers = answers
        self.asked: list[str] = []

    def __call__(self, operation: int) -> int:
        name = self._names[operation]
        self.asked.append(name)
        answers = self._answers.get(name)
        return answers.pop(0) if answers else 0


@pytest.fixture
def tracefs(kernel: Kernel) -> Iterator[int]:
    """The directory dir of the guest's tracefs, with the file f in it."""
    before = kernel.holdings()
    name = kernel.machine.alloc(PAGE)
    kernel.memory.write(name, b"dir\0")
    directory = kernel.call("tracefs_create_dir", name, 0) & (1 << 64) - 1
    assert directory
    kernel.memory.write(name, b"f\0")
    fops = kernel.image.label("tracing_fops")
    file = kernel.call("tracefs_create_file", name, 0o640, directory, 0x77, fops)
    assert file
    assert kernel.call("tracefs_create_file", name, 0o640, directory, 0x77, fops) == 0  # it exists
    yield directory
    kernel.call("tracefs_remove", directory)
    assert kernel.holdings() == before


TRACING_FILE = "/sys/kernel/tracing/dir/f"


def test_tracefs_files_are_made_and_removed(sh: Process, kernel: Kernel, tracefs: int) -> None:
    assert sh.listdir("/sys/kernel/tracing/dir").keys() == {".", "..", "f"}  # type: ignore[union-attr]
    assert sh.stat(TRACING_FILE).mode == S_IFREG | 0o640  # type: ignore[union-attr]
    assert sh.stat("/sys/kernel/tracing/dir").nlink == 2  # type: ignore[union-attr]
    assert sh.open("/sys/kernel/tracing/new", O_WRONLY | O_CREAT) == -errno.EACCES
    assert sh.mkdir("/sys/kernel/tracing/new") == -errno.EPERM
    assert sh.unlink(TRACING_FILE) == -errno.EPERM


def test_the_host_answers_for_tracefs_files(sh: Process, kernel: Kernel, tracefs: int) -> None:
    host = Host(kernel, read=[5, 0], write=[3], llseek=[2], poll=[0x41])
    fd = sh.call("openat", AT_FDCWD, sh.path(TRACING_FILE), O_RDWR, 0, answer=host)
    assert fd >= 0
    assert sh.call("read", fd, sh.buffer, 100, answer=host) == 5
    assert sh.call("read", fd, sh.buffer, 100, answer=host) == 0
    assert sh.call("write", fd, sh.buffer, 3, answer=host) == 3
    assert sh.call("lseek", fd, 2, 0, answer=host) == 2
    sh.put(struct.pack("<ihh", fd, 1, 0))
    assert sh.call("poll", sh.buffer, 1, 0, answer=host) == 1
    assert sh.get(8)[6:] == b"\1\0"
    assert sh.call("close", fd, answer=host) == 0
    assert host.asked == ["open", "read", "read", "write", "llseek", "poll", "release"]


def test_an_open_that_the_host_refuses(sh: Process, kernel: Kernel, tracefs: int) -> None:
    host = Host(kernel, open=[-errno.EBUSY])
    assert sh.call("openat", AT_FDCWD, sh.path(TRACING_FILE), 0, 0, answer=host) == -errno.EBUSY
    assert host.asked == ["open"]


def test_a_read_with_nothing_there_sleeps(sh: Process, kernel: Kernel, tracefs: int) -> None:
    sleep = kernel.constants["HOST_FOP_SLEEP"]
    host = Host(kernel, read=[sleep, sleep, 4])
    fd = sh.call("openat", AT_FDCWD, sh.path(TRACING_FILE), 0, 0, answer=host)
    for _ in range(2):
        with pytest.raises(Asleep):
            sh.call("read", fd, sh.buffer, 100, answer=host)
    assert sh.call("read", answer=host) == 4
    host = Host(kernel, read=[sleep])
    with pytest.raises(Asleep):
        sh.call("read", fd, sh.buffer, 100, answer=host)
    kernel.machine.run(lambda: kernel.tasks.interrupt(sh.task))
    retval = kernel.memory.u64(sh.task.address + kernel.constants["TASK_RETVAL"])
    assert retval == (1 << 64) - errno.EINTR
    assert host.asked == ["read"]
    assert sh.close(fd) == 0


def test_a_removed_tracefs_file_can_still_be_closed(sh: Process, kernel: Kernel) -> None:
    name = kernel.machine.alloc(PAGE)
    kernel.memory.write(name, b"gone\0")
    file = kernel.call("tracefs_create_file", name, 0o640, 0, 0, 0) & (1 << 64) - 1
    host = Host(kernel, read=[1])
    fd = sh.call("openat", AT_FDCWD, sh.path("/sys/kernel/tracing/gone"), 0, 0, answer=host)
    kernel.call("tracefs_remove", file)
    assert sh.open("/sys/kernel/tracing/gone") == -errno.ENOENT
    assert sh.call("read", fd, sh.buffer, 10, answer=host) == 1
    assert sh.call("close", fd, answer=host) == 0
    assert host.asked == ["open", "read", "release"]


def test_directories_of_instances_are_the_hosts(sh: Process, kernel: Kernel) -> None:
    before = kernel.holdings()
    name = kernel.machine.alloc(PAGE)
    kernel.memory.write(name, b"instances\0")
    parent = kernel.call("tracefs_create_instance_dir", name, 0) & (1 << 64) - 1
    kernel.memory.write(name, b"foo\0")
    made = []

    def answer(operation: int) -> int:
        if operation == kernel.constants["HOST_FOP_MKDIR"]:
            made.append(kernel.call("tracefs_create_dir", name, parent) & (1 << 64) - 1)
        else:
            assert operation == kernel.constants["HOST_FOP_RMDIR"]
            kernel.call("tracefs_remove", made.pop())
        return 0

    path = "/sys/kernel/tracing/instances/foo"
    assert sh.call("mkdir", sh.path(path), 0o755, answer=answer) == 0
    assert sh.stat(path).mode == S_IFDIR | 0o750  # type: ignore[union-attr]
    assert sh.call("rmdir", sh.path(path), answer=answer) == 0
    assert sh.stat(path) == -errno.ENOENT
    kernel.call("tracefs_remove", parent)
    assert kernel.holdings() == before

"""Files of the guest: system calls do with them what Linux does."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

import pytest
from support.syscalls import (
    AT_FDCWD,
    O_APPEND,
    O_CLOEXEC,
    O_CREAT,
    O_DIRECTORY,
    O_EXCL,
    O_NOFOLLOW,
    O_RDONLY,
    O_RDWR,
    O_TRUNC,
    O_WRONLY,
    PAGE,
    Kernel,
    Process,
    Stat,
)

from emulated_kernel.asm_offsets import PAGE_OFFSET

S_IFMT, S_IFDIR, S_IFREG, S_IFLNK, S_IFCHR = 0o170000, 0o040000, 0o100000, 0o120000, 0o020000
DT_CHR, DT_DIR, DT_REG, DT_LNK = 2, 4, 8, 10
SEEK_SET, SEEK_CUR, SEEK_END = 0, 1, 2
PATTERN = bytes(i * 7 & 0xFF for i in range(3 * PAGE + 123))


# --- contents ------------------------------------------------------------------------------------


def test_what_was_written_is_read_back_across_pages(sh: Process) -> None:
    fd = sh.open("f", O_RDWR | O_CREAT)
    assert sh.write(fd, PATTERN) == len(PATTERN)
    assert sh.lseek(fd, 0) == 0
    assert sh.read(fd, 2 * len(PATTERN)) == PATTERN
    assert sh.read(fd, 10) == b""


@pytest.mark.parametrize("step", [1000, PAGE, PAGE + 1, 5000])
def test_pieces_of_any_size_make_the_same_file(sh: Process, step: int) -> None:
    fd = sh.open("f", O_RDWR | O_CREAT)
    for at in range(0, len(PATTERN), step):
        piece = PATTERN[at : at + step]
        assert sh.write(fd, piece) == len(piece)
    sh.lseek(fd, 0)
    pieces = list(iter(lambda: sh.read(fd, 777), b""))
    assert b"".join(pieces) == PATTERN  # type: ignore[arg-type]


def test_a_hole_reads_as_zeros(sh: Process) -> None:
    fd = sh.open("f", O_RDWR | O_CREAT)
    assert sh.pwrite(fd, b"end", 70 * PAGE + 5) == 3
    assert sh.pread(fd, 100, 10) == bytes(100)
    assert sh.pread(fd, 100, 70 * PAGE) == bytes(5) + b"end"
    assert sh.pwrite(fd, b"x", 1 << 30) == 1
    assert sh.pread(fd, 3, (1 << 30) - 2) == b"\0\0x"
    assert sh.pread(fd, 3, 70 * PAGE + 5) == b"end"


def test_a_position_read_or_write_leaves_the_position_alone(sh: Process) -> None:
    fd = sh.open("f", O_RDWR | O_CREAT)
    sh.write(fd, b"0123456789")
    sh.lseek(fd, 3)
    assert sh.pread(fd, 2, 7) == b"78"
    assert sh.pwrite(fd, b"ab", 0) == 2
    assert sh.read(fd, 3) == b"345"
    assert sh.call("pread64", fd, sh.buffer, 1, (1 << 64) - 1) == -errno.EINVAL


def test_seeking(sh: Process) -> None:
    fd = sh.open("f", O_RDWR | O_CREAT)
    sh.write(fd, b"0123456789")
    assert sh.lseek(fd, -4, SEEK_END) == 6
    assert sh.lseek(fd, -2, SEEK_CUR) == 4
    assert sh.lseek(fd, 0, SEEK_CUR) == 4
    assert sh.read(fd, 1) == b"4"
    assert sh.lseek(fd, 100, SEEK_SET) == 100
    assert sh.read(fd, 1) == b""
    assert sh.lseek(fd, -1, SEEK_SET) == -errno.EINVAL
    assert sh.lseek(fd, 0, 9) == -errno.EINVAL
    assert sh.lseek(99, 0) == -errno.EBADF


def test_append_writes_at_the_end_whatever_the_position(sh: Process) -> None:
    sh.save("f", b"one")
    fd = sh.open("f", O_WRONLY | O_APPEND)
    sh.lseek(fd, 0)
    assert sh.write(fd, b"two") == 3
    assert sh.cat("f") == b"onetwo"


def test_truncating_cuts_and_what_comes_back_is_zero(sh: Process, kernel: Kernel) -> None:
    fd = sh.open("f", O_RDWR | O_CREAT)
    sh.write(fd, PATTERN)
    full = kernel.holdings()["pages"]
    assert sh.call("ftruncate", fd, PAGE + 10) == 0
    assert kernel.holdings()["pages"] == full - 2
    assert sh.call("ftruncate", fd, 3 * PAGE) == 0
    assert sh.cat("f") == PATTERN[: PAGE + 10] + bytes(2 * PAGE - 10)
    assert sh.call("truncate", sh.path("f"), 5) == 0
    assert sh.cat("f") == PATTERN[:5]
    assert sh.call("ftruncate", fd, (1 << 64) - 1) == -errno.EINVAL
    reader = sh.open("f")
    assert sh.call("ftruncate", reader, 0) == -errno.EINVAL


def test_o_trunc_empties_and_a_new_open_does_not(sh: Process) -> None:
    sh.save("f", PATTERN)
    sh.close(sh.open("f", O_WRONLY))
    assert sh.cat("f") == PATTERN
    sh.close(sh.open("f", O_WRONLY | O_TRUNC))
    assert sh.cat("f") == b""


def test_an_unlinked_file_lives_while_it_is_open(sh: Process, kernel: Kernel) -> None:
    before = kernel.holdings()
    fd = sh.open("f", O_RDWR | O_CREAT)
    sh.write(fd, PATTERN)
    assert sh.unlink("f") == 0
    assert sh.open("f") == -errno.ENOENT
    assert sh.pread(fd, len(PATTERN), 0) == PATTERN
    assert sh.fstat(fd).nlink == 0  # type: ignore[union-attr]
    sh.close(fd)
    assert kernel.holdings() == before


def test_writing_moves_the_time_of_modification(sh: Process, kernel: Kernel) -> None:
    fd = sh.open("f", O_RDWR | O_CREAT)
    now = kernel.machine.alloc(16)
    kernel.memory.write(now, struct.pack("<qq", 2_000_000_000, 5))
    assert kernel.call("do_settimeofday64", now) == 0
    sh.write(fd, b"x")
    after = sh.fstat(fd)
    assert isinstance(after, Stat)
    assert after.mtime >= (2_000_000_000, 5)
    assert after.size == 1


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "flags", "error"),
    [
        ("nothing", O_RDONLY, errno.ENOENT),
        ("", O_RDONLY, errno.ENOENT),
        ("no/where", O_RDWR | O_CREAT, errno.ENOENT),
        ("/etc/hostname/x", O_RDONLY, errno.ENOTDIR),
        ("/etc/hostname/", O_RDONLY, errno.ENOTDIR),
        ("/etc/hostname", O_DIRECTORY, errno.ENOTDIR),
        ("/etc/hostname", O_RDWR | O_CREAT | O_EXCL, errno.EEXIST),
        ("/etc", O_RDWR, errno.EISDIR),
        ("/etc", O_RDONLY | O_CREAT, errno.EISDIR),
        ("new/", O_RDWR | O_CREAT, errno.EISDIR),
        ("x" * 256, O_RDONLY, errno.ENAMETOOLONG),
        ("/" + "x/" * 2100, O_RDONLY, errno.ENAMETOOLONG),
    ],
)
def test_what_cannot_be_opened(sh: Process, path: str, flags: int, error: int) -> None:
    assert sh.open(path, flags) == -error


def test_descriptors_that_are_not_there_or_not_for_this(sh: Process, kernel: Kernel) -> None:
    assert sh.read(7, 1) == -errno.EBADF
    assert sh.write(1 << 20, b"x") == -errno.EBADF
    assert sh.close(3) == -errno.EBADF
    reader, writer = sh.open("f", O_RDONLY | O_CREAT), sh.open("f", O_WRONLY)
    assert sh.write(reader, b"x") == -errno.EBADF
    assert sh.read(writer, 1) == -errno.EBADF
    directory = sh.open("/tmp")
    assert sh.read(directory, 10) == -errno.EISDIR


def test_memory_that_is_not_the_callers(sh: Process, kernel: Kernel) -> None:
    sh.save("f", b"text")
    fd = sh.open("f", O_RDWR)
    kernel_address = PAGE_OFFSET + (100 << 20)
    assert sh.call("read", fd, kernel_address, 4) == -errno.EFAULT
    assert sh.call("write", fd, kernel_address, 4) == -errno.EFAULT
    assert sh.call("openat", AT_FDCWD, kernel_address, 0, 0) == -errno.EFAULT
    assert sh.call("newfstat", fd, kernel_address) == -errno.EFAULT
    assert sh.cat("f") == b"text"


def test_memory_that_is_not_mapped(sh: Process) -> None:
    sh.save("f", b"text")
    fd = sh.open("f", O_RDWR)
    nowhere = 0x1000_0000
    assert sh.call("read", fd, nowhere, 4) == -errno.EFAULT
    assert sh.call("write", fd, nowhere, 4) == -errno.EFAULT
    assert sh.call("openat", AT_FDCWD, nowhere, 0, 0) == -errno.EFAULT
    assert sh.cat("f") == b"text"


# --- names ---------------------------------------------------------------------------------------


def test_a_directory_lists_what_is_in_it(sh: Process) -> None:
    names = {f"file{i}" for i in range(40)} | {"a" * 255, "b" * 40, "c" * 39}
    for name in names:
        sh.save(name, b"")
    sh.mkdir("dir")
    sh.symlink("file1", "link")
    for room in (4096, 300):
        entries = sh.listdir(".", room)
        assert isinstance(entries, dict)
        assert set(entries) == names | {".", "..", "dir", "link"}
        assert (entries["dir"][1], entries["link"][1]) == (DT_DIR, DT_LNK)
        assert entries["file1"] == (sh.stat("file1").ino, DT_REG)  # type: ignore[union-attr]
        assert entries["."][0] == sh.stat(".").ino  # type: ignore[union-attr]
        assert entries[".."][0] == sh.stat("..").ino  # type: ignore[union-attr]


def test_a_directory_is_read_on_from_where_it_was_left(sh: Process) -> None:
    for i in range(20):
        sh.save(f"f{i}", b"")
    fd = sh.open(".")
    first = sh.call("getdents64", fd, sh.buffer, 256)
    assert 0 < first <= 256
    assert sh.call("getdents64", fd, sh.buffer, 10) == -errno.EINVAL
    rest = sh.call("getdents64", fd, sh.buffer, 8192)
    assert first + rest == 22 * 24
    assert sh.call("getdents64", fd, sh.buffer, 8192) == 0
    assert sh.lseek(fd, 0) == 0
    assert sh.call("getdents64", fd, sh.buffer, 8192) == first + rest


def test_removing_while_listing_neither_repeats_nor_crashes(sh: Process) -> None:
    for i in range(20):
        sh.save(f"f{i}", b"")
    fd = sh.open(".")
    seen: list[bytes] = []
    while (size := sh.call("getdents64", fd, sh.buffer, 100)) > 0:
        data, at = sh.get(size), 0
        while at < size:
            length = struct.unpack_from("<H", data, at + 16)[0]
            name = data[at + 19 : at + length].split(b"\0", 1)[0]
            seen.append(name)
            if name not in {b".", b".."}:
                assert sh.unlink(name.decode()) == 0
            at += length
    assert len(seen) == len(set(seen)) == 22
    sh.close(fd)


def test_making_and_removing_directories(sh: Process) -> None:
    links = sh.stat(".").nlink  # type: ignore[union-attr]
    assert sh.mkdir("d", 0o777) == 0
    made = sh.stat("d")
    assert isinstance(made, Stat)
    assert (made.mode, made.nlink) == (S_IFDIR | 0o755, 2)  # umask 022
    assert sh.stat(".").nlink == links + 1  # type: ignore[union-attr]
    assert sh.mkdir("d") == -errno.EEXIST
    assert sh.mkdir("d/e/") == 0
    assert sh.rmdir("d") == -errno.ENOTEMPTY
    assert sh.rmdir("d/e/.") == -errno.EINVAL
    assert sh.rmdir("d/e/..") == -errno.ENOTEMPTY
    assert sh.unlink("d/e") == -errno.EISDIR
    assert sh.rmdir("d/e") == 0
    sh.save("d/f", b"x")
    assert sh.rmdir("d/f") == -errno.ENOTDIR
    assert sh.unlink("d/f/") == -errno.ENOTDIR
    assert sh.unlink("d/f") == 0
    assert sh.rmdir("d") == 0
    assert sh.rmdir("d") == -errno.ENOENT
    assert sh.stat(".").nlink == links  # type: ignore[union-attr]
    assert sh.rmdir("/proc") == -errno.EBUSY
    assert sh.mkdir("/") == -errno.EEXIST


def test_a_removed_directory_takes_nothing_in(sh: Process) -> None:
    sh.mkdir("d")
    sh.call("chdir", sh.path("d"))
    assert sh.rmdir(f"{sh.home}/d") == 0
    assert sh.open("f", O_RDWR | O_CREAT) == -errno.ENOENT
    assert sh.listdir(".") == -errno.ENOENT
    assert sh.call("chdir", sh.path(sh.home)) == 0


def test_renaming(sh: Process) -> None:
    sh.save("a", b"a")
    sh.save("b", PATTERN)
    sh.mkdir("d")
    sh.mkdir("e")
    assert sh.rename("a", "b") == 0
    assert sh.cat("b") == b"a"
    assert sh.open("a") == -errno.ENOENT
    assert sh.rename("b", "d/" + "long" * 20) == 0
    assert sh.cat("d/" + "long" * 20) == b"a"
    assert sh.rename("d", "e") == 0
    assert sh.cat("e/" + "long" * 20) == b"a"
    sh.mkdir("f")
    assert sh.rename("f", "e") == -errno.ENOTEMPTY
    assert sh.rename("e", "e/in") == -errno.EINVAL
    assert sh.rename("e/" + "long" * 20, "e") == -errno.ENOTEMPTY
    assert sh.rename("e/" + "long" * 20, "f") == -errno.EISDIR
    sh.save("g", b"g")
    assert sh.rename("f", "g") == -errno.ENOTDIR
    assert sh.rename("nothing", "g") == -errno.ENOENT
    assert sh.rename("g", "g") == 0
    assert sh.rename("g", "/proc/g") == -errno.EXDEV
    assert sh.rename("f", "e/sub") == 0
    assert (sh.stat("e").nlink, sh.stat(".").nlink) == (3, 3)  # type: ignore[union-attr]
    assert sh.cat("g") == b"g"


def test_symbolic_links(sh: Process) -> None:
    sh.mkdir("d")
    sh.save("d/f", b"text")
    assert sh.symlink("d/f", "l") == 0
    assert sh.symlink(f"{sh.home}/d", "abs") == 0
    assert sh.symlink("abs/../l", "chain") == 0
    assert sh.symlink("nowhere", "dangling") == 0
    assert sh.symlink("loop2", "loop1") == 0
    assert sh.symlink("loop1", "loop2") == 0
    assert sh.symlink("/", "root") == 0
    for path in ("l", "abs/f", "chain", f"root{sh.home}/d/f", "abs/../d/./f"):
        assert sh.cat(path) == b"text"
    assert sh.readlink("l") == b"d/f"
    assert sh.readlink("l", 2) == b"d/"
    assert sh.readlink("d") == -errno.EINVAL
    assert sh.open("dangling") == -errno.ENOENT
    assert sh.open("loop1") == -errno.ELOOP
    assert sh.open("loop1/x") == -errno.ELOOP
    assert sh.open("l", O_NOFOLLOW) == -errno.ELOOP
    assert sh.symlink("x", "l") == -errno.EEXIST
    link, target = sh.stat("l", follow=False), sh.stat("l")
    assert isinstance(link, Stat)
    assert isinstance(target, Stat)
    assert (link.mode & S_IFMT, link.size, target.mode & S_IFMT) == (S_IFLNK, 3, S_IFREG)
    fd = sh.open("dangling", O_WRONLY | O_CREAT)  # made where the link points
    assert fd >= 0
    assert sh.stat("nowhere", follow=False).mode & S_IFMT == S_IFREG  # type: ignore[union-attr]


def test_forty_links_in_a_row_are_too_many(sh: Process) -> None:
    sh.save("l0", b"end")
    for i in range(1, 50):
        sh.symlink(f"l{i - 1}", f"l{i}")
    assert sh.cat("l40") == b"end"
    assert sh.open("l41") == -errno.ELOOP


def test_dots_and_slashes(sh: Process) -> None:
    sh.save("f", b"f")
    home = sh.home.removeprefix("/tmp/")
    for path in ("./f", "././/f", f"../{home}/f", f"/tmp//{home}///f", f"/../../tmp/{home}/f"):
        assert sh.cat(path) == b"f"
    for path in (f"/sys/..{sh.home}/f", f"/sys/kernel/tracing/../../..{sh.home}/f"):
        assert sh.cat(path) == b"f"
    assert sh.stat("/").ino == sh.stat("/..").ino == sh.stat("/proc/..").ino  # type: ignore[union-attr]


def test_the_working_directory(sh: Process) -> None:
    def getcwd() -> bytes:
        size = sh.call("getcwd", sh.buffer, 100)
        return sh.get(size)

    assert getcwd() == sh.home.encode() + b"\0"
    for path, name in (("/", b"/\0"), ("/sys/kernel/tracing", b"/sys/kernel/tracing\0")):
        assert sh.call("chdir", sh.path(path)) == 0
        assert getcwd() == name
    assert sh.call("chdir", sh.path("../..")) == 0
    assert getcwd() == b"/sys\0"
    assert sh.call("getcwd", sh.buffer, 4) == -errno.ERANGE
    assert sh.call("chdir", sh.path("/etc/hostname")) == -errno.ENOTDIR
    assert sh.call("chdir", sh.path("/none")) == -errno.ENOENT


def test_paths_relative_to_a_directory(sh: Process) -> None:
    sh.mkdir("d")
    sh.save("d/f", b"text")
    directory, file = sh.open("d"), sh.open("d/f")
    fd = sh.call("openat", directory, sh.path("f"), 0, 0)
    assert sh.read(fd, 10) == b"text"
    assert sh.call("openat", file, sh.path("f"), 0, 0) == -errno.ENOTDIR
    assert sh.call("openat", 60, sh.path("f"), 0, 0) == -errno.EBADF
    assert sh.call("openat", 60, sh.path("/etc/hostname"), 0, 0) >= 0


# --- descriptors ---------------------------------------------------------------------------------


def test_the_lowest_free_descriptor_is_used(sh: Process) -> None:
    sh.save("f", b"")
    assert [sh.open("f") for _ in range(4)] == [0, 1, 2, 3]
    sh.close(1)
    assert sh.open("f") == 1
    assert sh.open("f") == 4


def test_duplicates_share_the_position(sh: Process) -> None:
    sh.save("f", b"0123456789")
    fd = sh.open("f")
    copy = sh.call("dup", fd)
    assert sh.read(fd, 3) == b"012"
    assert sh.read(copy, 3) == b"345"
    assert sh.call("dup2", fd, 77) == 77
    sh.close(fd)
    assert sh.read(77, 3) == b"678"
    assert sh.call("dup2", 77, copy) == copy
    assert sh.call("dup2", 77, 77) == 77
    assert sh.call("dup2", fd, 5) == -errno.EBADF
    assert sh.call("dup2", 77, 1024) == -errno.EBADF
    assert sh.call("dup", fd) == -errno.EBADF


def test_the_table_of_descriptors_grows_to_its_limit(sh: Process) -> None:
    sh.save("f", b"x")
    fds = []
    while (fd := sh.open("f")) >= 0:
        fds.append(fd)
    assert fd == -errno.EMFILE
    assert fds == list(range(1024))
    assert sh.read(1000, 1) == b"x"
    for fd in fds:
        assert sh.close(fd) == 0


def test_a_child_shares_the_open_files(sh: Process, kernel: Kernel, pids: Iterator[int]) -> None:
    sh.save("f", b"0123456789")
    fd = sh.open("f")
    before = kernel.holdings()
    child = kernel.process(next(pids), ppid=sh.task.pid, comm="cat")
    assert child.read(fd, 4) == b"0123"
    assert sh.read(fd, 4) == b"4567"
    assert child.close(fd) == 0
    assert sh.read(fd, 4) == b"89"
    child.exit()
    assert kernel.holdings() == before


def test_exec_closes_what_is_marked(sh: Process) -> None:
    kept, marked = sh.open("/etc/hostname"), sh.open("/etc/hostname", O_CLOEXEC)
    assert sh.call("execve", sh.path("/bin/true"), 0, 0) == 0
    assert sh.kernel.memory.cstring(sh.task.address + sh.kernel.constants["TASK_COMM"]) == b"true"
    assert sh.read(kept, 3) == b"ftr"
    assert sh.read(marked, 3) == -errno.EBADF


def test_exec_of_scripts_and_of_what_is_no_program(sh: Process) -> None:
    assert sh.call("execve", sh.path("/usr/bin/ldd"), 0, 0) == 0
    assert sh.call("execve", sh.path("/usr/bin/nothing"), 0, 0) == -errno.ENOENT
    assert sh.call("execve", sh.path("/etc/passwd"), 0, 0) == -errno.EACCES
    assert sh.call("execve", sh.path("/etc"), 0, 0) == -errno.EACCES


def test_installing_a_program_of_the_host(sh: Process, kernel: Kernel) -> None:
    name = sh.path("frobnicate")
    assert kernel.call("host_install_binary", name) == 0
    assert sh.call("execve", sh.path("/usr/bin/frobnicate"), 0, 0) == 0
    comm = kernel.memory.cstring(sh.task.address + kernel.constants["TASK_COMM"])
    assert comm == b"frobnicate"
    before = kernel.holdings()
    assert kernel.call("host_install_binary", sh.path("frobnicate")) == 0
    assert kernel.holdings() == before
    assert sh.unlink("/usr/bin/frobnicate") == 0


# --- what is mounted -----------------------------------------------------------------------------


def test_the_first_files(sh: Process) -> None:
    assert sh.cat("/etc/hostname") == b"ftracefs\n"
    assert sh.cat("/etc/passwd").startswith(b"root:x:0:0:")  # type: ignore[union-attr]
    assert sh.cat("/bin/sh")[:4] == b"\x7fELF"  # type: ignore[index]
    assert sh.stat("/bin/sh").mode == S_IFREG | 0o755  # type: ignore[union-attr]
    assert sh.stat("/tmp").mode == S_IFDIR | 0o777  # type: ignore[union-attr]


def test_devices(sh: Process) -> None:
    null, zero, full = (sh.open(f"/dev/{name}", O_RDWR) for name in ("null", "zero", "full"))
    assert sh.read(null, 10) == b""
    assert sh.write(null, PATTERN) == len(PATTERN)
    sh.put(b"\xff" * 2 * PAGE)
    assert sh.read(zero, PAGE + 100) == bytes(PAGE + 100)
    assert sh.write(full, b"x") == -errno.ENOSPC
    assert sh.fstat(null).mode == S_IFCHR | 0o666  # type: ignore[union-attr]
    assert sh.listdir("/dev")["null"][1] == DT_CHR  # type: ignore[index]


def test_proc(sh: Process, kernel: Kernel) -> None:
    version = sh.cat("/proc/version")
    assert isinstance(version, bytes)
    assert version.startswith(b"Linux version 6.1.")
    assert sh.cat("/proc/version", chunk=7) == version
    memory = sh.cat("/proc/meminfo")
    assert isinstance(memory, bytes)
    total = int(memory.split()[1])
    assert total == 4 * kernel.word("contig_zone", "ZONE_MANAGED")
    assert b"\ttracefs\n" in sh.cat("/proc/filesystems")  # type: ignore[operator]
    assert set(sh.listdir("/proc")) >= {"version", "uptime", "loadavg", "meminfo"}  # type: ignore[arg-type]
    assert sh.open("/proc/nothing") == -errno.ENOENT
    assert sh.open("/proc/nothing", O_WRONLY | O_CREAT) in {-errno.EACCES, -errno.ENOENT}


def test_reading_a_record_from_the_middle(sh: Process) -> None:
    fd = sh.open("/proc/version")
    text = sh.read(fd, 100)
    assert isinstance(text, bytes)
    assert sh.pread(fd, 5, 6) == text[6:11]
    assert sh.lseek(fd, 2) == 2
    assert sh.read(fd, 4) == text[2:6]
    assert sh.lseek(fd, 0) == 0
    assert sh.read(fd, 100) == text


def test_attributes_of_devices(sh: Process) -> None:
    names = {
        "/sys/class/hwmon/hwmon0/name": b"coretemp\n",
        "/sys/class/rtc/rtc0/name": b"rtc_cmos rtc_cmos\n",
        "/sys/bus/i2c/devices/i2c-0/name": b"SMBus I801 adapter\n",
        "/sys/kernel/irq/3/name": b"edge\n",
        "/sys/kernel/irq/3/hwirq": b"3\n",
    }
    for path, text in names.items():
        assert sh.cat(path) == text
        assert sh.cat(path, chunk=3) == text
        assert sh.open(path, O_WRONLY) == -errno.EACCES
    attributes = sh.listdir("/sys/class/rtc/rtc0")
    assert set(attributes) == {".", "..", "name", "since_epoch", "date", "time"}  # type: ignore[arg-type]
    assert sh.open("/sys/class/rtc/rtc1/name") == -errno.ENOENT
    assert sh.mkdir("/sys/class/mine") == -errno.EPERM

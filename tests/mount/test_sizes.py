"""st_size, and those who go by it: sendfile, splice, busybox, cp, tail, wc."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import TIMEOUT, MountedDaemon, run
from support.mounts import require_fuse

BUSYBOX = shutil.which("busybox")
PIPES = {"trace_pipe", "trace_pipe_raw", "snapshot_raw"}
TELLS_THE_TIME = "stats"
PAGE = 4096


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MountedDaemon]:
    """A mount with the built-in kernel, where nobody records unless a test does."""
    require_fuse()
    with MountedDaemon(tmp_path_factory.mktemp("kernel"), "--isolated") as daemon:
        yield daemon


@pytest.fixture
def tracing(kernel: MountedDaemon) -> Iterator[Path]:
    """That mount; its tracer, filter and buffer are as after boot again when a test is over."""
    yield kernel.path
    (kernel.path / "current_tracer").write_text("nop\n")
    (kernel.path / "set_ftrace_filter").write_text("\n")
    (kernel.path / "trace").write_text("\n")


@pytest.fixture
def busybox() -> str:
    if BUSYBOX is None:
        if os.environ.get("FTRACEFS_REQUIRE_CLIENTS") == "1":
            pytest.fail("busybox is not installed: apt-get install busybox-static")
        pytest.skip("busybox is not installed")
    return BUSYBOX


def trace_calls(tracing: Path, count: int) -> None:
    (tracing / "set_ftrace_filter").write_text("gcd\n")
    (tracing / "current_tracer").write_text("function\n")
    (tracing / "emulator/call").write_text(f"gcd 1 2 x{count}\n")


def readable_files(tracing: Path) -> list[Path]:
    return [
        path
        for path in sorted(tracing.rglob("*"))
        if path.is_file()
        and path.name not in {*PIPES, TELLS_THE_TIME}
        and path.stat().st_mode & 0o444
        and path.parent.name != "text"
    ]


def sent(path: Path) -> bytes:
    """What sendfile(2) gives of a file, in pieces that are no pages."""
    source = os.open(path, os.O_RDONLY)
    target = os.memfd_create("sent")
    try:
        while os.sendfile(target, source, None, 10_000):
            pass
        return os.pread(target, 1 << 24, 0)
    finally:
        os.close(source)
        os.close(target)


def test_every_files_size_is_the_length_of_its_text(tracing: Path) -> None:
    trace_calls(tracing, 100)
    files = readable_files(tracing)
    assert len(files) > 70
    assert {str(f): f.stat().st_size for f in files} == {str(f): len(f.read_bytes()) for f in files}


def test_sendfile_gives_every_file_whole(tracing: Path) -> None:
    trace_calls(tracing, 100)
    for path in readable_files(tracing):
        assert sent(path) == path.read_bytes(), path


def test_the_disassembly_has_its_length(tracing: Path) -> None:
    path = tracing / "emulator/text/vfs_read"
    assert path.stat().st_size == len(path.read_bytes()) > 100


def test_in_a_long_list_the_size_of_a_disassembly_is_a_bound(tracing: Path) -> None:
    text = tracing / "emulator/text"
    listed = run("ls", "-l", text).stdout.splitlines()[1:]
    told = {line.split()[-1]: int(line.split()[4]) for line in listed}
    names = list(told)
    assert set(names) == {file.name for file in text.iterdir()}
    assert len(names) > 1000
    for name in names[:10]:
        assert told[name] == len((text / name).read_bytes())
    for name in names[100::50]:
        assert told[name] > len((text / name).read_bytes())


def test_who_opens_one_after_a_long_list_gets_it_whole(tracing: Path, tmp_path: Path) -> None:
    files = sorted((tracing / "emulator/text").iterdir())[:150]
    big = tracing / "emulator/text/vfs_read"
    whole = big.read_bytes()
    for file in files:
        file.stat()
    assert big.stat().st_size > len(whole)
    assert sent(big) == whole
    assert big.stat().st_size == len(whole)
    assert run("cp", *files[:20], big, tmp_path).returncode == 0
    assert (tmp_path / "vfs_read").read_bytes() == whole
    assert run("tail", "-n", "1", big).stdout == whole.decode().splitlines(keepends=True)[-1]


@pytest.mark.parametrize(
    "name", ["current_tracer", "trace", "available_filter_functions", "tracing_cpumask"]
)
def test_tools_that_go_by_the_size_get_the_whole_text(
    tracing: Path, tmp_path: Path, busybox: str, name: str
) -> None:
    trace_calls(tracing, 1000)
    path = tracing / name
    text = path.read_text()
    assert run(busybox, "cat", path).stdout == text
    assert run("cat", path).stdout == text
    assert run("tail", "-c", "5", path).stdout == text[-5:]
    assert run("tail", "-n", "1", path).stdout == text.splitlines(keepends=True)[-1]
    assert run("wc", "-c", path).stdout.split()[0] == str(len(text))
    for command in (["cp"], [busybox, "cp"]):
        assert run(*command, path, tmp_path / "copy").returncode == 0
        assert (tmp_path / "copy").read_text() == text
    shutil.copyfile(path, tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == text


def test_a_size_follows_what_is_written_at_once(tracing: Path, busybox: str) -> None:
    for tracer in ("function", "nop", "function_graph", "nop"):
        (tracing / "current_tracer").write_text(f"{tracer}\n")
        assert run(busybox, "cat", tracing / "current_tracer").stdout == f"{tracer}\n"


def test_a_filters_size_follows_what_its_close_does(tracing: Path, busybox: str) -> None:
    filters = tracing / "set_ftrace_filter"
    for _ in range(20):
        assert run("sh", "-c", f"echo gcd > {filters}; {busybox} cat {filters}").stdout == "gcd\n"
        shown = run("sh", "-c", f": > {filters}; {busybox} cat {filters}").stdout
        assert shown == "#### all functions enabled ####\n"


def test_a_filters_size_counts_its_commands(tracing: Path, busybox: str) -> None:
    filters = tracing / "set_ftrace_filter"
    filters.write_text("gcd:traceoff:2\n")
    text = "#### all functions enabled ####\ngcd:traceoff:count=2\n"
    assert filters.stat().st_size == len(text)
    assert run(busybox, "cat", filters).stdout == text
    filters.write_text("!gcd:traceoff:0\n")


def test_asking_for_a_filters_size_does_not_make_a_truncation_that_is_to_be_written_into(
    fuse: None, tmp_path: Path
) -> None:
    with MountedDaemon(tmp_path, "--isolated") as daemon:
        trace_calls(daemon.path, 1)
        filters = daemon.path / "set_ftrace_filter"
        with filters.open("w") as writer:  # truncates; Python asks for the size then
            os.close(os.dup(writer.fileno()))
            assert filters.stat().st_size == len("gcd\n")
            writer.write("lcm\n")
        assert filters.read_text() == "lcm\n"
        touched = (daemon.path / "emulator/touched_functions").read_text()
        assert [line.split()[0] for line in touched.splitlines()] == ["gcd", "lcm"]


def test_a_trace_of_64_ki_records_has_a_length_and_a_longer_one_none(tracing: Path) -> None:
    (tracing / "buffer_size_kb").write_text("4000\n")
    trace = tracing / "trace"
    trace_calls(tracing, 1 << 16)
    size = trace.stat().st_size
    assert size == len(trace.read_bytes()) > 60 * (1 << 16)
    (tracing / "emulator/call").write_text("gcd 1 2\n")
    assert trace.stat().st_size == 0
    assert len(trace.read_bytes()) > size


def test_a_trace_that_goes_on_is_sent_in_whole_lines(tmp_path: Path, busybox: str) -> None:
    with MountedDaemon(tmp_path) as daemon:
        (daemon.path / "set_ftrace_filter").write_text("vfs_*\n")
        (daemon.path / "current_tracer").write_text("function\n")
        for _ in range(20):
            text = run(busybox, "cat", daemon.path / "trace").stdout
            lines = text.splitlines(keepends=True)
            assert " vfs_" in lines[-1]
            assert lines[-1].endswith("\n")
            told = int(lines[2].split("/")[1].split()[-1])  # entries-in-buffer
            assert told == sum(not line.startswith("#") for line in lines)


def test_busybox_reads_trace_pipe(tracing: Path, busybox: str) -> None:
    with subprocess.Popen([busybox, "cat", tracing / "trace_pipe"], stdout=subprocess.PIPE) as cat:
        try:
            assert cat.stdout is not None
            for number in range(3):
                (tracing / "trace_marker").write_text(f"{number}\n")
                assert cat.stdout.readline().endswith(b"tracing_mark_write: %d\n" % number)
        finally:
            cat.terminate()
            cat.wait(TIMEOUT)


def splice(source: int, pipe: tuple[int, int], size: int) -> bytes:
    moved = os.splice(source, pipe[1], size)
    return os.read(pipe[0], moved) if moved else b""


def test_splice_gives_the_full_pages_of_a_raw_pipe_and_read_the_rest(tracing: Path) -> None:
    raw = os.open(tracing / "per_cpu/cpu0/trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
    pipe = os.pipe()
    try:
        with pytest.raises(BlockingIOError):
            os.splice(raw, pipe[1], 16 * PAGE)
        os.close(raw)
        trace_calls(tracing, 1000)
        raw = os.open(tracing / "per_cpu/cpu0/trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
        per_page = 4080 // 28
        pages = b""
        while True:
            try:
                pages += splice(raw, pipe, 4 * PAGE)
            except BlockingIOError:
                break
        assert len(pages) == 1000 // per_page * PAGE
        for start in range(0, len(pages), PAGE):
            commit = struct.unpack_from("<Q", pages, start + 8)[0]
            assert commit == per_page * 28
        last = os.read(raw, PAGE)
        assert struct.unpack_from("<Q", last, 8)[0] == 1000 % per_page * 28
        with pytest.raises(BlockingIOError):
            os.read(raw, PAGE)
        (tracing / "emulator/call").write_text("gcd 1 2 x500\n")
        assert len(splice(raw, pipe, PAGE)) == PAGE  # what follows an EAGAIN is found
    finally:
        os.close(raw)
        os.close(pipe[0])
        os.close(pipe[1])


def test_sendfile_of_trace_pipe_is_refused_so_that_the_caller_reads(tracing: Path) -> None:
    with (
        (tracing / "trace_pipe").open("rb") as pipe,
        os.fdopen(os.memfd_create("sent"), "wb") as target,
        pytest.raises(OSError, match=os.strerror(errno.EINVAL)),
    ):
        os.sendfile(target.fileno(), pipe.fileno(), None, 100)

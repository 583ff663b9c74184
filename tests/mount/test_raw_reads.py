"""What many large reads of trace_pipe_raw give, against reads of a page each, to the byte."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from support.daemon import MountedDaemon

PAGE = 4096
# The largest read, which is one request; a longer one, which is several; one that ends in a page.
LARGE = (16 * PAGE, 32 * PAGE, 48 * PAGE, 2 * PAGE + 1000)
FUNCTION_PAGE = 145  # records of a page


def read_all(raw: int, size: int) -> bytes:
    """All there is, in reads of `size`: as a file that is not waited for gives it."""
    found = []
    while True:
        try:
            data = os.read(raw, size)
        except BlockingIOError:
            return b"".join(found)
        assert data
        assert len(data) <= size
        found.append(data)


def record(tracing: Path, step: int) -> None:
    """Records of many lengths, or of one; sometimes more than the buffer holds."""
    calls = (60_000, 3 * FUNCTION_PAGE, 10, 20_000, FUNCTION_PAGE, 1)[step % 6]
    (tracing / "emulator/call").write_text(f"gcd 4 6 x{calls}\n")
    for length in range(1, 40 * (step % 3), 7):
        (tracing / "trace_marker").write_text("x" * length * step + "\n")


def digests(directory: Path, size: int) -> list[tuple[int, str]]:
    """Length and digest of what the reads of each step gave, on a mount of its own."""
    directory.mkdir()
    found = []
    options = ("--isolated", "--cpus", "1", "--clock", "virtual")
    with MountedDaemon(directory, *options) as daemon:
        tracing = daemon.path
        (tracing / "buffer_size_kb").write_text("1000\n")
        (tracing / "set_ftrace_filter").write_text("gcd\n")
        (tracing / "current_tracer").write_text("function\n")
        raw = os.open(tracing / "per_cpu/cpu0/trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
        try:
            for step in range(12):
                record(tracing, step)
                pages = read_all(raw, size)
                found.append((len(pages), hashlib.sha256(pages).hexdigest()))
        finally:
            os.close(raw)
    return found


@pytest.fixture(scope="module")
def page_by_page(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    return digests(tmp_path_factory.mktemp("singly") / "mount", PAGE)


@pytest.mark.parametrize("size", LARGE)
def test_large_reads_give_the_pages_that_reads_of_a_page_give(
    fuse: None, tmp_path: Path, page_by_page: list[tuple[int, str]], size: int
) -> None:
    assert any(length > 200 * PAGE for length, _ in page_by_page)
    assert all(length % PAGE == 0 for length, _ in page_by_page)
    assert digests(tmp_path / "large", size) == page_by_page

"""The transcript driver itself, against plain files."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.alike import alike
from support.fx import Answer, escape, replay, unescape

ERRNO = Path(__file__).resolve().parents[1] / "conformance" / "errno"


def wrong(transcript: str, directory: Path, *, fuse: bool = False) -> list[Answer]:
    return [answer for answer in replay(transcript, directory, fuse=fuse) if not answer.agrees]


def test_calls_are_made_and_told_as_recorded(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"nop\n")
    transcript = """\
# a comment
open("file", +) = ok[0]
read[0](2) "no" = 2
lseek[0](-1,cur) = 1
read[0] "op\\n" = 3
read[0](4096) = 0
write[0](3 x 'a') = 3
write[0]("q\\t\\"\\\\\\x01", 5) = 5
lseek[0](0,end) = 12
lseek[0](0) = 0
read[0](100) "nop\\naaaq\\t\\"\\\\\\x01" = 12
close[0]() = 0
close[0]() = -1 EBADF (Bad file descriptor)
open("nothing", r) = -1 ENOENT (No such file or directory)
read[1](10) = -1 EBADF (Bad file descriptor)

file <- write[0]("NO", 2) = 2
file => read[0](4096) = 12
nothing <- write[0]("NO", 2) = 2

% echo new > file
file => read[0](4096) "new\\n" = 4

$ cat file nothing
new
cat: nothing: No such file or directory
[status 1]

open("file", wt) = ok[0]
"""
    answers = wrong(transcript, tmp_path)
    assert [(answer.number, answer.got) for answer in answers] == [
        (19, 'open("nothing", w) = -1 ENOENT (No such file or directory)')
    ]


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ('file => read[0](4096) "old\\n" = 4', 'file => read[0](4096) "nop\\n" = 4'),
        ("file => read[0](4096) = 0", "file => read[0](4096) = 4"),
        ('file <- write[0]("x", 1) = -1 EINVAL (Invalid argument)', 'file <- write[0]("x", 1) = 1'),
        ("% echo loud; exit 3", "% echo loud; exit 3: status 3: loud"),
        ("$ cat file\nold", "$ cat file\nnop"),
    ],
)
def test_a_different_answer_is_seen(tmp_path: Path, line: str, got: str) -> None:
    (tmp_path / "file").write_bytes(b"nop\n")
    assert [answer.got for answer in wrong(line, tmp_path)] == [got]


def test_a_deviation_holds_for_a_fuse_mount_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    transcript = 'file <- write[0]("", 0) = -1 EINVAL (Invalid argument)\n'
    transcript += 'fuse: file <- write[0]("", 0) = 0\n'
    assert wrong(transcript, tmp_path, fuse=True) == []
    assert len(wrong(transcript, tmp_path, fuse=False)) == 1


def test_a_line_that_is_no_call_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a line of a transcript"):
        replay("wrte[0](1) = 1", tmp_path, fuse=False)


def test_every_byte_survives_the_escapes() -> None:
    every = bytes(range(256))
    assert unescape(escape(every)) == every


@pytest.mark.parametrize("transcript", sorted(ERRNO.glob("*.txt")), ids=lambda path: path.stem)
def test_every_stored_transcript_can_be_read(transcript: Path, tmp_path: Path) -> None:
    # With no file there, every call is still understood and answered.
    answers = replay(transcript.read_text(), tmp_path, fuse=False)
    assert len(answers) > 5
    assert any("No such file or directory" in answer.got for answer in answers)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "            bash-105     [000] .....     6.454755: vfs_read <-ksys_read",
            "             cat-2211    [000] ..... 12345.000001: vfs_read <-ksys_read",
        ),
        (" 0) + 15.393 us   |  vfs_read();", " 0)   1.712 us    |  vfs_read();"),
        ("vfs_read+0x0/0x2b0 <-ffffffff813675bb", "vfs_read+0x0/0x4 <-ffffffff81000000"),
        ("oldest event ts:    19.850132", "oldest event ts:     1.000000"),
    ],
)
def test_two_runs_print_alike(one: str, other: str) -> None:
    assert alike(one) == alike(other)


@pytest.mark.parametrize(
    "other",
    [
        "            bash-105     [001] .....     6.454755: vfs_read <-ksys_read",
        "            bash-105     [000] d....     6.454755: vfs_read <-ksys_read",
        "            bash-105     [000] .....         6454: vfs_read <-ksys_read",
        "            bash-105    [000] .....     6.454755: vfs_read <-ksys_read",
        "            bash-105     [000] .....     6.454755: vfs_write <-ksys_read",
        "            bash-105     [000]      6.454755: vfs_read <-ksys_read",
    ],
)
def test_what_is_printed_otherwise_is_not_alike(other: str) -> None:
    one = "            bash-105     [000] .....     6.454755: vfs_read <-ksys_read"
    assert alike(one) != alike(other)


def test_a_printed_text_is_compared_but_for_what_every_run_has_of_its_own(tmp_path: Path) -> None:
    transcript = "~ cat trace\n# entries: 1\nTASK-PID [000] ..... TIME: vfs_read <-ksys_read\n"
    line = "            bash-105     [000] .....     6.454755: vfs_read <-ksys_read\n"
    (tmp_path / "trace").write_text(f"# entries: 1\n\n{line}")
    assert wrong(transcript, tmp_path) == []
    (tmp_path / "trace").write_text(f"# entries: 2\n\n{line}")
    assert len(wrong(transcript, tmp_path)) == 1
    (tmp_path / "trace").write_text(f"# entries: 1\n{line}{line}")
    assert len(wrong(transcript, tmp_path)) == 1

"""What Linux 6.1 answered to the same system calls, file by file, against our own mount."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fx import replay
from support.mounts import mounted

HERE = Path(__file__).parent
TRANSCRIPTS = [*sorted(HERE.glob("errno/*.txt")), *sorted(HERE.glob("formats/*.txt"))]


@pytest.mark.oracle
@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_answers_are_those_of_linux(transcript: Path, tmp_path: Path) -> None:
    # As many CPUs as when it was recorded: header lines and buffer totals tell how many there are.
    with mounted(tmp_path / "tracing", "--cpus", "1") as mount:
        answers = replay(transcript.read_text(), mount, fuse=True)
    different = [str(answer) for answer in answers if not answer.agrees]
    assert not different, "\n" + "\n".join(different)


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) > 20

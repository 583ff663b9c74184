"""Every combination of options that was recorded, printed from the pages that Linux printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.recorded_output import Recording, read_recording

OUTPUT = Path(__file__).parent / "output"
RECORDINGS = {path.stem: read_recording(path) for path in sorted(OUTPUT.glob("*.txt"))}
CASES = [(name, options) for name, recording in RECORDINGS.items() for options in recording.texts]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_text_is_that_of_linux(name: str, options: str) -> None:
    recording = RECORDINGS[name]
    assert recording.trace(options) == recording.texts[options]


@pytest.mark.parametrize("name", [name for name in RECORDINGS if RECORDINGS[name].digests])
def test_so_it_is_with_each_two_options(name: str) -> None:
    recording = RECORDINGS[name]
    assert {options: recording.digest(options) for options in recording.digests} == (
        recording.digests
    )


def test_the_recordings_hold_what_they_are_about() -> None:
    assert sum(map(len, (recording.texts for recording in RECORDINGS.values()))) > 180
    assert sum(len(recording.digests) for recording in RECORDINGS.values()) > 1300
    for recording in RECORDINGS.values():
        assert isinstance(recording, Recording)
        assert len(set(recording.texts.values())) >= 10

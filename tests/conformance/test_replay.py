"""What Linux 6.1 answered to the same system calls, section by section, against our own mount."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fx import replay
from support.mounts import mounted

ERRNO = Path(__file__).parent / "errno"
FORMATS = Path(__file__).parent / "formats"

SECTIONS = [
    "current_tracer",
    "tracing_on",
    "numbers",
    "read_only",
    "free_buffer",
    "error_log",
    "two_cpus",
    "pause_on_trace",
    "set_ftrace_filter",
    "buffer_size_kb",
    "trace_clock",
    "trace",
    "trace_pipe",
    "trace_marker",
    "trace_marker_raw",
    "snapshot",
    "buffer_percent",
    "buffer",
    "trace_pipe_raw",
    "trace_options",
    "function_graph",
    "display_graph",
    "stack_trace",
    "function_profile",
    "sysctl",
    "function_commands",
    "set_ftrace_pid",
    "set_ftrace_notrace_pid",
    "tracing_cpumask",
    "saved_cmdlines_size",
    "event_commands",
    "set_event",
    "events",
    "event_pids",
]


@pytest.mark.oracle
@pytest.mark.parametrize("section", SECTIONS)
def test_answers_are_those_of_linux(section: str, tmp_path: Path) -> None:
    # As many CPUs as when it was recorded: header lines and buffer totals tell how many there are.
    cpus = "2" if section == "two_cpus" else "1"
    with mounted(tmp_path / "tracing", "--cpus", cpus) as mount:
        answers = replay((ERRNO / f"{section}.txt").read_text(), mount, fuse=True)
    different = [str(answer) for answer in answers if not answer.agrees]
    assert not different, "\n" + "\n".join(different)


def test_every_recorded_section_is_replayed() -> None:
    named = {section if isinstance(section, str) else section.values[0] for section in SECTIONS}
    assert named == {path.stem for path in ERRNO.glob("*.txt")}


@pytest.mark.oracle
@pytest.mark.parametrize("name", [path.stem for path in sorted(FORMATS.glob("*.txt"))])
def test_what_is_printed_is_what_linux_prints(name: str, tmp_path: Path) -> None:
    with mounted(tmp_path / "tracing", "--cpus", "1") as mount:
        answers = replay((FORMATS / f"{name}.txt").read_text(), mount, fuse=True)
    different = [str(answer) for answer in answers if not answer.agrees]
    assert not different, "\n" + "\n".join(different)

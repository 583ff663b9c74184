"""A printed trace without what no two runs have in common: pids, times, addresses, durations.

What stands for them keeps the place of the column, so that a column which is missing, too narrow or
elsewhere still shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_ALIKE = [
    (r"^ *[-.+\w<>/:]+-\d+ +(?=\[|\( *[\d-]+\))", "TASK-PID ", 25),  # the column of most formats
    (r"^ *[-.+\w<>/:]+-\d+ +(?=\d[d.])", "TASK-PID ", 17),  # of the latency format
    (r"(?<=\[\d{3}\] )(\S{0,5}) +\d+\.\d{6}(?=: )", r"\1 TIME", 0),
    (r"(?<=\[\d{3}\] )(\S{0,5}) +\d+(?=: )", r"\1 COUNT", 0),
    (r"(?<=^TASK-PID )\( *[\d-]+\)", "(TGID)", 9),
    (r"^ *\d+\.\d{6}(?= \| )", "TIME", 12),
    (r"^( *\d+\)) +\S+-\d+ +(?=\| )", r"\1 TASK-PID ", 0),
    (r" (?:(?= {0,3}\d)[ \d]{4}|\d{5,})us[ +!#*@$](?=: )", " TIMEus", 0),
    (r"(?<=[)|]) [ +!#*@$] *\d+\.\d+ us +(?=\|)", " DURATION ", 15),
    (r"^[ +!#*@$] *\d+\.\d+ us +(?=\|)", " DURATION ", 14),
    (r"\b(0x)?[0-9a-f]{16}\b", "ADDRESS", 0),
    (r"\+0x[0-9a-f]+/0x[0-9a-f]+", "+OFFSET/SIZE", 0),
    (r"(?<= on )\d\.\d+\.\d+-\S+", "VERSION", 0),
    (r"\b(?<=pid=)\d+", "PID", 0),
    (r"^((oldest event|now) ts:) *\d+\.\d{6}", r"\1 TIME", 0),
    (r"^((oldest event|now) ts:) \d+", r"\1 COUNT", 0),
]


def alike(text: str) -> str:
    """`text` line by line, its empty lines left out."""
    return "\n".join(alike_line(line) for line in text.splitlines() if line.strip())


def alike_line(line: str) -> str:
    for pattern, stands_for, width in _ALIKE:
        line = re.sub(pattern, _of_width(stands_for, width), line)
    return line.rstrip()


def _of_width(stands_for: str, width: int) -> Callable[[re.Match[str]], str]:
    def replaced(match: re.Match[str]) -> str:
        wrong = f"({len(match[0])} wide)" if width and len(match[0]) != width else ""
        return f"{match.expand(stands_for)}{wrong}"

    return replaced

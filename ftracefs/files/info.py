"""Files that only tell: README, saved_cmdlines, printk_formats, error_log."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ftracefs.files.base import TracefsFile
from ftracefs.files.simple import SeqFile, ValueFile, ignore
from ftracefs.trace.trace_array import TraceArray

_HERE = Path(__file__).parent


@cache
def readme_text(*, emulator: bool) -> bytes:
    """The text of README, with or without the part about emulator/."""
    text = (_HERE / "README.txt").read_bytes()
    return text + (_HERE / "README.emulator.txt").read_bytes() if emulator else text


def readme(_tr: TraceArray) -> TracefsFile:
    return ValueFile(lambda: readme_text(emulator=False))


def readme_with_emulator() -> TracefsFile:
    return ValueFile(lambda: readme_text(emulator=True))


def saved_cmdlines(tr: TraceArray) -> TracefsFile:
    return SeqFile(tr.tracing.saved_cmdlines.text)


def printk_formats(_tr: TraceArray) -> TracefsFile:
    """The formats of trace_printk and the strings of tracepoints: this kernel has none."""
    return SeqFile(str)


def error_log(tr: TraceArray) -> TracefsFile:
    return SeqFile(tr.err_log.text, ignore, tr.err_log.clear)

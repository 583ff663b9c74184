"""What is known beside the records: README, names, thread groups, formats, error_log."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ftracefs.files.base import TracefsFile
from ftracefs.files.simple import SeqFile, ValueFile, ignore
from ftracefs.trace.parsers import kstrtoul_from_user
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


def saved_cmdlines_size(tr: TraceArray) -> TracefsFile:
    saved = tr.tracing.saved_cmdlines

    def tracing_saved_cmdlines_size_write(data: bytes) -> None:
        saved.tracing_resize_saved_cmdlines(kstrtoul_from_user(data))

    return ValueFile(lambda: f"{saved.cmdline_num}\n", tracing_saved_cmdlines_size_write)


def saved_tgids(tr: TraceArray) -> TracefsFile:
    return SeqFile(tr.tracing.saved_tgids.text)


def error_log(tr: TraceArray) -> TracefsFile:
    return SeqFile(tr.err_log.text, ignore, tr.err_log.clear)

"""Which records a pattern means: match_records and what it calls (kernel/trace/ftrace.c)."""

from __future__ import annotations

import numpy as np

from ftracefs.ftrace.hashes import FtraceHash, as_ips
from ftracefs.ftrace.records import FTRACE_FL_DISABLED, FtraceRecords, Numbers
from ftracefs.ftrace.regex import FtraceGlob, RegexType, filter_parse_regex, ftrace_match

_HEX = b"0123456789abcdefABCDEF"


def simple_strtoul(text: bytes) -> int:
    """The number that `text` begins with, in C's notation, cut to 64 bits; 0 when there is none."""
    base, digits = 10, b"0123456789"
    if text[:2].lower() == b"0x" and text[2:3] and text[2] in _HEX:
        text, base, digits = text[2:], 16, _HEX
    elif text[:1] == b"0":
        base, digits = 8, b"01234567"
    number = text[: len(text) - len(text.lstrip(digits))]
    return int(number or b"0", base) % (1 << 64)


def add_rec_by_index(records: FtraceRecords, number: bytes) -> Numbers:
    """The row with that 1-based number in available_filter_functions."""
    index = simple_strtoul(number) - 1
    return np.array([index] if 0 <= index < len(records) else [], dtype=np.intp)


def ftrace_match_record(
    records: FtraceRecords, glob: FtraceGlob, module: FtraceGlob | None, exclude_module: bool
) -> Numbers:
    """The rows of that name; with `module` those in (or not in) modules of that name."""
    if module is None:
        return records.name_table.match(glob)
    wanted = np.zeros(len(records), dtype=np.bool_)
    for group in records.groups:
        if module.is_empty:  # `:mod:` and `:mod:*`: any module at all
            matches = group.module is not None
        else:
            matches = group.module is not None and ftrace_match(group.module.encode(), module)
        wanted[group.start : group.end] = matches != exclude_module
    if glob.is_empty:
        return np.flatnonzero(wanted)
    rows = records.name_table.match(glob)
    return rows[wanted[rows]]


def find_records(
    records: FtraceRecords, func: bytes, module: bytes | None = None
) -> tuple[Numbers, bool]:
    """The rows that `func` (a name, a pattern or an index, of `module`) means.

    The second value tells whether `func` began with `!`, asking to take them out.
    """
    glob, clear_filter = filter_parse_regex(func)
    if glob.type is RegexType.MATCH_INDEX:
        return add_rec_by_index(records, glob.search), clear_filter
    module_glob, exclude_module = None, False
    if module is not None:
        module_glob, exclude_module = filter_parse_regex(module)
    rows = ftrace_match_record(records, glob, module_glob, exclude_module)
    disabled = (records.flags[rows] & np.uint64(FTRACE_FL_DISABLED)) != 0
    return rows[~disabled], clear_filter


def match_records(
    records: FtraceRecords, hash: FtraceHash, func: bytes, module: bytes | None = None
) -> FtraceHash | None:
    """`hash` with the records that `func` means entered, or taken out; None when it means none."""
    rows, clear_filter = find_records(records, func, module)
    if not len(rows):
        return None
    ips = as_ips(records.ip[rows])
    return hash.remove(ips) if clear_filter else hash.add(ips)

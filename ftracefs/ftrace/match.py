"""Which records a pattern means: match_records and what it calls (kernel/trace/ftrace.c)."""

from __future__ import annotations

import numpy as np

from ftracefs.ftrace.hashes import FtraceHash
from ftracefs.ftrace.modify import Mask
from ftracefs.ftrace.records import FTRACE_FL_DISABLED, FtraceRecords
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


def add_rec_by_index(records: FtraceRecords, number: bytes) -> Mask:
    """The record with that 1-based number in available_filter_functions."""
    mask = np.zeros(len(records), dtype=np.bool_)
    index = simple_strtoul(number) - 1
    if 0 <= index < len(records):
        mask[index] = True
    return mask


def ftrace_match_record(
    records: FtraceRecords, glob: FtraceGlob, module: FtraceGlob | None, exclude_module: bool
) -> Mask:
    """The records of that name; with `module` those in (or not in) modules of that name."""
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
        return wanted
    return wanted & records.name_table.match(glob)


def find_records(
    records: FtraceRecords, func: bytes, module: bytes | None = None
) -> tuple[Mask, bool]:
    """The records that `func` (a name, a pattern or an index, of `module`) means.

    The second value tells whether `func` began with `!`, asking to take them out.
    """
    glob, clear_filter = filter_parse_regex(func)
    if glob.type is RegexType.MATCH_INDEX:
        return add_rec_by_index(records, glob.search), clear_filter
    module_glob, exclude_module = None, False
    if module is not None:
        module_glob, exclude_module = filter_parse_regex(module)
    found = ftrace_match_record(records, glob, module_glob, exclude_module)
    return found & ~records.has(FTRACE_FL_DISABLED), clear_filter


def match_records(
    records: FtraceRecords, hash: FtraceHash, func: bytes, module: bytes | None = None
) -> FtraceHash | None:
    """`hash` with the records that `func` means entered, or taken out; None when it means none."""
    found, clear_filter = find_records(records, func, module)
    if not found.any():
        return None
    ips = records.ip[found]
    return hash.remove(ips) if clear_filter else hash.add(ips)

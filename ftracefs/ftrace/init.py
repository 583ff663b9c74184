"""Boot: from __mcount_loc to records, and from calls to nops (ftrace_init, kernel/trace/ftrace.c).

    ftrace_init → ftrace_process_locs → ftrace_update_code → ftrace_nop_initialize

The compiler leaves `call __fentry__` at each site; all are checked before the first is rewritten. A
Linux that has booted has done the same: its sites are nops, which is checked too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ftracefs.ftrace.modify import ftrace_expect_nop, ftrace_make_nop
from ftracefs.ftrace.records import RecordGroup
from ftracefs.ftrace.state import FENTRY, FtraceState, TracedImage

_ENTRIES_PER_PAGE = 4096 // 16  # sizeof(struct dyn_ftrace) is 16


def ftrace_init(state: FtraceState, image: TracedImage) -> None:
    """Take over the kernel's call sites."""
    state.fentry = image.labels[FENTRY]
    ftrace_process_locs(state, None, image.mcount)


def ftrace_process_locs(
    state: FtraceState, module: str | None, mcount: Sequence[int]
) -> RecordGroup:
    """Make records of the sites of the kernel (`module` None) or of a module, and nops of them."""
    ips = np.array([ip for ip in mcount if ip], dtype=np.uint64)
    ftrace_allocate_pages(state, len(ips))
    group = state.records.add(ips, state.kallsyms, module)
    ftrace_update_code(state, group)
    return group


def ftrace_allocate_pages(state: FtraceState, count: int) -> None:
    """Account for pages of records as Linux allocates them: in powers of two, the largest first."""
    for block in _blocks(count):
        state.ftrace_number_of_pages += block
        state.ftrace_number_of_groups += 1


def ftrace_free_pages(state: FtraceState, count: int) -> None:
    """Account for the pages of `count` records that are gone."""
    for block in _blocks(count):
        state.ftrace_number_of_pages -= block
        state.ftrace_number_of_groups -= 1


def _blocks(count: int) -> Iterator[int]:
    while count > 0:
        pages = -(-count // _ENTRIES_PER_PAGE)
        block = 1 << (pages.bit_length() - 1)
        yield block
        count -= block * _ENTRIES_PER_PAGE


def ftrace_update_code(state: FtraceState, group: RecordGroup) -> None:
    """Initialise the sites of new records."""
    if state.ftrace_disabled:
        return
    ftrace_nop_initialize(state, group)
    state.ftrace_update_tot_cnt += group.end - group.start


def ftrace_nop_initialize(state: FtraceState, group: RecordGroup) -> None:
    """Replace `call __fentry__` by the 5-byte nop at each site of `group`."""
    rows = np.arange(group.start, group.end)
    if group.module is None and state.machine.image.linux is not None:
        ftrace_expect_nop(state, rows)
    else:
        ftrace_make_nop(state, rows, state.fentry)

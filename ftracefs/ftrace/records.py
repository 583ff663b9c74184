"""The call sites: struct dyn_ftrace of kernel/trace/ftrace.c, kept in arrays.

One row a site, in the order of available_filter_functions: the kernel's sites, then those of each
module, each part sorted by address. A row is found by its number, which is good until a module
comes or goes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emulated_kernel.kallsyms import Kallsyms
from ftracefs.ftrace.hashes import FtraceHash, Ips
from ftracefs.ftrace.regex import NameTable

Numbers = npt.NDArray[np.intp]
Flags = npt.NDArray[np.uint64]

# enum of include/linux/ftrace.h: the reference count stands below the flags.
FTRACE_FL_ENABLED = 1 << 31
FTRACE_FL_REGS = 1 << 30
FTRACE_FL_REGS_EN = 1 << 29
FTRACE_FL_TRAMP = 1 << 28
FTRACE_FL_TRAMP_EN = 1 << 27
FTRACE_FL_IPMODIFY = 1 << 26
FTRACE_FL_DISABLED = 1 << 25
FTRACE_FL_DIRECT = 1 << 24
FTRACE_FL_DIRECT_EN = 1 << 23
FTRACE_FL_CALL_OPS = 1 << 22
FTRACE_FL_CALL_OPS_EN = 1 << 21
FTRACE_FL_TOUCHED = 1 << 20
FTRACE_FL_MODIFIED = 1 << 19

FTRACE_REF_MAX_SHIFT = 19
FTRACE_REF_MAX = (1 << FTRACE_REF_MAX_SHIFT) - 1
FTRACE_NOCLEAR_FLAGS = FTRACE_FL_DISABLED | FTRACE_FL_TOUCHED | FTRACE_FL_MODIFIED

FTRACE_MCOUNT_MAX_OFFSET = 4  # ENDBR_INSN_SIZE: further into a symbol a site is not its entry
FTRACE_INVALID_FUNCTION = "__ftrace_invalid_address__"


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """The sites of the kernel (`module` None) or of one module: rows start … end."""

    module: str | None
    start: int
    end: int


class FtraceRecords:
    """All records. `ip` and `flags` are indexed alike; `flags` may be written in place."""

    def __init__(self) -> None:
        self.ip: Ips = np.zeros(0, dtype=np.uint64)
        self.flags: Flags = np.zeros(0, dtype=np.uint64)
        self.names: list[bytes] = []
        self.groups: list[RecordGroup] = []
        self._table: NameTable | None = None
        self._listing: bytes | None = None
        self._order: Numbers = np.zeros(0, dtype=np.intp)

    def __len__(self) -> int:
        return len(self.ip)

    # --- modules come and go ---------------------------------------------------------------------

    def add(self, ips: Ips, symbols: Kallsyms, module: str | None) -> RecordGroup:
        """Enter the sites of the kernel or of a module; their flags are 0.

        A site that lies too far into its symbol belongs to a weak function that was overridden: it
        gets no function's name and FTRACE_FL_DISABLED.
        """
        ips = np.sort(ips)
        numbers = symbols.numbers(ips)
        names, offsets = symbols.spell(numbers, ips)
        is_invalid = (numbers < 0) | (offsets > FTRACE_MCOUNT_MAX_OFFSET)
        for row in np.flatnonzero(is_invalid).tolist():
            names[row] = f"{FTRACE_INVALID_FUNCTION}_{offsets[row]}"
        self.names += [name.encode() for name in names]
        flags = np.where(is_invalid, FTRACE_FL_DISABLED, 0).astype(np.uint64)
        group = RecordGroup(module, len(self.ip), len(self.ip) + len(ips))
        self.groups.append(group)
        self.ip = np.concatenate((self.ip, ips))
        self.flags = np.concatenate((self.flags, flags))
        self._changed()
        return group

    def remove(self, module: str) -> Ips:
        """Drop a module's sites (ftrace_release_mod) and return their addresses."""
        gone = next(g for g in self.groups if g.module == module)
        ips = self.ip[gone.start : gone.end].copy()
        keep = np.ones(len(self), dtype=np.bool_)
        keep[gone.start : gone.end] = False
        self.ip, self.flags = self.ip[keep], self.flags[keep]
        del self.names[gone.start : gone.end]
        groups: list[RecordGroup] = []
        for group in self.groups:
            if group is not gone:
                start = groups[-1].end if groups else 0
                groups.append(RecordGroup(group.module, start, start + group.end - group.start))
        self.groups = groups
        self._changed()
        return ips

    def _changed(self) -> None:
        self._order = np.argsort(self.ip, kind="stable")
        self._table = None
        self._listing = None

    # --- by address ------------------------------------------------------------------------------

    def ftrace_location_range(self, start: int, end: int) -> int:
        """The first site from `start` to `end`, both included; 0 when there is none."""
        at = int(np.searchsorted(self.ip, np.uint64(start), sorter=self._order))
        if at == len(self.ip):
            return 0
        ip = int(self.ip[self._order[at]])
        return ip if ip <= end else 0

    def rows(self, ips: Ips) -> Numbers:
        """The rows of known sites."""
        return self._order[np.searchsorted(self.ip, ips, sorter=self._order)]

    def row(self, ip: int) -> int | None:
        """The row of the site `ip`, if it is one."""
        if self.ftrace_location_range(ip, ip) != ip:
            return None
        return int(self.rows(np.array([ip], dtype=np.uint64))[0])

    # --- what is asked of many -------------------------------------------------------------------

    @property
    def counts(self) -> Flags:
        """ftrace_rec_count of every record."""
        return self.flags & np.uint64(FTRACE_REF_MAX)

    def has(self, flags: int) -> npt.NDArray[np.bool_]:
        """Which records have any of `flags`."""
        found: npt.NDArray[np.bool_] = (self.flags & np.uint64(flags)) != 0
        return found

    def in_hash(self, hash: FtraceHash) -> npt.NDArray[np.bool_]:
        """Which records' sites are in `hash`."""
        return hash.contains(self.ip)

    @property
    def name_table(self) -> NameTable:
        """The names for matching."""
        if self._table is None:
            self._table = NameTable(self.names)
        return self._table

    def module(self, row: int) -> str | None:
        """The module a row belongs to."""
        return next(g.module for g in self.groups if g.start <= row < g.end)

    # --- text ------------------------------------------------------------------------------------

    def lines(self, rows: Numbers) -> list[bytes]:
        """`name` or `name [module]` of each of `rows` (print_rec), which ascend."""
        lines: list[bytes] = []
        for group in self.groups:
            low, high = np.searchsorted(rows, (group.start, group.end)).tolist()
            names = [self.names[row] for row in rows[low:high].tolist()]
            if group.module is not None:
                tag = b" [" + group.module.encode() + b"]"
                names = [name + tag for name in names]
            lines += names
        return lines

    @property
    def available_filter_functions(self) -> bytes:
        """The file of that name."""
        if self._listing is None:
            lines = self.lines(np.arange(len(self)))
            self._listing = b"".join(line + b"\n" for line in lines)
        return self._listing

"""What every kernel gives to the machine and to the ftrace engine, whatever it was made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from emulated_kernel.assembler import Symbol
from emulated_kernel.kallsyms import SymbolTable


@dataclass(frozen=True, slots=True)
class Module:
    """A loadable part of a kernel: its text lies in the module area."""

    name: str
    segments: Mapping[str, tuple[int, bytes]]
    symbols: list[Symbol]
    mcount: list[int]
    labels: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LinuxOffsets:
    """What guest code must know of a Linux: where it keeps current, and what of a task.

    Offsets in a CPU's area (`current`, `preempt_count`, `hardirq_stack_ptr`) and in struct
    task_struct, `cred_uid` in what its `real_cred` leads to; `tif_need_resched` is a bit number of
    thread_info's flags, `migration_scale` 0 for a kernel that counts nothing at
    `migration_disabled`; `stack_padding` are bytes of a stack above what was pushed where user mode
    was left. Whether a tracepoint counts as one level of disabled preemption, and members of struct
    trace_event_buffer. Addresses of the tables by which its stacks are unwound, and how these
    number types of frames and registers: all 0 where functions keep frame pointers.
    """

    current: int
    preempt_count: int
    hardirq_stack_ptr: int
    ti_flags: int
    tif_need_resched: int
    migration_disabled: int
    pid: int
    tgid: int
    prio: int
    comm: int
    stack: int
    stack_canary: int
    flags: int
    stack_padding: int
    cpu: int
    state: int
    exit_state: int
    static_prio: int
    policy: int
    rt_priority: int
    real_cred: int
    cred_uid: int
    stext: int
    text_bytes: int
    preemption: int
    fbuffer_buffer: int
    fbuffer_file: int
    fbuffer_entry: int
    fbuffer_event: int
    migration_scale: int = 1 << 16
    orc_lookup: int = 0
    orc_unwind_ip: int = 0
    orc_unwind: int = 0
    orc_type_mask: int = 0
    orc_type_call: int = 0
    orc_type_regs: int = 0
    orc_type_regs_partial: int = 0
    orc_reg_sp: int = 0
    orc_reg_prev_sp: int = 0
    orc_reg_bp_indirect: int = 0

    def constants(self) -> Mapping[str, int]:
        """As guest code names them: LINUX_CURRENT, …"""
        return {f"LINUX_{name.upper()}": value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class KernelImage:
    """A kernel ready to be put into RAM.

    `segments` maps a section to (virtual address, bytes); `mcount` is __mcount_loc, the addresses
    of the call sites, ascending; `labels` are the addresses of all global labels; `constants` what
    the sources defined beside asm_offsets. `linux` is for a kernel that is a Linux, `address_of`
    for one whose symbols are not among the labels.
    """

    name: str
    segments: Mapping[str, tuple[int, bytes]]
    symbols: list[Symbol] | SymbolTable
    mcount: list[int]
    labels: Mapping[str, int]
    constants: Mapping[str, int]
    modules: list[Module] = field(default_factory=list)
    linux: LinuxOffsets | None = None
    address_of: Callable[[str], int | None] | None = None

    def find(self, name: str) -> int | None:
        """The address of whatever has a name in the kernel, or None."""
        return self.labels.get(name) if self.address_of is None else self.address_of(name)

    def label(self, name: str) -> int:
        """The address of a global label; KeyError when there is none."""
        return self.labels[name]

"""A distribution's kernel that has booted, as a KernelImage.

It is in RAM already and its call sites are nops: its own ftrace_init has seen to that. Its labels
are not the built-in kernel's, so the engine is given none but `__fentry__`; by name it finds
whatever kallsyms has. Left out: its tracepoints, static calls and modules.
"""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from emulated_kernel.errors import ImageError
from emulated_kernel.image import KernelImage, LinuxOffsets
from emulated_kernel.kallsyms import SymbolTable
from emulated_kernel.linux.offsets import GENERIC_TIF_SINCE, percpu, task_member, version
from emulated_kernel.linux.symbols import U64, KernelSymbols
from emulated_kernel.linux.vmlinux import START_KERNEL_MAP, Vmlinux
from emulated_kernel.text_poke import NOP5

log = logging.getLogger(__name__)

_FENTRY = "__fentry__"
_NAMED = 8  # at most, of many
# struct orc_entry (arch/x86/include/asm/orc_types.h) and its registers, up to 7.0 and in 7.2.
_ORC_BYTES, _ORC_SP_REG, _ORC_SAMPLE = 6, 4, 4096
_ORC_REGISTERS = (
    {"orc_reg_sp": 5, "orc_reg_prev_sp": 1, "orc_reg_bp_indirect": 8},
    {"orc_reg_sp": 3, "orc_reg_prev_sp": 8, "orc_reg_bp_indirect": 10},
)
# What a kernel that knows FRED leaves free on a stack (TOP_OF_KERNEL_STACK_PADDING).
_FRED_ENTRY, _FRED_BYTES = "asm_fred_entrypoint_user", 16
_TIF_NEED_RESCHED, _TIF_NEED_RESCHED_GENERIC = 3, 4


def linux_image(vmlinux: Vmlinux, ram: npt.NDArray[np.uint8] | None = None) -> KernelImage:
    """Raises ImageError for a kernel of which something needed is not known.

    With its `ram` after boot, call sites are left out that its own ftrace uses (a BPF program's).
    """
    fentry = vmlinux.symbols.get(_FENTRY)
    if fentry is None:
        raise ImageError(f"no symbol {_FENTRY}")
    return KernelImage(
        vmlinux.release,
        {},
        symbol_table(vmlinux.symbols),
        _unused(vmlinux, ram).tolist(),
        {_FENTRY: fentry},
        {},
        linux=linux_offsets(vmlinux),
        address_of=vmlinux.symbols.get,
    )


def _unused(vmlinux: Vmlinux, ram: npt.NDArray[np.uint8] | None) -> U64:
    sites = vmlinux.mcount_after_boot
    if ram is None:
        return sites
    places = (sites - np.uint64(START_KERNEL_MAP)).astype(np.int64)
    code = ram[places[:, None] + np.arange(len(NOP5))]
    is_unused = (code == np.frombuffer(NOP5, dtype=np.uint8)).all(axis=1)
    if not is_unused.all():
        symbols = vmlinux.symbols
        names = [symbols.names[n] for n in symbols.numbers(sites[~is_unused]).tolist()]
        log.info("its own ftrace has %d functions: %s", len(names), " ".join(names[:_NAMED]))
    return np.asarray(sites[is_unused], dtype=np.uint64)


def symbol_table(symbols: KernelSymbols) -> SymbolTable:
    """Linux keeps no sizes: a symbol reaches up to the next address that has one.

    No address below the text is in any: those of per-CPU variables are offsets (is_ksym_addr).
    """
    addresses = symbols.addresses
    following = np.searchsorted(addresses, addresses, "right")
    ends = addresses[np.minimum(following, len(addresses) - 1)]
    ends = np.where(addresses < np.uint64(START_KERNEL_MAP), addresses, ends)
    kinds = symbols.kinds.decode("ascii", "replace")
    return SymbolTable(addresses, ends, symbols.names, kinds)


def linux_offsets(vmlinux: Vmlinux) -> LinuxOffsets:
    """Where guest code finds what it asks of this kernel."""
    btf = vmlinux.btf

    def task(member: str) -> int:
        return btf.offset("task_struct", member)

    counts_migration = btf.has("task_struct", "migration_disabled")  # since 5.11
    is_generic = version(vmlinux.release) >= GENERIC_TIF_SINCE
    return LinuxOffsets(
        current=percpu(vmlinux, "current_task", "current_task"),
        preempt_count=percpu(vmlinux, "__preempt_count", "preempt_count"),
        hardirq_stack_ptr=percpu(vmlinux, "hardirq_stack_ptr", "hardirq_stack_ptr"),
        ti_flags=task("thread_info.flags"),
        tif_need_resched=_TIF_NEED_RESCHED_GENERIC if is_generic else _TIF_NEED_RESCHED,
        migration_disabled=task("migration_disabled" if counts_migration else "stack"),
        migration_scale=counts_migration << 16,
        pid=task("pid"),
        tgid=task("tgid"),
        prio=task("prio"),
        comm=task("comm"),
        stack=task("stack"),
        stack_canary=task("stack_canary"),
        flags=task("flags"),
        stack_padding=_FRED_BYTES if _FRED_ENTRY in vmlinux.symbols else 0,
        cpu=task_member(vmlinux, "cpu", "thread_info.cpu"),
        state=task_member(vmlinux, "__state", "state"),
        exit_state=task("exit_state"),
        static_prio=task("static_prio"),
        policy=task("policy"),
        rt_priority=task("rt_priority"),
        real_cred=task("real_cred"),
        cred_uid=btf.offset("cred", "uid"),
        stext=vmlinux.text.start,
        text_bytes=vmlinux.text.end - vmlinux.text.start,
        preemption=int("preempt_schedule" in vmlinux.symbols),
        fbuffer_buffer=btf.offset("trace_event_buffer", "buffer"),
        fbuffer_file=btf.offset("trace_event_buffer", "trace_file"),
        fbuffer_entry=btf.offset("trace_event_buffer", "entry"),
        fbuffer_event=btf.offset("trace_event_buffer", "event"),
        **_orc(vmlinux),
    )


def _orc(vmlinux: Vmlinux) -> dict[str, int]:
    """Nothing where functions keep frame pointers instead (CONFIG_UNWINDER_FRAME_POINTER).

    Since 6.4 there are types for frames that are unknown and that end the stack.
    """
    symbols = {"orc_lookup": "orc_lookup"}
    symbols |= {name: f"__start_{name}" for name in ("orc_unwind_ip", "orc_unwind")}
    tables = {name: vmlinux.symbols.get(symbol) for name, symbol in symbols.items()}
    found = {name: address for name, address in tables.items() if address is not None}
    if len(found) < len(tables):
        return {}
    bits = vmlinux.btf.member("orc_entry", "type").bits
    first = 2 if bits > 2 else 0
    names = ("call", "regs", "regs_partial")
    types = {f"orc_type_{name}": first + number for number, name in enumerate(names)}
    registers = orc_registers(vmlinux.read(found["orc_unwind"], _ORC_SAMPLE * _ORC_BYTES))
    return {**found, "orc_type_mask": (1 << bits) - 1, **types, **registers}


def orc_registers(table: bytes) -> dict[str, int]:
    """How the entries of a table number registers: most frames are found by the stack pointer."""
    found_by = np.frombuffer(table, dtype=np.uint8)[_ORC_SP_REG::_ORC_BYTES] & 15
    return max(_ORC_REGISTERS, key=lambda each: np.count_nonzero(found_by == each["orc_reg_sp"]))

"""Unicorn's CPUX86State as plain memory: registers, segments and flags without a call for each.

Its place is found once for each instance, its layout is that of the pinned Unicorn; whatever does
not look as expected is refused with UnicornMismatch. All of it is for a vCPU that stands still, or
for a hook of its own.
"""

from __future__ import annotations

import ctypes as C
import os
import struct
from typing import Any

from unicorn import UC_HOOK_INTR, x86_const
from unicorn.unicorn_py3.unicorn import uclib

from emulated_kernel.errors import EmulatedKernelError

GENERAL = (
    *("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi"),
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
)
RIP, EFLAGS, CC_SRC = 16, 17, 19  # as words of 8 bytes
_CC_OP, _DF, _HFLAGS = 42, 43, 44  # as words of 4
_SEGMENT_SELECTOR, _SEGMENT_FLAGS, _SEGMENT_LIMIT, _SEGMENT_BASE = 46, 51, 50, 24
ES, CS, SS, DS, FS, GS = range(6)
TR_BASE, IDT_BASE, CR0, CR2, CR3, CR4 = 45, 51, 53, 55, 56, 57
# Beside the error code of the last exception, in words of 8 bytes from where it returns to.
_OLD_EXCEPTION, _VM_VMCB, _TSC_OFFSET = 13, 14, 15
_AFTER_RESET_FIELDS = 26

CC_OP_EFLAGS = 1
_CC_MASK, _DF_BIT = 0x8D5, 0x400
EFLAGS_TF, EFLAGS_IF, EFLAGS_NT, EFLAGS_RF, EFLAGS_VM = 0x100, 0x200, 0x4000, 0x10000, 0x20000
HF_CPL, HF_INHIBIT_IRQ = 3, 8
_HF_ADDSEG, _HF_CODE64, _HF_32 = 0x40, 0x8000, 0x30
FLAT_CODE, FLAT_DATA = 0x00A09B00, 0x00C09300
_REAL_CODE, _REAL_DATA = 0x00009B00, 0x00009300
_CPU_ENV_POINTER = 0x128  # CPUState.env_ptr
_SCANNED, _BEHIND = 8192, 65536
_PROBE_AT, _PROBE_VECTOR = 0x3000, 0x81
_tlb_flush = C.CFUNCTYPE(None, C.c_void_p)(("tlb_flush_x86_64", uclib))


class UnicornMismatch(EmulatedKernelError):
    """This Unicorn is not the one whose inside is known."""


def _pointers(memory: int, at: int) -> list[int]:
    """What looks like pointers among the words of a structure, each once."""
    top = os.pread(memory, _SCANNED, at)
    words = struct.unpack(f"<{len(top) // 8}Q", top)
    return list(dict.fromkeys(w for w in words if 0x10000 <= w < 1 << 47))


class CpuState:
    """The state of one Unicorn instance, which has RAM at guest-physical 0 and has not run yet."""

    def __init__(self, uc: Any, ram: Any) -> None:
        self._uc = uc
        memory = os.open("/proc/self/mem", os.O_RDONLY)
        try:
            self.address, self.cpu_address = self._find(memory)
        finally:
            os.close(memory)
        words = (C.c_uint64 * 2000).from_address(self.address)
        self.q = memoryview(words).cast("B").cast("Q")
        self.d = self.q.cast("B").cast("I")
        self._find_msrs()
        self._find_exception(ram)
        self.bytes = 8 * (self._exception_next_eip + _AFTER_RESET_FIELDS)
        self._check()

    # --- finding ---------------------------------------------------------------------------------

    def _find(self, memory: int) -> tuple[int, int]:
        """The state and the CPUState it is part of: told by values that nobody else has."""
        pattern = os.urandom(32)
        for name, value in zip(GENERAL, struct.unpack("<4Q", pattern), strict=False):
            self._uc.reg_write(getattr(x86_const, f"UC_X86_REG_{name.upper()}"), value)
        for pointer in _pointers(memory, self._uc._uch.value):
            try:
                block = os.pread(memory, _BEHIND, pointer)
                at = pointer + block.find(pattern)
                (env,) = struct.unpack_from("<Q", block, _CPU_ENV_POINTER)
            except (OSError, struct.error):
                continue
            if env == at and at > pointer:
                return at, pointer
        raise UnicornMismatch("the vCPU's state is not where Unicorn 2.1.4 has it")

    def _find_msrs(self) -> None:
        magic = 0x7123456789AB0000
        self._uc.msr_write(0xC0000082, magic)
        found = [i for i in range(60, 1900) if self.q[i] == magic]
        if len(found) != 1:
            raise UnicornMismatch("LSTAR is not where Unicorn 2.1.4 has it")
        self._uc.msr_write(0xC0000082, 0)
        self.lstar = found[0]
        self.star, self.fmask = self.lstar - 2, self.lstar + 2

    def _find_exception(self, ram: Any) -> None:
        """Where an exception leaves its words: found by one."""
        saved = bytes(ram[_PROBE_AT : _PROBE_AT + 2])
        ram[_PROBE_AT : _PROBE_AT + 2] = bytes([0xCD, _PROBE_VECTOR])
        seen: list[int] = []

        def on_interrupt(uc: Any, vector: int, _data: object) -> None:
            seen.append(vector)
            uc.emu_stop()

        hook = self._uc.hook_add(UC_HOOK_INTR, on_interrupt)
        self._uc.emu_start(_PROBE_AT, 0)
        self._uc.hook_del(hook)
        ram[_PROBE_AT : _PROBE_AT + 2] = saved
        found = [i for i in range(self.lstar, 1900) if self.q[i] == _PROBE_AT + 2]
        if seen != [_PROBE_VECTOR] or not found:
            raise UnicornMismatch("exceptions do not leave what Unicorn 2.1.4 does")
        self._exception_next_eip = found[0]
        if not self.is_int or self.d[2 * (found[0] + _OLD_EXCEPTION)] != 0xFFFFFFFF:
            raise UnicornMismatch("exceptions do not leave what Unicorn 2.1.4 does")
        self.forget_exception()

    def _check(self) -> None:
        """The rest of the layout, as far as the binding can be asked."""
        uc, q = self._uc, self.q
        uc.reg_write(x86_const.UC_X86_REG_CR2, 0x5A5A123400)
        uc.reg_write(x86_const.UC_X86_REG_IDTR, (0, 0x5A5A4000, 0xFFF, 0))
        uc.msr_write(0xC0000101, 0x5A5A5000)
        uc.reg_write(x86_const.UC_X86_REG_RIP, 0x5A5A6000)
        gs = _SEGMENT_BASE + 3 * GS
        if (q[CR2], q[IDT_BASE], q[gs], q[RIP]) != (
            *(0x5A5A123400, 0x5A5A4000, 0x5A5A5000, 0x5A5A6000),
        ):
            raise UnicornMismatch("the vCPU's registers are not where Unicorn 2.1.4 has them")

    # --- flags and segments ----------------------------------------------------------------------

    @property
    def eflags(self) -> int:
        if self.d[_CC_OP] != CC_OP_EFLAGS:
            return int(self._uc.reg_read(x86_const.UC_X86_REG_EFLAGS))
        direction = _DF_BIT if self.d[_DF] >> 31 else 0
        return self.q[EFLAGS] & ~(_CC_MASK | _DF_BIT) | self.q[CC_SRC] & _CC_MASK | direction | 2

    @eflags.setter
    def eflags(self, value: int) -> None:
        self.q[EFLAGS] = value & ~(_CC_MASK | _DF_BIT) | 2
        self.q[CC_SRC] = value & _CC_MASK
        self.d[_CC_OP] = CC_OP_EFLAGS
        self.d[_DF] = 0xFFFFFFFF if value & _DF_BIT else 1

    @property
    def may_be_interrupted(self) -> bool:
        """IF is set and no `sti` holds interrupts off for one more instruction."""
        return bool(self.q[EFLAGS] & EFLAGS_IF) and not self.d[_HFLAGS] & HF_INHIBIT_IRQ

    def end_interrupt_shadow(self) -> None:
        self.d[_HFLAGS] &= ~HF_INHIBIT_IRQ

    @property
    def cpl(self) -> int:
        return self.d[_HFLAGS] & HF_CPL

    @staticmethod
    def cpl_of(saved: bytes) -> int:
        """The same of a saved state."""
        return saved[4 * _HFLAGS] & HF_CPL if saved else 0

    def selector(self, segment: int) -> int:
        return self.d[_SEGMENT_SELECTOR + 6 * segment]

    def set_segment(self, segment: int, selector: int, flags: int) -> None:
        """A flat segment."""
        self.d[_SEGMENT_SELECTOR + 6 * segment] = selector
        self.q[_SEGMENT_BASE + 3 * segment] = 0
        self.d[_SEGMENT_LIMIT + 6 * segment] = 0xFFFFFFFF
        self.d[_SEGMENT_FLAGS + 6 * segment] = flags

    def set_base(self, segment: int, base: int) -> None:
        self.q[_SEGMENT_BASE + 3 * segment] = base

    def set_privilege(self, cs: int, ss: int | None, cpl: int) -> None:
        """64-bit code at a level; `ss` None leaves the stack segment."""
        self.set_segment(CS, cs, FLAT_CODE | cpl << 13)
        if ss is not None:
            self.set_segment(SS, ss, FLAT_DATA | cpl << 13)
        hflags = self.d[_HFLAGS] & ~(HF_CPL | _HF_ADDSEG)
        self.d[_HFLAGS] = hflags | cpl | _HF_CODE64 | _HF_32

    def begin_real_mode(self, page: int) -> None:
        """In front of the first instruction of a page of the first MiB, protection being off."""
        for segment in range(6):
            self.set_segment(segment, 0, _REAL_DATA)
            self.d[_SEGMENT_LIMIT + 6 * segment] = 0xFFFF
        self.d[_SEGMENT_SELECTOR + 6 * CS] = page << 8
        self.q[_SEGMENT_BASE + 3 * CS] = page << 12
        self.d[_SEGMENT_FLAGS + 6 * CS] = _REAL_CODE
        for index in range(16):
            self.q[index] = 0
        self.q[RIP] = 0
        self.eflags = 2
        self.d[_HFLAGS] = _HF_ADDSEG
        self.forget_exception()

    # --- exceptions ------------------------------------------------------------------------------

    @property
    def is_int(self) -> bool:
        """The last exception was an `int` instruction."""
        return bool(self.d[2 * self._exception_next_eip - 1])

    @property
    def error_code(self) -> int:
        return self.d[2 * self._exception_next_eip - 2]

    def forget_exception(self) -> None:
        """Unicorn does not by itself: the next fault would be a double one."""
        self.d[2 * self._exception_next_eip - 1] = 0
        self.d[2 * (self._exception_next_eip + _OLD_EXCEPTION)] = 0xFFFFFFFF

    # --- as a whole ------------------------------------------------------------------------------

    @property
    def tsc_offset(self) -> int:
        """What the guest's time stamp counter is ahead of the host's."""
        return self.q[self._exception_next_eip + _TSC_OFFSET]

    @tsc_offset.setter
    def tsc_offset(self, value: int) -> None:
        self.q[self._exception_next_eip + _TSC_OFFSET] = value & 0xFFFFFFFFFFFFFFFF

    def save(self) -> bytes:
        return C.string_at(self.address, self.bytes)

    def restore(self, saved: bytes, *, forget_translations: bool = True) -> None:
        """Go back to what `save` gave. Page tables may have changed: the soft TLB is emptied."""
        if len(saved) != self.bytes:
            raise UnicornMismatch("a saved vCPU of another layout")
        C.memmove(self.address, saved, len(saved))
        if forget_translations:
            _tlb_flush(self.cpu_address)

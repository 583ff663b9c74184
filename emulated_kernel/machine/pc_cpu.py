"""The processor of a PC: one Unicorn instance that boots a kernel as a real one would.

It has no more than Unicorn gives: exceptions and interrupts go through the guest's own IDT, ports
lead to `Ports` and one page of memory to `Registers`. With `native` hooks (native_hooks.py) no
Python runs for exceptions and system calls; without them everything is done here, several times
slower and with the same result, but for code that is written through another mapping than it runs
in. Left out: MSRs that Unicorn does not
know, 32-bit system calls.
"""

from __future__ import annotations

import ctypes as C
import mmap
import struct
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Protocol

from unicorn import (
    UC_ARCH_X86,
    UC_HOOK_BLOCK,
    UC_HOOK_INSN,
    UC_HOOK_INSN_INVALID,
    UC_HOOK_INTR,
    UC_MODE_64,
    UC_PROT_ALL,
    x86_const,
)
from unicorn.unicorn_py3.unicorn import Uc, uc_version, uclib

from emulated_kernel.asm_offsets import CONSTANTS, HYPERCALL_VECTOR
from emulated_kernel.errors import EmulatedKernelError, GuestFault
from emulated_kernel.machine import cpu_state
from emulated_kernel.machine.cpu_state import CpuState
from emulated_kernel.machine.native_hooks import NativeHooks, library_function
from emulated_kernel.machine.unicorn_abi import (
    check_exits_at_blocks_only,
    uc_emu_start,
    uc_emu_stop,
)

KNOWN_UNICORN = 0x020104FF  # 2.1.4, and no candidate for it
_MODEL = x86_const.UC_CPU_X86_SKYLAKE_SERVER
_HIGH_DEVICES = 0xFEC00000, 0xFF000000  # APICs, as memory that nobody answers from
_TRANSLATION_BYTES = 256 << 20
_WITH_ERROR_CODE = {8, 10, 11, 12, 13, 14, 17, 21}
INT3, _INVALID_OPCODE, _GENERAL_PROTECTION = 3, 6, 13
_EFER, _SCE_LME_LMA, _NXE = 0xC0000080, 0x501, 0x800
_SYSCALL_BYTES = _INT_BYTES = 2
_HLT = 0xF4
_PAGE = 4096
_ENTRY, _GATE, _FRAME = struct.Struct("<Q"), struct.Struct("<HHBBHI"), struct.Struct("<5Q")
_WORDS = {
    **{name: index for index, name in enumerate(cpu_state.GENERAL)},
    "rip": cpu_state.RIP,
    "cr2": cpu_state.CR2,
}
_COUNTERS = {
    "native_rdtsc": x86_const.UC_X86_INS_RDTSC,
    "native_rdtscp": x86_const.UC_X86_INS_RDTSCP,
}
_KERNEL_CS, _KERNEL_DS = CONSTANTS["KERNEL_CS"], CONSTANTS["KERNEL_DS"]

Cpuid = tuple[int, int, int, int]
_IN = C.CFUNCTYPE(C.c_uint32, C.c_void_p, C.c_uint32, C.c_int, C.c_void_p)
_OUT = C.CFUNCTYPE(None, C.c_void_p, C.c_uint32, C.c_int, C.c_uint32, C.c_void_p)
_INTERRUPT = C.CFUNCTYPE(None, C.c_void_p, C.c_uint32, C.c_void_p)
_INVALID = C.CFUNCTYPE(C.c_bool, C.c_void_p, C.c_void_p)
_SYSCALL = C.CFUNCTYPE(None, C.c_void_p, C.c_void_p)
_CPUID = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p)
_READ = C.CFUNCTYPE(C.c_uint64, C.c_void_p, C.c_uint64, C.c_uint, C.c_void_p)
_WRITE = C.CFUNCTYPE(None, C.c_void_p, C.c_uint64, C.c_uint, C.c_uint64, C.c_void_p)


class Ports(Protocol):
    """Who answers `in` and `out`."""

    def read(self, port: int, size: int) -> int: ...
    def write(self, port: int, size: int, value: int) -> None: ...

    def only_sends(self, port: int) -> bool:
        """Whether of more bytes to `port` nothing comes but that they are sent.

        They may then be given to `send` together, before the next thing that is read or written and
        before the processor takes an interrupt.
        """
        ...

    def send(self, port: int, data: bytes) -> None: ...


class Registers(Protocol):
    """Who answers reads and writes of the four bytes at an offset."""

    def read(self, offset: int) -> int: ...
    def write(self, offset: int, value: int) -> None: ...


class Stop(Enum):
    """Why a PC's processor stands still."""

    HALT = auto()  # `hlt`
    TOLD = auto()  # an interrupt can be delivered, or somebody wants a turn


def register_word(name: str) -> int:
    """Which word of a saved state a register is; of `eflags` without the arithmetic ones."""
    return cpu_state.EFLAGS if name == "eflags" else _WORDS[name]


def native_cpuid(leaf: int) -> Cpuid:
    """What the processor model answers by itself."""
    make_uc: Any = Uc
    uc: Any = make_uc(UC_ARCH_X86, UC_MODE_64)
    uc.ctl_set_cpu_model(_MODEL)
    uc.mem_map(0x1000, 0x1000)
    uc.mem_write(0x1000, b"\x0f\xa2\xf4")
    uc.reg_write(x86_const.UC_X86_REG_RAX, leaf)
    uc.reg_write(x86_const.UC_X86_REG_RCX, 0)
    uc.emu_start(0x1000, 0)
    names = ("RAX", "RBX", "RCX", "RDX")
    values = (uc.reg_read(getattr(x86_const, f"UC_X86_REG_{name}")) for name in names)
    eax, ebx, ecx, edx = (int(value) & 0xFFFFFFFF for value in values)
    return eax, ebx, ecx, edx


class PcCpu:
    """One processor over `ram`, which lies at guest-physical 0.

    `cpuid` has the leaves that differ from the model's. `on_interrupt(vector)` is asked about
    hypercalls, and about int3 while `int3_to_host` is set; an int3 that it does not answer with
    True goes to the guest, and a hypercall as the fault that it is there. What `ports` or
    `on_interrupt` raise is kept and raised by `run`. `counted`: the time stamp counter is the
    hooks' `ticks`, one for each byte of code, and it stops at `deadline`.
    `registers` are in the page at a physical address among the high devices'.
    """

    def __init__(
        self,
        ram: mmap.mmap,
        ports: Ports,
        cpuid: Mapping[int, Cpuid],
        *,
        native: bool,
        counted: bool = False,
        registers: tuple[int, Registers] | None = None,
        on_interrupt: Callable[[int], bool] = lambda vector: False,
    ) -> None:
        self._ram, self._last_entry = ram, len(ram) - 8
        self._ram_bytes = (C.c_char * len(ram)).from_buffer(ram)
        ram_address = C.addressof(self._ram_bytes)
        make_uc: Any = Uc
        self._uc: Any = make_uc(UC_ARCH_X86, UC_MODE_64)
        self._handle = self._uc._uch
        self._uc.ctl_set_tcg_buffer_size(_TRANSLATION_BYTES)
        self._uc.ctl_set_cpu_model(_MODEL)
        self._uc.mem_map_ptr(0, len(ram), UC_PROT_ALL, C.c_void_p(ram_address))
        self._callbacks: list[Any] = []
        self._map_devices(registers)
        check_exits_at_blocks_only(self._uc)
        self.state = CpuState(self._uc, ram)
        self._ports = ports
        self.cpuid = cpuid
        self._on_interrupt = on_interrupt
        self._error: BaseException | None = None
        self.is_native = native
        self.hooks = NativeHooks(self._uc, self.state, ram_address)
        self._do_interrupt = C.CFUNCTYPE(None, C.c_void_p)(library_function("x86_cpu_do_interrupt"))
        self._install(native, counted)
        self._invalidate = C.CFUNCTYPE(None, C.c_void_p, C.c_uint64, C.c_uint64)(
            library_function("tb_invalidate_phys_range")
        )

    # --- hooks -----------------------------------------------------------------------------------

    def _map_devices(self, registers: tuple[int, Registers] | None) -> None:
        start, end = _HIGH_DEVICES
        if registers is not None:
            page, self._registers = registers
            self._uc.mem_map(start, page - start, UC_PROT_ALL)
            start = page + _PAGE
            read, write = _READ(self._read_register), _WRITE(self._write_register)
            self._callbacks += [read, write]
            arguments = [C.c_uint64(page), C.c_size_t(_PAGE), read, None, write, None]
            status = uclib.uc_mmio_map(self._handle, *arguments)
            if status:
                raise EmulatedKernelError(f"uc_mmio_map: {status}")
        self._uc.mem_map(start, end - start, UC_PROT_ALL)

    def _read_register(self, _uc: int, offset: int, _size: int, _data: int) -> int:
        try:
            self._send_kept()
            return self._registers.read(offset)
        except BaseException as error:
            self._fail(error)
            return 0

    def _write_register(self, _uc: int, offset: int, _size: int, value: int, _data: int) -> None:
        try:
            self._send_kept()
            self._registers.write(offset, value & 0xFFFFFFFF)
        except BaseException as error:
            self._fail(error)

    def _install(self, native: bool, counted: bool) -> None:
        # The counted clock tells when a byte was sent, and it is sent then.
        self._may_keep_sent = not counted
        self._sends_to: int | None = None  # the port whose bytes are kept
        hooks = self.hooks
        if counted:
            self._hook_address(UC_HOOK_BLOCK, hooks.address("native_counted_block"))
            for name, instruction in _COUNTERS.items():
                self._hook_address(UC_HOOK_INSN, hooks.address(name), instruction)
        else:
            self._hook_address(UC_HOOK_BLOCK, hooks.address("native_block"))
        self._hook(UC_HOOK_INSN, _IN(self._in), x86_const.UC_X86_INS_IN)
        out = _OUT(self._out)
        self._callbacks.append(out)
        hooks.set("on_out", C.cast(out, C.c_void_p).value or 0)
        self._hook_address(UC_HOOK_INSN, hooks.address("native_out"), x86_const.UC_X86_INS_OUT)
        self._hook(UC_HOOK_INSN, _CPUID(self._cpuid_instruction), x86_const.UC_X86_INS_CPUID)
        interrupt = _INTERRUPT(self._interrupt)
        syscall = x86_const.UC_X86_INS_SYSCALL
        if native:
            self._callbacks.append(interrupt)
            hooks.set("on_interrupt", C.cast(interrupt, C.c_void_p).value or 0)
            hooks.link()
            self._hook_address(UC_HOOK_INTR, hooks.address("native_interrupt"))
            self._hook_address(UC_HOOK_INSN_INVALID, hooks.address("native_invalid"))
            self._hook_address(UC_HOOK_INSN, hooks.address("native_syscall"), syscall)
            hooks.replace_functions()
        else:
            self._hook(UC_HOOK_INTR, interrupt)
            self._hook(UC_HOOK_INSN_INVALID, _INVALID(self._invalid))
            self._hook(UC_HOOK_INSN, _SYSCALL(self._syscall), syscall)

    def _hook(self, kind: int, callback: Any, instruction: int | None = None) -> None:
        self._callbacks.append(callback)
        self._hook_address(kind, C.cast(callback, C.c_void_p).value or 0, instruction)

    def _hook_address(self, kind: int, address: int, instruction: int | None = None) -> None:
        hook = C.c_size_t()
        arguments = [self._handle, C.byref(hook), kind, C.c_void_p(address), None]
        arguments += [C.c_uint64(1), C.c_uint64(0)]
        if instruction is not None:
            arguments.append(C.c_int(instruction))
        status = uclib.uc_hook_add(*arguments)
        if status:
            raise EmulatedKernelError(f"uc_hook_add: {status}")

    def _fail(self, error: BaseException) -> None:
        self._error = error
        uc_emu_stop(self._handle)

    def _in(self, _uc: int, port: int, size: int, _data: int) -> int:
        try:
            self._send_kept()
            return self._ports.read(port, size)
        except BaseException as error:
            self._fail(error)
            return 0

    def _out(self, _uc: int, port: int, size: int, value: int, _data: int) -> None:
        try:
            self._send_kept()
            self._ports.write(port, size, value & (1 << 8 * size) - 1)
            if self._may_keep_sent and size == 1 and self._ports.only_sends(port):
                self._sends_to = port
                self.hooks.keep_sent(port)
        except BaseException as error:
            self._fail(error)

    def _send_kept(self) -> None:
        if self._sends_to is not None:
            port, self._sends_to = self._sends_to, None
            if data := self.hooks.take_sent():
                self._ports.send(port, data)

    def _cpuid_instruction(self, _uc: int, _data: int) -> int:
        q = self.state.q
        answer = self.cpuid.get(q[0] & 0xFFFFFFFF)
        if answer is None:
            return 0
        q[0], q[3], q[1], q[2] = answer
        return 1

    def _interrupt(self, _uc: int, vector: int, _data: int) -> None:
        try:
            state = self.state
            is_hypercall = vector == HYPERCALL_VECTOR and self._is_host_s(state.q[cpu_state.RIP])
            asked = is_hypercall or (vector == INT3 and bool(self.hooks.get("int3_to_host")))
            if asked and self._on_interrupt(vector):
                state.forget_exception()
            elif is_hypercall:
                # Not by Unicorn's own code, which would leave this function by a longjmp.
                state.forget_exception()
                state.q[cpu_state.RIP] -= _INT_BYTES
                self._deliver(_GENERAL_PROTECTION, 8 * vector + 2)
            elif self.is_native:
                self._do_interrupt(state.cpu_address)
            else:
                has_error = vector in _WITH_ERROR_CODE and not state.is_int
                error = state.error_code if has_error else None
                state.forget_exception()
                self._deliver(vector, error)
        except BaseException as error:
            self._fail(error)

    def _is_host_s(self, address: int) -> bool:
        start = self.hooks.get("hypercalls_start")
        in_text = start <= address < start + self.hooks.get("hypercalls_bytes")
        return in_text or address == self.hooks.get("user_stop")

    def _invalid(self, _uc: int, _data: int) -> bool:
        try:
            self._deliver(_INVALID_OPCODE, None)
        except BaseException as error:
            self._fail(error)
            return False
        return True

    def _syscall(self, _uc: int, _data: int) -> None:
        state, q = self.state, self.state.q
        flags = state.eflags
        selector = (q[state.star] >> 32) & 0xFFFF
        q[1], q[11] = q[cpu_state.RIP] + _SYSCALL_BYTES, flags
        state.eflags = flags & ~q[state.fmask] & ~cpu_state.EFLAGS_RF
        state.set_privilege(selector & 0xFFFC, (selector & 0xFFFC) + 8, 0)
        q[cpu_state.RIP] = q[state.lstar] - _SYSCALL_BYTES

    # --- memory ----------------------------------------------------------------------------------

    def physical(self, address: int) -> int | None:
        """Where the page tables lead an address, or None."""
        ram, limit = self._ram, self._last_entry
        table = self.state.q[cpu_state.CR3] & 0xFFFFFFFFFF000
        for shift in (39, 30, 21, 12):
            at = table + 8 * (address >> shift & 511)
            if at > limit:
                return None
            (entry,) = _ENTRY.unpack_from(ram, at)
            if not entry & 1:
                return None
            table = entry & 0xFFFFFFFFFF000
            if entry & 0x80 and shift in (30, 21):
                mask = (1 << shift) - 1
                return int(table & ~mask | address & mask)
        return int(table | address & 0xFFF)

    def _read(self, address: int, size: int) -> bytes:
        """At most to the end of the page."""
        at = self.physical(address)
        if at is None or at + size > len(self._ram):
            raise GuestFault(f"{address:#x} is not mapped", vector=8, rip=self.rip)
        return self._ram[at : at + size]

    def invalidate(self, physical: int, size: int) -> None:
        """Drop translations of RAM that has been written by the host."""
        self._invalidate(self._handle, physical, physical + size)

    # --- exceptions and interrupts ---------------------------------------------------------------

    def deliver_interrupt(self, vector: int) -> None:
        """An interrupt from outside, while the processor stands still."""
        self._deliver(vector, None)

    def _deliver(self, vector: int, error: int | None) -> None:
        """Through the guest's IDT, as the processor does it in 64-bit mode."""
        state, q = self.state, self.state.q
        gate = self._read(q[cpu_state.IDT_BASE] + 16 * vector, 16)
        low, selector, ist, kind, middle, high = _GATE.unpack_from(gate)
        if not kind & 0x80:
            raise GuestFault(f"no handler for vector {vector}", vector=vector, rip=self.rip)
        cpl, flags, rsp = state.cpl, state.eflags, q[4]
        tss = q[cpu_state.TR_BASE]
        if ist & 7:
            (top,) = struct.unpack("<Q", self._read(tss + 0x24 + 8 * ((ist & 7) - 1), 8))
        elif cpl:
            (top,) = struct.unpack("<Q", self._read(tss + 4, 8))
        else:
            top = rsp
        cs, ss = state.selector(cpu_state.CS), state.selector(cpu_state.SS)
        frame = _FRAME.pack(q[cpu_state.RIP], cs, flags, rsp, ss)
        if error is not None:
            frame = struct.pack("<Q", error) + frame
        top = (top & ~15) - len(frame)
        in_first = min(len(frame), _PAGE - top % _PAGE)  # it may lie across two pages
        for part, address in ((frame[:in_first], top), (frame[in_first:], top + in_first)):
            if not part:
                continue
            at = self.physical(address)
            if at is None:
                raise GuestFault(
                    f"double fault: vector {vector} without a stack", vector=8, rip=self.rip
                )
            self._ram[at : at + len(part)] = part
        q[4], q[cpu_state.RIP] = top, low | middle << 16 | high << 32
        flags &= ~(cpu_state.EFLAGS_TF | cpu_state.EFLAGS_NT)
        flags &= ~(cpu_state.EFLAGS_RF | cpu_state.EFLAGS_VM)
        if kind & 0xF == 0xE:
            flags &= ~cpu_state.EFLAGS_IF
        state.eflags = flags
        state.set_privilege(selector & ~3, 0 if cpl else None, 0)

    # --- running ---------------------------------------------------------------------------------

    @property
    def rip(self) -> int:
        return self.state.q[cpu_state.RIP]

    @property
    def page_table_root(self) -> int:
        return self.state.q[cpu_state.CR3] & 0xFFFFFFFFFF000

    @property
    def is_behind_hlt(self) -> bool:
        """Whether it halted by an instruction: it also does when it cannot deliver an exception."""
        at = self.physical(self.rip - 1)
        return at is not None and at < len(self._ram) and self._ram[at] == _HLT

    def run(self) -> Stop:
        """Run until it halts, or until told to stop. Raises what a hook raised."""
        self.hooks.set("told", 0)
        status = uc_emu_start(self._handle, self.rip, 0, 0, 0)
        self._send_kept()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if status:
            what = uclib.uc_strerror(status).decode()
            raise GuestFault(f"{what} at {self.rip:#x}", vector=-1, rip=self.rip)
        return Stop.TOLD if self.hooks.get("told") else Stop.HALT

    def get(self, *names: str) -> tuple[int, ...]:
        """Registers, while it stands still or in a hook of its own."""
        q = self.state.q
        return tuple(self.state.eflags if n == "eflags" else q[_WORDS[n]] for n in names)

    def set(self, **values: int) -> None:
        """Set registers, while it stands still or in a hook of its own."""
        for name, value in values.items():
            if name == "eflags":
                self.state.eflags = value
            else:
                self.state.q[_WORDS[name]] = value & 0xFFFFFFFFFFFFFFFF

    def force_stop(self) -> None:
        """Stop from another thread wherever it is; its state is not one to go on from."""
        uc_emu_stop(self._handle)

    def close(self) -> None:
        """Give the translations back; it does not run again."""
        self.hooks.close()
        # The instance and the hooks refer to each other.
        self._uc = None

    def enter_kernel(self, rip: int, rsp: int, gs_base: int) -> None:
        """Be in the kernel with interrupts off, wherever the guest was."""
        state = self.state
        state.set_privilege(_KERNEL_CS, _KERNEL_DS, 0)
        state.set_base(cpu_state.GS, gs_base)
        state.eflags = 2
        self.set(rip=rip, rsp=rsp, rbp=0)

    def boot_state(self, entry: int, boot_params: int, tables: int, gdt: int, stack: int) -> None:
        """64-bit mode with flat segments, as a kernel is entered (Documentation/x86/boot.rst)."""
        uc, state = self._uc, self.state
        uc.reg_write(x86_const.UC_X86_REG_IDTR, (0, 0, 0, 0))
        uc.reg_write(x86_const.UC_X86_REG_GDTR, (0, gdt, 0x1F, 0))
        uc.reg_write(x86_const.UC_X86_REG_CR3, tables)
        uc.reg_write(x86_const.UC_X86_REG_CR4, 0x20)
        uc.msr_write(_EFER, _SCE_LME_LMA)
        uc.reg_write(x86_const.UC_X86_REG_CR0, 0x80000033)
        for segment in range(6):
            state.set_segment(segment, _KERNEL_DS, cpu_state.FLAT_DATA)
        state.set_privilege(_KERNEL_CS, _KERNEL_DS, 0)
        for index in range(16):
            state.q[index] = 0
        state.q[6], state.q[4], state.q[cpu_state.RIP] = boot_params, stack, entry
        state.eflags = 2

    def startup_state(self, vector: int) -> bytes:
        """The state of a processor that a STARTUP interrupt has told where to begin, in real mode.

        What INIT leaves as it is (MSRs, the time stamp counter) is this one's. SDM, volume 3, table
        "Processor State Following ..., or INIT".
        """
        uc, state = self._uc, self.state
        saved = state.save()
        uc.reg_write(x86_const.UC_X86_REG_CR0, 0x60000010)
        uc.msr_write(_EFER, 0)
        uc.reg_write(x86_const.UC_X86_REG_CR4, 0)
        uc.reg_write(x86_const.UC_X86_REG_CR3, 0)
        for register in (x86_const.UC_X86_REG_IDTR, x86_const.UC_X86_REG_GDTR):
            uc.reg_write(register, (0, 0, 0xFFFF, 0))
        state.begin_real_mode(vector)
        started = state.save()
        state.restore(saved)
        return started

    def set_tables(self, *, idt: int, syscall: int, fmask: int) -> None:
        """What a kernel sets up by itself: for a guest that does not."""
        self._uc.reg_write(x86_const.UC_X86_REG_IDTR, (0, idt, 0xFFF, 0))
        for msr, value in (
            *((_EFER, _SCE_LME_LMA | _NXE), (0xC0000081, _KERNEL_CS << 32)),
            *((0xC0000082, syscall), (0xC0000084, fmask)),
        ):
            self._uc.msr_write(msr, value)


def is_known_unicorn() -> bool:
    """Whether this is the Unicorn whose inside is known."""
    *_, version = uc_version()
    return version == KNOWN_UNICORN

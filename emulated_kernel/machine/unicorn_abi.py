"""Unicorn through a thin layer of our own: the only importer of `unicorn`.

The binding's per-register calls cost 2 to 3 us each; batches through prebuilt ctypes arrays cost
0.4 us. Hooks are registered raw, since a binding callback costs more than twice as much.
"""

from __future__ import annotations

import ctypes as C
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from unicorn import (
    UC_ARCH_X86,
    UC_HOOK_INSN_INVALID,
    UC_HOOK_INTR,
    UC_MODE_64,
    UC_PROT_ALL,
    unicorn_const,
    x86_const,
)
from unicorn.unicorn_py3.unicorn import Uc, uclib

from emulated_kernel.errors import EmulatedKernelError

_TRANSLATION_BYTES = 64 << 20

CR0_PG_WP_PE = 0x80000001 | 0x10000
CR4_PAE_PGE_FXSR = 0x20 | 0x80 | 0x200 | 0x400
MSR_EFER, EFER_BITS = 0xC0000080, 0x1 | 0x100 | 0x400 | 0x800  # SCE LME LMA NXE
MSR_GS_BASE = 0xC0000101

REGISTERS = [
    *("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp"),
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
    *("rip", "eflags", "cr2"),
]

_uc_reg_read_batch = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p, C.c_void_p, C.c_int)(
    ("uc_reg_read_batch", uclib)
)
_uc_reg_write_batch = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p, C.c_void_p, C.c_int)(
    ("uc_reg_write_batch", uclib)
)
uc_emu_start = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_uint64, C.c_uint64, C.c_uint64, C.c_size_t)(
    ("uc_emu_start", uclib)
)
uc_emu_stop = C.CFUNCTYPE(C.c_int, C.c_void_p)(("uc_emu_stop", uclib))
_INTR_CALLBACK = C.CFUNCTYPE(None, C.c_void_p, C.c_uint32, C.c_void_p)
_INVALID_CALLBACK = C.CFUNCTYPE(C.c_bool, C.c_void_p, C.c_void_p)


# How the library's function begins that puts a check behind a memory access: it asks the instance
# whether to, `mov rsi, [rdi + …]; cmp byte ptr [rsi + flag], 0`.
_ASKS_WHETHER_TO_CHECK = re.compile(rb"\x48\x8b\xb7....\x80\xbe(....)\x00\x74", re.DOTALL)


@functools.cache
def _exit_check_flag() -> int | None:
    """Where in an instance stands that its code shall not check; None in an unknown library."""
    try:
        function = uclib.check_exit_request_x86_64
    except AttributeError:
        return None
    code = C.string_at(C.cast(function, C.c_void_p), 24)
    found = _ASKS_WHETHER_TO_CHECK.match(code)
    return None if found is None else int.from_bytes(found[1], "little")


def check_exits_at_blocks_only(uc: Any, only: bool = True) -> None:
    """Let translated code ask at the start of each block whether to stop, and nowhere else.

    By itself it also asks behind each memory access, which takes a third of the guest's time and
    stops it where the access, made already, would be made again. For an instance that has its
    memory; what is translated already stays as it is. `count` of uc_emu_start needs those checks.
    """
    flag = _exit_check_flag()
    if flag is not None:
        C.c_bool.from_address(uc._uch.value + flag).value = only


def _ctl_code(control: int, arguments: int) -> int:
    """The first argument of uc_ctl for a writing control (UC_CTL in unicorn.h)."""
    return control | arguments << 26 | unicorn_const.UC_CTL_IO_WRITE << 30


class RegisterBatch:
    """A fixed set of registers, read and written in one call: `values[i]` is `names[i]`."""

    def __init__(self, handle: C.c_void_p, names: Sequence[str]) -> None:
        count = len(names)
        ids = [getattr(x86_const, f"UC_X86_REG_{name.upper()}") for name in names]
        self.names = tuple(names)
        self.values = (C.c_uint64 * count)()
        self._handle = handle
        self._ids = (C.c_int * count)(*ids)
        base = C.addressof(self.values)
        self._pointers = (C.c_void_p * count)(*[base + 8 * i for i in range(count)])
        self._arguments = (C.addressof(self._ids), C.addressof(self._pointers), count)

    def read(self) -> None:
        """Fetch the registers into `values`."""
        _uc_reg_read_batch(self._handle, *self._arguments)

    def write(self) -> None:
        """Put `values` into the registers."""
        _uc_reg_write_batch(self._handle, *self._arguments)


class UnicornCpu:
    """One Uc instance in long mode over shared RAM.

    `on_interrupt(vector)` is called for exceptions and `int n`, `on_invalid()` for #UD; both run on
    the thread that is inside `start`. What they raise is kept and raised by `start`.
    """

    def __init__(
        self,
        ram_address: int,
        ram_bytes: int,
        cr3: int,
        gdt: int,
        on_interrupt: Callable[[int], None],
        on_invalid: Callable[[], None],
    ) -> None:
        # The binding is only partly annotated; what it lacks is reached as Any.
        make_uc: Any = Uc
        uc = make_uc(UC_ARCH_X86, UC_MODE_64)
        self._uc: Any = uc
        # Translations are dropped together when this is full; Unicorn's own size is 1 GiB.
        uc.ctl_set_tcg_buffer_size(_TRANSLATION_BYTES)
        uc.ctl_set_cpu_model(x86_const.UC_CPU_X86_SKYLAKE_SERVER)
        uc.mem_map_ptr(0, ram_bytes, UC_PROT_ALL, C.c_void_p(ram_address))
        check_exits_at_blocks_only(uc)
        uc.reg_write(x86_const.UC_X86_REG_CR3, cr3)
        uc.reg_write(x86_const.UC_X86_REG_CR4, CR4_PAE_PGE_FXSR)
        uc.msr_write(MSR_EFER, EFER_BITS)
        uc.reg_write(x86_const.UC_X86_REG_CR0, CR0_PG_WP_PE)
        uc.reg_write(x86_const.UC_X86_REG_GDTR, (0, gdt, 31, 0))
        uc.reg_write(x86_const.UC_X86_REG_CS, 0x10)
        uc.reg_write(x86_const.UC_X86_REG_SS, 0x18)
        self._handle = uc._uch
        self.all = RegisterBatch(self._handle, REGISTERS)
        self._rip = RegisterBatch(self._handle, ["rip"])
        self._error: BaseException | None = None
        self._on_interrupt, self._on_invalid = on_interrupt, on_invalid
        self._callbacks = (_INTR_CALLBACK(self._interrupt), _INVALID_CALLBACK(self._invalid))
        kinds = (UC_HOOK_INTR, UC_HOOK_INSN_INVALID)
        for kind, callback in zip(kinds, self._callbacks, strict=True):
            hook = C.c_size_t()
            status = uclib.uc_hook_add(
                self._handle,
                C.byref(hook),
                kind,
                C.cast(callback, C.c_void_p),
                None,
                C.c_uint64(1),
                C.c_uint64(0),
            )
            if status:
                raise EmulatedKernelError(f"uc_hook_add: {status}")
        self._clean = uc.context_save()

    def set_gs_base(self, address: int) -> None:
        self._uc.msr_write(MSR_GS_BASE, address)
        self._clean = self._uc.context_save()

    def start(self, address: int) -> int:
        """Run from `address` until `hlt`; return the address behind it.

        Raises what a hook raised, or EmulatedKernelError when Unicorn gave up.
        """
        status = uc_emu_start(self._handle, address, 0, 0, 0)
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        self._rip.read()
        rip = int(self._rip.values[0])
        if status:
            raise EmulatedKernelError(f"the vCPU stopped at {rip:#x}: unicorn error {status}")
        return rip

    def clear_exception_state(self) -> None:
        """Forget past exceptions: Unicorn never does, and a second fault would become a #DF.

        Only while the vCPU is stopped; registers are kept.
        """
        self.all.read()
        self._uc.context_restore(self._clean)
        self.all.write()

    def remove_cache(self, start: int, end: int) -> None:
        """Drop translations of [start, end): virtual, executable in the page tables."""
        code = _ctl_code(unicorn_const.UC_CTL_TB_REMOVE_CACHE, 2)
        status = uclib.uc_ctl(self._handle, code, C.c_uint64(start), C.c_uint64(end))
        if status:
            raise EmulatedKernelError(f"uc_ctl_remove_cache({start:#x}, {end:#x}): {status}")

    def force_stop(self) -> None:
        """Stop from another thread; its state is not one to go on from."""
        uc_emu_stop(self._handle)

    def _interrupt(self, _uc: int, vector: int, _data: int) -> None:
        try:
            self._on_interrupt(vector)
        except BaseException as error:
            self._fail(error)

    def _invalid(self, _uc: int, _data: int) -> bool:
        try:
            self._on_invalid()
        except BaseException as error:
            self._fail(error)
            return False
        return True

    def _fail(self, error: BaseException) -> None:
        self._error = error
        uc_emu_stop(self._handle)

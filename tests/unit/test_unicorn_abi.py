"""Where a vCPU may be stopped: between two blocks of its code, and not behind a memory access."""

from __future__ import annotations

from typing import Any

import pytest
from unicorn import UC_ARCH_X86, UC_HOOK_INSN, UC_MODE_64, UC_PROT_ALL, x86_const
from unicorn.unicorn_py3.unicorn import Uc

from emulated_kernel.machine.unicorn_abi import check_exits_at_blocks_only

TEXT, DATA, COUNT = 0x1000, 0x3000, 0x3010
# out dx, al; incq (rbx); incq 16(rbx); jmp behind it; incq 8(rbx); hlt
CODE = bytes.fromhex("ee 48ff03 48ff4310 eb00 48ff4308 f4")


@pytest.mark.parametrize(("only", "counted"), [(True, (1, 1, 0)), (False, (0, 0, 0))])
def test_who_stops_in_a_hook_stops_at_the_next_block(
    only: bool, counted: tuple[int, int, int]
) -> None:
    make_uc: Any = Uc
    uc: Any = make_uc(UC_ARCH_X86, UC_MODE_64)
    uc.mem_map(0, 0x4000, UC_PROT_ALL)
    uc.mem_write(TEXT, CODE)
    check_exits_at_blocks_only(uc, only)
    stopped = []

    def on_out(*_: object) -> None:
        uc.emu_stop()
        stopped.append(uc.reg_read(x86_const.UC_X86_REG_RIP))

    uc.hook_add(UC_HOOK_INSN, on_out, None, 1, 0, x86_const.UC_X86_INS_OUT)
    uc.reg_write(x86_const.UC_X86_REG_RBX, DATA)
    uc.emu_start(TEXT, 0)
    words = [int.from_bytes(uc.mem_read(at, 8), "little") for at in (DATA, COUNT, DATA + 8)]
    assert len(stopped) == 1
    assert tuple(words) == counted
    rip = uc.reg_read(x86_const.UC_X86_REG_RIP)
    assert (rip == TEXT + len("ee48ff0348ff4310eb00") // 2) == only
    if only:  # goes on exactly there
        uc.emu_start(rip, 0)
        words = [int.from_bytes(uc.mem_read(at, 8), "little") for at in (DATA, COUNT, DATA + 8)]
        assert words == [1, 1, 1]

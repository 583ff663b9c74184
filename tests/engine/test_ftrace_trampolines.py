"""What a callback is given and what a traced function finds afterwards, seen in the machine."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from support.ftrace_kernel import ftrace_machine

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter_ips
from ftracefs.ftrace.ops import FTRACE_OPS_FL_RECURSION, FTRACE_OPS_FL_SAVE_REGS

REGISTERS = ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "flags"]
REGISTERS += [f"r{n}" for n in range(8, 16)]
CALL_SIZE = 5
CF, ZF, SF, RESERVED = 0x1, 0x40, 0x80, 0x2
FLAGS = CF | ZF | SF | RESERVED | 0x4 | 0x10  # as popfq leaves them: also PF and AF

SAVED_IN_FRAME = {"rax": 80, "rcx": 88, "rdx": 96, "rsi": 104, "rdi": 112, "r8": 72, "r9": 64}
SAVED_WITH_REGS = {
    "r15": 0,
    "r14": 8,
    "r13": 16,
    "r12": 24,
    "rbp": 32,
    "rbx": 40,
    "r11": 48,
    "r10": 56,
    "flags": 144,
}


@pytest.fixture(params=[False, True], ids=["plain", "poisoned"])
def ftrace(request: pytest.FixtureRequest) -> Iterator[Ftrace]:
    with ftrace_machine(poison=request.param) as made:
        yield made


def label(ftrace: Ftrace, name: str) -> int:
    return ftrace.machine.image.labels[name]


def add_ops(
    ftrace: Ftrace, callback: str, *functions: str, private: int = 0, flags: int = 0
) -> FtraceOps:
    """Register an op that calls back `callback`, on `functions` only if any are given."""

    def work() -> FtraceOps:
        ops = ftrace.new_ops(label(ftrace, callback), private=private, flags=flags, name=callback)
        if functions:
            ftrace_set_filter_ips(ftrace, ops, [label(ftrace, f) for f in functions])
        ftrace.register_ftrace_function(ops)
        return ops

    return ftrace.machine.run(work)


def words(ftrace: Ftrace, address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}Q", ftrace.memory.read(address, 8 * count))


def run_with_registers(ftrace: Ftrace, function: str) -> tuple[dict[str, int], dict[str, int]]:
    """Call `function` with known values in all registers: what went in, what was there after."""
    given = {name: 0x1111111111111111 * n for n, name in enumerate(REGISTERS)}
    given["flags"] = FLAGS
    buffer = ftrace.machine.alloc(4096)
    ftrace.memory.write(buffer, struct.pack("<16Q", *given.values()))
    ftrace.machine.call("with_registers", label(ftrace, function), buffer, buffer + 1024)
    out = words(ftrace, buffer + 1024, 17)
    left = dict(zip(REGISTERS, out[:16], strict=True))
    left["flags"] = out[16] & ~0x202 | RESERVED
    return given, left


def test_a_callback_gets_site_caller_op_and_frame(ftrace: Ftrace) -> None:
    kept = ftrace.machine.alloc(4096)
    ops = add_ops(ftrace, "keep_frame", "nothing", private=kept)
    given, left = run_with_registers(ftrace, "nothing")
    rdi, rsi, rdx, rcx, rsp, preempt, at_sp = words(ftrace, kept, 7)
    assert rdi == label(ftrace, "nothing")
    assert rsi == label(ftrace, "with_registers_return")
    assert rdx == ops.address
    assert rcx == rsp + 8, "the frame lies right above the return into the trampoline"
    assert preempt == 0
    assert at_sp == rsi
    frame = ftrace.memory.read(kept + 56, CONSTANTS["FRAME_BYTES"])
    for register, offset in SAVED_IN_FRAME.items():
        assert struct.unpack_from("<Q", frame, offset) == (given[register],), register
    ip, cs = (struct.unpack_from("<Q", frame, CONSTANTS[n])[0] for n in ("PT_RIP", "PT_CS"))
    assert (ip, cs) == (label(ftrace, "nothing") + CALL_SIZE, 0)
    assert {r: left[r] for r in REGISTERS if r not in ("r10", "r11", "flags")} == {
        r: given[r] for r in REGISTERS if r not in ("r10", "r11", "flags")
    }


def test_a_save_regs_op_gets_every_register_and_loses_only_r11(ftrace: Ftrace) -> None:
    kept = ftrace.machine.alloc(4096)
    add_ops(ftrace, "keep_frame", "nothing", private=kept, flags=FTRACE_OPS_FL_SAVE_REGS)
    given, left = run_with_registers(ftrace, "nothing")
    frame = ftrace.memory.read(kept + 56, CONSTANTS["FRAME_BYTES"])
    for register, offset in {**SAVED_IN_FRAME, **SAVED_WITH_REGS}.items():
        (value,) = struct.unpack_from("<Q", frame, offset)
        assert value & ~(0x200 if register == "flags" else 0) == given[register], register
    cs, ss, ip, orig = (
        struct.unpack_from("<Q", frame, CONSTANTS[n])[0]
        for n in ("PT_CS", "PT_SS", "PT_RIP", "PT_ORIG_RAX")
    )
    assert (cs, ss, orig) == (CONSTANTS["KERNEL_CS"], CONSTANTS["KERNEL_DS"], 0)
    assert ip == label(ftrace, "nothing") + CALL_SIZE
    assert words(ftrace, kept, 7)[6] == label(ftrace, "with_registers_return")
    assert {r: v for r, v in left.items() if r != "r11"} == {
        r: v for r, v in given.items() if r != "r11"
    }


def test_the_poisoned_build_really_poisons() -> None:
    def clobbered(poison: bool, flags: int) -> set[str]:
        with ftrace_machine(poison=poison) as ftrace:
            counter = ftrace.machine.alloc(64)
            add_ops(ftrace, "count_call", "nothing", private=counter, flags=flags)
            given, left = run_with_registers(ftrace, "nothing")
            assert ftrace.memory.u64(counter) == 1
            return {r for r in REGISTERS if given[r] != left[r]}

    assert {"r10", "r11", "flags"} == clobbered(True, 0)
    assert {"r11"} == clobbered(True, FTRACE_OPS_FL_SAVE_REGS)
    assert clobbered(False, 0) <= {"r10", "r11", "flags"}


@pytest.mark.parametrize("flags", [0, FTRACE_OPS_FL_SAVE_REGS])
def test_functions_return_what_they_returned_untraced(ftrace: Ftrace, flags: int) -> None:
    def results() -> list[int]:
        call = ftrace.machine.call
        return [
            call("add_one", 5),
            call("double", 21),
            call("add_one_twice", 1),
            call("six_sum", 1, 2, 3, 4, 5, 6),
            call("loop_add", 100),
        ]

    untraced = results()
    counter = ftrace.machine.alloc(64)
    add_ops(ftrace, "count_call", private=counter, flags=flags)
    assert results() == untraced
    assert ftrace.memory.u64(counter) == 1 + 1 + 3 + 1 + 101
    add_ops(ftrace, "count_call_too", private=counter + 8, flags=flags)
    assert results() == untraced
    assert words(ftrace, counter, 2) == (2 * 107, 107)


@pytest.mark.parametrize("flags", [0, FTRACE_OPS_FL_SAVE_REGS])
def test_a_trampoline_is_a_copy_with_its_op_behind_it(ftrace: Ftrace, flags: int) -> None:
    counter = ftrace.machine.alloc(64)
    ops = add_ops(ftrace, "count_call", "add_one", private=counter, flags=flags)
    code = ftrace.memory.read(ops.trampoline, ops.trampoline_size)
    prefix = "ftrace_regs_caller" if flags else "ftrace_caller"
    start, end = (ftrace.labels[n] for n in (prefix, f"{prefix}_end"))
    template = ftrace.memory.read(start, end - start)
    differing = {n for n, (a, b) in enumerate(zip(code, template, strict=False)) if a != b}
    op_load = ftrace.labels[f"{prefix}_op_ptr"] - start
    call = ftrace.labels["ftrace_regs_call" if flags else "ftrace_call"] - start
    patched = {*range(op_load + 3, op_load + 7), *range(call + 1, call + 5)}
    if flags:
        jump = ftrace.labels["ftrace_regs_caller_jmp"] - start
        patched |= {jump, jump + 1}
        assert code[jump : jump + 2] == bytes.fromhex("6690")
    assert differing <= patched
    assert code[end - start] == 0xC3
    assert struct.unpack("<Q", code[-8:]) == (ops.address,)
    site = ftrace.memory.read(label(ftrace, "add_one"), 5)
    target = label(ftrace, "add_one") + 5 + struct.unpack("<i", site[1:])[0]
    assert (site[0], target & (1 << 64) - 1) == (0xE8, ops.trampoline)


@pytest.mark.parametrize("flags", [0, FTRACE_OPS_FL_SAVE_REGS])
def test_a_callback_may_send_the_call_elsewhere(ftrace: Ftrace, flags: int) -> None:
    replacement = label(ftrace, "replacement")
    add_ops(ftrace, "redirect", "add_one", private=replacement, flags=flags)
    assert ftrace.machine.call("add_one", 5) == 105
    assert ftrace.machine.call("add_one_twice", 1) == 201
    counter = ftrace.machine.alloc(64)
    add_ops(ftrace, "count_call", private=counter, flags=flags)
    assert ftrace.machine.call("add_one_twice", 1) == 201
    assert ftrace.memory.u64(counter) == 5, "the replacement is traced as well"


def test_beside_another_op_a_direct_call_runs_first_and_the_function_goes_on(
    ftrace: Ftrace,
) -> None:
    counter = ftrace.machine.alloc(64)
    target = label(ftrace, "direct_target")
    add_ops(ftrace, "go_direct", "add_one", private=target, flags=FTRACE_OPS_FL_SAVE_REGS)
    assert ftrace.machine.call("add_one", 5) == 6, "a copy has no way to the direct path"
    add_ops(ftrace, "count_call", private=counter)
    assert ftrace.machine.call("add_one", 5) == 1006
    given, left = run_with_registers(ftrace, "add_one")
    assert left["rax"] == given["rdi"] + 1001
    assert left["rdi"] == given["rdi"] + 1000
    kept = [r for r in REGISTERS if r not in ("rax", "rdi", "r11", "flags")]
    assert {r: left[r] for r in kept} == {r: given[r] for r in kept}
    assert ftrace.memory.u64(counter) == 2


def test_the_list_function_asks_both_hashes_of_each_op(ftrace: Ftrace) -> None:
    logs = [ftrace.machine.alloc(4096) for _ in range(3)]
    everything = add_ops(ftrace, "log_call", private=logs[0])
    filtered = add_ops(ftrace, "log_call", "add_one", "double", private=logs[1])
    for function in ("add_one", "double", "add_one_twice", "add_one", "six_sum"):
        ftrace.machine.call(function, 1)

    def seen(log: int) -> list[int]:
        count = ftrace.memory.u64(log)
        return list(words(ftrace, log + 8, 2 * count)[::2])

    one, two, twice, total = (
        label(ftrace, n) for n in ("add_one", "double", "add_one_twice", "six_sum")
    )
    two += 4  # behind its endbr64
    assert seen(logs[0]) == [one, two, twice, one, one, one, total]
    assert seen(logs[1]) == [one, two, one, one, one]
    ftrace.machine.run(lambda: ftrace.unregister_ftrace_function(everything))
    ftrace.machine.call("add_one_twice", 1)
    assert len(seen(logs[0])) == 7
    assert seen(logs[1])[-2:] == [one, one]
    assert filtered.trampoline


def test_preemption_is_off_in_the_list_function_only(ftrace: Ftrace) -> None:
    kept = ftrace.machine.alloc(4096)
    add_ops(ftrace, "keep_frame", "nothing", private=kept)
    ftrace.machine.call("nothing")
    assert words(ftrace, kept, 6)[5] == 0
    counter = ftrace.machine.alloc(64)
    add_ops(ftrace, "count_call", private=counter)
    ftrace.machine.call("nothing")
    assert words(ftrace, kept, 6)[5] == 1
    percpu = ftrace.machine.cpus[0].percpu
    assert ftrace.memory.u8(percpu + CONSTANTS["PREEMPT_DEPTH"]) == 0


def test_tracing_costs_no_hypercall(ftrace: Ftrace) -> None:
    counter = ftrace.machine.alloc(64)
    add_ops(ftrace, "count_call", private=counter)
    add_ops(ftrace, "count_call_too", "add_one", private=counter + 8)
    before = ftrace.machine.hypercall_count
    ftrace.machine.call("loop_add", 10_000)
    assert ftrace.machine.hypercall_count == before
    assert words(ftrace, counter, 2) == (10_001, 10_000)


def test_a_guarded_callback_may_call_what_it_traces(ftrace: Ftrace) -> None:
    counter = ftrace.machine.alloc(64)
    ops = add_ops(ftrace, "call_traced", private=counter, flags=FTRACE_OPS_FL_RECURSION)
    assert "->ftrace_ops_assist_func+0x0/" in ftrace.enabled_functions().decode()
    for _ in range(3):
        assert ftrace.machine.call("add_one_twice", 1) == 3
    assert ftrace.memory.u64(counter) == 9
    add_ops(ftrace, "count_call", private=counter + 8)
    assert ftrace.machine.call("add_one_twice", 1) == 3
    assert words(ftrace, counter, 2) == (12, 3), "in the list each call is seen once by each op"
    ftrace.machine.run(lambda: ftrace.unregister_ftrace_function(ops))
    assert ftrace.machine.call("add_one_twice", 1) == 3
    assert words(ftrace, counter, 2) == (12, 6)
    percpu = ftrace.machine.cpus[0].percpu
    assert ftrace.memory.u32(percpu + CONSTANTS["TRACE_RECURSION"]) == 0


def test_an_interrupt_inside_a_callback_is_a_context_of_its_own(ftrace: Ftrace) -> None:
    counter = ftrace.machine.alloc(64)
    percpu = ftrace.machine.cpus[0].percpu
    flags, word = (percpu + CONSTANTS[n] for n in ("IRQ_FLAGS", "TRACE_RECURSION"))
    add_ops(ftrace, "count_call", private=counter, flags=FTRACE_OPS_FL_RECURSION)
    ftrace.memory.set_u32(word, 1)  # a task is inside the callback
    ftrace.machine.call("nothing")
    assert ftrace.memory.u64(counter) == 0
    for context in ("TRACE_FLAG_HARDIRQ", "TRACE_FLAG_SOFTIRQ"):
        ftrace.memory.set_u8(flags, CONSTANTS[context])
        ftrace.machine.call("nothing")
    ftrace.memory.set_u8(flags, 0)
    assert ftrace.memory.u64(counter) == 2
    assert ftrace.memory.u32(word) == 1

"""A traced kernel does what it does untraced, whatever a trampoline may clobber."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from support.kernel_scenario import walk_through

from emulated_kernel.asm_offsets import CONSTANTS, MODULES_VADDR
from emulated_kernel.assembler import assemble
from emulated_kernel.images.builtin import load_builtin
from emulated_kernel.machine import Machine
from emulated_kernel.tasks import Tasks
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.guest import load_guest
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.entries import merge

_IP = 8  # behind the common fields

# Calls rdi with the six arguments at rsi and sentinels in every callee-saved register; returns
# what it returned, and at rdx how many of them (and of rsp) it did not bring back.
DRIVER = """
.text
FUNC_NOTRACE abi_driver
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    push rdx
    mov rax, rdi
    mov r11, rsi
    mov rdi, [r11]
    mov rsi, [r11 + 8]
    mov rdx, [r11 + 16]
    mov rcx, [r11 + 24]
    mov r8, [r11 + 32]
    mov r9, [r11 + 40]
    mov ebx, 0x1111
    mov ebp, 0x2222
    mov r12d, 0x3333
    mov r13d, 0x4444
    mov r14d, 0x5555
    mov r15, rsp
    call rax
    xor ecx, ecx
    xor edx, edx
    cmp ebx, 0x1111
    setne dl
    add ecx, edx
    cmp ebp, 0x2222
    setne dl
    add ecx, edx
    cmp r12d, 0x3333
    setne dl
    add ecx, edx
    cmp r13d, 0x4444
    setne dl
    add ecx, edx
    cmp r14d, 0x5555
    setne dl
    add ecx, edx
    cmp r15, rsp
    setne dl
    add ecx, edx
    pop rdx
    mov [rdx], rcx
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
ENDFUNC abi_driver
"""


@dataclass
class Traceable:
    machine: Machine
    ftrace: Ftrace
    buffer: RingBuffer
    ops: FtraceOps
    tasks: Tasks

    def trace(self, on: bool) -> None:
        change = self.ftrace.register_ftrace_function if on else None
        change = change or self.ftrace.unregister_ftrace_function
        self.machine.run(lambda: change(self.ops))

    def traced(self) -> set[str]:
        """The names of the functions in the buffer."""
        pages = self.machine.run(self.buffer.snapshot)
        ips = {int(ip) for ip in merge(pages).u64(_IP)}
        return {self.ftrace.kallsyms.sprint_symbol(ip).partition("+")[0] for ip in ips}


@contextmanager
def poisoned() -> Iterator[Traceable]:
    """The built-in kernel, booted, with trampolines that clobber all they may."""
    image = load_builtin()
    machine = Machine(image, clock="virtual")
    try:
        guest = load_guest(image.labels, poison=True)
        machine.load_segments(dict(guest.segments))
        ftrace = machine.run(lambda: Ftrace(machine, image, guest))
        machine.boot()
        percpu = [vcpu.percpu for vcpu in machine.cpus]
        buffer = RingBuffer(machine.memory, percpu, 8 << 20)
        machine.run(lambda: buffer.set_clock(machine.clock.nanoseconds()))
        callback = guest.labels["function_trace_call"]
        ops = ftrace.new_ops(callback, private=buffer.table, name="abi")
        yield Traceable(machine, ftrace, buffer, ops, Tasks(machine))
    finally:
        machine.close()


def test_every_call_chain_returns_what_it_returned_untraced() -> None:
    with poisoned() as untraced:
        expected = walk_through(untraced.machine, untraced.tasks)
    with poisoned() as kernel:
        kernel.trace(True)
        found = walk_through(kernel.machine, kernel.tasks)
        kernel.trace(False)
        traced = kernel.traced()
    assert found == expected
    refused = [r for r in expected if isinstance(r, tuple) and r[-1] == -errno.ENOSYS]
    assert refused == []
    assert len(traced) > 300


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("gcd", (270, 192)),
        ("int_sqrt", (10**12,)),
        ("find_task_by_vpid", (1,)),
        ("mutex_is_locked", (0xFFFF888008100000,)),
        ("get_random_u32", ()),
        ("__get_free_pages", (0xCC0, 0)),
        ("capable", (12,)),
    ],
)
def test_callee_saved_registers_and_the_stack_survive_a_traced_call(
    name: str, arguments: tuple[int, ...]
) -> None:
    driver = assemble({"d.S": DRIVER}, {".text": MODULES_VADDR + 0xF00000}, CONSTANTS)
    with poisoned() as kernel:
        machine = kernel.machine
        machine.load_segments(dict(driver.segments))
        block = machine.alloc(4096)
        for index, value in enumerate(arguments):
            machine.memory.set_u64(block + 8 * index, value)
        kernel.trace(True)
        machine.call(driver.labels["abi_driver"], machine.image.label(name), block, block + 256)
        assert machine.memory.u64(block + 256) == 0

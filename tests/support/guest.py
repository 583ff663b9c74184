"""A machine with the built-in kernel in it, its functions called from Python.

Every call goes through a guard that fails when a function does not keep the registers it has to
keep; and while nothing is traced, each call site destroys what a traced call may destroy.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable

from emulated_kernel import assembler
from emulated_kernel.asm_offsets import CONSTANTS, MODULES_DATA, MODULES_VADDR
from emulated_kernel.images import builtin
from emulated_kernel.machine import Machine, Vcpu

U64 = (1 << 64) - 1
_SCRATCH_TEXT = MODULES_VADDR + 0xE00000  # out of the way of engine and modules
_SCRATCH_DATA = MODULES_DATA + 0x700000

# r10, r11 and the flags are all a traced call may change.
_GUARD = """
.text
FUNC_NOTRACE poison_fentry
    movabs r10, 0xdeadbeefdeadbe10
    movabs r11, 0xdeadbeefdeadbe11
    cmp r10, r11
    ret
ENDFUNC poison_fentry

FUNC_NOTRACE record_fentry
    mov r10, [rip + record_count]
    cmp r10, 8000
    jae 1f
    mov r11, [rsp]
    mov [record_log + r10*8], r11
    inc qword ptr [rip + record_count]
1:
    movabs r10, 0xdeadbeefdeadbe10
    movabs r11, 0xdeadbeefdeadbe11
    ret
ENDFUNC record_fentry

# rdi {function, six arguments}, rsi where a mask of the registers that changed goes.
FUNC_NOTRACE guarded_call
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    push rsi
    mov rbx, rsp
    mov [rip + guard_stack], rbx
    mov rax, [rdi]
    mov rsi, [rdi + 16]
    mov rdx, [rdi + 24]
    mov rcx, [rdi + 32]
    mov r8, [rdi + 40]
    mov r9, [rdi + 48]
    mov rdi, [rdi + 8]
    mov rbp, 0x5a5a0001
    mov r12, 0x5a5a0012
    mov r13, 0x5a5a0013
    mov r14, 0x5a5a0014
    mov r15, 0x5a5a0015
    call rax
    xor ecx, ecx
    cmp rbx, [rip + guard_stack]
    je 1f
    or ecx, 1
1:
    cmp rsp, [rip + guard_stack]
    je 1f
    or ecx, 2
1:
    cmp rbp, 0x5a5a0001
    je 1f
    or ecx, 4
1:
    cmp r12, 0x5a5a0012
    je 1f
    or ecx, 0x1000
1:
    cmp r13, 0x5a5a0013
    je 1f
    or ecx, 0x2000
1:
    cmp r14, 0x5a5a0014
    je 1f
    or ecx, 0x4000
1:
    cmp r15, 0x5a5a0015
    je 1f
    or ecx, 0x8000
1:
    mov rsp, [rip + guard_stack]
    pop rsi
    mov [rsi], rcx
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC guarded_call
.data
guard_stack:
    .quad 0
record_count:
    .quad 0
record_log:
    .zero 8 * 8000
"""
_GUARD_TEXT, _GUARD_DATA = _SCRATCH_TEXT + 0x10000, _SCRATCH_DATA + 0x10000
_REGISTER_ARGUMENTS = 6
_TICK_NS = 4_000_000


class Guest:
    """Calls into a machine: addresses are integers, results unsigned unless said otherwise."""

    def __init__(self, *, cpus: int = 2, boot: bool = False) -> None:
        self.image = builtin.load_builtin()
        self.machine = Machine(self.image, nr_cpus=cpus, clock="virtual")
        self.memory = self.machine.memory
        self._room = self.machine.alloc(1 << 20)
        self._used = 0
        self._block = self.machine.alloc(64)
        self._guard = self._assemble(_GUARD, _GUARD_TEXT, _GUARD_DATA)
        self._guarded_call = self._guard["guarded_call"]
        self._set_fentry("poison_fentry")
        if boot:
            self.machine.boot()

    def close(self) -> None:
        self.machine.close()

    def reset(self) -> None:
        """Take back all memory that `room` and `place` gave."""
        self._used = 0

    def room(self, size: int, fill: int = 0) -> int:
        """`size` bytes of guest memory."""
        address = self._room + self._used
        self._used += -(-size // 16) * 16
        assert self._used <= 1 << 20
        self.memory.write(address, bytes([fill]) * size)
        return address

    def place(self, data: bytes) -> int:
        """`data` in guest memory."""
        address = self.room(len(data))
        self.memory.write(address, data)
        return address

    def text(self, data: bytes) -> int:
        """A C string in guest memory."""
        return self.place(data + b"\0")

    def words(self, values: Iterable[int]) -> int:
        """An array of u64 in guest memory."""
        return self.place(b"".join(struct.pack("<Q", v & U64) for v in values))

    def label(self, name: str) -> int:
        return self.image.labels[name]

    def constant(self, name: str) -> int:
        """A number of asm_offsets or of the kernel's own includes."""
        return CONSTANTS[name] if name in CONSTANTS else self.image.constants[name]

    def call(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        """rax as the function left it. Fails when it did not keep what a callee keeps."""
        address = self.label(function) if isinstance(function, str) else function
        values = [a & U64 for a in arguments]
        if len(values) > _REGISTER_ARGUMENTS:
            return self.machine.call(address, *values, cpu=cpu)
        values += [0] * (_REGISTER_ARGUMENTS - len(values))
        self.memory.write(self._block, struct.pack("<7Q", address, *values))
        changed_at = self._block + 56
        result = self.machine.call(self._guarded_call, self._block, changed_at, cpu=cpu)
        changed = self.memory.u64(changed_at)
        assert not changed, f"{function} did not keep its registers: {changed:#x}"
        return result

    def call32(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        """eax, unsigned."""
        return self.call(function, *arguments, cpu=cpu) & 0xFFFFFFFF

    def call_int(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        """eax as a C int."""
        value = self.call32(function, *arguments, cpu=cpu)
        return value - (1 << 32) if value >> 31 else value

    def call_long(self, function: int | str, *arguments: int, cpu: int = 0) -> int:
        """rax as a C long."""
        value = self.call(function, *arguments, cpu=cpu)
        return value - (1 << 64) if value >> 63 else value

    def percpu(self, name: str, cpu: int = 0) -> int:
        """A u64 per-CPU word, also of those the kernel's includes define."""
        return self.memory.u64(self.machine.cpus[cpu].percpu + self.constant(name))

    def _set_fentry(self, name: str) -> None:
        """Where the call sites lead to."""
        fentry = self.label("__fentry__")
        jump = struct.pack("<i", self._guard[name] - (fentry + 5))
        self.memory.write(fentry, b"\xe9" + jump)
        self.machine.run(lambda: self.machine.flush_text(fentry, fentry + 5))

    def calls_of(self, action: Callable[[], object]) -> list[str]:
        """The traceable functions that run while `action` does, in the order of their calls."""
        names = {symbol.address: symbol.name for symbol in self.image.symbols}
        count = self._guard["record_count"]
        self.memory.set_u64(count, 0)
        self._set_fentry("record_fentry")
        action()
        self._set_fentry("poison_fentry")
        size = 8 * self.memory.u64(count)
        returns = struct.unpack(f"<{size // 8}Q", self.memory.read(self._guard["record_log"], size))
        sites = (address - 5 for address in returns)
        return [names.get(site) or names[site - 4] for site in sites]  # some behind an endbr64

    def spawn(self, function: int, argument: int, name: str = "test", cpu: int = 0) -> int:
        """A kernel thread that stays on a CPU and runs when that CPU idles; its task."""
        task = self.call("kthread_create_on_cpu", function, argument, self.text(name.encode()), cpu)
        assert task < U64 - 4095
        self.call("wake_up_process", task)
        return task

    def settle(self, rounds: int = 40) -> None:
        """Let every CPU run what there is for it to run."""
        for _ in range(rounds):
            busy = False
            for vcpu in self.machine.cpus:
                if vcpu.word("WAKE_LIST"):
                    busy = True
                    self._interrupt(vcpu, "asm_sysvec_call_function_single")
                elif self.memory.u32(vcpu.percpu + CONSTANTS["NEED_RESCHED"]):
                    busy = True
                    self._interrupt(vcpu, "asm_sysvec_reschedule_ipi")
            if not busy:
                return
        states = [
            (vcpu.rest.name, self.memory.cstring(vcpu.current + CONSTANTS["TASK_COMM"], 16))
            for vcpu in self.machine.cpus
        ]
        raise AssertionError(f"the guest does not come to rest: {states}")

    def tick(self, ticks: int = 1) -> None:
        """Time goes on by ticks of 4 ms, each with its interrupt on every CPU."""
        for _ in range(ticks):
            clock = self.machine.cpus[0].word("CLOCK_PTR")
            self.memory.set_u64(clock, self.memory.u64(clock) + _TICK_NS)
            for vcpu in self.machine.cpus:
                self._interrupt(vcpu, "asm_sysvec_apic_timer_interrupt")
            self.settle()

    @property
    def jiffies(self) -> int:
        return self.memory.u64(self.label("jiffies_64"))

    def _interrupt(self, vcpu: Vcpu, entry: str) -> None:
        self.machine.run(lambda: self.machine.interrupt(vcpu, entry))

    def load(self, source: str) -> dict[str, int]:
        """Assemble a few functions of the test's own beside the kernel; their labels."""
        return self._assemble(source, _SCRATCH_TEXT, _SCRATCH_DATA)

    def _assemble(self, source: str, text: int, data: int) -> dict[str, int]:
        bases = {".text": text, ".data": data}
        constants = {**self.image.constants, **CONSTANTS}
        part = assembler.assemble({"test.S": source}, bases, constants, self.image.labels)
        self.machine.run(lambda: self.machine.load_segments(dict(part.segments)))
        return dict(part.labels)

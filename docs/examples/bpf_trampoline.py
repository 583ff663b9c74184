"""A program that runs behind a function and sees what it returned, as BPF's fexit does.

    python docs/examples/bpf_trampoline.py

A kernel of one function, a live patch for it, a program that keeps arguments and return value, and
the core without any mount. It prints

    square(7) = 49     call site: nop
    square(7) = 49     call site: bpf_trampoline_2164260896     the program saw square(7) = 49
    square(7) = 343    call site: ftrace_regs_caller            the program saw square(7) = 343
    square(7) = 49     call site: nop
"""

from __future__ import annotations

from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, MODULES_DATA, MODULES_VADDR, TEXT_BASE
from emulated_kernel.assembler import assemble
from emulated_kernel.image import KernelImage
from emulated_kernel.machine import Machine
from ftracefs.ftrace import Ftrace
from ftracefs.ftrace.bpf_trampoline import BpfAttachType, BpfTrampoline
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.guest import load_guest

KERNEL = """# A kernel. FUNC begins with `call __fentry__`, which ftrace turns into a nop.
.text
FUNC_NOTRACE __fentry__
    ret
ENDFUNC __fentry__
FUNC_NOTRACE host_return         # where a function called from outside returns to
    hlt
host_return_halt:
    jmp host_return
ENDFUNC host_return
FUNC square
    mov rax, rdi
    imul rax, rdi
    ret
ENDFUNC square
FUNC cube
    mov rax, rdi
    imul rax, rdi
    imul rax, rdi
    ret
ENDFUNC cube
"""

PROGRAM = """# The program: ctx[0] is the first argument, ctx[6] what the function returned.
.text
FUNC_NOTRACE keep
    mov rax, [rdi]
    mov [rip + seen], rax
    mov rax, [rdi + 48]
    mov [rip + seen + 8], rax
    ret
ENDFUNC keep
.data
OBJECT seen
    .zero 16
ENDOBJECT seen
"""


def boot() -> Ftrace:
    """A machine with the kernel and the engine's code on it, and ftrace in charge of its sites."""
    built = assemble({"kernel.S": KERNEL}, {".text": TEXT_BASE, ".data": DATA_BASE}, CONSTANTS)
    image = KernelImage(
        "example", built.segments, built.symbols, built.mcount, built.labels, built.constants
    )
    machine = Machine(image, nr_cpus=1, clock="virtual")
    guest = load_guest(image.labels)
    machine.load_segments(dict(guest.segments))
    return machine.run(lambda: Ftrace(machine, image, guest))


def main() -> None:
    ftrace = boot()
    machine, memory = ftrace.machine, ftrace.memory
    square, cube = (machine.image.labels[name] for name in ("square", "cube"))
    bases = {".text": MODULES_VADDR + 0xE00000, ".data": MODULES_DATA}
    part = assemble({"program.S": PROGRAM}, bases, CONSTANTS)
    machine.run(lambda: machine.load_segments(dict(part.segments)))
    keep, seen = part.labels["keep"], part.labels["seen"]

    def call() -> None:
        memory.write(seen, bytes(16))
        result = machine.call("square", 7)
        target = addr_from_call(ftrace, square)
        site = ftrace.kallsyms.sprint_symbol(target).partition("+")[0] if target else "nop"
        line = f"{f'square(7) = {result}':<19}call site: {site}"
        if argument := memory.u64(seen):
            line = f"{line:<60}the program saw square({argument}) = {memory.u64(seen + 8)}"
        print(line)

    try:
        call()
        trampoline = machine.run(lambda: BpfTrampoline(ftrace, square))
        fexit = BpfAttachType.BPF_TRACE_FEXIT
        machine.run(lambda: trampoline.bpf_trampoline_link_prog(fexit, keep))
        call()
        machine.run(lambda: ftrace.livepatch.klp_patch_func(square, cube))
        call()
        machine.run(lambda: ftrace.livepatch.klp_unpatch_func(square))
        machine.run(lambda: trampoline.bpf_trampoline_unlink_prog(fexit, keep))
        call()
    finally:
        machine.close()


if __name__ == "__main__":
    main()

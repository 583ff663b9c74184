"""The test kernel with what function graph tracing has to cope with: depth, tail calls, interrupts,
task switches, results in two registers, functions that never return.
"""

from __future__ import annotations

from functools import cache

from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, TEXT_BASE
from emulated_kernel.assembler import assemble
from emulated_kernel.image import KernelImage
from emulated_kernel.images.builtin import JUMP_TABLE, KERNEL
from emulated_kernel.machine import Machine, Rest
from support.ftrace_kernel import SOURCE

GRAPH_SOURCE = """
.text
FUNC outer
    push rbp
    mov rbp, rsp
    call middle
    add rax, 1
    pop rbp
    ret
ENDFUNC outer

FUNC middle
    push rbp
    mov rbp, rsp
    call inner
    add rax, 10
    pop rbp
    ret
ENDFUNC middle

FUNC inner
    push rbp
    mov rbp, rsp
    lea rax, [rdi + 100]
    pop rbp
    ret
ENDFUNC inner

FUNC two_results                # rax = rdi * 3, rdx = rdi * 5
    push rbp
    mov rbp, rsp
    lea rax, [rdi + rdi*2]
    lea rdx, [rdi + rdi*4]
    pop rbp
    ret
ENDFUNC two_results

FUNC sum_of_results
    push rbp
    mov rbp, rsp
    call two_results
    shl rdx, 32
    or rax, rdx
    pop rbp
    ret
ENDFUNC sum_of_results

FUNC recurse                    # rdi: how deep; rax: how deep it went
    push rbp
    mov rbp, rsp
    xor eax, eax
    test rdi, rdi
    je 1f
    dec rdi
    call recurse
    inc rax
1:  pop rbp
    ret
ENDFUNC recurse

FUNC tail_call                  # leaves for inner, whose return is its own
    push rbp
    mov rbp, rsp
    add rdi, 1000
    pop rbp
    jmp inner
ENDFUNC tail_call

FUNC call_tail_call
    push rbp
    mov rbp, rsp
    call tail_call
    inc rax
    pop rbp
    ret
ENDFUNC call_tail_call

FUNC interrupted                # calls irq_work as a hard interrupt would, then inner
    push rbp
    mov rbp, rsp
    push rdi
    or byte ptr gs:[IRQ_FLAGS], TRACE_FLAG_HARDIRQ
    call irq_work
    and byte ptr gs:[IRQ_FLAGS], 0xf7
    pop rdi
    call inner
    pop rbp
    ret
ENDFUNC interrupted

FUNC irq_work
    push rbp
    mov rbp, rsp
    call irq_helper
    pop rbp
    ret
ENDFUNC irq_work

FUNC irq_helper
    ret
ENDFUNC irq_helper

FUNC crash                      # does not return
    push rbp
    mov rbp, rsp
    call crash_deeper
    pop rbp
    ret
ENDFUNC crash

FUNC crash_deeper
    ud2
ENDFUNC crash_deeper

# Comes to a safepoint in the middle, as a file operation does.
FUNC stops                      # rdi + 1, once it goes on
    push rbp
    mov rbp, rsp
    push rdi
    call stops_deeper
    pop rax
    inc rax
    pop rbp
    ret
ENDFUNC stops

FUNC stops_deeper
    push rbp
    mov rbp, rsp
    call inner
    call host_fop
    call inner
    pop rbp
    ret
ENDFUNC stops_deeper

FUNC_NOTRACE host_fop
    hlt
host_fop_halt:
    ret
ENDFUNC host_fop

# Two tasks that take turns: ping starts pong on a stack of its own and waits for it three times.
#   rdi: task_struct of the other task; rsi: top of its stack
FUNC ping
    push rbp
    mov rbp, rsp
    push rbx
    push r12
    mov rbx, rdi
    mov rax, offset pong_first
    mov [rsi - 8], rax
    lea rax, [rsi - 56]
    mov [rdi + TASK_SP], rax
    mov rax, gs:[CURRENT_TASK]
    mov [rip + waiting], rax
    mov r12d, 3
1:  mov rdi, rbx
    call wait_for
    dec r12d
    jne 1b
    mov eax, [rip + turns]
    pop r12
    pop rbx
    pop rbp
    ret
ENDFUNC ping

FUNC wait_for                   # rdi: the task to run
    push rbp
    mov rbp, rsp
    mov rsi, rdi
    mov rdi, gs:[CURRENT_TASK]
    call switch_tasks
    pop rbp
    ret
ENDFUNC wait_for

FUNC_NOTRACE pong_first
    call pong
    ud2
ENDFUNC pong_first

FUNC pong                       # does not return
    push rbp
    mov rbp, rsp
1:  call take_turn
    mov rdi, [rip + waiting]
    call wait_for
    jmp 1b
ENDFUNC pong

FUNC take_turn
    inc dword ptr [rip + turns]
    ret
ENDFUNC take_turn

FUNC_NOTRACE switch_tasks       # rdi previous, rsi next
    push rbp
    push rbx
    TRACE sched_switch, .Ltrace
.Ltraced:
    push r12
    push r13
    push r14
    push r15
    mov [rdi + TASK_SP], rsp
    mov rsp, [rsi + TASK_SP]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    mov gs:[CURRENT_TASK], rsi
    mov eax, [rsi + TASK_PID]
    mov gs:[CURRENT_PID], eax
    ret
.Ltrace:
    push rdi
    push rsi
    mov rdx, rdi
    mov rcx, rsi
    xor esi, esi
    DO_TRACE sched_switch
    pop rsi
    pop rdi
    jmp .Ltraced
ENDFUNC switch_tasks

DEFINE_TRACE sched_switch

.data
.balign 8
waiting:
    .quad 0
turns:
    .long 0
    .long 0
"""


@cache
def graph_kernel() -> KernelImage:
    sources = {"t.S": SOURCE, "g.S": GRAPH_SOURCE}
    for name in ("frame.inc", "jump_label.inc", "tracepoint.inc"):
        sources[name] = (KERNEL / "include" / name).read_text()
    bases = {".text": TEXT_BASE, ".data": DATA_BASE, "__jump_table": JUMP_TABLE}
    built = assemble(sources, bases, CONSTANTS)
    return KernelImage(
        "graph", built.segments, built.symbols, built.mcount, built.labels, built.constants
    )


class Suspended:
    """A call of `stops` that stands still at its safepoint until `resume`."""

    def __init__(self, machine: Machine, argument: int) -> None:
        self._machine = machine
        self._vcpu = machine.cpus[0]
        labels, size = machine.image.labels, CONSTANTS["STACK_BYTES"]

        def start() -> None:
            top = machine.alloc(size) + size - 64
            machine.memory.set_u64(top, labels["host_return"])
            self._vcpu.set(rsp=top, rbp=0, rdi=argument)
            assert machine.run_slice(self._vcpu, labels["stops"]) is Rest.FILE_OP

        machine.run(start)

    def resume(self) -> int:
        """Let it go on to its end, and return what it returned."""

        def finish() -> int:
            assert self._machine.run_slice(self._vcpu) is Rest.RETURN
            return self._vcpu.get("rax")[0]

        return self._machine.run(finish)

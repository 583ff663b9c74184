"""A callback that is called for what it calls itself, and a callback that is interrupted.

On the built-in kernel, with its own interrupt entry: the callback raises the vector of the timer,
and what the machine then does is what it does whenever one arrives.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from support.ftrace_kernel import ftrace_machine, load_code
from support.shell import Shell, isolated

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace import FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.ftrace.ops import FTRACE_OPS_FL_RCU, FTRACE_OPS_FL_RECURSION, FTRACE_OPS_FL_SAVE_REGS
from ftracefs.ftrace.python_callback import FtraceRegs

LOCAL_TIMER_VECTOR = 236

CODE = """# Callbacks. OP_PRIVATE: how often each context came here, by the bits of IRQ_FLAGS.
.macro COUNT_CONTEXT
    mov r8, [rdx + OP_PRIVATE]
    movzx eax, byte ptr gs:[IRQ_FLAGS]
    shr eax, 3
    and eax, 3
    inc qword ptr [r8 + rax*8]
.endm
FUNC_NOTRACE interrupted_callback            # by the timer, unless in a hard interrupt
    COUNT_CONTEXT
    test eax, 1
    jne 1f
    push rdi
    push rsi
    push rdx
    push rcx
    test eax, eax
    jne 2f
    or dword ptr gs:[SOFTIRQ_PENDING], 2     # TIMER_SOFTIRQ
2:  int 236
    pop rcx
    pop rdx
    pop rsi
    pop rdi
1:  ret
ENDFUNC interrupted_callback
FUNC_NOTRACE calling_callback                # calls what it is called from
    COUNT_CONTEXT
    push rdi
    push rsi
    push rdx
    push rcx
    mov edi, 12
    mov esi, 18
    call gcd
    pop rcx
    pop rdx
    pop rsi
    pop rdi
    ret
ENDFUNC calling_callback
FUNC_NOTRACE faulting_callback
    COUNT_CONTEXT
    mov rax, [0x10]
    ret
ENDFUNC faulting_callback
FUNC_NOTRACE counting_callback
    COUNT_CONTEXT
    ret
ENDFUNC counting_callback
"""
TASK = 0


class Callbacks:
    """The callbacks in an isolated session, and ops that call them."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.ftrace = shell.session.ftrace
        self.labels = load_code(self.ftrace, CODE)
        timer = shell.session.image.labels["asm_sysvec_apic_timer_interrupt"]
        for vcpu in shell.machine.cpus:
            vcpu.exception_entry = {**vcpu.exception_entry, LOCAL_TIMER_VECTOR: timer}

    def on(self, callback: str, functions: str, flags: int) -> FtraceOps:
        ftrace = self.ftrace

        def register() -> FtraceOps:
            private = ftrace.machine.alloc(64)
            ops = ftrace.new_ops(self.labels[callback], private=private, flags=flags, name=callback)
            for function in functions.split():
                ftrace_set_filter(ftrace, ops, function.encode())
            ftrace.register_ftrace_function(ops)
            return ops

        return ftrace.machine.run(register)

    def counts(self, ops: FtraceOps) -> list[int]:
        """How often it was called: in a task, an interrupt, a softirq, an interrupt of that."""
        return [self.ftrace.memory.u64(ops.private + 8 * context) for context in range(4)]

    def call_gcd(self) -> None:
        self.shell.echo("gcd 48 36", "emulator/call")
        assert self.shell.cat("emulator/call") == "gcd(48, 36) = 12\n"

    def recursion_word(self) -> int:
        percpu = self.shell.machine.cpus[0].percpu
        return self.ftrace.memory.u32(percpu + CONSTANTS["TRACE_RECURSION"])

    def site(self) -> int:
        return addr_from_call(self.ftrace, self.shell.session.image.labels["gcd"])


@pytest.fixture
def callbacks() -> Iterator[Callbacks]:
    with isolated() as shell:
        made = Callbacks(shell)
        yield made
        assert made.recursion_word() == 0
        assert made.ftrace.bugs == []


GUARDS = [FTRACE_OPS_FL_RECURSION, FTRACE_OPS_FL_RCU]
GUARDS += [FTRACE_OPS_FL_RECURSION | FTRACE_OPS_FL_SAVE_REGS]


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("shared", [False, True])
def test_a_callback_that_calls_what_it_traces_is_called_once(
    callbacks: Callbacks, guard: int, shared: bool
) -> None:
    ops = callbacks.on("calling_callback", "gcd", guard)
    other = callbacks.on("counting_callback", "gcd", 0) if shared else None
    assert (callbacks.site() == ops.trampoline) is not shared
    for _ in range(3):
        callbacks.call_gcd()
    assert callbacks.counts(ops) == [3, 0, 0, 0]
    if other is not None:
        assert callbacks.counts(other) == [3, 0, 0, 0], "the list is on a level of its own"


def test_in_the_list_an_unguarded_callback_may_do_so_too(callbacks: Callbacks) -> None:
    ops = callbacks.on("calling_callback", "gcd", FTRACE_OPS_FL_RECURSION)
    unguarded = callbacks.on("calling_callback", "gcd lcm", 0)
    callbacks.call_gcd()
    assert (callbacks.counts(ops)[TASK], callbacks.counts(unguarded)[TASK]) == (1, 1)
    callbacks.ftrace.machine.run(lambda: callbacks.ftrace.unregister_ftrace_function(unguarded))
    callbacks.call_gcd()
    assert callbacks.counts(ops) == [2, 0, 0, 0]


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("shared", [False, True])
def test_an_interrupt_inside_a_callback_is_recorded_and_the_callback_goes_on(
    callbacks: Callbacks, guard: int, shared: bool
) -> None:
    shell = callbacks.shell
    # Called in the interrupt's handler and in the softirq behind it.
    functions = "gcd update_process_times run_timer_softirq"
    ops = callbacks.on("interrupted_callback", functions, guard)
    tracer = "function" if shared else "nop"
    shell.echo(tracer, "current_tracer")
    assert (callbacks.site() == ops.trampoline) is not shared
    for _ in range(3):
        callbacks.call_gcd()
    assert callbacks.counts(ops) == [3, 3, 3, 3]
    if not shared:
        return
    lines = shell.cat("trace").splitlines()
    records = [line for line in lines if re.search(r": (gcd|update_process_times|run_timer)", line)]
    names = [re.search(r": (\w+) <-", line)[1] for line in records]  # type: ignore[index]
    contexts = [line.split("]")[1].split()[0] for line in records]
    seen = Counter((name, mark[2]) for name, mark in zip(names, contexts, strict=True))
    assert seen == {
        ("gcd", "."): 3,
        ("update_process_times", "h"): 3,
        ("run_timer_softirq", "s"): 3,
        ("update_process_times", "H"): 3,
    }


def test_function_graph_is_not_confused_by_an_interrupt_inside_another_callback(
    callbacks: Callbacks,
) -> None:
    shell = callbacks.shell
    ops = callbacks.on("interrupted_callback", "gcd", FTRACE_OPS_FL_RECURSION)
    shell.echo("function_graph", "current_tracer")
    for _ in range(3):
        callbacks.call_gcd()
    assert callbacks.counts(ops) == [3, 0, 0, 0]
    trace = shell.cat("trace")
    assert trace.count("gcd();") + trace.count("gcd() {") == 3
    assert trace.count("sysvec_apic_timer_interrupt() {") == 3
    assert callbacks.ftrace.fgraph.ret_stack(shell.machine.cpus[0].current) == []


# --- a callback that does not return --------------------------------------------------------------


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize("shared", [False, True])
def test_a_task_that_dies_in_a_callback_takes_the_guard_with_it(
    callbacks: Callbacks, guard: int, shared: bool
) -> None:
    faulting = callbacks.on("faulting_callback", "gcd", guard)
    if shared:
        callbacks.on("counting_callback", "gcd", 0)
    with pytest.raises(TracefsError):
        callbacks.shell.echo("gcd 48 36", "emulator/call")
    assert "Oops" in callbacks.shell.cat("emulator/call")
    assert callbacks.recursion_word() == 0
    callbacks.ftrace.machine.run(lambda: callbacks.ftrace.unregister_ftrace_function(faulting))
    first, second = (callbacks.on("counting_callback", "gcd", guard) for _ in range(2))
    for _ in range(3):
        callbacks.call_gcd()
    assert callbacks.counts(first) == callbacks.counts(second) == [3, 0, 0, 0]


def test_a_call_from_outside_that_ends_in_an_exception_leaves_the_cpu_as_it_was() -> None:
    with ftrace_machine() as ftrace:
        seen: list[int] = []

        def fail_once(ip: int, _parent: int, _op: FtraceOps, _fregs: FtraceRegs) -> None:
            seen.append(ip)
            if len(seen) == 1:
                raise ValueError("on purpose")

        counter = ftrace.machine.alloc(64)
        count_call = ftrace.machine.image.labels["count_call"]

        def register(ops: FtraceOps) -> None:
            ftrace_set_filter(ftrace, ops, b"add_one")
            ftrace.register_ftrace_function(ops)

        ftrace.machine.run(lambda: register(ftrace.new_ops(count_call, private=counter)))
        ftrace.machine.run(lambda: register(ftrace.new_python_ops(fail_once)))
        percpu = ftrace.machine.cpus[0].percpu
        words = ("TRACE_RECURSION", "TRACE_CTX")
        before = [ftrace.memory.u32(percpu + CONSTANTS[word]) for word in words]
        with pytest.raises(ValueError, match="on purpose"):
            ftrace.machine.call("add_one", 1)
        assert [ftrace.memory.u32(percpu + CONSTANTS[word]) for word in words] == before
        assert ftrace.machine.call("add_one", 1) == 2
        assert (len(seen), ftrace.memory.u64(counter)) == (2, 1)

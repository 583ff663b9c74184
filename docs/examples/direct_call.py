"""A direct call: the call site of gcd calls a function of ours, alone and beside the tracer.

    python docs/examples/direct_call.py

A target is entered like a trampoline: it gets the arguments of the traced function in their
registers and gives them back, changed if it likes. It prints

    gcd(12, 18) = 6      calls nothing, a nop
    gcd(12, 18) = 3      calls one_half
    gcd(12, 18) = 2      calls one_ninth
    gcd(12, 18) = 2      calls ftrace_regs_caller     gcd <-host_return
    gcd(12, 18) = 6      calls nothing, a nop
"""

from __future__ import annotations

from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.mount.tracefs import Options
from ftracefs.session import Session

TARGETS = """# Of the second argument.
FUNC_NOTRACE one_half
    shr rsi, 1
    ret
ENDFUNC one_half
FUNC_NOTRACE one_ninth
    push rax
    push rdx
    mov rax, rsi
    mov esi, 9
    xor edx, edx
    div rsi
    mov rsi, rax
    pop rdx
    pop rax
    ret
ENDFUNC one_ninth
"""


def main() -> None:
    session = Session(Options(isolated=True, clock="virtual"))
    try:
        show(session)
    finally:
        session.close()


def show(session: Session) -> None:
    machine, ftrace, tr = session.machine, session.ftrace, session.tracing.global_trace
    labels = machine.run(lambda: ftrace.load_functions("example", TARGETS))
    ops = ftrace.new_ops(name="direct")
    machine.run(lambda: ftrace_set_filter(ftrace, ops, b"gcd"))

    def call() -> None:
        result = f"gcd(12, 18) = {machine.call('gcd', 12, 18)}"
        target = addr_from_call(ftrace, session.image.label("gcd"))
        symbol = ftrace.kallsyms.sprint_symbol(target).partition("+")[0]
        line = f"{result:<21}calls {symbol if target else 'nothing, a nop'}"
        text = machine.run(lambda: tr.trace_text(None)).read(0, 1 << 20).decode()
        records = [part.partition(": ")[2] for part in text.splitlines() if "<-" in part]
        print(f"{line:<50}{' '.join(records)}".rstrip())

    call()
    machine.run(lambda: ftrace.register_ftrace_direct(ops, labels["one_half"]))
    call()
    machine.run(lambda: ftrace.modify_ftrace_direct(ops, labels["one_ninth"]))
    call()
    machine.run(lambda: ftrace_set_filter(ftrace, tr.ops, b"gcd"))
    machine.run(lambda: tr.tracing_set_tracer("function"))
    call()
    machine.run(lambda: tr.tracing_set_tracer("nop"))
    machine.run(lambda: ftrace.unregister_ftrace_direct(ops, labels["one_ninth"]))
    call()


if __name__ == "__main__":
    main()

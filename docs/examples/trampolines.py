"""One op, two ops, one op: a trampoline of its own, the list function, a trampoline again.

    python docs/examples/trampolines.py

Two ops on gcd, whose callback is a guest function that counts its calls in machine code. The call
site is read from the machine's memory. It prints

    gcd(12, 18) = 6    calls nothing, a nop          counted 0 and 0
    gcd(12, 18) = 6    calls first's trampoline      counted 1 and 0
    gcd(12, 18) = 6    calls ftrace_caller           counted 2 and 1
    gcd(12, 18) = 6    calls second's trampoline     counted 2 and 2
    gcd(12, 18) = 6    calls nothing, a nop          counted 2 and 2
"""

from __future__ import annotations

from ftracefs.ftrace import FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.mount.tracefs import Options
from ftracefs.session import Session

CALLBACK = """# rdi call site, rsi caller, rdx op, rcx pt_regs; may use rax and r8 to r11.
FUNC_NOTRACE count_call
    mov rax, [rdx + OP_PRIVATE]
    inc qword ptr [rax]
    ret
ENDFUNC count_call
"""


def main() -> None:
    session = Session(Options(isolated=True, clock="virtual"))
    try:
        show(session)
    finally:
        session.close()


def show(session: Session) -> None:
    machine, ftrace = session.machine, session.ftrace
    gcd = session.image.label("gcd")
    callback = machine.run(lambda: ftrace.load_functions("example", CALLBACK))["count_call"]

    def new_ops(name: str) -> FtraceOps:
        ops = ftrace.new_ops(callback, private=machine.alloc(64), name=name)
        machine.run(lambda: ftrace_set_filter(ftrace, ops, b"gcd"))
        return ops

    first, second = new_ops("first"), new_ops("second")

    def call() -> None:
        result = machine.call("gcd", 12, 18)
        target = addr_from_call(ftrace, gcd)
        names = {0: "nothing, a nop", ftrace.ftrace_addr: "ftrace_caller"}
        names |= {op.trampoline: f"{op.name}'s trampoline" for op in ftrace.ops_list}
        counts = " and ".join(str(machine.memory.u64(op.private)) for op in (first, second))
        print(f"gcd(12, 18) = {result}    calls {names[target]:<24}counted {counts}")

    call()
    machine.run(lambda: ftrace.register_ftrace_function(first))
    call()
    machine.run(lambda: ftrace.register_ftrace_function(second))
    call()
    machine.run(lambda: ftrace.unregister_ftrace_function(first))
    call()
    machine.run(lambda: ftrace.unregister_ftrace_function(second))
    call()


if __name__ == "__main__":
    main()

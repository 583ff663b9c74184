"""Registers at a call site: read by a Python callback, changed by one in machine code.

    python docs/examples/registers.py

An op with SAVE_REGS is given a full pt_regs. What its callback leaves there is what the traced
function finds, the instruction pointer included.
It prints

    gcd(12, 18) = 6
    gcd entered with rdi=12, rsi=18 from host_return; all registers: True
    gcd(12, 18) = 6
    gcd entered with rdi=14, rsi=18 from host_return; all registers: True
    gcd(12, 18) = 2
    gcd entered with rdi=12, rsi=18 from host_return; all registers: True
    gcd(12, 18) = 3
"""

from __future__ import annotations

from ftracefs.ftrace import FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.ftrace.ops import FTRACE_OPS_FL_IPMODIFY, FTRACE_OPS_FL_SAVE_REGS
from ftracefs.ftrace.python_callback import FtraceRegs
from ftracefs.mount.tracefs import Options
from ftracefs.session import Session

CALLBACKS = """# PT_RDI and the like are places in the pt_regs, which rcx points at.
FUNC_NOTRACE two_more                    # the first argument
    add qword ptr [rcx + PT_RDI], 2
    ret
ENDFUNC two_more
FUNC_NOTRACE to_int_sqrt                      # the call goes on there
    mov rax, offset int_sqrt
    mov [rcx + PT_RIP], rax
    ret
ENDFUNC to_int_sqrt
"""


def main() -> None:
    session = Session(Options(isolated=True, clock="virtual"))
    try:
        show(session)
    finally:
        session.close()


def show(session: Session) -> None:
    machine, ftrace = session.machine, session.ftrace

    def register(ops: FtraceOps) -> FtraceOps:
        ftrace_set_filter(ftrace, ops, b"gcd")
        ftrace.register_ftrace_function(ops)
        return ops

    def call() -> None:
        print(f"gcd(12, 18) = {machine.call('gcd', 12, 18)}")

    def watch(ip: int, parent_ip: int, _op: FtraceOps, regs: FtraceRegs) -> None:
        name, caller = (
            ftrace.kallsyms.sprint_symbol(at).partition("+")[0] for at in (ip, parent_ip)
        )
        arguments = f"rdi={regs['rdi']}, rsi={regs['rsi']}"
        print(f"{name} entered with {arguments} from {caller}; all registers: {regs.has_regs}")

    labels = machine.run(lambda: ftrace.load_functions("example", CALLBACKS))
    call()
    machine.run(lambda: register(ftrace.new_python_ops(watch, flags=FTRACE_OPS_FL_SAVE_REGS)))
    call()
    # Of two ops the one registered last is called first.
    two_more = machine.run(lambda: register(ftrace.new_ops(labels["two_more"])))
    call()
    machine.run(lambda: ftrace.unregister_ftrace_function(two_more))
    to_int_sqrt = ftrace.new_ops(labels["to_int_sqrt"], flags=FTRACE_OPS_FL_IPMODIFY)
    machine.run(lambda: register(to_int_sqrt))
    call()


if __name__ == "__main__":
    main()

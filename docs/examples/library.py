"""The kernel and its ftrace without a mount: ops, callbacks in Python, records.

    python docs/examples/library.py

Boots the built-in kernel, watches gcd with a Python function that also changes its arguments, live
patches lcm, and reads the trace of the function tracer. It prints

    gcd(12, 18) = 6
    gcd called from lcm with 4, 6
    lcm(4, 6) = 12
    gcd called from host_return with 100, 75
    gcd(100, 75) = 5
    lcm(4, 6) = 2
    lcm <-host_return
    gcd <-host_return
"""

from __future__ import annotations

from ftracefs.ftrace import FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.ftrace.ops import FTRACE_OPS_FL_SAVE_REGS
from ftracefs.ftrace.python_callback import FtraceRegs
from ftracefs.mount.tracefs import Options
from ftracefs.session import Session


def main() -> None:
    session = Session(Options(isolated=True, clock="virtual"))
    try:
        show(session)
    finally:
        session.close()


def show(session: Session) -> None:
    machine, ftrace, tr = session.machine, session.ftrace, session.tracing.global_trace
    label = session.image.labels

    def call(function: str, *arguments: int) -> None:
        result = machine.call(function, *arguments)
        print(f"{function}({', '.join(map(str, arguments))}) = {result}")

    call("gcd", 12, 18)

    def watch(ip: int, parent_ip: int, _op: FtraceOps, fregs: FtraceRegs) -> None:
        name, caller = (
            ftrace.kallsyms.sprint_symbol(at).partition("+")[0] for at in (ip, parent_ip)
        )
        print(f"{name} called from {caller} with {fregs['rdi']}, {fregs['rsi']}")
        if fregs["rdi"] == 100:
            fregs["rdi"] = 10

    def register() -> FtraceOps:
        ops = ftrace.new_python_ops(watch, flags=FTRACE_OPS_FL_SAVE_REGS)
        ftrace_set_filter(ftrace, ops, b"gcd")
        ftrace.register_ftrace_function(ops)
        return ops

    ops = machine.run(register)
    call("lcm", 4, 6)
    call("gcd", 100, 75)
    machine.run(lambda: ftrace.unregister_ftrace_function(ops))

    machine.run(lambda: ftrace.livepatch.klp_patch_func(label["lcm"], label["gcd"]))
    machine.run(lambda: ftrace_set_filter(ftrace, tr.ops, b"[gl]c[dm]"))
    machine.run(lambda: tr.tracing_set_tracer("function"))
    call("lcm", 4, 6)
    text = machine.run(lambda: tr.trace_text(None)).read(0, 1 << 20).decode()
    print("\n".join(line.partition(": ")[2] for line in text.splitlines() if "<-" in line))


if __name__ == "__main__":
    main()

"""Function graph tracing: its text, its records, and a look at a shadow stack.

    python docs/examples/function_graph.py

lcm calls gcd. A Python callback on gcd looks at what the task has not returned from: there the
return addresses are that function_graph has exchanged for return_to_handler. It prints

    in gcd: lcm returns to host_return, return_to_handler stands in its place
    lcm(4, 6) = 12
     0)               |  lcm() {
     0)   1.000 us    |    gcd();
     0)   3.000 us    |  }
    lcm entered at depth 0
    gcd entered at depth 1
    gcd returned after 1000 ns
    lcm returned after 3000 ns
"""

from __future__ import annotations

from ftracefs.ftrace import FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.ftrace.python_callback import FtraceRegs
from ftracefs.mount.tracefs import Options
from ftracefs.ring_buffer.entries import merge
from ftracefs.session import Session

# Offsets in the payload, as events/ftrace/funcgraph_entry/format and funcgraph_exit/format say.
TRACE_GRAPH_RET, TRACE_GRAPH_ENT = 10, 11
FUNC, DEPTH, CALLTIME, RETTIME = 8, 16, 24, 32


def main() -> None:
    session = Session(Options(isolated=True, clock="virtual", cpus=1))
    try:
        show(session)
    finally:
        session.close()


def show(session: Session) -> None:
    machine, ftrace, tr = session.machine, session.ftrace, session.tracing.global_trace
    memory, task = machine.memory, machine.cpus[0].current

    def name(address: int) -> str:
        return ftrace.kallsyms.sprint_symbol(address).partition("+")[0]

    def look(_ip: int, _parent_ip: int, _op: FtraceOps, _regs: FtraceRegs) -> None:
        for frame in ftrace.fgraph.ret_stack(task):
            here, place = name(frame.func), name(memory.u64(frame.retp))
            print(f"in gcd: {here} returns to {name(frame.ret)}, {place} stands in its place")

    ops = ftrace.new_python_ops(look)
    machine.run(lambda: ftrace_set_filter(ftrace, ops, b"gcd"))
    machine.run(lambda: ftrace_set_filter(ftrace, tr.ops, b"[gl]c[dm]"))
    machine.run(lambda: tr.tracing_set_tracer("function_graph"))
    machine.run(lambda: ftrace.register_ftrace_function(ops))
    print(f"lcm(4, 6) = {machine.call('lcm', 4, 6)}")

    text = machine.run(lambda: tr.trace_text(None)).read(0, 1 << 20).decode()
    print("\n".join(line for line in text.splitlines() if not line.startswith("#")))

    entries = merge(machine.run(tr.buffer.snapshot))
    for number, kind in enumerate(entries.type.tolist()):
        function = name(int(entries.u64(FUNC)[number]))
        if kind == TRACE_GRAPH_ENT:
            print(f"{function} entered at depth {entries.u32(DEPTH)[number]}")
        elif kind == TRACE_GRAPH_RET:
            took = entries.u64(RETTIME)[number] - entries.u64(CALLTIME)[number]
            print(f"{function} returned after {took} ns")


if __name__ == "__main__":
    main()

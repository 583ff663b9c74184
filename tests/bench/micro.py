"""What the base costs: memory, a nop'ed call, a traced call with the kernel's page format and all.

    python tests/bench/micro.py [--json FILE]

Every figure is nanoseconds of thread CPU time per operation, the loop around it taken off, the
minimum of several runs with untraced and traced runs interleaved. Fails when a store costs more
than twice a load, or a nop'ed call more than 2.5 times a bare call and return: then the machine is
not set up as it must be.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, TEXT_BASE
from emulated_kernel.assembler import assemble
from emulated_kernel.image import KernelImage
from emulated_kernel.machine import Machine
from ftracefs.ftrace.core import Ftrace
from ftracefs.guest import load_guest
from ftracefs.ring_buffer.buffer import RingBuffer

RUNS = 25
LOOPS = 40_000
UNROLL = 16
BUFFER_BYTES = 1408 * 1024


def _loop(name: str, body: str, times: int) -> str:
    return f"""
FUNC_NOTRACE {name}
    push rbx
    mov ebx, {LOOPS}
.balign 16
1:
{body * times}    dec ebx
    jne 1b
    pop rbx
    ret
ENDFUNC {name}
"""


SOURCE = (
    """
.text
FUNC_NOTRACE host_return
    hlt
host_return_halt:
    jmp host_return
ENDFUNC host_return
FUNC_NOTRACE __fentry__
    ret
ENDFUNC __fentry__
FUNC_NOTRACE bare
    ret
ENDFUNC bare
.balign 128
FUNC hot
    ret
ENDFUNC hot
.balign 128
"""
    + _loop("nothing", "", 0)
    + _loop("load", "    mov rax, [rip + cell]\n", UNROLL)
    + _loop("store", "    mov [rip + cell], rax\n", UNROLL)
    + _loop("call_bare", "    call bare\n", 1)
    + _loop("call_hot", "    call hot\n", 1)
    + """
.data
.balign 64
cell:
    .quad 0
"""
)


class Bench:
    """A machine with nothing but the loops, the engine's guest code and a ring buffer."""

    def __init__(self) -> None:
        built = assemble({"bench.S": SOURCE}, {".text": TEXT_BASE, ".data": DATA_BASE}, CONSTANTS)
        image = KernelImage(
            "bench", built.segments, built.symbols, built.mcount, built.labels, built.constants
        )
        self.machine = machine = Machine(image, nr_cpus=1)
        guest = load_guest(image.labels)
        machine.load_segments(dict(guest.segments))
        self.ftrace = machine.run(lambda: Ftrace(machine, image, guest))
        pages = [vcpu.percpu for vcpu in machine.cpus]
        self.buffer = RingBuffer(machine.memory, pages, BUFFER_BYTES)
        machine.run(lambda: self.buffer.set_clock(machine.clock.nanoseconds()))
        callback = guest.labels["function_trace_call"]
        self.ops = [
            self.ftrace.new_ops(callback, private=self.buffer.table, name=f"bench{n}")
            for n in range(2)
        ]

    def once(self, name: str) -> float:
        """Seconds of CPU time that one run of a loop takes on the machine thread."""

        def timed() -> float:
            start = time.thread_time()
            self.machine.call(name)
            return time.thread_time() - start

        return self.machine.run(timed)

    def register(self, index: int) -> None:
        self.machine.run(lambda: self.ftrace.register_ftrace_function(self.ops[index]))

    def unregister(self, index: int) -> None:
        self.machine.run(lambda: self.ftrace.unregister_ftrace_function(self.ops[index]))

    def off(self) -> None:
        self.machine.run(self.buffer.record_off)

    def on(self) -> None:
        self.machine.run(self.buffer.record_on)


def measure(bench: Bench) -> dict[str, float]:
    """ns per operation: minimum over the runs, the empty loop taken off."""
    best: dict[str, float] = {}

    def note(key: str, name: str, per: int) -> None:
        nanoseconds = bench.once(name) / (LOOPS * per) * 1e9
        best[key] = min(best.get(key, nanoseconds), nanoseconds)

    states: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
        ("traced", lambda: bench.register(0), lambda: bench.unregister(0)),
    ]
    for _ in range(RUNS):
        note("loop", "nothing", 1)
        note("load", "load", UNROLL)
        note("store", "store", UNROLL)
        note("bare call", "call_bare", 1)
        note("untraced", "call_hot", 1)
        for key, begin, end in states:
            begin()
            note(key, "call_hot", 1)
            end()
        bench.register(0)
        bench.off()
        note("tracing off", "call_hot", 1)
        bench.on()
        bench.register(1)
        note("two ops", "call_hot", 1)
        bench.unregister(1)
        bench.unregister(0)
    loop = best.pop("loop")
    return {
        key: value - (loop / UNROLL if key in {"load", "store"} else loop)
        for key, value in best.items()
    }


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--json", type=Path, help="write the figures there as well")
    options = arguments.parse_args()
    bench = Bench()
    try:
        figures = measure(bench)
    finally:
        bench.machine.close()
    for key, value in figures.items():
        print(f"{key:<24}{value:8.1f} ns")
    ratios = {
        "store / load": (figures["store"] / figures["load"], 2.0),
        "untraced / bare call": (figures["untraced"] / figures["bare call"], 2.5),
    }
    added = figures["traced"] - figures["untraced"]
    print(f"{'added by tracing':<24}{added:8.1f} ns")
    print(f"{'added, two ops':<24}{figures['two ops'] - figures['untraced']:8.1f} ns")
    failed = False
    for name, (ratio, limit) in ratios.items():
        good = ratio <= limit
        failed |= not good
        print(f"{name:<24}{ratio:8.2f}    (at most {limit}){'' if good else '  FAILED'}")
    if options.json:
        options.json.write_text(json.dumps({**figures, "added": added}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What a traced call costs in guest code: the built-in kernel, its tracers, loops of calls.

Every figure is nanoseconds of the machine thread's CPU time for one call, loop and all; states are
interleaved, so that a neighbour's load meets all of them. "Added" is a traced call less an untraced
one. What a call site costs is less than two loops differ by for where they lie and when they were
translated: many pairs of loops take turns, laid out alike, either kind as often in front.

"Called" is with emulator/inline_callbacks 0: the kernel's own trampoline, which calls its op's
callback. That is what other ops, two ops on a function and the graph tracer are measured against.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean, median

from bench.figures import Figure

from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.ftrace.registration import set_inline_callbacks
from ftracefs.mount.tracefs import Options
from ftracefs.session import Session

RUNS = 60
QUICK = {"RUNS": 1}
CALLS = 40_000
FUNCTIONS = 1_000
PAIRS = 8
_UNROLL = 16
_ORDER = 4_096  # entries of the table of calls at random, a power of two

SOURCE = f"""
.text
FUNC bench_hot
    ret
ENDFUNC bench_hot
.balign 128
FUNC_NOTRACE bench_loop_hot
    push rbx
    mov ebx, {CALLS}
.balign 16
1:  call bench_hot
    dec ebx
    jne 1b
    pop rbx
    ret
ENDFUNC bench_loop_hot
.balign 128
FUNC_NOTRACE bench_loop_many
    push rbx
    push r12
    mov ebx, {CALLS}
    lea r12, [rip + bench_order]
.balign 16
1:  mov eax, ebx
    and eax, {_ORDER - 1}
    call [r12 + rax*8]
    dec ebx
    jne 1b
    pop r12
    pop rbx
    ret
ENDFUNC bench_loop_many
"""

# The least that a record can cost: what is saved is what the writer itself needs, all is in line,
# the words of the ring and the time are at fixed addresses. The ring is one page.
_STANDING = "mov r8, [rip + bench_clock]"
_RUNNING = """mov r11, rdx
    rdtsc
    shl rdx, 32
    or rax, rdx
    mul qword ptr [rip + bench_mult]
    shrd rax, rdx, 32
    mov rdx, r11
    mov r8, rax
    add r8, [rip + bench_clock]"""


def _loop(name: str) -> str:
    return f""".balign 128
FUNC_NOTRACE bench_loop_{name}
    push rbx
    mov ebx, {CALLS}
.balign 16
1:  call bench_{name}
    dec ebx
    jne 1b
    pop rbx
    ret
ENDFUNC bench_loop_{name}
"""


def _inlined(name: str, clock: str) -> str:
    """Such a writer, a function that calls it as if it were traced, and the loop."""
    return f"""
.text
.balign 128
FUNC_NOTRACE bench_{name}_writer
    push rax
    push r8
    push r9
    cmp dword ptr [rip + bench_guard], 0
    jne .Lout
    {clock}
    mov r9, r8
    sub r9, [rip + bench_stamp]
    mov r10, [rip + bench_tail]
    lea r11, [r10 + 28]
    mov rax, [rip + bench_end]
    sub rax, r11
    or rax, r9
    shr rax, 27
    jne .Lpage
.Lreserved:
    mov [rip + bench_stamp], r8
    mov [rip + bench_tail], r11
    shl r9d, 5
    or r9d, 6
    mov [r10], r9d
    mov rax, gs:[TRACE_CTX]
    add rax, 1
    mov [r10 + 4], rax
    mov rax, [rsp + 24]
    sub rax, 5
    mov [r10 + 12], rax
    mov rax, [rsp + 32]
    mov [r10 + 20], rax
    inc qword ptr [rip + bench_events]
.Lout:
    pop r9
    pop r8
    pop rax
    ret
.Lpage:
    lea r10, [rip + bench_page]
    lea rax, [r10 + 4096]
    mov [rip + bench_end], rax
    add r10, 16
    lea r11, [r10 + 28]
    xor r9d, r9d
    jmp .Lreserved
ENDFUNC bench_{name}_writer
.balign 128
FUNC_NOTRACE bench_{name}
    call bench_{name}_writer
    ret
ENDFUNC bench_{name}
{_loop(name)}"""


_INLINED_DATA = """
.data
.balign 64
bench_clock: .quad 5
bench_mult: .quad 1 << 31
bench_stamp: .quad 5
bench_tail: .quad 0
bench_end: .quad 0
bench_events: .quad 0
bench_guard: .quad 0
.balign 4096
bench_page: .zero 4096
"""


def _pair(name: str, kind: str) -> str:
    """A function with a call site (FUNC) or without one (FUNC_NOTRACE), and its loop."""
    return f"""
.balign 256
{kind} bench_{name}
    ret
ENDFUNC bench_{name}
{_loop(name)}"""


def _pairs() -> str:
    """All of them, in the order without and with, with and without, and so on."""
    kinds = [("bare", "FUNC_NOTRACE"), ("site", "FUNC")]
    return ".balign 4096\n" + "".join(
        _pair(f"{name}_{number}", kind)
        for number in range(PAIRS)
        for name, kind in (reversed(kinds) if number % 2 else kinds)
    )


def _cells(name: str, instruction: str) -> str:
    """A loop with many accesses of one word."""
    return (
        f"FUNC_NOTRACE bench_loop_{name}\n    push rbx\n    mov ebx, {CALLS}\n.balign 16\n1:\n"
        + f"    {instruction}\n" * _UNROLL
        + f"    dec ebx\n    jne 1b\n    pop rbx\n    ret\nENDFUNC bench_loop_{name}\n"
    )


def _source() -> str:
    many = "".join(
        f".balign 256\nFUNC bench_many_{n}\n    ret\nENDFUNC bench_many_{n}\n"
        for n in range(FUNCTIONS)
    )
    # A multiplicative walk: every function as often, in no order that a predictor could learn.
    order = ", ".join(f"bench_many_{n * 7919 % FUNCTIONS}" for n in range(_ORDER))
    cells = _cells("load", "mov rax, [rip + bench_cell]")
    cells += _cells("store", "mov [rip + bench_cell], rax")
    data = f".data\n.balign 64\nbench_order:\n    .quad {order}\nbench_cell:\n    .quad 0\n"
    inlined = _inlined("standing", _STANDING) + _inlined("running", _RUNNING) + _INLINED_DATA
    return f"{SOURCE}{inlined}.text\n{_pairs()}{cells}{many}{data}"


class Bench:
    """A session, the loops in it, and the states in which they are run."""

    def __init__(self) -> None:
        self.session = Session(Options(cpus=1, clock="real", isolated=True))
        self.machine = self.session.machine
        self.ftrace = self.session.ftrace
        tracing = self.session.tracing
        self.labels = self.machine.run(lambda: self.ftrace.load_functions("bench", _source()))
        self.tr = tracing.global_trace
        self.instance = self.machine.run(lambda: tracing.trace_array_create("bench"))
        for tr in (self.tr, self.instance):
            self.machine.run(lambda tr=tr: ftrace_set_filter(self.ftrace, tr.ops, b"bench_*"))  # type: ignore[misc]

    def close(self) -> None:
        self.session.close()

    def loop(self, name: str) -> float:
        """Nanoseconds for one call in a loop."""
        address = self.labels[f"bench_loop_{name}"]

        def timed() -> float:
            start = time.thread_time()
            self.machine.call(address)
            return (time.thread_time() - start) / CALLS * 1e9

        return self.machine.run(timed)

    def tracer(self, name: str) -> None:
        self.machine.run(lambda: self.tr.tracing_set_tracer(name))

    def second(self, name: str) -> None:
        self.machine.run(lambda: self.instance.tracing_set_tracer(name))

    def inline(self, enabled: bool) -> None:
        self.machine.run(lambda: set_inline_callbacks(self.ftrace, enabled))

    def recording(self, on: bool) -> None:
        self.machine.run(lambda: self.tr.set_tracing_on(on))


def _states(bench: Bench) -> dict[str, tuple[str, Callable[[], None], Callable[[], None]]]:
    """Name -> loop, how to get into the state, how to get out of it."""

    def nothing() -> None:
        return None

    def function() -> None:
        bench.tracer("function")

    def off() -> None:
        bench.tracer("function")
        bench.recording(False)

    def on() -> None:
        bench.recording(True)
        bench.tracer("nop")

    def called() -> None:
        bench.inline(False)
        bench.tracer("function")

    def in_line() -> None:
        bench.tracer("nop")
        bench.inline(True)

    def two() -> None:
        bench.tracer("function")
        bench.second("function")

    def none() -> None:
        bench.second("nop")
        bench.tracer("nop")

    def nop() -> None:
        bench.tracer("nop")

    return {
        "load": ("load", nothing, nothing),
        "store": ("store", nothing, nothing),
        "untraced": ("hot", nothing, nothing),
        "untraced, many": ("many", nothing, nothing),
        "function": ("hot", function, nop),
        "function, many": ("many", function, nop),
        "off": ("hot", off, on),
        "two ops": ("hot", two, none),
        "called": ("hot", called, in_line),
        "standing": ("standing", nothing, nothing),
        "running": ("running", nothing, nothing),
        "graph": ("hot", lambda: bench.tracer("function_graph"), nop),
    }


def _measure_sites(bench: Bench, runs: dict[str, list[float]]) -> None:
    """Loops with a call site and without; the two of a pair in turns, twice in either order."""
    for number in range(PAIRS):
        taken: dict[str, list[float]] = {"bare": [], "site": []}
        first, second = reversed(taken) if number % 2 else taken
        for name in (first, second, second, first):
            bench.loop(f"{name}_{number}")
            taken[name].append(bench.loop(f"{name}_{number}"))
        for name, values in taken.items():
            runs[name].append(mean(values))


def measure() -> dict[str, list[float]]:
    """Every state's runs."""
    bench = Bench()
    try:
        states = _states(bench)
        runs: dict[str, list[float]] = {name: [] for name in (*states, "bare", "site")}
        for _ in range(RUNS):
            for name, (loop, begin, end) in states.items():
                begin()
                bench.loop(loop)
                runs[name].append(bench.loop(loop))
                end()
            _measure_sites(bench, runs)
        return runs
    finally:
        bench.close()


@dataclass(frozen=True, slots=True)
class _Cost:
    """Nanoseconds in each round; with nothing else going on, as far as that can be told."""

    rounds: list[float]
    least: float

    def figure(self, name: str, reach: float | None = None, peer: float | None = None) -> Figure:
        return Figure(name, median(self.rounds), "ns", self.least, reach, peer=peer)

    def over(self, other: _Cost, name: str, reach: float) -> Figure:
        """Of each round, since a neighbour's load lasts longer than one; the median of them."""
        value = median(a / b for a, b in zip(self.rounds, other.rounds, strict=True))
        return Figure(name, value, "x", self.least / other.least, reach)


def figures(peer: dict[str, float]) -> Iterator[Figure]:
    """The lines of the table."""
    runs = measure()

    def cost(name: str) -> _Cost:
        return _Cost(runs[name], min(runs[name]))

    def added(name: str, base: str = "untraced") -> _Cost:
        rounds = [a - b for a, b in zip(runs[name], runs[base], strict=True)]
        return _Cost(rounds, min(runs[name]) - min(runs[base]))

    one, called, untraced = added("function"), added("called"), cost("untraced")
    many = added("function, many", "untraced, many")
    off, two, graph = added("off"), added("two ops"), added("graph")
    # More, and some page that is written to is not known to hold no code.
    yield cost("store").over(cost("load"), "a store / a load", 2.0)
    yield cost("site").over(cost("bare"), "a call with a site / one without", 1.02)
    yield untraced.figure("untraced call")
    name = "function, one op, added"
    yield one.figure(name, peer[name] / 7, peer[name])
    yield one.over(untraced, "  in untraced calls", 6.5)
    yield one.over(added("standing"), "  of a writer wholly in line", 1.05)
    yield one.over(added("running"), "  of one that reads the clock", 1.05)
    yield called.figure("function, called, added", peer[name] / 7)
    name = "function, all functions, added"
    yield many.figure(f"{FUNCTIONS} functions, added", peer=peer[name])
    yield many.over(cost("untraced, many"), "  in untraced calls", 3.5)
    name = "tracing_on=0, added"
    yield off.figure(name, peer=peer[name])
    yield off.over(one, "  of the traced cost", 0.65)
    yield two.figure("two ops, added")
    yield two.over(called, "  of one op, called", 2.0)
    name = "function_graph, added"
    yield graph.figure(name, peer=peer[name])
    yield graph.over(called, "  of function, called", 1.9)

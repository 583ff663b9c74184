"""The tracers' callbacks in line: in the trampoline of an op that is alone, in the list function.

Whatever it does is compared with what the callback does when it is called: with
emulator/inline_callbacks 0 every trampoline is a copy of the kernel's own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from support.ftrace_kernel import ftrace_machine
from support.registers import Marked
from support.shell import Shell, isolated
from support.stepping import Stepper

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.machine.clock import ClockWords
from emulated_kernel.text_poke import JMP32_INSN_OPCODE, NOP5
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter_ips
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.ftrace.rcu_tasks import in_use
from ftracefs.ftrace.registration import ftrace_update_trampoline, set_inline_callbacks
from ftracefs.ring_buffer.buffer import RingBuffer
from ftracefs.ring_buffer.merging import merge

LOST = {"r10", "r11", "flags"}
CHOICE = "emulator/inline_callbacks"


# --- the same records ----------------------------------------------------------------------------


class Pair:
    """Two sessions that are told the same, the one with callbacks in line and the other without."""

    def __init__(self, inline: Shell, called: Shell, tracer: str) -> None:
        self.shells = inline, called
        self.tracer = tracer
        called.echo("0", CHOICE)
        for shell in self.shells:
            shell.echo("16", "buffer_size_kb")
            shell.echo("gcd lcm int_sqrt", "set_ftrace_filter")
            shell.echo("1", "snapshot")
            shell.echo(tracer, "current_tracer")

    def echo(self, text: str, path: str) -> None:
        for shell in self.shells:
            shell.echo(text, path)

    def pass_time(self, ns: int) -> None:
        for shell in self.shells:
            memory, at = shell.machine.memory, shell.machine.cpus[0].word("CLOCK_PTR")
            memory.set_u64(at, memory.u64(at) + ns)

    def call(self, count: int, cpu: int) -> None:
        for shell in self.shells:
            lcm = shell.machine.image.labels["lcm"]
            for _ in range(count):
                shell.machine.call(lcm, 4, 6, cpu=cpu)

    def has_in_line(self) -> bool:
        """Whether the one is where the other is not."""
        ftraces = [shell.session.ftrace for shell in self.shells]
        if self.tracer == "function":
            ops = [ftrace.global_ops for ftrace in ftraces]
        else:
            ops = [ftrace.fgraph.graph_ops for ftrace in ftraces]
        assert ops[1].inline_size == 0
        return (
            bool(ops[0].inline_size)
            and self.shells[0].machine.memory.read(ops[0].trampoline, 5) == NOP5
        )

    def compare(self) -> int:
        """What is written and the snapshot, byte by byte; how many records are in the first."""
        tr, other = (shell.session.tracing.global_trace for shell in self.shells)
        records = self._compare(tr.buffer, other.buffer)
        self._compare(tr.max_buffer.buffer, other.max_buffer.buffer)
        return records

    def _compare(self, *pair: RingBuffer) -> int:
        found = []
        for shell, buffer in zip(self.shells, pair, strict=True):
            pages = shell.machine.run(buffer.snapshot)
            stats = [cpu_buffer.stats() for cpu_buffer in buffer.cpus]
            entries = merge(pages)
            assert sum(counts.entries for counts in stats) == len(entries.ts)
            found.append((stats, entries.ts.tolist(), entries.words.tobytes()))
        assert found[0] == found[1]
        return len(found[0][1])


OPTIONS = {
    "function": [("options/func_stack_trace", "00001"), ("options/func-no-repeats", "00001")],
    "function_graph": [
        ("max_graph_depth", "0001"),
        ("set_graph_function", ["", "", "lcm", "gcd"]),
        ("tracing_thresh", "0005"),
    ],
}


def _step(pair: Pair, choose: random.Random) -> None:
    """One thing that users do to a trace."""
    what = choose.randrange(14)
    if what < 5:
        pair.call(choose.choice((1, 3, 40, 400)), choose.randrange(2))
    elif what == 5:
        pair.pass_time(choose.choice((1, (1 << 27) - 2000, 1 << 27, 1 << 40)))
    elif what == 6:
        pair.echo(choose.choice("01"), "tracing_on")
    elif what == 7:
        pair.echo(choose.choice("01"), "options/overwrite")
    elif what == 8:
        file, values = choose.choice(OPTIONS[pair.tracer])
        pair.echo(choose.choice(values), file)
    elif what == 9:
        pair.echo(choose.choice(("", "", "", "0", "1000")), "set_ftrace_pid")
    elif what == 10:
        pair.echo(choose.choice(("counter", "local", "uptime", "x86-tsc")), "trace_clock")
    elif what == 11:
        pair.echo(choose.choice(("4", "16", "40")), "buffer_size_kb")
    elif what == 12:
        pair.echo("1", "snapshot")
    else:
        pair.echo(choose.choice(("nop", pair.tracer)), "current_tracer")
        pair.echo(pair.tracer, "current_tracer")


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
def test_what_is_in_line_writes_what_the_callback_writes(tracer: str) -> None:
    seen = records = 0
    for seed in range(3):
        choose = random.Random(seed)
        with isolated() as inline, isolated() as called:
            pair = Pair(inline, called, tracer)
            for _ in range(60):
                _step(pair, choose)
                records += pair.compare()
                seen += pair.has_in_line()
    assert seen > 30
    assert records > 6000


# --- what a traced function finds afterwards -----------------------------------------------------


class Rig:
    """An op of the function tracer on `mark` and add_one, with a buffer of two pages a CPU."""

    def __init__(self, ftrace: Ftrace) -> None:
        self.ftrace, self.memory = ftrace, ftrace.memory
        self.labels = ftrace.machine.image.labels
        percpu = [vcpu.percpu for vcpu in ftrace.machine.cpus]
        self.buffer = RingBuffer(self.memory, percpu, 4096)
        self.clock = ftrace.machine.alloc(64)
        self.marked = Marked(ftrace, 1)
        self.ops = self.new_ops()
        ftrace.register_ftrace_function(self.ops)

    def new_ops(self) -> FtraceOps:
        func = self.ftrace.labels["function_trace_call"]
        ops = self.ftrace.new_ops(func, private=self.buffer.table, name="rig")
        sites = [self.marked.labels["mark"], self.labels["add_one"]]
        ftrace_set_filter_ips(self.ftrace, ops, sites)
        return ops

    def clock_words(self, *, is_tsc: bool) -> ClockWords:
        if is_tsc:
            return ClockWords(1 << 32, 0, self.clock, 0, is_tsc=True)
        return ClockWords(0, 1, self.clock, 0)

    def set_clock(self, *, is_tsc: bool) -> None:
        self.buffer.set_clock(self.clock_words(is_tsc=is_tsc))

    def change(self, func: str) -> None:
        self.ops.func = self.ftrace.labels[func]
        self.ops.write_guest()
        ftrace_update_trampoline(self.ftrace, self.ops)

    @property
    def branch(self) -> int:
        """The first byte of the op's trampoline."""
        return self.memory.u8(self.ops.trampoline)


@pytest.fixture(params=[False, True], ids=["plain", "poisoned"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with ftrace_machine(poison=request.param) as ftrace:
        rig = ftrace.machine.run(lambda: Rig(ftrace))
        yield rig
        assert ftrace.bugs == []


@pytest.mark.parametrize("is_tsc", [True, False])
def test_a_traced_call_loses_what_it_may_lose_whatever_the_record_takes(
    rig: Rig, is_tsc: bool
) -> None:
    def registers() -> None:
        assert rig.marked.call().lost() <= LOST

    rig.ftrace.machine.run(lambda: rig.set_clock(is_tsc=is_tsc))
    per_cpu = rig.buffer.cpus[0]
    for _ in range(400):  # first page, next page, oldest page overwritten
        registers()
    assert per_cpu.overrun() > 0
    rig.memory.set_u64(per_cpu.address + CONSTANTS["RB_STAMP"], 0)
    rig.memory.set_u64(rig.clock, 1 << 40)
    registers()  # a time extend
    rig.buffer.set_overwrite(False)
    for _ in range(400):
        registers()
    assert per_cpu.stats().dropped_events > 0
    written = per_cpu.written()
    rig.buffer.record_off()
    registers()
    assert per_cpu.written() == written
    site, parent = rig.marked.labels["mark"], rig.labels["with_registers_return"]
    entries = merge(rig.buffer.snapshot())
    first = int(entries.at[0])
    assert entries.words[first + 2 : first + 6].tobytes() == b"".join(
        address.to_bytes(8, "little") for address in (site, parent)
    )


def test_a_step_at_a_time_every_call_is_recorded_once_while_the_callback_changes(rig: Rig) -> None:
    """To another callback and back, begun at every instruction of a traced call."""

    def call(before: int, pace: int, func: str) -> int:
        stepper = Stepper(rig.ftrace.machine, rig.labels["add_one"], 5)

        def work() -> int:
            stepper.step(before)
            rig.ftrace.text_poke.between_phases = lambda: stepper.step(pace)
            try:
                rig.change(func)
            finally:
                rig.ftrace.text_poke.between_phases = lambda: None
            assert stepper.finish() == 6
            return len(stepper.trail)

        return rig.ftrace.machine.run(work)

    def written() -> int:
        return rig.buffer.cpus[1].written()

    rig.ftrace.machine.run(lambda: rig.set_clock(is_tsc=False))
    others = {"function_trace_call": NOP5[0], "function_no_repeats_trace_call": JMP32_INSN_OPCODE}
    rig.ops.alloc_func_repeats(2)
    before = longest = 0
    hits = rig.ftrace.text_poke.int3_hits
    while before <= longest:
        for func, branch in reversed(others.items()):
            count = written()
            longest = max(longest, call(before, 1 + before % 3, func))
            repeated = rig.memory.u64(rig.ops.func_repeats + 32 + CONSTANTS["REPEATS_COUNT"])
            assert written() - count + repeated == 1, (before, func)
            rig.memory.write(rig.ops.func_repeats, bytes(64))
            assert rig.branch == branch
        before += 1
    assert longest > 60
    assert rig.ftrace.text_poke.int3_hits > hits


@pytest.mark.parametrize("is_tsc", [True, False])
def test_the_list_function_records_for_each_op_of_the_tracer(rig: Rig, is_tsc: bool) -> None:
    ftrace, buffers = rig.ftrace, [rig.buffer]

    def second() -> None:
        percpu = [vcpu.percpu for vcpu in ftrace.machine.cpus]
        buffers.append(RingBuffer(rig.memory, percpu, 8192))
        ops = rig.new_ops()
        ops.private = buffers[1].table
        ftrace.register_ftrace_function(ops)
        rig.set_clock(is_tsc=is_tsc)
        buffers[1].set_clock(rig.clock_words(is_tsc=is_tsc))
        buffers[1].set_overwrite(False)

    ftrace.machine.run(second)
    for _ in range(500):
        assert rig.marked.call().lost() <= LOST
    first, other = (buffer.cpus[0].stats() for buffer in buffers)
    assert first.entries + first.overrun == 500 == other.entries + other.dropped_events
    assert first.overrun > 0 < other.dropped_events
    site = rig.marked.labels["mark"].to_bytes(8, "little")
    for buffer in buffers:
        entries = merge(ftrace.machine.run(buffer.snapshot))
        assert {entries.words[at + 2 : at + 4].tobytes() for at in entries.at.tolist()} == {site}
    rig.buffer.record_off()
    assert ftrace.machine.call("add_one", 5) == 6
    assert rig.buffer.cpus[0].written() == 500


# --- which trampoline ----------------------------------------------------------------------------


def test_another_op_on_the_function_takes_the_call_site_away(rig: Rig) -> None:
    second = rig.new_ops()
    site = rig.labels["add_one"]
    assert addr_from_call(rig.ftrace, site) == rig.ops.trampoline
    rig.ftrace.machine.run(lambda: rig.ftrace.register_ftrace_function(second))
    assert addr_from_call(rig.ftrace, site) == rig.ftrace.ftrace_addr
    assert rig.ftrace.machine.call("add_one", 5) == 6
    assert rig.buffer.cpus[0].written() == 2
    rig.ftrace.machine.run(lambda: rig.ftrace.unregister_ftrace_function(rig.ops))
    assert addr_from_call(rig.ftrace, site) == second.trampoline
    assert second.inline_size
    assert rig.ftrace.machine.call("add_one", 5) == 6
    assert rig.buffer.cpus[0].written() == 3


def test_the_kernels_own_trampolines_are_there_for_the_asking(rig: Rig) -> None:
    ftrace = rig.ftrace

    def choose(inline: bool) -> None:
        ftrace.machine.run(lambda: set_inline_callbacks(ftrace, inline))

    def again() -> None:
        ftrace.machine.run(lambda: ftrace.unregister_ftrace_function(rig.ops))
        ftrace.machine.run(lambda: ftrace.register_ftrace_function(rig.ops))

    def call() -> int:
        assert ftrace.machine.call("add_one", 5) == 6
        return rig.buffer.cpus[0].written()

    choose(False)
    assert (rig.branch, call()) == (JMP32_INSN_OPCODE, 1)
    choose(True)
    assert (rig.branch, call()) == (NOP5[0], 2)
    choose(False)
    again()
    size = ftrace.labels["ftrace_caller_end"] - ftrace.labels["ftrace_caller"]
    assert rig.ops.inline_size == 0
    template = ftrace.memory.read(ftrace.ftrace_addr, 32)
    assert ftrace.memory.read(rig.ops.trampoline, 32) == template
    assert size < rig.ops.trampoline_size < size + 24
    assert call() == 3
    choose(True)
    assert (rig.ops.inline_size, call()) == (0, 4)
    again()
    assert (rig.branch, call()) == (NOP5[0], 5)
    assert ftrace.dead_trampolines == []


def test_an_op_that_comes_again_with_another_buffer_writes_to_that(rig: Rig) -> None:
    ftrace, old = rig.ftrace, rig.buffer
    assert ftrace.machine.call("add_one", 5) == 6
    percpu = [vcpu.percpu for vcpu in ftrace.machine.cpus]
    new = RingBuffer(rig.memory, percpu, 4096)

    def again() -> None:
        ftrace.unregister_ftrace_function(rig.ops)
        rig.ops.private = new.table
        ftrace.register_ftrace_function(rig.ops)

    ftrace.machine.run(again)
    assert ftrace.machine.call("add_one", 5) == 6
    assert [buffer.cpus[0].written() for buffer in (old, new)] == [1, 1]


def test_a_trampoline_that_somebody_is_in_stays_until_nobody_is(rig: Rig) -> None:
    ftrace, old = rig.ftrace, rig.ops.trampoline
    size = rig.ops.trampoline_size
    stepper = Stepper(ftrace.machine, rig.labels["add_one"], 5)

    def work() -> None:
        while not old < stepper.rip < old + rig.ops.inline_size:
            stepper.step()
        ftrace.unregister_ftrace_function(rig.ops)
        ftrace.register_ftrace_function(rig.ops)
        assert rig.ops.trampoline != old
        assert ftrace.dead_trampolines == [(old, size)]
        assert stepper.finish() == 6
        assert not in_use(ftrace, old, old + size)
        ftrace.unregister_ftrace_function(rig.ops)
        ftrace.register_ftrace_function(rig.ops)
        assert ftrace.dead_trampolines == []

    ftrace.machine.run(work)
    assert rig.buffer.cpus[1].written() == 1

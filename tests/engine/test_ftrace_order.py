"""ftrace_modify_all_code: the order in which text changes, as found between the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.ftrace_kernel import ftrace_machine
from support.graph_kernel import graph_kernel
from support.tracefs import tracefs

from emulated_kernel.text_poke import INT3_INSN_OPCODE, NOP5, PokeMethod
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter_ips
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_ADDING,
    FTRACE_OPS_FL_DYNAMIC,
    FTRACE_OPS_FL_ENABLED,
    FTRACE_OPS_FL_RECURSION,
)
from ftracefs.ftrace.registration import ftrace_update_trampoline
from ftracefs.ftrace.trampolines import calc_trampoline_call_offset


@pytest.fixture
def ftrace() -> Iterator[Ftrace]:
    with ftrace_machine() as made:
        yield made
        assert made.bugs == []


class Watch:
    """What a vCPU can find between two steps: the state of `add_one` and of what it shares."""

    def __init__(self, ftrace: Ftrace) -> None:
        self.ftrace = ftrace
        self.names = {
            ftrace.labels["ftrace_stub"]: "stub",
            ftrace.labels["ftrace_ops_list_func"]: "list",
            ftrace.labels["ftrace_list_end"]: "end",
            ftrace.labels["ftrace_caller"]: "ftrace_caller",
            ftrace.labels["ftrace_regs_caller"]: "ftrace_regs_caller",
        }
        self.seen: list[tuple[str, str, str]] = []
        ftrace.text_poke.between_phases = self.look

    def state(self) -> tuple[str, str, str]:
        ftrace = self.ftrace
        word = ftrace.memory.u64(ftrace.labels["function_trace_op"])
        site = ftrace.machine.image.labels["add_one"]
        return self._call(ftrace.labels["ftrace_call"]), self.name(word), self._call(site)

    def look(self) -> None:
        state = self.state()
        if "int3" not in state and (not self.seen or self.seen[-1] != state):
            self.seen.append(state)

    def name(self, address: int) -> str:
        return self.names.get(address) or f"{address:#x}"

    def _call(self, site: int) -> str:
        code = self.ftrace.memory.read(site, 5)
        if code[0] == INT3_INSN_OPCODE:
            return "int3"
        return "nop" if code == NOP5 else self.name(addr_from_call(self.ftrace, site))

    def during(self, work: Callable[[], object]) -> list[tuple[str, str, str]]:
        self.seen = [self.state()]
        self.ftrace.machine.run(work)
        self.look()
        return self.seen


def counting(ftrace: Ftrace, name: str, flags: int = 0) -> FtraceOps:
    label = ftrace.machine.image.labels["count_call"]
    return ftrace.new_ops(label, private=ftrace.machine.alloc(64), flags=flags, name=name)


@pytest.mark.parametrize("method", PokeMethod)
def test_list_function_then_sites_then_the_op_word_then_the_final_function(
    ftrace: Ftrace, method: PokeMethod
) -> None:
    ftrace.text_poke.method = method
    watch = Watch(ftrace)
    first, second = counting(ftrace, "first"), counting(ftrace, "second")
    count = watch.name(first.func)

    one = watch.name(first.address)
    up = watch.during(lambda: ftrace.register_ftrace_function(first))
    tramp = watch.name(first.trampoline)
    assert up == [
        ("stub", "end", "nop"),
        ("list", "end", "nop"),
        ("list", "end", tramp),
        ("list", one, tramp),
        (count, one, tramp),
    ]
    assert watch.during(lambda: ftrace.register_ftrace_function(second)) == [
        (count, one, tramp),
        ("list", one, tramp),
        ("list", one, "ftrace_caller"),
    ]
    two, other = watch.name(second.address), watch.name(second.trampoline)
    assert watch.during(lambda: ftrace.unregister_ftrace_function(first)) == [
        ("list", one, "ftrace_caller"),
        ("list", one, other),
        ("list", two, other),
        (count, two, other),
    ]
    assert watch.during(lambda: ftrace.unregister_ftrace_function(second)) == [
        (count, two, other),
        ("list", two, other),
        ("list", two, "nop"),
        ("list", "end", "nop"),
        ("stub", "end", "nop"),
    ]


def test_a_dynamic_op_is_called_by_way_of_the_list(ftrace: Ftrace) -> None:
    watch = Watch(ftrace)
    ops = counting(ftrace, "dynamic", FTRACE_OPS_FL_DYNAMIC)
    up = watch.during(lambda: ftrace.register_ftrace_function(ops))
    assert [caller for caller, _, _ in up] == ["stub", "list", "list"]


def test_an_op_is_being_added_until_its_sites_call_it(ftrace: Ftrace) -> None:
    ops = counting(ftrace, "new")
    flags: list[int] = []
    ftrace.text_poke.between_phases = lambda: flags.append(ops.flags)
    ftrace.machine.run(lambda: ftrace.register_ftrace_function(ops))
    both = FTRACE_OPS_FL_ENABLED | FTRACE_OPS_FL_ADDING
    assert flags
    assert all(f & both == both for f in flags)
    assert ops.flags & both == FTRACE_OPS_FL_ENABLED


def test_function_graph_changes_sites_in_the_same_order() -> None:
    with tracefs(image=graph_kernel()) as tree:
        ftrace = tree.tracing.ftrace
        watch = Watch(ftrace)
        up = watch.during(lambda: tree.echo("function_graph", "current_tracer"))
        graph = ftrace.fgraph.graph_ops
        tramp, op = watch.name(graph.trampoline), watch.name(graph.address)
        assert up == [
            ("stub", "end", "nop"),
            ("list", "end", "nop"),
            ("list", "end", tramp),
            ("list", op, tramp),
            (watch.name(graph.func), op, tramp),
        ]


def test_a_new_callback_is_called_by_the_same_trampoline_and_no_site_is_written(
    ftrace: Ftrace,
) -> None:
    log = ftrace.machine.alloc(4096)
    label = ftrace.machine.image.labels
    for flags, called in ((0, "log_call"), (FTRACE_OPS_FL_RECURSION, "ftrace_ops_assist_func")):
        ops = counting(ftrace, "changing", flags)
        ops.private = log
        ftrace.machine.run(lambda ops=ops: ftrace.register_ftrace_function(ops))
        start, size = ftrace.machine.image.segments[".text"][0], 4096
        text, trampoline = ftrace.memory.read(start, size), ops.trampoline
        ftrace.memory.write(log, bytes(64))
        assert ftrace.machine.call("add_one", 1) == 2
        assert ftrace.memory.u64(log) == 1

        def change(ops: FtraceOps = ops) -> None:
            ops.func = label["log_call"]
            ops.write_guest()
            ftrace_update_trampoline(ftrace, ops)

        ftrace.memory.set_u64(log, 0)
        ftrace.machine.run(change)
        assert (ops.trampoline, ftrace.memory.read(start, size)) == (trampoline, text)
        call = addr_from_call(ftrace, trampoline + calc_trampoline_call_offset(ftrace, ops))
        assert call == (label.get(called) or ftrace.labels[called])
        assert ftrace.machine.call("add_one", 1) == 2
        assert ftrace.memory.u64(log) == 1
        assert ftrace.memory.u64(log + 8) == label["add_one"], "the new one logs where"
        ftrace.machine.run(lambda ops=ops: ftrace.unregister_ftrace_function(ops))


def test_a_filter_that_moves_leaves_no_moment_in_which_a_kept_function_is_missed(
    ftrace: Ftrace,
) -> None:
    ops, label = counting(ftrace, "kept"), ftrace.machine.image.labels
    calls: list[int] = []

    def call() -> None:
        before = ftrace.memory.u64(ops.private)
        ftrace.machine.call("add_one", 1, cpu=1)
        calls.append(ftrace.memory.u64(ops.private) - before)

    def filter(*names: str) -> None:
        ips = [label[name] for name in names]
        ftrace.machine.run(lambda: ftrace_set_filter_ips(ftrace, ops, ips, reset=True))

    filter("add_one", "double")
    ftrace.machine.run(lambda: ftrace.register_ftrace_function(ops))
    ftrace.text_poke.between_phases = call
    filter("add_one", "six_sum")
    filter("add_one")
    assert len(calls) > 3
    assert set(calls) == {1}

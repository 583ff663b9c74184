"""A vCPU steps through a call site, instruction by instruction, while the site is patched.

For every place the vCPU can be in when patching begins, and every number of instructions it runs
between two steps of the patch: it gets the effect of the old instruction if it has left the site
behind, of the new one if not, and never of anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
from support.ftrace_kernel import ftrace_machine
from support.stepping import Stepper

from emulated_kernel.text_poke import NOP5, PokeMethod, same_code, text_gen_call
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter_ips
from ftracefs.ftrace.modify import addr_from_call
from ftracefs.ftrace.ops import FTRACE_OPS_FL_SAVE_REGS


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "poisoned"])
def ftrace(request: pytest.FixtureRequest) -> Iterator[Ftrace]:
    with ftrace_machine(poison=request.param) as made:
        yield made
        assert made.bugs == []


def run_meanwhile(
    ftrace: Ftrace, before: int, between: tuple[int, ...], change: Callable[[], None]
) -> Stepper:
    """`before` instructions of add_one(5), then `change` with more of them at each of its syncs."""
    stepper = Stepper(ftrace.machine, ftrace.machine.image.labels["add_one"], 5)
    turns = iter(between)

    def turn() -> None:
        stepper.stood.append(stepper.rip)
        stepper.step(next(turns, 0))

    def work() -> None:
        stepper.step(before)
        ftrace.text_poke.between_phases = turn
        try:
            change()
        finally:
            ftrace.text_poke.between_phases = lambda: None

    ftrace.machine.run(work)
    return stepper


def length_of_call(ftrace: Ftrace) -> int:
    stepper = Stepper(ftrace.machine, ftrace.machine.image.labels["add_one"], 5)
    ftrace.machine.run(stepper.finish)
    return len(stepper.trail)


def test_a_stepped_call_returns_what_a_call_returns(ftrace: Ftrace) -> None:
    stepper = Stepper(ftrace.machine, ftrace.machine.image.labels["add_one_twice"], 5)
    assert ftrace.machine.run(stepper.finish) == 7
    assert stepper.trail.count(ftrace.machine.image.labels["add_one"]) == 2


STATES = {"nop": 5, "one": 1005, "two": 2005}  # what add_one(5) is called with, less one


@pytest.mark.parametrize("method", PokeMethod)
@pytest.mark.parametrize(
    ("old", "new"), [("nop", "one"), ("one", "two"), ("two", "nop"), ("one", "nop")]
)
def test_each_instruction_of_each_phase(
    ftrace: Ftrace, monkeypatch: pytest.MonkeyPatch, method: PokeMethod, old: str, new: str
) -> None:
    """nop to call, call to another call, call to nop: targets add 1000 and 2000 to rdi."""
    label = ftrace.machine.image.labels
    site = np.array([label["add_one"]], dtype=np.uint64)
    code = {
        "nop": same_code(NOP5, 1),
        "one": text_gen_call(site, label["direct_target"]),
        "two": text_gen_call(site, label["direct_target_too"]),
    }

    def poke(which: str) -> None:
        ftrace.text_poke.text_poke_bp_batch(site, code[which])

    monkeypatch.setattr(ftrace.text_poke, "method", method)
    results, hits = set(), ftrace.text_poke.int3_hits
    ftrace.machine.run(lambda: poke(old))
    length = length_of_call(ftrace)
    assert length > 4
    syncs = 3 if method is PokeMethod.INT3 else 1
    for before in range(length + 1):
        for between in product((0, 1, 2, length), repeat=syncs):
            ftrace.machine.run(lambda: poke(old))
            stepper = run_meanwhile(ftrace, before, between, lambda: poke(new))
            result = ftrace.machine.run(stepper.finish)
            expected = STATES[new if before == 0 else old] + 1
            assert result == expected, (before, between, [hex(at) for at in stepper.trail])
            results.add(result)
    ftrace.machine.run(lambda: poke("nop"))
    assert results == {STATES[old] + 1, STATES[new] + 1}
    assert (ftrace.text_poke.int3_hits > hits) is (method is PokeMethod.INT3)


def counting(ftrace: Ftrace, flags: int = 0) -> FtraceOps:
    label = ftrace.machine.image.labels
    ops = ftrace.new_ops(label["count_call"], private=ftrace.machine.alloc(64), flags=flags)
    ftrace.machine.run(lambda: ftrace_set_filter_ips(ftrace, ops, [label["add_one"]]))
    return ops


@pytest.mark.parametrize("flags", [0, FTRACE_OPS_FL_SAVE_REGS])
def test_an_op_comes_and_goes_under_a_call_that_is_stepped(ftrace: Ftrace, flags: int) -> None:
    """From nop to a trampoline, to the list, to the other's trampoline, and back to nop.

    Whatever the vCPU has done of the call, trampoline, callback and list function included, it
    returns right. An op that stays sees the call once, one that comes or goes once at most. Only
    when the shared trampoline has loaded its op and not called yet, while what it calls becomes the
    callback of the op that is left, is that called with the op it had; in Linux as well.
    """
    site = ftrace.machine.image.labels["add_one"]
    first, second = counting(ftrace, flags), counting(ftrace)
    register, unregister = ftrace.register_ftrace_function, ftrace.unregister_ftrace_function
    changes: list[tuple[Callable[[], None], FtraceOps]] = [
        (lambda: register(first), first),
        (lambda: register(second), second),
        (lambda: unregister(first), first),
        (lambda: unregister(second), second),
    ]

    def begin(number: int) -> None:
        for op in list(ftrace.ops_list):
            unregister(op)
        for change, _ in changes[:number]:
            change()

    caller = "ftrace_regs_call" if flags else "ftrace_call"
    loaded = ftrace.labels[f"{caller}er_op_ptr"]
    called = ftrace.labels[caller]
    targets = []
    for number, (change, changed) in enumerate(changes):
        ftrace.machine.run(lambda number=number: begin(number))
        targets.append(addr_from_call(ftrace, site))
        for before in range(length_of_call(ftrace) + 1):
            ftrace.machine.run(lambda number=number: begin(number))
            counts = {op: ftrace.memory.u64(op.private) for op in (first, second)}
            stays = [op for op in ftrace.ops_list if op is not changed]
            pace = 1 + before % 4
            stepper = run_meanwhile(ftrace, before, (pace,) * 40, change)
            assert ftrace.machine.run(stepper.finish) == 6, (number, before)
            seen = {op: ftrace.memory.u64(op.private) - counts[op] for op in counts}
            assert seen[changed] in (0, 1)
            if any(seen[op] != 1 for op in stays):
                assert (number, sum(seen.values())) == (2, 1)
                assert any(loaded < rip <= called for rip in stepper.stood)
    copies = [op.trampoline for op in (first, second)]
    shared = ftrace.ftrace_regs_addr if flags else ftrace.ftrace_addr
    assert targets == [0, copies[0], shared, copies[1]]
    assert addr_from_call(ftrace, site) == 0

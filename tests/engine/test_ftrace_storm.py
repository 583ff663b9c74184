"""Thousands of random changes while another vCPU calls, held against a model of the rules.

The model knows only what the documents say: what a site calls for the users it has, whom a call
passes, and what it returns. It shares no code with the core.
"""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
from support.ftrace_kernel import assembled_module, load_code
from support.tracefs import Tree, tracefs

from emulated_kernel.text_poke import NOP5, PokeMethod
from ftracefs.errors import TracefsError
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.bpf_trampoline import BpfAttachType, BpfTrampoline
from ftracefs.ftrace.hash_update import ftrace_location, ftrace_set_filter_ips, ftrace_set_hash
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_DYNAMIC,
    FTRACE_OPS_FL_IPMODIFY,
    FTRACE_OPS_FL_RECURSION,
    FTRACE_OPS_FL_SAVE_REGS,
)
from ftracefs.ftrace.registration import ftrace_enable_sysctl

NAMES = ["add_one", "double", "add_one_twice", "loop_add", "replacement"]
OF_MODULE = "mod_add"
# What may replace what, so that no chain of patches comes back to where it began.
PATCHES = {
    "add_one": ["double", "replacement"],
    "double": ["replacement"],
    "loop_add": ["add_one", "double"],
    "add_one_twice": ["add_one"],
    OF_MODULE: ["double", "replacement"],
}
U64 = (1 << 64) - 1
# With stop_machine nobody runs between the phases.
STEPS = {PokeMethod.INT3: 2_000, PokeMethod.STOP_MACHINE: 500}

CODE = """# Targets of direct calls, and a program.
FUNC_NOTRACE target_add_10
    lea rdi, [rdi + 10]
    ret
ENDFUNC target_add_10
FUNC_NOTRACE target_add_20
    lea rdi, [rdi + 20]
    ret
ENDFUNC target_add_20
FUNC_NOTRACE add_1000_prog       # to what the function returned
    add qword ptr [rdi + 48], 1000
    ret
ENDFUNC add_1000_prog
"""
MODULE = """# Its function is five more than add_one.
FUNC mod_add
    push rbp
    mov rbp, rsp
    call add_one
    lea rax, [rax + 5]
    pop rbp
    ret
ENDFUNC mod_add
"""
TARGETS = {"target_add_10": 10, "target_add_20": 20}


@dataclass
class Counter:
    """An op, how often it has been called, and how often it should have been."""

    ops: FtraceOps
    hits: Callable[[], int]
    wanted: set[str] | None = None
    unwanted: set[str] = field(default_factory=set)
    registered: bool = False
    calls: int = 0

    def takes(self, name: str) -> bool:
        return (
            self.registered
            and (self.wanted is None or name in self.wanted)
            and name not in self.unwanted
        )


class Storm:
    """A machine, and what should be true of it."""

    def __init__(self, tree: Tree, seed: int) -> None:
        self.tree = tree
        self.ftrace = ftrace = tree.tracing.ftrace
        self.choice = random.Random(seed)
        self.code = load_code(ftrace, CODE)
        self.module = assembled_module("mod", MODULE)
        self.graph = Counter(ftrace.fgraph.graph_ops, self.graph_hits)
        self.counters = [self.graph]
        for flags in (
            0,
            FTRACE_OPS_FL_DYNAMIC,
            FTRACE_OPS_FL_RECURSION,
            FTRACE_OPS_FL_SAVE_REGS,
            FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_DYNAMIC,
        ):
            ops = self._new_ops("count_call", flags)
            self.counters.append(Counter(ops, partial(ftrace.memory.u64, ops.private)))
        self.direct_ops: dict[str, FtraceOps] = {}
        self.direct: dict[str, str] = {}
        self.patched: dict[str, list[str]] = {name: [] for name in PATCHES}
        self.bpf: dict[str, BpfTrampoline] = {}
        self.meanwhile: list[tuple[str, int]] = []
        self.is_on = True
        self.names = list(NAMES)

    def address(self, name: str) -> int:
        address = self.module.labels.get(name) or self.code.get(name)
        address = address or self.ftrace.kallsyms.kallsyms_lookup_name(name)
        assert address is not None
        return address

    def _new_ops(self, callback: str, flags: int) -> FtraceOps:
        private = self.ftrace.machine.alloc(64)
        func = self.address(callback)
        return self.ftrace.new_ops(func, private=private, flags=flags, name=callback)

    # --- the model -------------------------------------------------------------------------------

    def returns(self, name: str, x: int, *, count: bool = True) -> int:
        """What a call returns; `count` it for the ops that see it."""
        if not self.is_on:
            return self._body(name, x, count) & U64
        if count:
            for counter in self.counters:
                counter.calls += counter.takes(name)
        if name in self.direct:
            x += TARGETS[self.direct[name]]
        value = self._body(name, x, count) & U64
        return value + 1000 & U64 if name in self.bpf else value

    def counts(self) -> list[dict[str, int]]:
        """For each op how often it sees a call of each function with 2."""
        kept = [counter.calls for counter in self.counters]
        seen: list[dict[str, int]] = [{} for _ in self.counters]
        for name in self.names:
            before = [counter.calls for counter in self.counters]
            self.returns(name, 2)
            for counts, counter, old in zip(seen, self.counters, before, strict=True):
                counts[name] = counter.calls - old
        for counter, calls in zip(self.counters, kept, strict=True):
            counter.calls = calls
        return seen

    def _body(self, name: str, x: int, count: bool) -> int:
        if self.patched.get(name):
            return self.returns(self.patched[name][-1], x, count=count)
        if name == "add_one":
            return x + 1
        if name == "double":
            return 2 * x
        if name == "replacement":
            return x + 100
        if name == OF_MODULE:
            return self.returns("add_one", x, count=count) + 5
        if name == "add_one_twice":
            return self.returns("add_one", self.returns("add_one", x, count=count), count=count)
        assert name == "loop_add"
        total = 0
        for _ in range(x):
            total = self.returns("add_one", total, count=count)
        return total

    def site_should_call(self, name: str) -> int | None:
        if not self.is_on:
            return None
        users = [c.ops for c in self.counters if c.takes(name)]
        direct: int | None = None
        if name in self.direct:
            direct = self.address(self.direct[name])
        if name in self.bpf:
            direct = self.bpf[name].cur_image
        patches = [o for o in self.ftrace.ops_list if o.name == "livepatch"]
        if self.patched.get(name):
            site = ftrace_location(self.ftrace, self.address(name))
            (patch,) = (o for o in patches if site in o.func_hash.filter_hash)
            users.append(patch)
        if direct is not None and not users:
            return direct
        if direct is not None or any(o.flags & FTRACE_OPS_FL_SAVE_REGS for o in users):
            shared = self.ftrace.labels["ftrace_regs_caller"]
        else:
            shared = self.ftrace.labels["ftrace_caller"]
        count = len(users) + (direct is not None)
        return None if count == 0 else users[0].trampoline if count == 1 else shared

    # --- the machine -----------------------------------------------------------------------------

    def site_calls(self, name: str) -> int | None:
        site = ftrace_location(self.ftrace, self.address(name))
        code = self.ftrace.memory.read(site, 5)
        if code == NOP5:
            return None
        assert code[0] == 0xE8
        return (site + 5 + struct.unpack("<i", code[1:])[0]) & U64

    def hits(self) -> list[int]:
        return [counter.hits() for counter in self.counters]

    def graph_hits(self) -> int:
        """Each call leaves two records, also one made while the tracer is switched off."""
        buffer = self.tree.tr.buffer
        hits, odd = divmod(buffer.entries() + buffer.overruns(), 2)
        assert not odd
        return hits

    def call_meanwhile(self) -> None:
        """Between two phases of a patch."""
        name = self.choice.choice(self.names)
        self.meanwhile.append((name, self.ftrace.machine.call(self.address(name), 2, cpu=1)))

    def check(self) -> None:
        for name in self.names:
            assert self.site_calls(name) == self.site_should_call(name), name
        for name in self.choice.sample(self.names, 3):
            x = self.choice.randrange(1, 5)  # loop_add of 0 has no end
            cpu = self.choice.randrange(2)
            assert self.ftrace.machine.call(self.address(name), x, cpu=cpu) == self.returns(
                name, x
            ), (name, x)
        assert self.hits() == [c.calls for c in self.counters]

    def step(self, change: Callable[[], None]) -> None:
        """One change; calls that ran meanwhile went by the rules before it or after it.

        An op for which the change makes no difference has missed none of them.
        """
        before = {name: self.returns(name, 2, count=False) for name in self.names}
        rules = self.counts()
        hits, self.meanwhile = self.hits(), []
        self.ftrace.machine.run(change)
        after = {name: self.returns(name, 2, count=False) for name in self.names}
        for name, value in self.meanwhile:
            # Who calls a function twice may meet both.
            twice = name in ("loop_add", "add_one_twice") and before[name] != after[name]
            assert twice or value in (before[name], after[name]), name
        changes = zip(rules, self.counts(), strict=True)
        for counter, old, new, (was, now) in zip(
            self.counters, hits, self.hits(), changes, strict=True
        ):
            if was == now:
                assert new - old == sum(now[name] for name, _ in self.meanwhile), counter.ops.name
            counter.calls += new - old
        self.check()

    # --- changes ---------------------------------------------------------------------------------

    def come_or_go(self) -> None:
        self.switch(self.choice.choice(self.counters))

    def switch(self, counter: Counter) -> None:
        ftrace = self.ftrace
        if counter is self.graph and counter.registered:
            ftrace.fgraph.unregister_ftrace_graph()
        elif counter is self.graph:
            ftrace.fgraph.register_ftrace_graph(self.tree.tr.buffer.table)
        elif counter.registered:
            ftrace.unregister_ftrace_function(counter.ops)
        else:
            ftrace.register_ftrace_function(counter.ops)
        counter.registered = not counter.registered

    def filter(self) -> None:
        counter = self.choice.choice(self.counters)
        some = set(self.choice.sample(self.names, self.choice.randrange(4)))
        ips = [self.address(name) for name in some]
        enable = self.choice.random() < 0.7
        ftrace_set_hash(self.ftrace, counter.ops, ips, reset=True, enable=enable)
        if enable:
            counter.wanted = some or None
        else:
            counter.unwanted = some

    def direct_call(self) -> None:
        name = self.choice.choice(self.names)
        target = self.choice.choice(list(TARGETS))
        ops = self.direct_ops.get(name)
        if ops is None:
            ops = self.direct_ops[name] = self.ftrace.new_ops(name="direct")
            ops.ops_func = lambda _ops, _command: 0
            ftrace_set_filter_ips(self.ftrace, ops, [self.address(name)])
        if name in self.bpf:
            address = self.address(target)
            self.refused(errno.EBUSY, lambda: self.ftrace.register_ftrace_direct(ops, address))
            return
        if name not in self.direct:
            self.ftrace.register_ftrace_direct(ops, self.address(target))
            self.direct[name] = target
        elif self.choice.random() < 0.5:
            self.ftrace.modify_ftrace_direct(ops, self.address(target))
            self.direct[name] = target
        else:
            self.ftrace.unregister_ftrace_direct(ops, self.address(self.direct.pop(name)))

    def livepatch(self) -> None:
        name = self.choice.choice([name for name in PATCHES if name in self.names])
        stack, patches = self.patched[name], self.ftrace.livepatch
        new = self.choice.choice(PATCHES[name])
        if not self.is_on:
            old, address = self.address(name), self.address(new)
            self.refused(errno.EBUSY, lambda: patches.klp_patch_func(old, address))
        elif stack and self.choice.random() < 0.6:
            gone = self.choice.choice([None, *stack])
            new_func = None if gone is None else self.address(gone)
            patches.klp_unpatch_func(self.address(name), new_func)
            self.patched[name] = [] if gone is None else [n for n in stack if n != gone]
        elif new not in stack:
            patches.klp_patch_func(self.address(name), self.address(new))
            stack.append(new)

    def second_ipmodify(self) -> None:
        taken = [name for name, stack in self.patched.items() if stack]
        if not taken:
            return
        ops = self._new_ops("redirect", FTRACE_OPS_FL_IPMODIFY)
        ftrace_set_filter_ips(self.ftrace, ops, [self.address(self.choice.choice(taken))])
        flags = self.ftrace.records.flags.copy()
        self.refused(errno.EBUSY, lambda: self.ftrace.register_ftrace_function(ops))
        assert (self.ftrace.records.flags == flags).all()
        ops.free()

    def bpf_program(self) -> None:
        name = self.choice.choice(self.names)
        program, kind = self.address("add_1000_prog"), BpfAttachType.BPF_TRACE_FEXIT
        if name in self.bpf:
            self.bpf.pop(name).bpf_trampoline_unlink_prog(kind, program)
            return
        made = BpfTrampoline(self.ftrace, self.address(name))
        if name in self.direct:
            self.refused(errno.EBUSY, lambda: made.bpf_trampoline_link_prog(kind, program))
        else:
            made.bpf_trampoline_link_prog(kind, program)
            self.bpf[name] = made

    def sysctl(self) -> None:
        """ftrace_enabled, which live patches keep on."""
        if self.is_on and any(self.patched.values()):
            flags = self.ftrace.records.flags.copy()
            self.refused(errno.EBUSY, lambda: ftrace_enable_sysctl(self.ftrace, False))
            assert (self.ftrace.records.flags == flags).all()
            return
        ftrace_enable_sysctl(self.ftrace, not self.is_on)
        self.is_on = not self.is_on

    def come_or_go_of_module(self) -> None:
        """Its live patches go with it; with a direct call on it, it would have to stay."""
        ftrace = self.ftrace
        if OF_MODULE not in self.names:
            ftrace.machine.load_segments(dict(self.module.segments))
            ftrace.load_module(self.module)
            self.names.append(OF_MODULE)
        elif OF_MODULE not in self.direct and OF_MODULE not in self.bpf:
            self.names.remove(OF_MODULE)
            start, code = self.module.segments[".text"]
            ftrace.livepatch.klp_module_going(start, start + len(code))
            self.patched[OF_MODULE] = []
            ftrace.unload_module("mod")
            ftrace.machine.load_segments({".text": (start, b"\xcc" * len(code))})
            for counter in self.counters:
                # Hashes of other ops keep the address, where the function will be once more.
                if counter.registered or counter is self.graph:
                    counter.unwanted -= {OF_MODULE}
                    if counter.wanted is not None:
                        counter.wanted -= {OF_MODULE}

    def refused(self, code: int, work: Callable[[], None]) -> None:
        with pytest.raises(TracefsError) as error:
            work()
        assert error.value.errno == code

    def calm(self) -> None:
        """Undo everything."""
        if not self.is_on:
            self.sysctl()
        program, kind = self.address("add_1000_prog"), BpfAttachType.BPF_TRACE_FEXIT
        for counter in self.counters:
            if counter.registered:
                self.switch(counter)
        for name, target in self.direct.items():
            self.ftrace.unregister_ftrace_direct(self.direct_ops[name], self.address(target))
        for made in self.bpf.values():
            made.bpf_trampoline_unlink_prog(kind, program)
        for name, stack in self.patched.items():
            if stack:
                self.ftrace.livepatch.klp_unpatch_func(self.address(name))
        self.direct, self.bpf, self.patched = {}, {}, {name: [] for name in PATCHES}
        if OF_MODULE in self.names:
            self.come_or_go_of_module()


def text(ftrace: Ftrace) -> bytes:
    """Kernel text, and the templates."""
    start, code = ftrace.machine.image.segments[".text"]
    caller = ftrace.labels["ftrace_caller"]
    return ftrace.memory.read(start, len(code)) + ftrace.memory.read(caller, 1024)


def results(ftrace: Ftrace) -> list[int]:
    """What calls return, on each CPU."""
    arguments = [(name, x, cpu) for name in NAMES for x in range(1, 6) for cpu in (0, 1)]
    return [ftrace.machine.call(name, x, cpu=cpu) for name, x, cpu in arguments]


@pytest.fixture(params=[False, True], ids=["plain", "poisoned"])
def tree(request: pytest.FixtureRequest) -> Iterator[Tree]:
    with tracefs(poison=request.param, nr_cpus=2) as made:
        yield made
        assert made.tracing.ftrace.bugs == []


@pytest.mark.parametrize("method", PokeMethod)
@pytest.mark.parametrize("seed", [1])
def test_after_every_change_sites_calls_and_counts_are_what_the_rules_say(
    tree: Tree, method: PokeMethod, seed: int
) -> None:
    ftrace = tree.tracing.ftrace
    ftrace.text_poke.method = method
    before = text(ftrace)
    untraced = results(ftrace)
    storm = Storm(tree, seed)
    ftrace.text_poke.between_phases = storm.call_meanwhile
    changes = [
        storm.come_or_go,
        storm.filter,
        storm.direct_call,
        storm.livepatch,
        storm.second_ipmodify,
        storm.bpf_program,
        storm.come_or_go_of_module,
    ]
    for _ in range(STEPS[method]):
        if storm.choice.random() < (0.02 if storm.is_on else 0.2):
            storm.step(storm.sysctl)
        storm.step(storm.choice.choices(changes, [4, 4, 3, 3, 1, 2, 1])[0])
    if method is PokeMethod.INT3:
        assert ftrace.text_poke.int3_hits > STEPS[method] / 10
    ftrace.text_poke.between_phases = lambda: None
    storm.step(storm.calm)
    assert text(ftrace) == before
    assert results(ftrace) == untraced
    assert (ftrace.records.counts == 0).all()
    assert ftrace.direct_functions == {}
    ftrace.machine.run(lambda: ftrace.register_ftrace_function(storm.counters[1].ops))
    assert (ftrace.dead_trampolines, ftrace.direct_trampolines) == ([], {})

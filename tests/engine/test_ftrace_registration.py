"""Ops come, change and go: text, counts and flags, against a model that knows only the rules."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from support.ftrace_kernel import (
    NAMES,
    ftrace_machine,
    load_module,
    many_functions,
    module_of,
)

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.image import Module
from emulated_kernel.text_poke import NOP5, PokeMethod
from ftracefs.errors import TracefsError
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.bpf_trampoline import BpfAttachType, BpfTrampoline
from ftracefs.ftrace.hash_update import (
    ftrace_location,
    ftrace_set_filter,
    ftrace_set_filter_ips,
    ftrace_set_hash,
)
from ftracefs.ftrace.ops import (
    FTRACE_OPS_FL_DYNAMIC,
    FTRACE_OPS_FL_IPMODIFY,
    FTRACE_OPS_FL_PERMANENT,
    FTRACE_OPS_FL_SAVE_REGS,
)
from ftracefs.ftrace.records import FTRACE_FL_TOUCHED
from ftracefs.ftrace.registration import ftrace_enable_sysctl, ftrace_update_trampoline


@pytest.fixture
def ftrace() -> Iterator[Ftrace]:
    with ftrace_machine() as made:
        yield made
        assert made.bugs == []


def label(ftrace: Ftrace, name: str) -> int:
    address = ftrace.kallsyms.kallsyms_lookup_name(name)
    assert address is not None
    return address


def new_ops(ftrace: Ftrace, callback: str = "count_call", flags: int = 0) -> FtraceOps:
    private = ftrace.machine.alloc(64)
    return ftrace.new_ops(label(ftrace, callback), private=private, flags=flags, name=callback)


def hits(ftrace: Ftrace, ops: FtraceOps) -> int:
    return ftrace.memory.u64(ops.private)


def on(ftrace: Ftrace, work: Callable[[], object]) -> None:
    ftrace.machine.run(work)


def refused(ftrace: Ftrace, work: Callable[[], object]) -> int:
    with pytest.raises(TracefsError) as error:
        ftrace.machine.run(work)
    return error.value.errno


def site_of(ftrace: Ftrace, name: str) -> int:
    return ftrace_location(ftrace, label(ftrace, name))


def target(ftrace: Ftrace, name: str) -> int | None:
    """Where the call site of `name` goes, read from text; None: it is a nop."""
    site = site_of(ftrace, name)
    code = ftrace.memory.read(site, 5)
    if code == NOP5:
        return None
    assert code[0] == 0xE8
    return (site + 5 + struct.unpack("<i", code[1:])[0]) & ((1 << 64) - 1)


def text(ftrace: Ftrace) -> bytes:
    """Kernel text, and the engine's up to its last function."""
    start, code = ftrace.machine.image.segments[".text"]
    engine = ftrace.labels["ftrace_caller"]
    return ftrace.memory.read(start, len(code)) + ftrace.memory.read(engine, 4096)


def set_filter(ftrace: Ftrace, ops: FtraceOps, *names: str, reset: bool = True) -> None:
    ips = [label(ftrace, n) for n in names]
    on(ftrace, lambda: ftrace_set_filter_ips(ftrace, ops, ips, reset=reset))


# --- one and two users ----------------------------------------------------------------------------


def test_boot_has_made_every_site_a_nop(ftrace: Ftrace) -> None:
    assert [target(ftrace, name) for name in NAMES] == [None] * len(NAMES)
    assert ftrace.available_filter_functions().decode().split() == NAMES
    assert ftrace.dyn_ftrace_total_info() == b"%d pages:1 groups: 1\n" % len(NAMES)


def test_from_one_user_to_two_and_back(ftrace: Ftrace) -> None:
    before = text(ftrace)
    first, second = new_ops(ftrace), new_ops(ftrace, "count_call_too")
    on(ftrace, lambda: ftrace.register_ftrace_function(first))
    assert {target(ftrace, n) for n in NAMES} == {first.trampoline}
    set_filter(ftrace, second, "add_one", "double")
    on(ftrace, lambda: ftrace.register_ftrace_function(second))
    assert target(ftrace, "add_one") == target(ftrace, "double") == ftrace.ftrace_addr
    assert target(ftrace, "six_sum") == first.trampoline
    on(ftrace, lambda: ftrace.unregister_ftrace_function(first))
    assert target(ftrace, "add_one") == target(ftrace, "double") == second.trampoline
    assert target(ftrace, "six_sum") is None
    on(ftrace, lambda: ftrace.unregister_ftrace_function(second))
    assert text(ftrace) == before
    assert (ftrace.records.flags & ~np.uint64(FTRACE_FL_TOUCHED) == 0).all()


def test_enabled_functions_shows_users_and_where_a_site_calls(ftrace: Ftrace) -> None:
    assert ftrace.enabled_functions() == b""
    first, second = new_ops(ftrace), new_ops(ftrace, "count_call_too")
    set_filter(ftrace, first, "add_one", "double")
    on(ftrace, lambda: ftrace.register_ftrace_function(first))
    tramp = f"tramp: {first.trampoline:#x} (count_call+0x0/0x10) ->count_call+0x0/0x10"
    assert ftrace.enabled_functions().decode().splitlines() == [
        f"add_one (1)      \t{tramp}",
        f"double (1)      \t{tramp}",
    ]
    second.flags |= FTRACE_OPS_FL_SAVE_REGS
    set_filter(ftrace, second, "double", "six_sum")
    on(ftrace, lambda: ftrace.register_ftrace_function(second))
    size = ftrace.kallsyms.kallsyms_lookup(ftrace.ftrace_ops_list_func).size
    list_func = f"->arch_ftrace_ops_list_func+0x0/{size:#x}"
    too = f"tramp: {second.trampoline:#x} (count_call_too+0x0/0x10) ->count_call_too+0x0/0x10"
    assert ftrace.enabled_functions().decode().splitlines() == [
        f"add_one (1)      \t{tramp}",
        f"double (2) R     {list_func}",
        f"six_sum (1) R    \t{too}",
    ]
    on(ftrace, lambda: ftrace.unregister_ftrace_function(first))
    on(ftrace, lambda: ftrace.unregister_ftrace_function(second))
    assert ftrace.enabled_functions() == b""
    touched = [line.split()[0] for line in ftrace.touched_functions().decode().splitlines()]
    assert touched == ["add_one", "double", "six_sum"]


def test_an_op_that_wants_registers_gives_them_to_all_users(ftrace: Ftrace) -> None:
    plain, regs = new_ops(ftrace), new_ops(ftrace, flags=FTRACE_OPS_FL_SAVE_REGS)
    on(ftrace, lambda: ftrace.register_ftrace_function(plain))
    set_filter(ftrace, regs, "add_one")
    on(ftrace, lambda: ftrace.register_ftrace_function(regs))
    assert target(ftrace, "add_one") == ftrace.ftrace_regs_addr
    third = new_ops(ftrace)
    set_filter(ftrace, third, "add_one")
    on(ftrace, lambda: ftrace.register_ftrace_function(third))
    set_filter(ftrace, regs, "double")
    assert target(ftrace, "add_one") == ftrace.ftrace_addr
    assert target(ftrace, "double") == ftrace.ftrace_regs_addr
    on(ftrace, lambda: ftrace.unregister_ftrace_function(regs))
    assert target(ftrace, "double") == plain.trampoline


def test_a_filter_changes_while_the_op_is_registered(ftrace: Ftrace) -> None:
    ops = new_ops(ftrace)
    on(ftrace, lambda: ftrace.register_ftrace_function(ops))
    set_filter(ftrace, ops, "add_one")
    assert [n for n in NAMES if target(ftrace, n)] == ["add_one"]
    set_filter(ftrace, ops, "double", reset=False)
    assert [n for n in NAMES if target(ftrace, n)] == ["add_one", "double"]
    double = [label(ftrace, "double")]
    on(ftrace, lambda: ftrace_set_filter_ips(ftrace, ops, double, remove=True))
    assert [n for n in NAMES if target(ftrace, n)] == ["add_one"]
    on(ftrace, lambda: ftrace_set_hash(ftrace, ops, [label(ftrace, "add_one")], enable=False))
    assert [n for n in NAMES if target(ftrace, n)] == []
    on(ftrace, lambda: ftrace_set_hash(ftrace, ops, [], reset=True))
    assert [n for n in NAMES if not target(ftrace, n)] == ["add_one"]


def test_a_filter_is_set_by_pattern(ftrace: Ftrace) -> None:
    ops = new_ops(ftrace)
    on(ftrace, lambda: ftrace.register_ftrace_function(ops))
    on(ftrace, lambda: ftrace_set_filter(ftrace, ops, b"add_*"))
    on(ftrace, lambda: ftrace_set_filter(ftrace, ops, b"*_twice", enable=False))
    assert [n for n in NAMES if target(ftrace, n)] == ["add_one"]
    assert refused(ftrace, lambda: ftrace_set_filter(ftrace, ops, b"nosuch")) == errno.EINVAL
    on(ftrace, lambda: ftrace_set_filter(ftrace, ops, b"double", reset=True))
    assert [n for n in NAMES if target(ftrace, n)] == ["double"]
    on(ftrace, lambda: ftrace_set_filter(ftrace, ops, None, reset=True))
    assert [n for n in NAMES if not target(ftrace, n)] == ["add_one_twice"]


def test_hashes_are_made_up_before_the_op_is_registered(ftrace: Ftrace) -> None:
    ops = new_ops(ftrace)
    names = {name: label(ftrace, name) for name in NAMES}
    on(ftrace, lambda: ftrace_set_filter_ips(ftrace, ops, [names["six_sum"]]))
    on(
        ftrace,
        lambda: ftrace_set_filter_ips(
            ftrace, ops, [names[n] for n in ("add_one", "double", "nothing")], reset=True
        ),
    )
    on(ftrace, lambda: ftrace_set_filter_ips(ftrace, ops, [names["double"]], remove=True))
    on(ftrace, lambda: ftrace_set_hash(ftrace, ops, [names["nothing"]], enable=False))
    assert [n for n in NAMES if target(ftrace, n)] == []
    on(ftrace, lambda: ftrace.register_ftrace_function(ops))
    assert [n for n in NAMES if target(ftrace, n)] == ["add_one"]
    left = [names["add_one"], names["nothing"]]
    on(ftrace, lambda: ftrace_set_filter_ips(ftrace, ops, left, remove=True))
    assert [n for n in NAMES if target(ftrace, n)] == [n for n in NAMES if n != "nothing"]


def test_sites_are_named_by_function_or_exactly(ftrace: Ftrace) -> None:
    double = label(ftrace, "double")
    assert ftrace_location(ftrace, double) == double + 4 == ftrace_location(ftrace, double + 4)
    assert ftrace_location(ftrace, double + 2) == 0
    assert ftrace_location(ftrace, label(ftrace, "untraced")) == 0
    ops = new_ops(ftrace)
    untraced = [label(ftrace, "untraced")]
    assert refused(ftrace, lambda: ftrace_set_filter_ips(ftrace, ops, untraced)) == errno.EINVAL
    assert (
        refused(ftrace, lambda: ftrace_set_filter_ips(ftrace, ops, [double], remove=True))
        == errno.ENOENT
    )


def test_the_uncopied_trampoline_calls_nothing_then_the_op_then_the_list(ftrace: Ftrace) -> None:
    def called() -> list[int]:
        sites = [ftrace.labels[n] for n in ("ftrace_call", "ftrace_regs_call")]
        codes = [struct.unpack("<xi", ftrace.memory.read(site, 5))[0] for site in sites]
        return [(s + 5 + c) & ((1 << 64) - 1) for s, c in zip(sites, codes, strict=True)]

    first, second = new_ops(ftrace), new_ops(ftrace, "count_call_too")
    assert called() == [ftrace.ftrace_stub] * 2
    on(ftrace, lambda: ftrace.register_ftrace_function(first))
    assert called() == [first.func] * 2
    assert ftrace.memory.u64(ftrace.labels["function_trace_op"]) == first.address
    on(ftrace, lambda: ftrace.register_ftrace_function(second))
    assert called() == [ftrace.ftrace_ops_list_func] * 2
    on(ftrace, lambda: ftrace.unregister_ftrace_function(first))
    assert called() == [second.func] * 2
    assert ftrace.memory.u64(ftrace.labels["function_trace_op"]) == second.address
    on(ftrace, lambda: ftrace.unregister_ftrace_function(second))
    assert called() == [ftrace.ftrace_stub] * 2


def test_a_changed_callback_is_patched_into_the_trampoline_and_not_the_site(
    ftrace: Ftrace,
) -> None:
    ops = new_ops(ftrace)
    on(ftrace, lambda: ftrace.register_ftrace_function(ops))
    trampoline, writes = ops.trampoline, ftrace.text_poke.sites_patched
    ftrace.machine.call("nothing")
    ops.func = label(ftrace, "log_call")
    on(ftrace, lambda: ftrace_update_trampoline(ftrace, ops))
    assert ftrace.text_poke.sites_patched == writes + 1
    assert target(ftrace, "nothing") == trampoline == ops.trampoline
    assert "->log_call+" in ftrace.enabled_functions().decode()
    on(ftrace, lambda: ftrace.unregister_ftrace_function(ops))
    assert ops.func == label(ftrace, "count_call")


# --- what is refused ------------------------------------------------------------------------------


def test_an_op_is_registered_once(ftrace: Ftrace) -> None:
    ops = new_ops(ftrace)
    assert refused(ftrace, lambda: ftrace.unregister_ftrace_function(ops)) == errno.EBUSY
    on(ftrace, lambda: ftrace.register_ftrace_function(ops))
    assert refused(ftrace, lambda: ftrace.register_ftrace_function(ops)) == errno.EBUSY


def test_two_ops_cannot_both_move_the_instruction_pointer(ftrace: Ftrace) -> None:
    first, second = (new_ops(ftrace, "redirect", FTRACE_OPS_FL_IPMODIFY) for _ in range(2))
    first.private = label(ftrace, "replacement")
    assert refused(ftrace, lambda: ftrace.register_ftrace_function(first)) == errno.EINVAL
    assert ftrace.ops_list == []
    set_filter(ftrace, first, "add_one", "double")
    set_filter(ftrace, second, "six_sum", "double")
    on(ftrace, lambda: ftrace.register_ftrace_function(first))
    assert ftrace.machine.call("add_one", 1) == 101
    assert "add_one (1)   I  \ttramp: " in ftrace.enabled_functions().decode()
    flags, before = ftrace.records.flags.copy(), text(ftrace)
    assert refused(ftrace, lambda: ftrace.register_ftrace_function(second)) == errno.EBUSY
    assert (ftrace.records.flags == flags).all()
    assert text(ftrace) == before
    assert ftrace.ops_list == [first]
    set_filter(ftrace, second, "six_sum")
    on(ftrace, lambda: ftrace.register_ftrace_function(second))
    flags = ftrace.records.flags.copy()
    add_one = [label(ftrace, "add_one")]
    assert refused(ftrace, lambda: ftrace_set_filter_ips(ftrace, second, add_one)) == errno.EBUSY
    assert refused(ftrace, lambda: ftrace_set_hash(ftrace, second, add_one, enable=False)) == (
        errno.EINVAL
    )
    assert refused(ftrace, lambda: ftrace_set_filter_ips(ftrace, second, [], reset=True)) == (
        errno.EINVAL
    )
    assert (ftrace.records.flags == flags).all()
    on(ftrace, lambda: ftrace.unregister_ftrace_function(first))
    on(ftrace, lambda: ftrace_set_filter_ips(ftrace, second, add_one))


def test_a_permanent_op_keeps_ftrace_switched_on(ftrace: Ftrace) -> None:
    ops, permanent = new_ops(ftrace), new_ops(ftrace, flags=FTRACE_OPS_FL_PERMANENT)
    on(ftrace, lambda: ftrace_enable_sysctl(ftrace, False))
    assert refused(ftrace, lambda: ftrace.register_ftrace_function(permanent)) == errno.EBUSY
    on(ftrace, lambda: ftrace.register_ftrace_function(ops))
    assert target(ftrace, "add_one") is None
    on(ftrace, lambda: ftrace_enable_sysctl(ftrace, True))
    assert target(ftrace, "add_one") == ops.trampoline
    on(ftrace, lambda: ftrace.register_ftrace_function(permanent))
    assert refused(ftrace, lambda: ftrace_enable_sysctl(ftrace, False)) == errno.EBUSY
    on(ftrace, lambda: ftrace.unregister_ftrace_function(permanent))
    before = ftrace.enabled_functions()
    on(ftrace, lambda: ftrace_enable_sysctl(ftrace, False))
    assert ftrace.enabled_functions() == b""
    ftrace.machine.call("add_one", 1)
    assert hits(ftrace, ops) == 0
    on(ftrace, lambda: ftrace_enable_sysctl(ftrace, True))
    assert ftrace.enabled_functions() == before
    ftrace.machine.call("add_one", 1)
    assert hits(ftrace, ops) == 1


def test_an_op_that_goes_while_ftrace_is_off_is_gone_when_it_is_on_again(ftrace: Ftrace) -> None:
    before = text(ftrace)
    ops, regs = new_ops(ftrace), new_ops(ftrace, flags=FTRACE_OPS_FL_SAVE_REGS)
    for op in (ops, regs):
        on(ftrace, lambda op=op: ftrace.register_ftrace_function(op))
    on(ftrace, lambda: ftrace_enable_sysctl(ftrace, False))
    on(ftrace, lambda: ftrace.unregister_ftrace_function(regs))
    assert target(ftrace, "add_one") is None
    on(ftrace, lambda: ftrace_enable_sysctl(ftrace, True))
    assert target(ftrace, "add_one") == ops.trampoline
    on(ftrace, lambda: ftrace_enable_sysctl(ftrace, False))
    on(ftrace, lambda: ftrace.unregister_ftrace_function(ops))
    on(ftrace, lambda: ftrace_enable_sysctl(ftrace, True))
    on(ftrace, lambda: ftrace.register_ftrace_function(regs))
    on(ftrace, lambda: ftrace.unregister_ftrace_function(regs))
    assert text(ftrace) == before


# --- when text is not as it should be -------------------------------------------------------------


def test_a_wrong_byte_changes_no_site_and_disables_ftrace() -> None:
    with ftrace_machine() as ftrace:
        ftrace.memory.set_u8(site_of(ftrace, "six_sum") + 2, 0x99)
        before = text(ftrace)
        ops = new_ops(ftrace)
        assert refused(ftrace, lambda: ftrace.register_ftrace_function(ops)) == errno.ENODEV
        start, code = ftrace.machine.image.segments[".text"]
        assert ftrace.memory.read(start, len(code)) == before[: len(code)]
        assert ftrace.ftrace_disabled
        (report,) = ftrace.bugs
        assert "] six_sum+0x0/" in report
        assert " actual:   0f:1f:99:00:00\n expected: 0f:1f:44:00:00\n" in report
        assert "Setting ftrace call site to call ftrace function" in report
        assert refused(ftrace, lambda: ftrace.register_ftrace_function(ops)) == errno.ENODEV
        assert refused(
            ftrace, lambda: ftrace.open_regex(ftrace.global_ops, notrace=False, flags=0)
        ) == (errno.ENODEV)
        assert ftrace.machine.call("add_one", 1) == 2


def test_a_wrong_byte_keeps_sites_from_changing_hands() -> None:
    with ftrace_machine() as ftrace:
        first, second = new_ops(ftrace), new_ops(ftrace, "count_call_too")
        on(ftrace, lambda: ftrace.register_ftrace_function(first))
        site = site_of(ftrace, "six_sum")
        ftrace.memory.set_u8(site + 4, 0x99)
        start, code = ftrace.machine.image.segments[".text"]
        before = ftrace.memory.read(start, len(code))
        assert refused(ftrace, lambda: ftrace.register_ftrace_function(second)) == errno.ENODEV
        assert ftrace.memory.read(start, len(code)) == before
        assert ftrace.ops_list == [first]
        (report,) = ftrace.bugs
        assert "Updating ftrace call site to call a different ftrace function" in report
        assert report.endswith(
            "\ttramp: "
            f"{ftrace.kallsyms.sprint_symbol(second.trampoline)} (count_call_too+0x0/0x10)"
            f"\ttramp: {ftrace.kallsyms.sprint_symbol(first.trampoline)} (count_call+0x0/0x10)"
            f"\n expected tramp: {first.trampoline:x}"
        )
        assert ftrace.machine.call("add_one", 1) == 2
        assert (hits(ftrace, first), hits(ftrace, second)) == (1, 0)
        assert refused(ftrace, lambda: ftrace.unregister_ftrace_function(first)) == errno.ENODEV


def test_a_trampoline_that_sites_cannot_leave_is_never_freed() -> None:
    with ftrace_machine() as ftrace:
        ops = new_ops(ftrace, flags=FTRACE_OPS_FL_DYNAMIC)
        on(ftrace, lambda: ftrace.register_ftrace_function(ops))
        double = label(ftrace, "double")
        made = ftrace.machine.run(lambda: BpfTrampoline(ftrace, double))
        trampoline, size = ops.trampoline, ops.trampoline_size
        code = ftrace.memory.read(trampoline, size)
        ftrace.memory.set_u8(site_of(ftrace, "six_sum") + 4, 0x99)
        on(ftrace, lambda: ftrace.unregister_ftrace_function(ops))
        assert "Setting ftrace call site to NOP" in ftrace.bugs[0]
        assert target(ftrace, "add_one") == trampoline
        fexit, program = BpfAttachType.BPF_TRACE_FEXIT, label(ftrace, "count_call")
        link = partial(made.bpf_trampoline_link_prog, fexit, program)
        assert refused(ftrace, link) == errno.ENODEV, "its image would lie in a page that is free"
        assert ftrace.memory.read(trampoline, size) == code
        assert ftrace.machine.call("add_one_twice", 1) == 3
        assert hits(ftrace, ops) == 3


def test_a_wrong_byte_in_a_module_is_found_when_it_is_loaded() -> None:
    with ftrace_machine() as ftrace:
        good = module_of("good", ["good_one", "good_two"])
        start, code = good.segments[".text"]
        wrong = code[:16] + b"\x90" + code[17:]
        module = Module("good", {".text": (start, wrong)}, good.symbols, good.mcount, good.labels)
        load_module(ftrace, module)
        (report,) = ftrace.bugs
        assert "] good_two+0x0/0x10 [good]\n" in report
        assert "Initializing ftrace call sites" in report
        assert ftrace.ftrace_disabled
        assert ftrace.memory.read(start, len(code)) == wrong


def test_a_site_that_is_no_call_at_boot_disables_ftrace() -> None:
    image = many_functions(["first", "second"])
    start, code = image.segments[".text.many"]
    wrong = bytearray(code)
    wrong[16] = 0x90
    segments = {**image.segments, ".text.many": (start, bytes(wrong))}
    with ftrace_machine(replace(image, segments=segments)) as ftrace:
        assert ftrace.ftrace_disabled
        assert "] second+0x0/0x10" in ftrace.bugs[0]
        assert "Initializing ftrace call sites" in ftrace.bugs[0]
        assert ftrace.memory.read(start, len(code)) == bytes(wrong)


# --- trampolines that somebody is in --------------------------------------------------------------


def test_a_trampoline_in_use_is_freed_when_it_is_left(ftrace: Ftrace) -> None:
    ops = new_ops(ftrace, "ask_host", FTRACE_OPS_FL_DYNAMIC)
    set_filter(ftrace, ops, "add_one")
    on(ftrace, lambda: ftrace.register_ftrace_function(ops))
    trampoline, seen = ops.trampoline, []

    def inside_the_callback(_vcpu: object) -> None:
        ftrace.unregister_ftrace_function(ops)
        seen.append(list(ftrace.dead_trampolines))

    ftrace.machine.hypercalls[CONSTANTS["HC_CALLBACK"]] = inside_the_callback
    assert ftrace.machine.call("add_one_twice", 1) == 3
    assert [[address for address, _ in dead] for dead in seen] == [[trampoline]]
    assert ops.trampoline == 0
    other = new_ops(ftrace)
    on(ftrace, lambda: ftrace.register_ftrace_function(other))
    assert ftrace.dead_trampolines == []
    assert other.trampoline == trampoline, "its page is used again"


# --- a storm --------------------------------------------------------------------------------------


@dataclass
class Model:
    """What is known of an op: its functions (None: all), those it does not want, and its wishes."""

    ops: FtraceOps
    wanted: set[str] | None
    unwanted: set[str]
    registered: bool = False
    calls: int = 0

    def takes(self, name: str) -> bool:
        return self.registered and (
            (self.wanted is None or name in self.wanted) and name not in self.unwanted
        )


def check_sites(ftrace: Ftrace, models: list[Model]) -> None:
    for name in NAMES:
        users = [m for m in models if m.takes(name)]
        expected: int | None = None
        if len(users) == 1:
            expected = users[0].ops.trampoline
        elif any(m.ops.flags & FTRACE_OPS_FL_SAVE_REGS for m in users):
            expected = ftrace.ftrace_regs_addr
        elif users:
            expected = ftrace.ftrace_addr
        assert target(ftrace, name) == expected, (name, len(users))


def run_calls(ftrace: Ftrace, models: list[Model]) -> None:
    call = ftrace.machine.call
    assert call("add_one_twice", 1, cpu=1) == 3
    assert call("double", 4) == 8
    assert call("six_sum", 1, 1, 1, 1, 1, 1, cpu=1) == 63
    for name, times in (("add_one_twice", 1), ("add_one", 2), ("double", 1), ("six_sum", 1)):
        for model in models:
            model.calls += times * model.takes(name)


def come_or_go(ftrace: Ftrace, model: Model, _some: set[str]) -> None:
    if model.registered:
        ftrace.unregister_ftrace_function(model.ops)
    else:
        ftrace.register_ftrace_function(model.ops)
    model.registered = not model.registered


def new_filter(ftrace: Ftrace, model: Model, some: set[str]) -> None:
    ftrace_set_hash(ftrace, model.ops, [label(ftrace, n) for n in some], reset=True)
    model.wanted = some


def no_filter(ftrace: Ftrace, model: Model, _some: set[str]) -> None:
    ftrace_set_hash(ftrace, model.ops, [], reset=True)
    model.wanted = None


def new_notrace(ftrace: Ftrace, model: Model, some: set[str]) -> None:
    ips = [label(ftrace, n) for n in some]
    ftrace_set_hash(ftrace, model.ops, ips, reset=True, enable=False)
    model.unwanted = some


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("method", PokeMethod)
def test_after_any_sequence_text_is_what_the_rules_say(
    ftrace: Ftrace, seed: int, method: PokeMethod
) -> None:
    ftrace.text_poke.method = method
    before = text(ftrace)
    choice = random.Random(seed)
    wishes = [0, 0, FTRACE_OPS_FL_SAVE_REGS, FTRACE_OPS_FL_DYNAMIC, FTRACE_OPS_FL_SAVE_REGS]
    models = [Model(new_ops(ftrace, flags=f), None, set()) for f in wishes]
    results: list[int] = []
    ftrace.text_poke.between_phases = lambda: results.append(
        ftrace.machine.call("add_one", 1, cpu=1)
    )
    for _ in range(100):
        model = choice.choice(models)
        some = set(choice.sample(NAMES, choice.randrange(1, 4)))
        # Calls made between the phases go by the old or the new rules: they are not foreseen.
        counts = [hits(ftrace, m.ops) for m in models]
        step = choice.choice([come_or_go, new_filter, no_filter, new_notrace])
        ftrace.machine.run(partial(step, ftrace, model, some))
        for m, count in zip(models, counts, strict=True):
            m.calls += hits(ftrace, m.ops) - count
        check_sites(ftrace, models)
        run_calls(ftrace, models)
        assert [hits(ftrace, m.ops) for m in models] == [m.calls for m in models]
    assert set(results) == {2}
    assert method is PokeMethod.STOP_MACHINE or ftrace.text_poke.int3_hits > 0
    for model in models:
        if model.registered:
            ftrace.machine.run(partial(come_or_go, ftrace, model, set()))
    assert text(ftrace) == before
    assert (ftrace.records.counts == 0).all()

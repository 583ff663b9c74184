"""Live patching: what a call of a patched function runs, and who may patch."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest
from support.ftrace_kernel import ftrace_machine, load_module, module_of

from ftracefs.errors import TracefsError
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.hash_update import ftrace_set_filter_ips
from ftracefs.ftrace.ops import FTRACE_OPS_FL_IPMODIFY, FTRACE_OPS_FL_SAVE_REGS
from ftracefs.ftrace.registration import ftrace_enable_sysctl


@pytest.fixture(params=[False, True], ids=["plain", "poisoned"])
def ftrace(request: pytest.FixtureRequest) -> Iterator[Ftrace]:
    with ftrace_machine(poison=request.param) as made:
        yield made
        assert made.bugs == []


def label(ftrace: Ftrace, name: str) -> int:
    address = ftrace.kallsyms.kallsyms_lookup_name(name)
    assert address is not None
    return address


def patch(ftrace: Ftrace, function: str, replacement: str) -> None:
    old, new = label(ftrace, function), label(ftrace, replacement)
    ftrace.machine.run(lambda: ftrace.livepatch.klp_patch_func(old, new))


def unpatch(ftrace: Ftrace, function: str, replacement: str | None = None) -> None:
    old = label(ftrace, function)
    new = None if replacement is None else label(ftrace, replacement)
    ftrace.machine.run(lambda: ftrace.livepatch.klp_unpatch_func(old, new))


def refused(ftrace: Ftrace, work: Callable[[], object]) -> int:
    with pytest.raises(TracefsError) as error:
        ftrace.machine.run(work)
    return error.value.errno


def counting(ftrace: Ftrace, *functions: str, flags: int = 0) -> FtraceOps:
    """An op that counts the calls of `functions` (none: of all)."""

    def work() -> FtraceOps:
        private = ftrace.machine.alloc(64)
        ops = ftrace.new_ops(label(ftrace, "count_call"), private=private, flags=flags)
        if functions:
            ftrace_set_filter_ips(ftrace, ops, [label(ftrace, f) for f in functions])
        ftrace.register_ftrace_function(ops)
        return ops

    return ftrace.machine.run(work)


def hits(ftrace: Ftrace, ops: FtraceOps) -> int:
    return ftrace.memory.u64(ops.private)


def text(ftrace: Ftrace) -> bytes:
    start, code = ftrace.machine.image.segments[".text"]
    return ftrace.memory.read(start, len(code))


def test_calls_of_a_patched_function_run_its_replacement(ftrace: Ftrace) -> None:
    before = text(ftrace)
    patch(ftrace, "add_one", "replacement")
    assert ftrace.machine.call("add_one", 5) == 105
    assert ftrace.machine.call("add_one_twice", 1) == 201, "whoever calls it"
    unpatch(ftrace, "add_one")
    assert ftrace.machine.call("add_one", 5) == 6
    assert text(ftrace) == before


def test_a_function_behind_an_endbr_is_patched_too(ftrace: Ftrace) -> None:
    patch(ftrace, "double", "replacement")
    assert ftrace.machine.call("double", 5) == 105


def test_enabled_functions_shows_the_handler_and_the_letter_i(ftrace: Ftrace) -> None:
    patch(ftrace, "add_one", "replacement")
    (ops,) = ftrace.ops_list
    handler = ftrace.kallsyms.sprint_symbol(label(ftrace, "klp_ftrace_handler"))
    assert ftrace.enabled_functions().decode() == (
        f"add_one (1)   I  \ttramp: {ops.trampoline:#x} ({handler}) ->{handler}\n"
    )


def test_the_newest_replacement_is_in_effect_and_the_one_below_comes_back(ftrace: Ftrace) -> None:
    patch(ftrace, "add_one", "replacement")
    sites = ftrace.text_poke.sites_patched
    patch(ftrace, "add_one", "untraced")
    assert ftrace.machine.call("add_one", 5) == 7
    unpatch(ftrace, "add_one", "untraced")
    assert ftrace.machine.call("add_one", 5) == 105
    patch(ftrace, "add_one", "untraced")
    unpatch(ftrace, "add_one", "replacement")
    assert ftrace.machine.call("add_one", 5) == 7
    assert ftrace.text_poke.sites_patched == sites, "the op is the same: no text is written"
    patch(ftrace, "add_one", "double")
    unpatch(ftrace, "add_one")
    assert ftrace.machine.call("add_one", 5) == 6
    assert ftrace.livepatch.patched() == []


@pytest.mark.parametrize("flags", [0, FTRACE_OPS_FL_SAVE_REGS])
def test_other_ops_see_the_function_and_its_replacement(ftrace: Ftrace, flags: int) -> None:
    patch(ftrace, "add_one", "replacement")
    both = counting(ftrace, "add_one", flags=flags)
    after = counting(ftrace, "replacement", flags=flags)
    assert ftrace.machine.call("add_one_twice", 1) == 201
    assert (hits(ftrace, both), hits(ftrace, after)) == (2, 2)
    unpatch(ftrace, "add_one")
    assert ftrace.machine.call("add_one_twice", 1) == 3
    assert (hits(ftrace, both), hits(ftrace, after)) == (4, 2)


def test_a_replacement_may_be_patched_itself(ftrace: Ftrace) -> None:
    patch(ftrace, "add_one", "replacement")
    patch(ftrace, "replacement", "double")
    assert ftrace.machine.call("add_one", 5) == 10
    unpatch(ftrace, "add_one")
    assert ftrace.machine.call("replacement", 5) == 10
    assert ftrace.machine.call("add_one", 5) == 6


def test_what_cannot_be_patched_is_refused_and_leaves_nothing(ftrace: Ftrace) -> None:
    before = text(ftrace)
    add_one, untraced, replacement = (
        label(ftrace, n) for n in ("add_one", "untraced", "replacement")
    )
    patches = ftrace.livepatch
    assert refused(ftrace, lambda: patches.klp_patch_func(untraced, add_one)) == errno.EINVAL
    assert refused(ftrace, lambda: patches.klp_unpatch_func(add_one)) == errno.ENOENT

    mover = ftrace.new_ops(label(ftrace, "redirect"), flags=FTRACE_OPS_FL_IPMODIFY)
    ftrace.machine.run(lambda: ftrace_set_filter_ips(ftrace, mover, [add_one]))
    ftrace.machine.run(lambda: ftrace.register_ftrace_function(mover))
    flags = ftrace.records.flags.copy()
    assert refused(ftrace, lambda: patches.klp_patch_func(add_one, replacement)) == errno.EBUSY
    assert (ftrace.records.flags == flags).all()
    assert (ftrace.ops_list, patches.patched()) == ([mover], [])
    ftrace.machine.run(lambda: ftrace.unregister_ftrace_function(mover))
    assert text(ftrace) == before

    patch(ftrace, "add_one", "replacement")
    flags = ftrace.records.flags.copy()
    assert refused(ftrace, lambda: patches.klp_patch_func(add_one, replacement)) == errno.EEXIST
    assert refused(ftrace, lambda: patches.klp_unpatch_func(add_one, untraced)) == errno.ENOENT
    assert refused(ftrace, lambda: ftrace.register_ftrace_function(mover)) == errno.EBUSY
    assert (ftrace.records.flags == flags).all()
    assert ftrace.machine.call("add_one", 5) == 105


def test_calls_never_go_in_a_circle(ftrace: Ftrace) -> None:
    for old, new in (("add_one", "add_one"), ("double", "add_one")):
        if old != new:
            patch(ftrace, "add_one", "double")
        with pytest.raises(TracefsError) as refused:
            patch(ftrace, old, new)
        assert refused.value.errno == errno.EINVAL
    assert ftrace.machine.call("add_one", 5) == 10


def test_a_live_patch_keeps_ftrace_switched_on(ftrace: Ftrace) -> None:
    patch(ftrace, "add_one", "replacement")
    assert refused(ftrace, lambda: ftrace_enable_sysctl(ftrace, False)) == errno.EBUSY
    assert ftrace.machine.call("add_one", 5) == 105
    unpatch(ftrace, "add_one")
    ftrace.machine.run(lambda: ftrace_enable_sysctl(ftrace, False))
    old, new = label(ftrace, "add_one"), label(ftrace, "replacement")
    assert refused(ftrace, lambda: ftrace.livepatch.klp_patch_func(old, new)) == errno.EBUSY


def test_while_a_patch_comes_and_goes_every_call_runs_one_of_the_two(ftrace: Ftrace) -> None:
    seen: list[int] = []
    ftrace.text_poke.between_phases = lambda: seen.append(ftrace.machine.call("add_one", 5, cpu=1))
    counting(ftrace)
    for _ in range(3):
        patch(ftrace, "add_one", "replacement")
        assert ftrace.machine.call("add_one", 5) == 105
        unpatch(ftrace, "add_one")
        assert ftrace.machine.call("add_one", 5) == 6
    assert set(seen) == {6, 105}
    assert ftrace.text_poke.int3_hits > 0


def test_patches_of_a_module_go_with_it(ftrace: Ftrace) -> None:
    module = module_of("ext4", ["ext4_open", "ext4_read"])
    load_module(ftrace, module)
    patch(ftrace, "ext4_read", "untraced")
    patch(ftrace, "add_one", "replacement")
    assert ftrace.machine.call(module.labels["ext4_read"]) == 7
    start, code = module.segments[".text"]

    def go() -> None:
        ftrace.livepatch.klp_module_going(start, start + len(code))
        ftrace.unload_module("ext4")

    ftrace.machine.run(go)
    (left,) = ftrace.livepatch.patched()
    assert left.old_func == label(ftrace, "add_one")
    load_module(ftrace, module)
    patch(ftrace, "ext4_read", "untraced")
    assert ftrace.machine.call(module.labels["ext4_read"]) == 7

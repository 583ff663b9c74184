"""Direct calls: alone, beside other ops, exchanged, refused."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator

import pytest
from support.ftrace_kernel import ftrace_machine, load_code

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.text_poke import NOP5
from ftracefs.errors import TracefsError
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.hash_update import ftrace_location, ftrace_set_filter_ips
from ftracefs.ftrace.ops import FTRACE_OPS_FL_SAVE_REGS, OpsCommand

# Entered as trampolines are; each returns into the traced function.
TARGETS = """# Targets of direct calls.
FUNC_NOTRACE target_add_10               # changes the traced function's first argument
    lea rdi, [rdi + 10]
    ret
ENDFUNC target_add_10
FUNC_NOTRACE target_add_20
    lea rdi, [rdi + 20]
    ret
ENDFUNC target_add_20
FUNC_NOTRACE target_keep                 # keeps the stack: into the function, into its caller
    mov rax, [rsp]
    mov [rip + kept], rax
    mov rax, [rsp + 8]
    mov [rip + kept + 8], rax
    ret
ENDFUNC target_keep
.data
OBJECT kept
    .zero 16
ENDOBJECT kept
"""


@pytest.fixture(params=[False, True], ids=["plain", "poisoned"])
def ftrace(request: pytest.FixtureRequest) -> Iterator[Ftrace]:
    with ftrace_machine(poison=request.param) as made:
        yield made
        assert made.bugs == []


@pytest.fixture
def targets(ftrace: Ftrace) -> dict[str, int]:
    return load_code(ftrace, TARGETS)


def label(ftrace: Ftrace, name: str) -> int:
    address = ftrace.kallsyms.kallsyms_lookup_name(name)
    assert address is not None
    return address


def on(ftrace: Ftrace, work: Callable[[], object]) -> None:
    ftrace.machine.run(work)


def refused(ftrace: Ftrace, work: Callable[[], object]) -> int:
    with pytest.raises(TracefsError) as error:
        ftrace.machine.run(work)
    return error.value.errno


def new_ops(ftrace: Ftrace, callback: str | None, *functions: str, flags: int = 0) -> FtraceOps:
    func = 0 if callback is None else label(ftrace, callback)
    ops = ftrace.new_ops(func, private=ftrace.machine.alloc(64), flags=flags, name=callback or "d")
    if functions:
        ips = [label(ftrace, f) for f in functions]
        on(ftrace, lambda: ftrace_set_filter_ips(ftrace, ops, ips))
    return ops


def direct(ftrace: Ftrace, target: int, *functions: str) -> FtraceOps:
    ops = new_ops(ftrace, None, *functions)
    on(ftrace, lambda: ftrace.register_ftrace_direct(ops, target))
    return ops


def counting(ftrace: Ftrace, *functions: str, flags: int = 0) -> FtraceOps:
    ops = new_ops(ftrace, "count_call", *functions, flags=flags)
    on(ftrace, lambda: ftrace.register_ftrace_function(ops))
    return ops


def hits(ftrace: Ftrace, ops: FtraceOps) -> int:
    return ftrace.memory.u64(ops.private)


def site_target(ftrace: Ftrace, name: str) -> int | None:
    """Where the call site of `name` goes, read from text; None: it is a nop."""
    site = ftrace_location(ftrace, label(ftrace, name))
    code = ftrace.memory.read(site, 5)
    if code == NOP5:
        return None
    assert code[0] == 0xE8
    return (site + 5 + struct.unpack("<i", code[1:])[0]) & ((1 << 64) - 1)


def text(ftrace: Ftrace) -> bytes:
    start, code = ftrace.machine.image.segments[".text"]
    return ftrace.memory.read(start, len(code))


# --- alone ----------------------------------------------------------------------------------------


def test_alone_the_site_calls_the_target_itself(ftrace: Ftrace, targets: dict[str, int]) -> None:
    before = text(ftrace)
    ops = direct(ftrace, targets["target_add_10"], "add_one", "double")
    assert site_target(ftrace, "add_one") == site_target(ftrace, "double")
    assert site_target(ftrace, "add_one") == targets["target_add_10"]
    assert ftrace.machine.call("add_one", 5) == 16
    assert ftrace.machine.call("double", 5) == 30
    assert ftrace.machine.call("add_one_twice", 1) == 23
    on(ftrace, lambda: ftrace.unregister_ftrace_direct(ops, targets["target_add_10"]))
    assert ftrace.machine.call("add_one", 5) == 6
    assert text(ftrace) == before
    assert ftrace.direct_functions == {}


def test_the_target_finds_two_return_addresses_on_the_stack(
    ftrace: Ftrace, targets: dict[str, int]
) -> None:
    def stack_at_entry() -> tuple[int, ...]:
        ftrace.machine.call("add_one_twice", 1)
        return struct.unpack("<2Q", ftrace.memory.read(targets["kept"], 16))

    direct(ftrace, targets["target_keep"], "add_one")
    alone = stack_at_entry()
    assert alone[0] == label(ftrace, "add_one") + 5
    twice = label(ftrace, "add_one_twice")
    assert twice < alone[1] < twice + 32
    counter = counting(ftrace, "add_one")
    assert stack_at_entry() == alone, "beside another op it is entered in the same way"
    assert hits(ftrace, counter) == 2


# --- beside other ops -----------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [0, FTRACE_OPS_FL_SAVE_REGS])
@pytest.mark.parametrize("direct_first", [False, True])
def test_beside_another_op_both_are_called(
    ftrace: Ftrace, targets: dict[str, int], flags: int, direct_first: bool
) -> None:
    target = targets["target_add_10"]
    counter = None if direct_first else counting(ftrace, flags=flags)
    ops = direct(ftrace, target, "add_one")
    counter = counter or counting(ftrace, flags=flags)
    assert site_target(ftrace, "add_one") == ftrace.ftrace_regs_addr
    assert site_target(ftrace, "double") == counter.trampoline
    assert ftrace.machine.call("add_one_twice", 1) == 23
    assert hits(ftrace, counter) == 3
    on(ftrace, lambda: ftrace.unregister_ftrace_function(counter))
    assert site_target(ftrace, "add_one") == target
    assert ftrace.machine.call("add_one_twice", 1) == 23
    assert hits(ftrace, counter) == 3
    on(ftrace, lambda: ftrace.register_ftrace_function(counter))
    on(ftrace, lambda: ftrace.unregister_ftrace_direct(ops, target))
    assert site_target(ftrace, "add_one") == counter.trampoline
    assert ftrace.machine.call("add_one_twice", 1) == 3
    assert hits(ftrace, counter) == 6


def test_each_direct_op_sends_its_own_functions(ftrace: Ftrace, targets: dict[str, int]) -> None:
    direct(ftrace, targets["target_add_10"], "add_one")
    direct(ftrace, targets["target_add_20"], "double")
    assert (ftrace.machine.call("add_one", 1), ftrace.machine.call("double", 1)) == (12, 42)
    counting(ftrace)
    assert (ftrace.machine.call("add_one", 1), ftrace.machine.call("double", 1)) == (12, 42)


def test_the_list_gives_a_regs_op_no_call_without_full_registers(ftrace: Ftrace) -> None:
    """Until its sites are patched from ftrace_caller to ftrace_regs_caller it is not called."""
    counting(ftrace, "add_one")
    counting(ftrace, "add_one")
    kept = ftrace.machine.alloc(4096)
    regs = new_ops(ftrace, "keep_frame", "add_one", flags=FTRACE_OPS_FL_SAVE_REGS)
    regs.private = kept
    seen: set[int] = set()

    def call_meanwhile() -> None:
        ftrace.memory.write(kept, bytes(256))
        ftrace.machine.call("add_one", 1, cpu=1)
        if ftrace.memory.u64(kept):
            seen.add(ftrace.memory.u64(kept + 56 + CONSTANTS["PT_CS"]))

    ftrace.text_poke.between_phases = call_meanwhile
    on(ftrace, lambda: ftrace.register_ftrace_function(regs))
    ftrace.machine.call("add_one", 1)
    assert ftrace.memory.u64(kept)
    on(ftrace, lambda: ftrace.unregister_ftrace_function(regs))
    assert seen == {CONSTANTS["KERNEL_CS"]}


def test_enabled_functions_shows_the_letter_d_and_the_target(
    ftrace: Ftrace, targets: dict[str, int]
) -> None:
    symbol = ftrace.kallsyms.sprint_symbol
    regs_caller, func, list_func = (
        symbol(ftrace.labels[n])
        for n in ("ftrace_regs_caller", "call_direct_funcs", "arch_ftrace_ops_list_func")
    )
    my_tramp = label(ftrace, "my_tramp")
    direct(ftrace, my_tramp, "add_one")
    assert ftrace.enabled_functions().decode() == (
        f"add_one (1) R   D\ttramp: {regs_caller} ({func})\n\tdirect-->{symbol(my_tramp)}\n"
    )
    counting(ftrace, "add_one")
    assert ftrace.enabled_functions().decode() == (
        f"add_one (2) R   D ->{list_func}\n\tdirect-->{symbol(my_tramp)}\n"
    )


# --- another target -------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_a_target_is_exchanged_without_a_call_that_misses_both(
    ftrace: Ftrace, targets: dict[str, int], shared: bool
) -> None:
    first, second = targets["target_add_10"], targets["target_add_20"]
    ops = direct(ftrace, first, "add_one")
    counter = counting(ftrace, "add_one") if shared else None
    seen: list[int] = []
    ftrace.text_poke.between_phases = lambda: seen.append(ftrace.machine.call("add_one", 1, cpu=1))
    on(ftrace, lambda: ftrace.modify_ftrace_direct(ops, second))
    assert ftrace.machine.call("add_one", 1) == 22
    # Never 2, as if the site were a nop; and a site that calls the list is not written at all.
    assert set(seen) == (set() if shared else {12, 22})
    if counter is None:
        assert site_target(ftrace, "add_one") == second
    else:
        assert hits(ftrace, counter) == len(seen) + 1
    assert len(ftrace.ops_list) == 1 + shared
    assert refused(ftrace, lambda: ftrace.unregister_ftrace_direct(new_ops(ftrace, None), 1)) == (
        errno.EINVAL
    )
    on(ftrace, lambda: ftrace.unregister_ftrace_direct(ops, second))
    assert ftrace.direct_functions == {}
    on(ftrace, lambda: ftrace.register_ftrace_direct(ops, first))
    assert ftrace.machine.call("add_one", 1) == 12


# --- what is refused ------------------------------------------------------------------------------


def test_what_is_no_direct_call_is_refused_and_leaves_nothing(
    ftrace: Ftrace, targets: dict[str, int]
) -> None:
    before, target = text(ftrace), targets["target_add_10"]

    def register(ops: FtraceOps, to: int = target) -> int:
        return refused(ftrace, lambda: ftrace.register_ftrace_direct(ops, to))

    assert register(new_ops(ftrace, None)) == errno.EINVAL, "an empty filter"
    assert register(new_ops(ftrace, "count_call", "add_one")) == errno.EINVAL, "it has a callback"
    assert register(new_ops(ftrace, None, "add_one"), 0x1000) == errno.EINVAL, "out of reach"
    ops = new_ops(ftrace, None, "add_one")
    assert refused(ftrace, lambda: ftrace.modify_ftrace_direct(ops, target)) == errno.EINVAL
    assert (ftrace.direct_functions, ftrace.ops_list) == ({}, [])
    on(ftrace, lambda: ftrace.register_ftrace_direct(ops, target))
    assert register(ops) == errno.EINVAL, "it is registered"
    flags = ftrace.records.flags.copy()
    other = new_ops(ftrace, None, "double", "add_one")
    assert register(other) == errno.EBUSY, "one direct call to a function"
    assert (ftrace.records.flags == flags).all()
    assert len(ftrace.direct_functions) == 1
    on(ftrace, lambda: ftrace.unregister_ftrace_direct(ops, target))
    assert text(ftrace) == before
    on(ftrace, lambda: ftrace.register_ftrace_direct(other, target))
    assert refused(ftrace, lambda: ftrace_set_filter_ips(ftrace, other, [], reset=True)) == (
        errno.EINVAL
    )


def livepatch(ftrace: Ftrace) -> None:
    old, new = label(ftrace, "add_one"), label(ftrace, "replacement")
    on(ftrace, lambda: ftrace.livepatch.klp_patch_func(old, new))


def unpatch(ftrace: Ftrace) -> None:
    on(ftrace, lambda: ftrace.livepatch.klp_unpatch_func(label(ftrace, "add_one")))


@pytest.mark.parametrize("patch_first", [False, True])
def test_without_ops_func_a_direct_call_and_a_live_patch_exclude_each_other(
    ftrace: Ftrace, targets: dict[str, int], patch_first: bool
) -> None:
    target = targets["target_add_10"]
    ops = new_ops(ftrace, None, "add_one")

    def register() -> None:
        ftrace.register_ftrace_direct(ops, target)

    def patch() -> None:
        add_one, replacement = label(ftrace, "add_one"), label(ftrace, "replacement")
        ftrace.livepatch.klp_patch_func(add_one, replacement)

    first, second = (patch, register) if patch_first else (register, patch)
    on(ftrace, first)
    flags, before, ops_list = ftrace.records.flags.copy(), text(ftrace), list(ftrace.ops_list)
    assert refused(ftrace, second) == errno.EBUSY
    assert text(ftrace) == before
    assert ftrace.ops_list == ops_list
    assert (ftrace.records.flags == flags).all()
    assert ftrace.machine.call("add_one", 5) == (105 if patch_first else 16)


@pytest.mark.parametrize("patch_first", [False, True])
def test_with_ops_func_both_run(ftrace: Ftrace, targets: dict[str, int], patch_first: bool) -> None:
    asked: list[OpsCommand] = []

    def share(_ops: FtraceOps, command: OpsCommand) -> int:
        asked.append(command)
        return 0

    target = targets["target_add_10"]
    ops = new_ops(ftrace, None, "add_one")
    ops.ops_func = share
    if patch_first:
        livepatch(ftrace)
    on(ftrace, lambda: ftrace.register_ftrace_direct(ops, target))
    if not patch_first:
        livepatch(ftrace)
    who = "SELF" if patch_first else "PEER"
    assert [command.name for command in asked] == [f"FTRACE_OPS_CMD_ENABLE_SHARE_IPMODIFY_{who}"]
    assert ftrace.machine.call("add_one", 5) == 115, "first the target, then the replacement"
    assert "add_one (2) R I D ->" in ftrace.enabled_functions().decode()
    unpatch(ftrace)
    assert asked[-1].name == "FTRACE_OPS_CMD_DISABLE_SHARE_IPMODIFY_PEER"
    assert ftrace.machine.call("add_one", 5) == 16
    assert site_target(ftrace, "add_one") == target


def test_a_function_that_is_added_to_the_filter_later_gets_there_by_the_list(
    ftrace: Ftrace, targets: dict[str, int]
) -> None:
    """Nothing is known of a target for its site, so that calls no address at all."""
    before, target = text(ftrace), targets["target_add_10"]
    ops = direct(ftrace, target, "add_one")
    on(ftrace, lambda: ftrace_set_filter_ips(ftrace, ops, [label(ftrace, "double")]))
    assert site_target(ftrace, "add_one") == target
    assert site_target(ftrace, "double") == ftrace.ftrace_regs_addr
    assert [ftrace.machine.call(name, 5) for name in ("add_one", "double")] == [16, 30]
    counter = counting(ftrace, "double")
    assert ftrace.machine.call("double", 5) == 30
    assert hits(ftrace, counter) == 1
    on(ftrace, lambda: ftrace.unregister_ftrace_function(counter))
    assert ftrace.machine.call("double", 5) == 30
    on(ftrace, lambda: ftrace.unregister_ftrace_direct(ops, target))
    assert text(ftrace) == before
    assert ftrace.direct_functions == {}

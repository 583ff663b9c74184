"""A trampoline in the shape of BPF's: what its programs see, and what the function returns."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator

import pytest
from support.ftrace_kernel import ftrace_machine, load_code

from emulated_kernel.asm_offsets import CONSTANTS
from ftracefs.errors import TracefsError
from ftracefs.ftrace import Ftrace
from ftracefs.ftrace.bpf_trampoline import BpfAttachType, BpfTrampFlags, BpfTrampoline
from ftracefs.ftrace.hash_update import ftrace_set_filter_ips

FENTRY, FEXIT = BpfAttachType.BPF_TRACE_FENTRY, BpfAttachType.BPF_TRACE_FEXIT

# Each keeps the eight words from ctx[-1] to ctx[6], and how often it ran.
PROGRAMS = """# Programs.
.macro KEEP where
    lea rsi, [rdi - 8]
    lea rdi, [rip + \\where]
    inc qword ptr [rdi]
    add rdi, 8
    mov ecx, 8
    rep movsq
    mov rax, -1                  # whatever a program returns is not used
    mov rdx, rax
    mov r8, rax
    mov r9, rax
    mov r10, rax
    mov r11, rax
    ret
.endm
FUNC_NOTRACE entry_prog
    KEEP entry_kept
ENDFUNC entry_prog
FUNC_NOTRACE exit_prog
    KEEP exit_kept
ENDFUNC exit_prog
FUNC_NOTRACE exit_prog_too
    KEEP exit_kept_too
ENDFUNC exit_prog_too
FUNC_NOTRACE change_prog         # a program may change what it is shown
    add qword ptr [rdi + 48], 1000
    ret
ENDFUNC change_prog
.data
OBJECT entry_kept
    .zero 72
ENDOBJECT entry_kept
OBJECT exit_kept
    .zero 72
ENDOBJECT exit_kept
OBJECT exit_kept_too
    .zero 72
ENDOBJECT exit_kept_too
"""


@pytest.fixture(params=[False, True], ids=["plain", "poisoned"])
def ftrace(request: pytest.FixtureRequest) -> Iterator[Ftrace]:
    with ftrace_machine(poison=request.param) as made:
        yield made
        assert made.bugs == []


@pytest.fixture
def programs(ftrace: Ftrace) -> dict[str, int]:
    return load_code(ftrace, PROGRAMS)


def label(ftrace: Ftrace, name: str) -> int:
    address = ftrace.kallsyms.kallsyms_lookup_name(name)
    assert address is not None
    return address


def kept(ftrace: Ftrace, programs: dict[str, int], name: str) -> tuple[int, ...]:
    """How often the program ran, then its ctx[-1] to ctx[6]."""
    return struct.unpack("<9Q", ftrace.memory.read(programs[name], 72))


def trampoline(ftrace: Ftrace, function: str, *links: tuple[BpfAttachType, int]) -> BpfTrampoline:
    def work() -> BpfTrampoline:
        made = BpfTrampoline(ftrace, label(ftrace, function))
        for kind, program in links:
            made.bpf_trampoline_link_prog(kind, program)
        return made

    return ftrace.machine.run(work)


def on(ftrace: Ftrace, work: Callable[[], object]) -> None:
    ftrace.machine.run(work)


def patch(ftrace: Ftrace, function: str, replacement: str) -> None:
    old, new = label(ftrace, function), label(ftrace, replacement)
    on(ftrace, lambda: ftrace.livepatch.klp_patch_func(old, new))


def unpatch(ftrace: Ftrace, function: str) -> None:
    on(ftrace, lambda: ftrace.livepatch.klp_unpatch_func(label(ftrace, function)))


def count_calls(ftrace: Ftrace, function: str) -> int:
    """Register an op that counts the calls of `function`; where the count is."""

    def work() -> int:
        counter = ftrace.machine.alloc(64)
        ops = ftrace.new_ops(label(ftrace, "count_call"), private=counter)
        ftrace_set_filter_ips(ftrace, ops, [label(ftrace, function)])
        ftrace.register_ftrace_function(ops)
        return counter

    return ftrace.machine.run(work)


def test_an_exit_program_sees_arguments_and_return_value(
    ftrace: Ftrace, programs: dict[str, int]
) -> None:
    trampoline(ftrace, "six_sum", (FEXIT, programs["exit_prog"]))
    result = ftrace.machine.call("six_sum", 1, 2, 3, 4, 5, 6)
    assert result == 1 + 2 * 2 + 3 * 4 + 4 * 8 + 5 * 16 + 6 * 32
    assert kept(ftrace, programs, "exit_kept") == (
        1,
        label(ftrace, "six_sum"),
        *(1, 2, 3, 4, 5, 6),
        result,
    )


def test_an_entry_program_alone_leaves_the_call_to_the_function(
    ftrace: Ftrace, programs: dict[str, int]
) -> None:
    made = trampoline(ftrace, "double", (FENTRY, programs["entry_prog"]))
    assert made.flags == 0
    assert ftrace.machine.call("double", 21) == 42
    times, site, first, *_ = kept(ftrace, programs, "entry_kept")
    assert (times, site, first) == (1, label(ftrace, "double") + 4, 21)


def test_programs_of_both_kinds_run_in_their_order(
    ftrace: Ftrace, programs: dict[str, int]
) -> None:
    before = ftrace.memory.read(label(ftrace, "add_one"), 16)
    made = trampoline(
        ftrace,
        "add_one",
        (FENTRY, programs["entry_prog"]),
        (FEXIT, programs["exit_prog"]),
        (FEXIT, programs["change_prog"]),
        (FEXIT, programs["exit_prog_too"]),
    )
    assert ftrace.machine.call("add_one_twice", 1) == 2003
    assert [kept(ftrace, programs, n)[0] for n in ("entry_kept", "exit_kept")] == [2, 2]
    assert kept(ftrace, programs, "exit_kept")[-1] == 1003
    assert kept(ftrace, programs, "exit_kept_too")[-1] == 2003
    for kind, program in (
        (FEXIT, "change_prog"),
        (FENTRY, "entry_prog"),
        (FEXIT, "exit_prog"),
        (FEXIT, "exit_prog_too"),
    ):
        on(ftrace, lambda k=kind, p=programs[program]: made.bpf_trampoline_unlink_prog(k, p))
        assert ftrace.machine.call("add_one", 1) == 2
    assert ftrace.memory.read(label(ftrace, "add_one"), 16) == before
    assert (ftrace.direct_functions, ftrace.direct_trampolines) == ({}, {})
    assert ftrace.dead_trampolines == []
    assert f" {made.name}\n" not in ftrace.kallsyms.text()


def test_every_register_but_r10_and_r11_is_as_the_function_left_it(
    ftrace: Ftrace, programs: dict[str, int]
) -> None:
    names = ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "flags"]
    names += [f"r{n}" for n in range(8, 16)]
    trampoline(ftrace, "nothing", (FENTRY, programs["entry_prog"]), (FEXIT, programs["exit_prog"]))
    given = {name: 0x1111111111111111 * n for n, name in enumerate(names)}
    given["flags"] = 0x2
    buffer = ftrace.machine.alloc(4096)
    ftrace.memory.write(buffer, struct.pack("<16Q", *given.values()))
    ftrace.machine.call("with_registers", label(ftrace, "nothing"), buffer, buffer + 1024)
    left = dict(
        zip(names, struct.unpack("<16Q", ftrace.memory.read(buffer + 1024, 128)), strict=True)
    )
    callee_saved = ["rbx", "rbp", "r12", "r13", "r14", "r15"]
    assert {n: left[n] for n in callee_saved} == {n: given[n] for n in callee_saved}
    arguments = kept(ftrace, programs, "entry_kept")[2:8]
    assert arguments == tuple(given[n] for n in ("rdi", "rsi", "rdx", "rcx", "r8", "r9"))


def test_beside_other_ops_the_function_is_called_once(
    ftrace: Ftrace, programs: dict[str, int]
) -> None:
    trampoline(ftrace, "add_one", (FEXIT, programs["exit_prog"]))
    counter = count_calls(ftrace, "add_one")
    assert ftrace.machine.call("add_one_twice", 1) == 3
    assert ftrace.memory.u64(counter) == 2
    times, *_, returned = kept(ftrace, programs, "exit_kept")
    assert (times, returned) == (2, 3)


@pytest.mark.parametrize("patch_first", [False, True])
def test_beside_a_live_patch_the_replacement_is_what_it_calls(
    ftrace: Ftrace, programs: dict[str, int], patch_first: bool
) -> None:
    if patch_first:
        patch(ftrace, "add_one", "replacement")
    made = trampoline(ftrace, "add_one", (FEXIT, programs["exit_prog"]))
    assert bool(made.flags & BpfTrampFlags.ORIG_STACK) == patch_first
    if not patch_first:
        assert ftrace.machine.call("add_one", 5) == 6
        patch(ftrace, "add_one", "replacement")
    assert made.flags == (
        BpfTrampFlags.CALL_ORIG | BpfTrampFlags.ORIG_STACK | BpfTrampFlags.SHARE_IPMODIFY
    )
    assert ftrace.machine.call("add_one", 5) == 105
    _, site, *_, returned = kept(ftrace, programs, "exit_kept")
    assert (site, returned) == (label(ftrace, "add_one"), 105)
    unpatch(ftrace, "add_one")
    assert made.flags == BpfTrampFlags.CALL_ORIG
    assert ftrace.machine.call("add_one", 5) == 6
    assert kept(ftrace, programs, "exit_kept")[-1] == 6


def test_an_exit_program_that_comes_beside_a_live_patch_calls_the_replacement(
    ftrace: Ftrace, programs: dict[str, int]
) -> None:
    patch(ftrace, "add_one", "replacement")
    made = trampoline(ftrace, "add_one", (FENTRY, programs["entry_prog"]))
    assert ftrace.machine.call("add_one", 5) == 105
    on(ftrace, lambda: made.bpf_trampoline_link_prog(FEXIT, programs["exit_prog"]))
    assert ftrace.machine.call("add_one", 5) == 105
    assert kept(ftrace, programs, "exit_kept")[-1] == 105
    assert kept(ftrace, programs, "entry_kept")[0] == 2


def test_the_image_is_exchanged_while_calls_go_on(ftrace: Ftrace, programs: dict[str, int]) -> None:
    made = trampoline(ftrace, "add_one", (FEXIT, programs["exit_prog"]))
    seen: list[int] = []
    ftrace.text_poke.between_phases = lambda: seen.append(ftrace.machine.call("add_one", 1, cpu=1))
    for _ in range(3):
        on(ftrace, lambda: made.bpf_trampoline_link_prog(FENTRY, programs["entry_prog"]))
        on(ftrace, lambda: made.bpf_trampoline_unlink_prog(FENTRY, programs["entry_prog"]))
    assert set(seen) == {2}
    assert kept(ftrace, programs, "exit_kept")[0] == len(seen), "none was missed"
    assert list(ftrace.direct_trampolines) == [made.cur_image]


def test_an_image_that_somebody_is_in_is_kept(ftrace: Ftrace) -> None:
    asking = load_code(
        ftrace,
        """# A program that stops in the host.
FUNC_NOTRACE ask_prog
    mov eax, HC_CALLBACK
    int HYPERCALL
    ret
ENDFUNC ask_prog
""",
    )["ask_prog"]
    made = trampoline(ftrace, "add_one", (FENTRY, asking))
    image, seen = made.cur_image, []

    def inside_the_program(_vcpu: object) -> None:
        made.bpf_trampoline_unlink_prog(FENTRY, asking)
        seen.append([address for address, _ in ftrace.dead_trampolines])

    ftrace.machine.hypercalls[CONSTANTS["HC_CALLBACK"]] = inside_the_program
    assert ftrace.machine.call("add_one_twice", 1) == 3
    assert seen == [[image]]
    count_calls(ftrace, "double")
    assert ftrace.dead_trampolines == []


def test_enabled_functions_and_kallsyms_name_it(ftrace: Ftrace, programs: dict[str, int]) -> None:
    made = trampoline(ftrace, "add_one", (FEXIT, programs["exit_prog"]))
    assert made.name == f"bpf_trampoline_{label(ftrace, 'add_one') & 0xFFFFFFFF}"
    assert f"\n\tdirect-->{made.name}+0x0/0x" in ftrace.enabled_functions().decode()
    assert f"{made.cur_image:016x} t {made.name}\n" in ftrace.kallsyms.text()


def test_what_cannot_be_attached_is_refused(ftrace: Ftrace, programs: dict[str, int]) -> None:
    def refused(work: Callable[[], object]) -> int:
        with pytest.raises(TracefsError) as error:
            ftrace.machine.run(work)
        return error.value.errno

    assert refused(lambda: BpfTrampoline(ftrace, label(ftrace, "untraced"))) == errno.EINVAL
    program = programs["exit_prog"]
    made = trampoline(ftrace, "add_one", (FEXIT, program))
    assert refused(lambda: made.bpf_trampoline_link_prog(FEXIT, program)) == errno.EBUSY
    assert refused(lambda: made.bpf_trampoline_unlink_prog(FENTRY, program)) == errno.ENOENT
    other = trampoline(ftrace, "add_one")
    assert refused(lambda: other.bpf_trampoline_link_prog(FEXIT, program)) == errno.EBUSY
    assert list(ftrace.direct_trampolines) == [made.cur_image]
    assert other.flags == 0

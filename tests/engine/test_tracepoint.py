"""Static keys, static calls and tracepoints: bytes of text, and what is called."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import numpy as np
import pytest
from support.guest import Guest

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.text_poke import NOP5, PokeMethod, TextPoke
from emulated_kernel.tracepoint import INT_MAX, TracepointError, Tracepoints

# Each probe appends its word and the tracepoint's arguments to a log.
PROBES = """
.text
.macro PROBE name, tag
FUNC_NOTRACE \\name
    push rbp
    mov rbp, rsp
    mov rax, [rip + probe_count]
    imul rax, rax, 48
    mov r10, offset probe_log
    add rax, r10
    mov qword ptr [rax], \\tag
    mov [rax + 8], rdi
    mov [rax + 16], rsi
    mov [rax + 24], rdx
    mov [rax + 32], rcx
    mov [rax + 40], r8
    inc qword ptr [rip + probe_count]
    xor edi, edi
    xor esi, esi
    xor edx, edx
    xor ecx, ecx
    xor r8d, r8d
    pop rbp
    ret
ENDFUNC \\name
.endm
PROBE probe_a, 1
PROBE probe_b, 2
.data
.balign 8
probe_count: .quad 0
probe_log: .zero 48 * 64
"""


class Rig:
    """Tracepoints of a machine that is at rest, and probes that keep a log."""

    def __init__(self) -> None:
        self.guest = Guest()
        self.machine = self.guest.machine
        self.memory = self.machine.memory
        self.labels = self.guest.load(PROBES)
        self.text_poke = TextPoke(self.machine)
        self.tracepoints = Tracepoints(self.machine, self.guest.image, self.text_poke)

    def register(self, name: str, probe: str, data: int, prio: int = 10) -> None:
        function = self.labels[probe]
        self.machine.run(
            lambda: self.tracepoints.tracepoint_probe_register(name, function, data, prio)
        )

    def unregister(self, name: str, probe: str, data: int) -> None:
        function = self.labels[probe]
        self.machine.run(lambda: self.tracepoints.tracepoint_probe_unregister(name, function, data))

    def log(self) -> list[tuple[int, ...]]:
        """What the probes were given since the last time: tag, word, four arguments."""
        count = self.memory.u64(self.labels["probe_count"])
        assert count < 64
        words = self.memory.array(self.labels["probe_log"], 48 * count, np.uint64)
        rows = [tuple(row) for row in words.reshape(-1, 6).tolist()]
        self.memory.set_u64(self.labels["probe_count"], 0)
        return rows

    def text(self) -> bytes:
        address, data = self.guest.image.segments[".text"]
        return self.memory.read(address, len(data))

    def site(self, name: str) -> bytes:
        (site,) = self.tracepoints.sites(name)
        return self.memory.read(site, 5)

    def called(self, name: str) -> int:
        """Where calls through the tracepoint's static call go."""
        tramp = self.guest.image.labels[f"__SCT__tp_func_{name}"]
        code = self.memory.read(tramp, 5)
        assert code[0] == 0xE9
        return tramp + 5 + int.from_bytes(code[1:], "little", signed=True)

    def migrate(self, cpu: int) -> int:
        """Pass sched_migrate_task once; the task."""
        task = self.guest.image.labels["init_task"]
        self.machine.call("set_task_cpu", task, cpu)
        return task


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.machine.close()


NAME = "sched_migrate_task"


def test_nothing_is_called_where_nobody_is_hung_in(rig: Rig) -> None:
    assert rig.site(NAME) == NOP5
    rig.migrate(1)
    assert rig.log() == []


@pytest.mark.parametrize("method", list(PokeMethod))
def test_the_first_probe_turns_the_nop_into_a_jump_and_the_last_one_back(
    rig: Rig, method: PokeMethod
) -> None:
    rig.text_poke.method = method
    before = rig.text()
    rig.register(NAME, "probe_a", 5)
    (site,) = rig.tracepoints.sites(NAME)
    assert rig.site(NAME)[0] == 0xE9
    target = site + 5 + int.from_bytes(rig.site(NAME)[1:], "little", signed=True)
    start = rig.guest.image.labels["set_task_cpu"]
    assert start < site < target < start + 0x60  # out of line, in the same function
    rig.unregister(NAME, "probe_a", 5)
    assert rig.text() == before
    rig.migrate(1)
    assert rig.log() == []


def test_a_probe_gets_its_word_and_the_arguments(rig: Rig) -> None:
    rig.register(NAME, "probe_a", 0xABCD)
    task = rig.migrate(1)
    ((tag, data, argument, cpu, *_),) = rig.log()
    assert (tag, data, argument, cpu) == (1, 0xABCD, task, 1)
    assert rig.memory.u32(task + CONSTANTS["TASK_CPU"]) == 1


def test_one_probe_is_called_directly_and_several_through_the_iterator(rig: Rig) -> None:
    iterator = rig.guest.image.labels[f"__traceiter_{NAME}"]
    assert rig.called(NAME) == iterator
    rig.register(NAME, "probe_a", 1)
    assert rig.called(NAME) == rig.labels["probe_a"]
    rig.register(NAME, "probe_b", 1)
    assert rig.called(NAME) == iterator
    rig.unregister(NAME, "probe_a", 1)
    assert rig.called(NAME) == rig.labels["probe_b"]
    rig.unregister(NAME, "probe_b", 1)
    assert rig.called(NAME) == iterator


def test_every_probe_gets_the_arguments_though_others_destroy_them(rig: Rig) -> None:
    for data in range(5):
        rig.register(NAME, "probe_b" if data % 2 else "probe_a", data)
    task = rig.migrate(1)
    rows = rig.log()
    assert [row[:4] for row in rows] == [(2 if data % 2 else 1, data, task, 1) for data in range(5)]


def test_higher_priority_comes_first_and_equals_in_their_order(rig: Rig) -> None:
    rig.register(NAME, "probe_a", 1)
    rig.register(NAME, "probe_a", 2, prio=0)
    rig.register(NAME, "probe_a", 3, prio=INT_MAX)
    rig.register(NAME, "probe_a", 4)
    rig.register(NAME, "probe_a", 5, prio=-5)
    rig.migrate(1)
    assert [row[1] for row in rig.log()] == [3, 1, 4, 2, 5]
    rig.unregister(NAME, "probe_a", 1)
    rig.migrate(1)
    assert [row[1] for row in rig.log()] == [3, 4, 2, 5]


def test_a_pair_can_be_there_once_and_go_once(rig: Rig) -> None:
    rig.register(NAME, "probe_a", 1)
    with pytest.raises(TracepointError) as error:
        rig.register(NAME, "probe_a", 1, prio=3)
    assert error.value.errno == errno.EEXIST
    rig.unregister(NAME, "probe_a", 1)
    with pytest.raises(TracepointError) as error:
        rig.unregister(NAME, "probe_a", 1)
    assert error.value.errno == errno.ENOENT
    with pytest.raises(TracepointError) as error:
        rig.register("no_such_tracepoint", "probe_a", 1)
    assert error.value.errno == errno.ENOENT


def test_arrays_of_probes_are_given_back(rig: Rig) -> None:
    word = rig.guest.image.labels[f"__tracepoint_{NAME}"] + CONSTANTS["TP_FUNCS"]
    rig.register(NAME, "probe_a", 0)
    first = rig.memory.u64(word)
    for _ in range(100):
        rig.register(NAME, "probe_b", 1)
        rig.unregister(NAME, "probe_b", 1)
    rig.unregister(NAME, "probe_a", 0)
    assert rig.memory.u64(word) == 0
    rig.register(NAME, "probe_a", 0)
    assert rig.memory.u64(word) == first


def test_every_site_of_a_key_changes_at_once(rig: Rig) -> None:
    sites = rig.tracepoints.sites("sched_waking")
    assert len(sites) == 2  # of a task that wakes itself, and of another
    batches = rig.text_poke.batches
    rig.register("sched_waking", "probe_a", 1)
    assert [rig.memory.read(site, 1) for site in sites] == [b"\xe9", b"\xe9"]
    assert rig.text_poke.batches - batches == 2  # the call, then both sites


def test_all_tracepoints_have_a_site_each_that_is_a_nop(rig: Rig) -> None:
    assert NAME in rig.tracepoints.names()
    for name in rig.tracepoints.names():
        sites = rig.tracepoints.sites(name)
        assert sites, name
        assert all(rig.memory.read(site, 5) == NOP5 for site in sites), name


def test_whoever_meets_the_int3_gets_the_new_instruction(rig: Rig) -> None:
    """Between two steps of the patch another vCPU passes the tracepoint."""
    passed: list[int] = []

    def pass_it() -> None:
        rig.machine.call("set_task_cpu", rig.guest.image.labels["init_task"], 0, cpu=1)
        passed.append(len(rig.log()))

    rig.register("sched_wakeup", "probe_b", 0)  # the static call of another tracepoint
    rig.text_poke.between_phases = pass_it
    rig.register(NAME, "probe_a", 1)
    on = passed[:]
    passed.clear()
    rig.unregister(NAME, "probe_a", 1)
    rig.text_poke.between_phases = lambda: None
    # Three steps for the call, whose key is still off, three for the site: a jump at once.
    assert on == [0, 0, 0, 1, 1, 1]
    assert passed[:3] == [0, 0, 0]
    assert rig.text_poke.int3_hits > 0

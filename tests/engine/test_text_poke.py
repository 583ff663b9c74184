"""Rewriting text under a running machine."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulated_kernel.asm_offsets import CONSTANTS, DATA_BASE, TEXT_BASE
from emulated_kernel.assembler import assemble
from emulated_kernel.errors import EmulatedKernelError, GuestFault
from emulated_kernel.image import KernelImage
from emulated_kernel.machine import Machine
from emulated_kernel.text_poke import (
    NOP5,
    TP_VEC_MAX,
    PokeMethod,
    TextMismatch,
    TextPoke,
    same_code,
    text_gen_call,
)

FUNCTIONS = 600
SOURCE = (
    """
.text
FUNC_NOTRACE host_return
    hlt
host_return_halt:
    jmp host_return
ENDFUNC host_return
FUNC_NOTRACE add_ten
    add rdi, 10
    ret
ENDFUNC add_ten
FUNC_NOTRACE add_hundred
    add rdi, 100
    ret
ENDFUNC add_hundred
FUNC_NOTRACE add_ten_to_rax
    add rax, 10
    ret
ENDFUNC add_ten_to_rax
FUNC_NOTRACE f0_of_rax           # f0 with rdi = 100 more than rax
    mov rax, rdi
    add rdi, 100
    call f0
    ret
ENDFUNC f0_of_rax
"""
    + "".join(
        f"FUNC_NOTRACE f{n}\n"
        "    .byte 0x0f, 0x1f, 0x44, 0, 0\n"
        "    lea rax, [rdi]\n"
        "    ret\n"
        f"ENDFUNC f{n}\n"
        for n in range(FUNCTIONS)
    )
    + ".data\n    .quad 0\n"
)


@pytest.fixture(scope="module")
def image() -> KernelImage:
    built = assemble({"t.S": SOURCE}, {".text": TEXT_BASE, ".data": DATA_BASE}, CONSTANTS)
    return KernelImage(
        "test", built.segments, built.symbols, built.mcount, built.labels, built.constants
    )


@pytest.fixture(scope="module")
def machine(image: KernelImage) -> Iterator[Machine]:
    made = Machine(image)
    yield made
    made.close()


@pytest.fixture
def text_poke(machine: Machine, image: KernelImage) -> Iterator[TextPoke]:
    """A fresh one over text that is restored afterwards."""
    names = {address: name for name, address in image.labels.items()}
    made = TextPoke(machine, symbolize=lambda a: names.get(a, hex(a)))
    yield made
    machine.run(lambda: machine.load_segments({".text": image.segments[".text"]}))


def sites(image: KernelImage, count: int = FUNCTIONS) -> np.ndarray:
    return np.array([image.label(f"f{n}") for n in range(count)], dtype=np.uint64)


def calls(machine: Machine, image: KernelImage, site: np.ndarray, target: str) -> np.ndarray:
    return text_gen_call(site, image.label(target))


def test_every_phase_of_a_patch_gives_the_new_instructions_result(
    machine: Machine, image: KernelImage, text_poke: TextPoke
) -> None:
    seen: list[tuple[int, int]] = []
    text_poke.between_phases = lambda: seen.append(
        (machine.memory.u8(image.label("f0")), machine.call("f0", 1, cpu=1))
    )
    site = sites(image, 1)
    one, two = (calls(machine, image, site, t) for t in ("add_ten", "add_hundred"))
    nop = same_code(NOP5, 1)
    assert machine.call("f0", 1, cpu=1) == 1
    for old, new, result in ((nop, one, 11), (one, two, 101), (two, nop, 1)):
        seen.clear()
        before = text_poke.int3_hits
        machine.run(lambda o=old, n=new: text_poke.text_poke_bp_batch(site, n, o))
        assert seen == [(0xCC, result), (0xCC, result), (new[0, 0], result)]
        assert text_poke.int3_hits == before + 2
        assert [machine.call("f0", 1, cpu=n) for n in range(2)] == [result, result]


@pytest.mark.parametrize("new", ["jump", "short jump", "return", "nop"])
def test_int3_stands_for_each_kind_of_instruction(
    machine: Machine, image: KernelImage, text_poke: TextPoke, new: str
) -> None:
    start = image.label("f0")
    distance = image.label("add_ten_to_rax") - start - 5
    code = {
        "jump": b"\xe9" + distance.to_bytes(4, "little", signed=True),
        "short jump": b"\xeb\x06\xcc\xcc\xcc",  # to f0's own ret
        "return": b"\xc3\xcc\xcc\xcc\xcc",
        "nop": NOP5,
    }[new]
    results: list[int] = []
    text_poke.between_phases = lambda: results.append(machine.call("f0_of_rax", 7, cpu=1))
    machine.run(lambda: text_poke.text_poke_bp(start, code))
    expected = {"jump": 17, "short jump": 7, "return": 7, "nop": 107}[new]
    assert results == [expected] * 3
    assert text_poke.int3_hits == 2


def test_stop_machine_writes_whole_instructions_while_nobody_runs(
    machine: Machine, image: KernelImage, text_poke: TextPoke
) -> None:
    text_poke.method = PokeMethod.STOP_MACHINE
    phases: list[int] = []
    text_poke.between_phases = lambda: phases.append(machine.memory.u8(image.label("f0")))
    site = sites(image, 3)
    machine.run(lambda: text_poke.text_poke_bp_batch(site, calls(machine, image, site, "add_ten")))
    assert phases == [0xE8]
    assert text_poke.int3_hits == 0
    assert [machine.call(f"f{n}", 1, cpu=n % 2) for n in range(4)] == [11, 11, 11, 1]


def test_a_wrong_byte_at_one_site_means_no_site_is_written(
    machine: Machine, image: KernelImage, text_poke: TextPoke
) -> None:
    site = sites(image, 5)
    machine.memory.set_u8(int(site[3]) + 2, 0x99)
    before = text_poke.read(site)
    with pytest.raises(TextMismatch) as error:
        machine.run(
            lambda: text_poke.text_poke_bp_batch(
                site, calls(machine, image, site, "add_ten"), same_code(NOP5, 5)
            )
        )
    assert (error.value.row, error.value.address) == (3, int(site[3]))
    assert error.value.actual == bytes.fromhex("0f1f990000")
    assert error.value.expected == NOP5
    assert (text_poke.read(site) == before).all()
    assert text_poke.writes == 0


def test_vectors_are_bounded_only_while_others_run(
    machine: Machine, image: KernelImage, text_poke: TextPoke
) -> None:
    site = sites(image)
    new = calls(machine, image, site, "add_ten")
    text_poke.others_running = lambda: True
    worst: list[int] = []
    text_poke.between_phases = lambda: worst.append(int((text_poke.read(site)[:, 0] == 0xCC).sum()))
    machine.run(lambda: text_poke.text_poke_bp_batch(site, new))
    assert max(worst) == TP_VEC_MAX
    assert text_poke.batches == 3
    worst.clear()
    text_poke.others_running = lambda: False
    machine.run(lambda: text_poke.text_poke_bp_batch(site, same_code(NOP5, FUNCTIONS), new))
    assert max(worst) == FUNCTIONS
    assert text_poke.batches == 4


def test_a_patched_range_is_run_anew_by_every_vcpu(
    machine: Machine, image: KernelImage, text_poke: TextPoke
) -> None:
    assert [machine.call(f"f{FUNCTIONS - 1}", 1, cpu=n) for n in range(2)] == [1, 1]
    site = sites(image)
    machine.run(lambda: text_poke.text_poke_bp_batch(site, calls(machine, image, site, "add_ten")))
    for n in (0, 1, FUNCTIONS // 2, FUNCTIONS - 1):
        assert [machine.call(f"f{n}", 1, cpu=c) for c in range(2)] == [11, 11]


def test_an_int3_that_is_nobodys_is_a_fault(machine: Machine, image: KernelImage) -> None:
    poke = TextPoke(machine)
    address = image.label("f2")
    machine.memory.set_u8(address, 0xCC)
    machine.run(lambda: machine.flush_text(address, address + 5))
    with pytest.raises(GuestFault):
        machine.call("f2", 1)
    assert poke.int3_hits == 0
    machine.run(lambda: machine.load_segments({".text": image.segments[".text"]}))


def test_text_cannot_be_patched_while_it_is_being_patched(
    machine: Machine, image: KernelImage, text_poke: TextPoke
) -> None:
    site = sites(image, 1)
    nop = same_code(NOP5, 1)
    text_poke.between_phases = lambda: text_poke.text_poke_bp_batch(site, nop)
    with pytest.raises(EmulatedKernelError):
        machine.run(lambda: text_poke.text_poke_bp_batch(site, nop))


def test_the_log_shows_each_phase_before_and_after(
    machine: Machine, image: KernelImage, text_poke: TextPoke
) -> None:
    site = sites(image, 1)
    new = calls(machine, image, site, "add_ten")
    machine.run(lambda: text_poke.text_poke_bp_batch(site, new, same_code(NOP5, 1)))
    head, columns, *rows = text_poke.patch_log().splitlines()
    assert "text writes: 3  sites: 1  batches: 1  int3 hits: 0  method: int3" in head
    assert columns.split() == ["#", "batch", "phase", "address", "symbol", "before", "->", "after"]
    tail = new[0, 1:].tobytes().hex(" ")
    start = int(site[0])
    assert [row.split(None, 4) for row in rows] == [
        ["1", "int3", f"{start:x}", "f0", "0f -> cc"],
        ["1", "tail", f"{start + 1:x}", hex(start + 1), f"1f 44 00 00 -> {tail}"],
        ["1", "first", f"{start:x}", "f0", "cc -> e8"],
    ]


def test_the_log_keeps_the_last_writes_and_says_how_many_are_left_out(
    machine: Machine, image: KernelImage
) -> None:
    text_poke = TextPoke(machine, log_size=100)
    site = sites(image)
    machine.run(lambda: text_poke.text_poke_bp_batch(site, same_code(NOP5, FUNCTIONS)))
    rows = text_poke.patch_log().splitlines()[2:]
    assert rows[0].split(None, 2)[1:] == ["first", f"({FUNCTIONS - 100} more)"]
    assert len(rows) == 101


def test_a_target_out_of_reach_is_refused() -> None:
    site = np.array([TEXT_BASE], dtype=np.uint64)
    with pytest.raises(EmulatedKernelError):
        text_gen_call(site, 0xFFFF888000000000)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.sets(st.integers(0, 39)), st.booleans()), max_size=6), st.booleans())
def test_patching_and_unpatching_gives_back_the_original_bytes(
    machine: Machine,
    image: KernelImage,
    text_poke: TextPoke,
    steps: list[tuple[set[int], bool]],
    busy: bool,
) -> None:
    all_sites = sites(image, 40)
    text_poke.others_running = lambda: busy
    text = machine.memory.read(*_text(image))
    called = np.zeros(40, dtype=np.bool_)
    for chosen, to_call in steps:
        rows = np.array(sorted(chosen), dtype=np.intp)
        new = same_code(NOP5, len(rows))
        if to_call:
            new = calls(machine, image, all_sites[rows], "add_ten")
        machine.run(lambda r=rows, n=new: text_poke.text_poke_bp_batch(all_sites[r], n))
        called[rows] = to_call
        for n in range(0, 40, 7):
            assert machine.call(f"f{n}", 1, cpu=n % 2) == (11 if called[n] else 1)
    machine.run(lambda: text_poke.text_poke_bp_batch(all_sites, same_code(NOP5, 40)))
    assert machine.memory.read(*_text(image)) == text


def _text(image: KernelImage) -> tuple[int, int]:
    address, code = image.segments[".text"]
    return address, len(code)

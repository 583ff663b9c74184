"""The files of a real kernel: what is read in them is what that kernel says of itself."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from support.linux_kernel import require_linux
from support.vmlinuz import PACKERS, bzimage

import emulated_kernel.linux as linux
from emulated_kernel.errors import ImageError
from emulated_kernel.linux import Vmlinux, load_vmlinuz

# Recorded in these kernels, booted with nokaslr: the lines of available_filter_functions and of
# /proc/kallsyms (name, address, kind), and the SHA-256 of both.
RECORDED = {
    "6.1.0-57-cloud-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-11-26)": (
        (35609, "987d91b6f6541691227aae1e847f3828e3144524be6c8f57414b8b7b02090aa0"),
        (87347, "f97ef5c1b8633d5e7a34849a0f9db66777c8c17bdb3b7089c5f61a9f77bd6908"),
    ),
    "6.1.0-57-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-11-26)": (
        (38252, "bb978083a5a3f17940fa5e636248b67481018b6ec214d272fe3b86b6a45d8964"),
        (94266, "ca18c395ade67c16ed320aa88d535c368eb6dec26cd97231ad97af9cd84933eb"),
    ),
    "5.10.0-46-cloud-amd64 #1 SMP Debian 5.10.262-1 (2026-07-31)": (
        (32170, "8c714aab0aa3df6173bcf7b315aa492d3b8b7d45d9e878a453fa0f9ba0511c37"),
        (97254, "a57103c24301150b338a34f91a8e0223b00dd751440338f3150ee3921189a042"),
    ),
    "7.2.13+deb14-cloud-amd64 #1 SMP PREEMPT_DYNAMIC Debian 7.2.13-1 (2026-10-28)": (
        (43859, "f000191631b9541d1675cafc899ed109df28d15c42bf833b00cbecfa22d6b9b8"),
        (186798, "675b23aa2e7d7e007cd38c1a5b54933626128d68a26abc7a1d24f2123014f11a"),
    ),
    "7.3.4+deb13-cloud-amd64 #1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1~bpo13+1 (2026-11-15)": (
        (44428, "c94f8d4cdd4522bf19e241f080c7800d7b9ce237740b5984a9cae1949ffa5332"),
        (197553, "0a11321f24547d92290986fb5486e9f45827ab69f54f17c02e2c8446379c7ddb"),
    ),
    "6.12.117+deb12-cloud-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-11-14)": (
        (40339, "cb741b9676c10bc3c1dc21ebdbb30b8cc4c53b478d50fadb6c59f0561869a22f"),
        (154686, "c4d7a30a9dd2f05f7aece95d7ba0d895e22442e77178281b98376858daa3c33b"),
    ),
}
ENDBR_BYTES = 4
KNOWS_WEAK_FUNCTIONS = (5, 19)  # their sites got names that say so


@pytest.fixture(scope="module")
def file() -> Path:
    return require_linux()


@pytest.fixture(scope="module")
def kernel(file: Path) -> Vmlinux:
    return load_vmlinuz(file)


def listed_functions(kernel: Vmlinux) -> list[str]:
    """Its available_filter_functions, of the kernel alone: no module is loaded."""
    symbols, sites = kernel.symbols, kernel.mcount_after_boot
    numbers = symbols.numbers(sites)
    offsets = (sites - symbols.addresses[numbers]).tolist()
    version = tuple(map(int, kernel.release.split(".")[:2]))
    return [
        symbols.names[number]
        if offset in (0, ENDBR_BYTES) or version < KNOWS_WEAK_FUNCTIONS
        else f"__ftrace_invalid_address___{offset}"
        for number, offset in zip(numbers.tolist(), offsets, strict=True)
    ]


def counted(lines: list[str]) -> tuple[int, str]:
    text = "".join(f"{line}\n" for line in lines)
    return len(lines), hashlib.sha256(text.encode()).hexdigest()


def test_functions_and_symbols_are_those_the_kernel_lists_itself(kernel: Vmlinux) -> None:
    symbols = kernel.symbols
    lines = [
        f"{address:016x} {kind} {name}"
        for address, kind, name in zip(
            symbols.addresses.tolist(), symbols.kinds.decode(), symbols.names, strict=True
        )
    ]
    functions = listed_functions(kernel)
    version = f"{kernel.release} {kernel.banner[kernel.banner.find('#') :]}"
    if recorded := RECORDED.get(version):
        assert (counted(functions), counted(lines)) == recorded
    # What holds for a kernel of any version.
    invalid = [name for name in functions if name.startswith("__ftrace_invalid_address___")]
    assert len(functions) > 20000
    assert len(invalid) < len(functions) / 20
    assert {"vfs_read", "schedule", "do_sys_openat2", "kernel_clone"} <= set(functions)
    assert not {"start_kernel", "free_area_init"} & set(functions)
    assert [line[:16] for line in lines] == sorted(line[:16] for line in lines)


def test_every_call_site_calls_fentry(kernel: Vmlinux) -> None:
    fentry = kernel.symbols.address("__fentry__")
    found = set()
    for site in kernel.mcount.tolist():
        code = kernel.read(site, 5)
        found.add((code[0], site + 5 + int.from_bytes(code[1:], "little", signed=True)))
    assert found == {(0xE8, fentry)}


def test_structures_agree_with_what_the_kernels_own_code_reads(kernel: Vmlinux) -> None:
    """The first of init_task's own: its name, its pid, and itself as the leader of its group."""
    btf, task = kernel.btf, kernel.symbols.address("init_task")
    size = btf.size("task_struct", "comm")
    comm = kernel.read(task + btf.offset("task_struct", "comm"), size)
    assert comm == b"swapper".ljust(size, b"\0")
    leader = kernel.read(task + btf.offset("task_struct", "group_leader"), 8)
    assert int.from_bytes(leader, "little") == task
    uts = kernel.symbols.address("init_uts_ns") + btf.offset("uts_namespace", "name.release")
    assert kernel.read(uts, 65).split(b"\0")[0].decode() == kernel.release
    assert btf.enum("pid_type")["PIDTYPE_TGID"] == 1
    assert btf.size("pid_t") == 4


def test_it_is_loaded_where_it_was_linked_for(kernel: Vmlinux) -> None:
    segments = {segment.virtual: segment.physical for segment in kernel.segments}
    assert segments[0xFFFFFFFF81000000] == 0x1000000
    assert kernel.entry == kernel.physical(kernel.symbols.address("startup_64"))
    assert kernel.text.start == 0xFFFFFFFF81000000
    assert kernel.init.start <= kernel.init_text.start < kernel.init_text.end <= kernel.init.end


REPACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1),
    "xz": lambda data: sized(lzma.compress(data, check=lzma.CHECK_CRC32, preset=0), data),
    "zstd": lambda data: sized(zstandard.compress(data, 1), data),
    "lz4": PACKERS["lz4"],
}


def sized(packed: bytes, data: bytes) -> bytes:
    return packed + len(data).to_bytes(4, "little")


@pytest.mark.parametrize("packer", REPACKED)
def test_packed_in_another_way_it_is_the_same_kernel(
    kernel: Vmlinux, packer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data = bytes(kernel.elf.data)
    payload = REPACKED[packer](data)
    file = tmp_path / "vmlinuz"
    file.write_bytes(bzimage(payload))
    again = load_vmlinuz(file)
    assert again.release == kernel.release
    assert again.elf.data == data
    assert again.mcount.tolist() == kernel.mcount.tolist()
    file.write_bytes(bzimage(payload[: len(payload) // 3] + payload[-4:]))
    with pytest.raises(ImageError, match=r"vmlinuz: (truncated|broken): [^\n]+$"):
        load_vmlinuz(file)
    file.write_bytes(bzimage(payload)[: len(payload) // 3])
    with pytest.raises(ImageError, match=r"vmlinuz: truncated: [^\n]+$"):
        load_vmlinuz(file)


@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_bit_in_what_is_packed_is_noticed(
    file: Path, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    data = bytearray(file.read_bytes())
    rng = random.Random(seed)
    start, length = struct.unpack_from("<II", data, 0x248)
    start += (data[0x1F1] + 1) * 512
    data[rng.randrange(start, start + length)] ^= 1 << rng.randrange(8)
    damaged = tmp_path / "vmlinuz"
    damaged.write_bytes(data)
    with pytest.raises(ImageError, match=r"vmlinuz: [^\n]+$"):
        load_vmlinuz(damaged)


def test_what_was_read_once_is_there_at_once(file: Path, kernel: Vmlinux) -> None:
    assert kernel.release in str(file)
    times = []
    for _ in range(5):
        start = time.process_time()
        again = load_vmlinuz(file)
        times.append(time.process_time() - start)
    assert again.symbols.address("vfs_read") == kernel.symbols.address("vfs_read")
    assert min(times) < 0.25, "not from the cache"
    assert linux.cache_directory() is not None

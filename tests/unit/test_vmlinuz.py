"""A kernel's image: what is found in it, however packed and laid out, and what is refused."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.vmlinuz import (
    BANNER,
    DATA,
    PACKERS,
    PHYSICAL,
    RELEASE,
    TEXT,
    BtfWriter,
    Kernel,
    btf,
    bzimage,
    vmlinuz,
)

import emulated_kernel.linux as linux
from emulated_kernel.errors import ImageError
from emulated_kernel.linux import Vmlinux, load_vmlinuz, parsed_cache
from emulated_kernel.linux.btf import Btf

Load = Callable[[bytes], Vmlinux]
LAYOUTS = ("plain", "5.10", "6.2", "6.4", "6.15", "7.0")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(data: bytes) -> Vmlinux:
        path = tmp_path / "vmlinuz"
        path.write_bytes(data)
        return load_vmlinuz(path)

    return load


def listed(kernel: Vmlinux) -> list[tuple[int, str, str]]:
    symbols = kernel.symbols
    return list(zip(symbols.addresses.tolist(), symbols.kinds.decode(), symbols.names, strict=True))


# --- what is found --------------------------------------------------------------------------------


@pytest.mark.parametrize("packer", PACKERS)
def test_however_it_is_packed_it_is_found(load: Load, packer: str) -> None:
    kernel = load(vmlinuz(packer=packer))
    assert bytes(kernel.elf.data) == Kernel().elf()
    assert kernel.release == RELEASE
    assert kernel.banner == BANNER.strip()


def test_a_vmlinux_is_taken_too(load: Load) -> None:
    assert load(Kernel().elf()).release == RELEASE


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [0, 1, 200, 256, 1000])
def test_the_symbols_of_each_layout_are_read(load: Load, layout: str, count: int) -> None:
    more = [(TEXT + 0x400 + n // 2, "tTdb"[n % 4], f"sys_{n:x}.part.{n}") for n in range(count)]
    kernel = Kernel(layout=layout, more=more)
    assert listed(load(kernel.elf())) == kernel.symbols()


@pytest.mark.parametrize("layout", LAYOUTS[1:])
@pytest.mark.parametrize("padding", range(0, 24, 3))
def test_where_the_names_end_does_not_matter(load: Load, layout: str, padding: int) -> None:
    kernel = Kernel(layout=layout, more=[(TEXT + 0x999, "t", "x" * (padding + 1))])
    assert listed(load(kernel.elf())) == kernel.symbols()


def test_a_name_of_more_tokens_than_seven_bits_count_is_read(load: Load) -> None:
    name = "_RNvNtNtCs" + "Q" * 300
    kernel = Kernel(more=[(TEXT + 0x900, "T", name)])
    assert load(kernel.elf()).symbols.address(name) == TEXT + 0x900


def test_symbols_are_found_in_a_file_without_section_headers(load: Load) -> None:
    bounds = [(TEXT + 0x400000, "D", "__start_BTF")]
    bounds += [(TEXT + 0x400000 + len(btf().data()), "D", "__stop_BTF")]
    kernel = Kernel(has_sections=False, more=bounds)
    found = load(kernel.elf())
    assert listed(found) == kernel.symbols()
    assert found.btf.offset("task_struct", "pid") == 0


def test_a_symbol_by_name_and_by_address(load: Load) -> None:
    twice = [(TEXT + 0x500, "t", "twin"), (TEXT + 0x600, "t", "twin"), (TEXT + 0x500, "t", "alias")]
    symbols = load(Kernel(more=twice).elf()).symbols
    assert symbols.address("twin") == TEXT + 0x500
    assert symbols.get("nowhere") is None
    with pytest.raises(KeyError):
        symbols.address("nowhere")
    assert symbols.address("current_task") == 0x1A0
    asked = np.array([TEXT + 0x100, TEXT + 0x1FF, TEXT + 0x5FF, TEXT], dtype=np.uint64)
    names = [symbols.names[number] for number in symbols.numbers(asked).tolist()]
    assert names == ["vfs_read", "vfs_read", "twin", "_text"]


def test_segments_and_entry_are_physical(load: Load) -> None:
    kernel = load(Kernel().elf())
    assert kernel.entry == TEXT - PHYSICAL == kernel.segments[0].physical
    assert [segment.virtual for segment in kernel.segments][::3] == [TEXT, DATA]
    assert kernel.physical(DATA) == kernel.segments[3].physical
    assert kernel.read(DATA, 13) == b"Linux version"
    with pytest.raises(ImageError, match="nothing is loaded"):
        kernel.read(0, 8)


def test_call_sites_are_sorted_and_those_of_init_known(load: Load) -> None:
    sites = [TEXT + 0x2000, 0, TEXT + 0x300, TEXT + 0x100, 0, TEXT + 0x200]
    kernel = load(Kernel(sites=sites).elf())
    after = [TEXT + 0x100, TEXT + 0x200, TEXT + 0x300]
    assert kernel.mcount.tolist() == [*after, TEXT + 0x2000]
    assert kernel.mcount_after_boot.tolist() == after
    assert kernel.init_text == (TEXT + 0x2000, TEXT + 0x3000)
    assert kernel.init == (TEXT + 0x2000, TEXT + 0x4000)
    assert kernel.text == (TEXT, TEXT + 0x1000)


def test_the_options_it_was_built_with(load: Load) -> None:
    assert load(Kernel().elf()).config is None
    text = '# x\nCONFIG_SMP=y\nCONFIG_NAME="a=b"\n# CONFIG_NO is not set\n'
    assert load(Kernel(config=text).elf()).config == {"CONFIG_SMP": "y", "CONFIG_NAME": "a=b"}


# --- BTF ------------------------------------------------------------------------------------------


def test_members_sizes_and_enums(load: Load) -> None:
    found = load(Kernel().elf()).btf
    assert found.offset("task_struct", "comm") == 8
    assert found.offset("task_struct", "thread.sp") == 40
    assert found.offset("task_struct", "whole") == 24
    assert found.offset("task_struct", "right") == 28
    assert found.size("task_struct") == 64
    assert found.size("task_struct", "comm") == 16
    assert found.size("task_struct", "pid") == 4 == found.size("pid_t")
    assert found.size("task_struct", "whole") == 8
    assert found.has("task_struct", "thread.es")
    assert not found.has("task_struct", "thread.xx")
    assert not found.has("no_struct", "pid")
    flag = found.member("task_struct", "flag")
    assert (flag.bit_offset, flag.bits) == (32, 3)
    assert found.enum("pid_type") == {"PIDTYPE_PID": 0, "PIDTYPE_TGID": 1}
    assert found.enum("signs") == {"MINUS": -1}
    assert found.enum("wide") == {"WIDE": 2 << 32 | 1}


@pytest.mark.parametrize(
    ("struct", "path", "reason"),
    [
        ("task_struct", "nothing", "no member nothing in task_struct"),
        ("task_struct", "pid.x", r"no member pid\.x in task_struct"),
        ("task_struct", "flag", "bit field"),
        ("cred", "uid", "knows no cred"),
    ],
)
def test_a_member_that_is_none_is_told(load: Load, struct: str, path: str, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        load(Kernel().elf()).btf.offset(struct, path)


def test_types_that_go_round_in_a_circle_end(load: Load) -> None:
    out = BtfWriter()
    out.add(8, "a", 2)
    out.add(8, "b", 1)
    out.struct("self", 8, [("", 4, 0), ("", 4, 0)])
    out.struct("", 8, [("", 3, 0), ("", 4, 0)])
    found = load(Kernel(btf=out.data()).elf()).btf
    with pytest.raises(ImageError, match="circle"):
        found.size("a")
    with pytest.raises(ImageError, match="no member x"):
        found.offset("self", "x")


# --- what is refused ------------------------------------------------------------------------------

ELF = Kernel().elf()
PACKED = PACKERS["gzip"](ELF)
REFUSED = {
    "empty": (b"", "not a vmlinuz"),
    "a script": (b"#!/bin/sh\n" * 100, "not a vmlinuz"),
    "the half of a vmlinuz": (bzimage(PACKED)[: len(PACKED) // 2], "truncated"),
    "the half of a vmlinux": (ELF[: len(ELF) // 2], "truncated"),
    "only a header": (ELF[:64], "truncated"),
    "an old protocol": (bzimage(PACKED, protocol=0x204), r"boot protocol 2\.04 is too old"),
    "32 bits": (bzimage(PACKED, flags=0), "32-bit"),
    "a vmlinux of 32 bits": (Kernel(is_64_bit=False).elf(), "32-bit"),
    "for ARM": (ELF[:18] + b"\xb7\0" + ELF[20:], "not for x86-64"),
    "an object file": (ELF[:16] + b"\1\0" + ELF[18:], "not an executable"),
    "no known packer": (bzimage(b"what is this?" + bytes(100)), "not known"),
    "lzo": (bzimage(b"\x89LZO" + bytes(100)), "lzo"),
    "no ELF in it": (bzimage(PACKERS["xz"](bytes(5000))), "no ELF file in it"),
    "too long when unpacked": (bzimage(PACKED[:-4] + b"\xff\xff\xff\xff"), "bytes when unpacked"),
    "shorter than it says": (bzimage(PACKED[:-4] + b"\0\0\0\1"), "truncated|broken"),
    "no symbols": (ELF.replace(b"\x001\x002\x003", bytes(6)), "no symbols"),
    "not all symbols": (Kernel(without=("__start_mcount_loc",)).elf(), "CONFIG_DYNAMIC_FTRACE"),
    "no BTF": (Kernel(btf=b"").elf(), "no BTF"),
    "half a BTF": (Kernel(btf=btf().data()[:60]).elf(), "BTF"),
    "BTF of another kind": (Kernel(btf=b"\x9f\xeb\2" + btf().data()[3:]).elf(), "BTF"),
    "sites in nowhere": (Kernel(sites=[0x1234]).elf(), "outside its text"),
    "no version": (Kernel(banner="Linux version ").elf(), "version"),
    "no banner": (Kernel(banner="?").elf(), "no symbols"),
}


@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused_in_a_line(load: Load, data: bytes, reason: str) -> None:
    with pytest.raises(ImageError, match=reason) as error:
        load(data)
    assert "\n" not in str(error.value)
    assert "vmlinuz: " in str(error.value)


@pytest.mark.parametrize("packer", PACKERS)
def test_a_payload_that_breaks_off_is_refused(load: Load, packer: str) -> None:
    payload = PACKERS[packer](ELF)
    cut = payload[: len(payload) // 2] + payload[-4:]
    with pytest.raises(ImageError, match=r"truncated|broken"):
        load(bzimage(cut))


@pytest.mark.parametrize(("packer", "library"), [("zstd", "zstandard"), ("lz4", "lz4.block")])
def test_without_the_library_it_is_told_what_to_install(
    load: Load,
    packer: str,
    library: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImageError, match=rf"{packer}: pip install 'ftracefs\[linux\]'"):
        load(vmlinuz(packer=packer))


def test_a_name_of_more_lines_is_shown_in_one(tmp_path: Path) -> None:
    file = tmp_path / "a kernel\nof mine\x1b[31m"
    file.write_bytes(b"what is this?")
    with pytest.raises(ImageError) as error:
        load_vmlinuz(file)
    assert f"{tmp_path}/a kernel\\nof mine\\x1b[31m: not a vmlinuz" in str(error.value)
    file.write_bytes(vmlinuz())
    assert load_vmlinuz(file).release == RELEASE


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="No such file"):
        load_vmlinuz(tmp_path / "nothing")
    with pytest.raises(ImageError, match="Is a directory"):
        load_vmlinuz(tmp_path)


def read_or_refuse(read: Callable[[], object]) -> None:
    """All that is wrong with a file is an ImageError of one line."""
    reason = ""
    try:
        read()
    except ImageError as error:
        reason = str(error)
    assert "\n" not in reason


def read_all(data: bytes) -> None:
    kernel = linux._load("kernel", data, None)
    _ = kernel.config, kernel.mcount_after_boot, kernel.init, kernel.symbols.get("vfs_read")
    read_btf(kernel.btf)


def read_btf(found: Btf) -> None:
    found.offset("task_struct", "thread.sp")
    found.size("task_struct", "comm")
    found.enum("wide")


FLIPS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)), max_size=4
)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=40, deadline=None)
@given(flips=FLIPS, kept=st.floats(0, 1), is_whole=st.booleans())
def test_a_broken_vmlinux_is_read_or_refused(
    layout: str, flips: list[tuple[float, bytes]], kept: float, is_whole: bool
) -> None:
    more = [(TEXT + 0x400 + n, "t", f"sys_{n}") for n in range(300)]
    data = bytearray(Kernel(layout=layout, more=more).elf())
    # Most of it is text: what is broken shall be the rest.
    first = 64 + 4 * 56 + 0x4000
    for place, new in flips:
        at = int(place * 2 * (len(data) - first))
        at = at % 288 if at < len(data) - first else first + at % (len(data) - first)
        data[at : at + len(new)] = new
    kept_data = bytes(data) if is_whole else bytes(data[: int(kept * len(data))])
    read_or_refuse(lambda: read_all(kept_data))


@pytest.mark.parametrize("packer", PACKERS)
@settings(max_examples=20, deadline=None)
@given(flips=FLIPS, kept=st.floats(0, 1), is_whole=st.booleans())
def test_a_broken_vmlinuz_is_read_or_refused(
    packer: str, flips: list[tuple[float, bytes]], kept: float, is_whole: bool
) -> None:
    data = bytearray(vmlinuz(packer=packer))
    for place, new in flips:
        at = int(place * len(data))
        data[at : at + len(new)] = new
    kept_data = bytes(data) if is_whole else bytes(data[: int(kept * len(data))])
    read_or_refuse(lambda: read_all(kept_data))


@settings(max_examples=200, deadline=None)
@given(flips=FLIPS)
def test_a_broken_btf_is_read_or_refused(flips: list[tuple[float, bytes]]) -> None:
    data = bytearray(btf().data())
    for place, new in flips:
        at = int(place * len(data))
        data[at : at + len(new)] = new
    read_or_refuse(lambda: read_btf(Btf(memoryview(bytes(data)))))


# --- kept on disk ---------------------------------------------------------------------------------


def test_what_was_read_once_is_not_unpacked_again(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = vmlinuz(Kernel(config="CONFIG_A=y\n"))
    first = load(data)
    monkeypatch.setattr(linux, "extract_vmlinux", None)
    again = load(data)
    assert again.digest == hashlib.sha256(data).hexdigest() == first.digest
    assert listed(again) == listed(first)
    assert again.mcount.tolist() == first.mcount.tolist()
    assert again.segments == first.segments
    assert again.btf.offset("task_struct", "thread.sp") == 40
    assert again.config == {"CONFIG_A": "y"}


@pytest.mark.parametrize("pattern", ["*.vmlinux", "*.npz"])
@pytest.mark.parametrize("content", [b"", b"PK\3\4 what is this?", None])
def test_a_kept_file_that_is_broken_is_made_anew(
    load: Load, pattern: str, content: bytes | None
) -> None:
    data = vmlinuz()
    first = load(data)
    directory = linux.cache_directory()
    assert directory is not None
    (kept,) = directory.glob(pattern)
    kept.write_bytes(kept.read_bytes()[:-100] if content is None else content)
    assert listed(load(data)) == listed(first)
    assert (directory / kept.name).stat().st_size > 1000


def test_what_is_refused_is_not_kept(load: Load) -> None:
    with pytest.raises(ImageError):
        load(Kernel(sites=[0x1234]).elf())
    directory = linux.cache_directory()
    assert directory is not None
    assert not directory.exists()


def test_only_a_few_kernels_are_kept(load: Load) -> None:
    for number in range(parsed_cache.KEPT + 2):
        load(Kernel(banner=f"Linux version {number} x\n").elf())
    directory = linux.cache_directory()
    assert directory is not None
    assert len(list(directory.iterdir())) == 2 * parsed_cache.KEPT


def test_where_nothing_can_be_kept_it_is_read_all_the_same(
    load: Load,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load(vmlinuz()).release == RELEASE

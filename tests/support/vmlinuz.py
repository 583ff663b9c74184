"""A kernel's image of a few symbols, made here, laid out as kernels of several versions are."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import lz4.block
import zstandard

TEXT, DATA = 0xFFFFFFFF81000000, 0xFFFFFFFF81800000
RELEASE = "6.1.0-test"
BANNER = f"Linux version {RELEASE} (a@b) (cc) #1 SMP\n"
PHYSICAL = 0xFFFFFFFF80000000
# What is spelt by one token, as the kernel's build finds it out; the rest by its characters.
WORDS = (b"sys_", b"vfs_", b"_read", b"__", b"init")


# Since 6.15 per-CPU variables lie with the other data, and not at 0.
PER_CPU_WITH_DATA = ("6.15", "7.0")


def aligned(data: bytes, align: int = 8) -> bytes:
    return data + bytes(-len(data) % align)


# --- kallsyms -------------------------------------------------------------------------------------


def _tokens(names: Sequence[bytes]) -> list[bytes]:
    used = {*b"".join(names), *b"0123456789"}
    tokens = [bytes([code]) if code in used else b"" for code in range(256)]
    free = iter([code for code in range(256) if code not in used])
    for word in WORDS:
        tokens[next(free)] = word
    return tokens


def _encode(name: bytes, tokens: Sequence[bytes]) -> bytes:
    codes = bytearray()
    words = sorted(((t, c) for c, t in enumerate(tokens) if t), key=lambda w: -len(w[0]))
    while name:
        token, code = next((t, c) for t, c in words if name.startswith(t))
        codes.append(code)
        name = name[len(token) :]
    length = len(codes)
    head = bytes([length]) if length < 0x80 else bytes([length & 0x7F | 0x80, length >> 7])
    return head + bytes(codes)


def kallsyms(symbols: Sequence[tuple[int, str, str]], layout: str, place: int) -> bytes:
    """The tables of (address, kind, name), ascending, as `layout` has them, at `place`."""
    pad = partial(aligned, align=4 if layout == "7.0" else 8)
    spelt = [kind.encode() + name.encode() for _, kind, name in symbols]
    tokens = _tokens(spelt)
    names, markers = b"", []
    for number, name in enumerate(spelt):
        if number % 256 == 0:
            markers.append(len(names))
        names += _encode(name, tokens)
    if layout == "plain":
        where = struct.pack(f"<{len(symbols)}Q", *(address for address, _, _ in symbols))
    elif layout in PER_CPU_WITH_DATA:
        offsets = (address - PHYSICAL & 0xFFFFFFFF for address, _, _ in symbols)
        where = pad(struct.pack(f"<{len(symbols)}I", *offsets)) + struct.pack("<Q", PHYSICAL)
    else:
        base = TEXT - 0x1000
        where = struct.pack(
            f"<{len(symbols)}i",
            *(a if a < 1 << 31 else base - 1 - a for a, _, _ in symbols),
        )
        where = pad(where) + struct.pack("<Q", base)
    count = pad(struct.pack("<I", len(symbols)))
    spelling = count + pad(names) + pad(struct.pack(f"<{len(markers)}I", *markers))
    seqs = pad(b"".join(struct.pack(">I", n)[1:] for n in range(len(symbols))))
    table, index = b"", []
    for token in tokens:
        index.append(len(table))
        table += token + b"\0"
    tables = pad(table) + struct.pack("<256H", *index)
    if layout == "7.0":
        begin = place + len(spelling) + len(tables)
        offsets = [address - begin - 4 * n for n, (address, _, _) in enumerate(symbols)]
        where = pad(struct.pack(f"<{len(offsets)}i", *offsets))
    if layout in ("5.10", "plain"):
        return where + spelling + tables
    if layout == "6.2":
        return where + spelling + seqs + tables
    return spelling + tables + where + seqs


# --- BTF ------------------------------------------------------------------------------------------


@dataclass
class BtfWriter:
    """Types in the order in which they are added: the first has number 1."""

    types: bytes = b""
    strings: bytes = b"\0"
    count: int = 0

    def string(self, text: str) -> int:
        if not text:
            return 0
        at = len(self.strings)
        self.strings += text.encode() + b"\0"
        return at

    def add(
        self, kind: int, name: str, last: int, words: Sequence[int] = (), parts: int = 0
    ) -> int:
        flag = parts < 0
        info = kind << 24 | abs(parts) | flag << 31
        head = (self.string(name), info, last)
        self.types += struct.pack(f"<{3 + len(words)}I", *head, *words)
        self.count += 1
        return self.count

    def struct(
        self, name: str, size: int, members: Sequence[tuple[str, int, int]], *, union: bool = False
    ) -> int:
        """Members: name, type, place in bits; with the width in bits 24 up it has bit fields."""
        words = [word for n, t, place in members for word in (self.string(n), t, place)]
        with_bits = any(place >> 24 for _, _, place in members)
        parts = -len(members) if with_bits else len(members)
        return self.add(5 if union else 4, name, size, words, parts)

    def data(self) -> bytes:
        lengths = (24, 0, len(self.types), len(self.types), len(self.strings))
        return struct.pack("<HBB5I", 0xEB9F, 1, 0, *lengths) + self.types + self.strings


def btf() -> BtfWriter:
    """struct task_struct with a pid, and one of each way to hide a member."""
    out = BtfWriter()
    int_ = out.add(1, "int", 4, [32])  # 1
    char = out.add(1, "char", 1, [8])
    pid_t = out.add(8, "pid_t", int_)
    comm = out.add(3, "", 0, [char, int_, 16])
    pointer = out.add(2, "", 0)
    constant = out.add(10, "", pid_t)
    unnamed = out.struct("", 8, [("left", int_, 0), ("right", int_, 32)])
    choice = out.struct("", 8, [("whole", pointer, 0), ("", unnamed, 0)], union=True)
    thread = out.struct("thread_struct", 16, [("es", int_, 0), ("sp", pointer, 64)])
    out.struct(
        "task_struct",
        64,
        [
            ("pid", constant, 0),
            ("flag", int_, 32 | 3 << 24),
            ("comm", comm, 64),
            ("", choice, 192),
            ("thread", thread, 256),
        ],
    )
    out.add(6, "pid_type", 4, [out.string("PIDTYPE_PID"), 0, out.string("PIDTYPE_TGID"), 1], 2)
    out.add(6, "signs", 4, [out.string("MINUS"), 0xFFFFFFFF], -1)
    out.add(19, "wide", 8, [out.string("WIDE"), 1, 2], 1)
    out.add(13, "", 0, [0, int_, 0, int_], 2)
    out.add(14, "variable", int_, [1])
    return out


# --- the file -------------------------------------------------------------------------------------


@dataclass
class Kernel:
    """What to make; each test changes what it is about."""

    layout: str = "6.2"
    functions: dict[str, int] = field(
        default_factory=lambda: {"vfs_read": 0x100, "ksys_read": 0x200, "__x64_sys_read": 0x300}
    )
    init_functions: dict[str, int] = field(default_factory=lambda: {"start_kernel": 0x2000})
    sites: list[int] | None = None
    banner: str = BANNER
    btf: bytes = field(default_factory=lambda: btf().data())
    config: str | None = None
    more: list[tuple[int, str, str]] = field(default_factory=list)
    without: tuple[str, ...] = ()
    has_sections: bool = True
    is_64_bit: bool = True

    def symbols(self) -> list[tuple[int, str, str]]:
        found = list(self.more)
        if self.layout not in PER_CPU_WITH_DATA:
            found += [(0, "A", "fixed_percpu_data"), (0x1A0, "A", "current_task")]
        found += [(TEXT, "T", "_text"), (TEXT, "T", "_stext"), (TEXT + 0x1000, "T", "_etext")]
        found += [(TEXT + at, "T", name) for name, at in self.functions.items()]
        found += [(TEXT + 0x2000, "D", "__init_begin"), (TEXT + 0x2000, "T", "_sinittext")]
        found += [(TEXT + at, "t", name) for name, at in self.init_functions.items()]
        found += [(TEXT + 0x3000, "T", "_einittext"), (TEXT + 0x4000, "D", "__init_end")]
        sites = 8 * len(self._sites())
        found += [(DATA, "R", "linux_banner"), (DATA + 0x1000, "D", "__start_mcount_loc")]
        found += [(DATA + 0x1000 + sites, "D", "__stop_mcount_loc")]
        found.sort(key=lambda symbol: symbol[0])
        return [symbol for symbol in found if symbol[2] not in self.without]

    def _sites(self) -> list[int]:
        if self.sites is not None:
            return self.sites
        return [TEXT + at for at in (*self.functions.values(), *self.init_functions.values())]

    def elf(self) -> bytes:
        text = bytes(0x4000)
        rodata = kallsyms(self.symbols(), self.layout, TEXT + 0x4000)
        data = self.banner.encode().ljust(0x1000, b"\0")
        data += struct.pack(f"<{len(self._sites())}Q", *self._sites())
        if self.config is not None:
            data += b"IKCFG_ST" + gzip.compress(self.config.encode()) + b"IKCFG_ED"
        parts = [
            (".text", TEXT, text, 5),
            (".rodata", TEXT + 0x4000, rodata, 4),
            (".BTF", TEXT + 0x400000, self.btf, 4),
            (".data", DATA, data, 6),
        ]
        return _elf(parts, self.has_sections, self.is_64_bit)


def _elf(parts: Sequence[tuple[str, int, bytes, int]], sections: bool, is_64_bit: bool) -> bytes:
    names = b"\0" + b"".join(name.encode() + b"\0" for name, _, _, _ in parts) + b".shstrtab\0"
    body, headers = b"", b""
    section_headers = [bytes(64)]
    begin = 64 + 56 * len(parts)
    for name, address, data, flags in parts:
        at = begin + len(body)
        size = len(data)
        if name != ".BTF" or size:
            load = struct.pack(
                "<IIQQQQQQ", 1, flags, at, address, address - PHYSICAL, size, size, 1
            )
        else:
            load = bytes(56)
        headers += load
        header = (names.find(name.encode()), 1, 2, address, at, size, 0, 0, 1, 0)
        if size:
            section_headers.append(struct.pack("<IIQQQQIIQQ", *header))
        body += aligned(data)
    at = begin + len(body)
    header = (names.find(b".shstrtab"), 3, 0, 0, at, len(names), 0, 0, 1, 0)
    section_headers.append(struct.pack("<IIQQQQIIQQ", *header))
    body += aligned(names)
    count = len(section_headers) if sections else 0
    ident = b"\x7fELF" + bytes([2 if is_64_bit else 1, 1, 1]) + bytes(9)
    offsets = (64, begin + len(body) if sections else 0)
    head = struct.pack("<HHIQQQI", 2, 62, 1, TEXT - PHYSICAL, *offsets, 0)
    head += struct.pack("<6H", 64, 56, len(parts), 64, count, max(count - 1, 0))
    return ident + head + headers + body + b"".join(section_headers if sections else [])


# --- packed ---------------------------------------------------------------------------------------


def _lz4(data: bytes) -> bytes:
    blocks = b"\x02\x21\x4c\x18"
    for start in range(0, len(data), 8 << 20):
        block = lz4.block.compress(data[start : start + (8 << 20)], store_size=False)
        blocks += struct.pack("<I", len(block)) + block
    return blocks


def _sized(pack: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda data: pack(data) + struct.pack("<I", len(data))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,  # its own last four bytes are the length
    "bzip2": _sized(bz2.compress),
    "xz": _sized(lambda data: lzma.compress(data, check=lzma.CHECK_CRC32)),
    "lzma": _sized(lambda data: lzma.compress(data, format=lzma.FORMAT_ALONE)),
    "zstd": _sized(zstandard.ZstdCompressor().compress),
    "lz4": _sized(_lz4),
}


def bzimage(payload: bytes, *, protocol: int = 0x20F, flags: int = 1, offset: int = 0x100) -> bytes:
    """A packed vmlinux behind a boot sector, two sectors of setup code and a stub."""
    image = bytearray(3 * 512)
    image[0x1F1] = 2
    struct.pack_into("<H", image, 0x1FE, 0xAA55)
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", image, 0x206, protocol)
    struct.pack_into("<H", image, 0x236, flags)
    struct.pack_into("<II", image, 0x248, offset, len(payload))
    return bytes(image) + bytes(offset) + payload + bytes(16)


def vmlinuz(kernel: Kernel | None = None, packer: str = "gzip") -> bytes:
    return bzimage(PACKERS[packer]((kernel or Kernel()).elf()))

"""Finds and reads the symbol tables that a kernel carries for itself (scripts/kallsyms.c).

    kallsyms_offsets, relative_base   addresses, ascending (before 6.4 in front of num_syms, since
                                      then behind token_index); plain addresses where the kernel
                                      was so configured; since 7.0 distances from the place where
                                      each stands, and no base
    kallsyms_num_syms, names          for each symbol a length and as many tokens; the first
                                      character is its kind
    kallsyms_markers                  where each 256th name begins
    kallsyms_seqs_of_names            their order by name: not needed (6.2 and 6.3 have it here)
    kallsyms_token_table, token_index what each of the 256 tokens spells

Nothing says where they lie. The tokens of the digits are the digits, so the token table is found by
them and all else from there; each step is checked by what the tables say of each other. They are
read here and not by vmlinux-to-elf, which is GPL-3 where this program is GPL-2 only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from emulated_kernel.errors import ImageError
from emulated_kernel.linux.elf_file import ElfFile
from emulated_kernel.linux.symbols import I64, U64, KernelSymbols

U8 = npt.NDArray[np.uint8]

_DIGITS = re.compile(b"".join(b"%d\0" % digit for digit in range(10)))
_TOKENS, _FIRST_DIGIT = 256, ord("0")
_BLOCK = 256  # symbols to a marker
_NAME_BYTES = 260  # of one symbol, with its length
_SYMBOLS_LIMIT = 1 << 20
_NAMES_LIMIT = 32 << 20  # bytes, also spelt out
_TABLES_TRIED, _STEPS = 4, 200_000  # what a file made to waste our time can waste of it
_NEWLINE, _NOTHING = _TOKENS, _TOKENS + 1  # tokens of our own
_BEGINS = (b"_text", b"_stext", b"startup_64")
_BANNER_NAME, _BANNER = b"linux_banner", b"Linux version "


@dataclass(frozen=True, slots=True)
class _Tokens:
    table: int  # offsets in the file
    index: int
    starts: I64  # of each token, from `table` on
    lengths: I64


@dataclass(frozen=True, slots=True)
class _Names:
    num_syms: int  # offset in the file
    count: int
    start: int
    at: I64  # of each symbol its first token, from the start of the file on
    lengths: I64


class _Budget:
    """What may be spent on one file."""

    def __init__(self) -> None:
        self._left = _STEPS

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise ImageError("broken: its symbols are not to be found")


def read_kallsyms(elf: ElfFile) -> KernelSymbols:
    """The symbols in a kernel's image. Raises ImageError for one that has none."""
    data = np.frombuffer(elf.data, dtype=np.uint8)
    budget = _Budget()
    for tokens in _find_tokens(elf):
        for names in _find_names(data, tokens, budget):
            spelt = _spell(data, tokens, names)
            if spelt is None:
                continue
            kinds, text = spelt
            begins, banners = _numbers(text, _BEGINS), _numbers(text, [_BANNER_NAME])
            for addresses in _find_addresses(elf, data, tokens, names):
                if _is_right(elf, addresses, begins, banners):
                    return KernelSymbols(addresses, kinds, text)
    raise ImageError("no symbols in it: a kernel with CONFIG_KALLSYMS is needed")


def _is_right(elf: ElfFile, addresses: U64, begins: list[int], banners: list[int]) -> bool:
    """They ascend, and what the file has at two of them is what there should be.

    One would not do: where the first symbols are at one address, distances that count from each
    place are right for it when they are taken from the place before.
    """
    texts = {segment.virtual for segment in elf.segments if segment.executable}
    return (
        bool((addresses[1:] >= addresses[:-1]).all())
        and any(int(addresses[number]) in texts for number in begins)
        and all(elf.has(int(addresses[number]), _BANNER) for number in banners)
    )


def _numbers(text: bytes, names: Sequence[bytes]) -> list[int]:
    """The numbers of these names, where there are such."""
    lines = b"\n" + text + b"\n"
    places = (lines.find(b"\n%s\n" % name) for name in names)
    return [lines.count(b"\n", 0, place) for place in places if place >= 0]


# --- tokens ---------------------------------------------------------------------------------------


def _find_tokens(elf: ElfFile) -> Iterator[_Tokens]:
    """The token tables in the file; read-only data is looked through before everything."""
    places = [(0, elf.data)]
    if rodata := elf.sections.get(".rodata"):
        places.insert(0, (rodata.offset, rodata.data))
    seen = set()
    for offset, place in places:
        for found in islice(_DIGITS.finditer(place), _TABLES_TRIED):
            tokens = _tokens_around(elf.data, offset + found.start())
            if tokens is not None and tokens.table not in seen:
                seen.add(tokens.table)
                yield tokens


def _tokens_around(data: memoryview, digits: int) -> _Tokens | None:
    """The table whose digits stand there, if it is one: the index behind it agrees with it."""
    behind = np.frombuffer(data[digits : digits + _TOKENS * _NAME_BYTES], dtype=np.uint8)
    ends = np.flatnonzero(behind == 0)[: _TOKENS - _FIRST_DIGIT]
    if len(ends) < _TOKENS - _FIRST_DIGIT:
        return None
    end = digits + int(ends[-1]) + 1
    for align in (8, 4):
        at = -(-end // align) * align
        index = np.frombuffer(data[at : at + 2 * _TOKENS], dtype="<u2").astype(np.int64)
        if len(index) < _TOKENS or index[_FIRST_DIGIT] > digits:
            continue
        table = digits - int(index[_FIRST_DIGIT])
        spelt = np.frombuffer(data[table:end], dtype=np.uint8)
        stops = np.flatnonzero(spelt == 0)
        if len(stops) == _TOKENS and index[0] == 0 and (index[1:] == stops[:-1] + 1).all():
            return _Tokens(table, at, index, stops - index)
    return None


# --- names ----------------------------------------------------------------------------------------


def _find_names(data: U8, tokens: _Tokens, budget: _Budget) -> Iterator[_Names]:
    """The names in front of a token table, each way the tables can be laid out."""
    for markers in _markers_before(data, tokens.table, budget):
        for num_syms, start, count in _counts_before(data, markers):
            names = _names_at(data, num_syms, start, count, markers, budget)
            if names is not None:
                yield names


@dataclass(frozen=True, slots=True)
class _Markers:
    at: int  # offset in the file
    values: I64


def _words(data: U8, start: int, end: int) -> I64:
    return data[start:end].view("<u4").astype(np.int64)


def _markers_before(data: U8, end: int, budget: _Budget) -> Iterator[_Markers]:
    end &= ~3  # the table of tokens is aligned
    first = max(0, end - 4 * (_SYMBOLS_LIMIT // _BLOCK))
    words = _words(data, first, end)
    for padding in (0, 1):
        run = words[: len(words) - padding]
        falls = np.flatnonzero(np.diff(run) <= 0)
        start = int(falls[-1]) + 1 if len(falls) else 0
        if start < len(run) and run[start] == 0:
            yield _Markers(first + 4 * start, run[start:])
    yield from _markers_before_seqs(data, end, budget)


def _markers_before_seqs(data: U8, end: int, budget: _Budget) -> Iterator[_Markers]:
    """Where three bytes for each symbol stand between, for each number of symbols."""
    counts = np.arange(1, min(_SYMBOLS_LIMIT, end // 3))
    blocks = -(-counts // _BLOCK)
    starts = end - (3 * counts + 7) // 8 * 8 - (4 * blocks + 7) // 8 * 8
    starts, blocks = starts[starts >= 0], blocks[starts >= 0]
    words = data[: len(data) & ~3].view("<u4")
    second = words[starts // 4 + 1]
    fits = (words[starts // 4] == 0) & ((blocks == 1) | (second >= _BLOCK))
    fits &= (blocks == 1) | (second < _BLOCK * _NAME_BYTES)
    for start, count in np.unique(np.stack([starts[fits], blocks[fits]]), axis=1).T.tolist():
        budget.spend(1 + count // _BLOCK)
        values = _words(data, start, start + 4 * count)
        if (np.diff(values) > 0).all():
            yield _Markers(start, values)


def _counts_before(data: U8, markers: _Markers) -> Iterator[tuple[int, int, int]]:
    """Where a number of symbols stands that agrees with the markers: its place, names, number."""
    blocks = len(markers.values)
    last = markers.at - int(markers.values[-1])  # the last marker counts from the names on
    first = max(0, last - _BLOCK * _NAME_BYTES) & ~3
    words = _words(data, first, max(first, last & ~3))
    fits = np.flatnonzero((words > (blocks - 1) * _BLOCK) & (words <= blocks * _BLOCK))
    for place in (first + 4 * fits).tolist():
        for gap in (8, 4):
            yield place, place + gap, int(words[(place - first) // 4])


def _names_at(
    data: U8, num_syms: int, start: int, count: int, markers: _Markers, budget: _Budget
) -> _Names | None:
    """Go from name to name, in all blocks at once: each ends where the next one begins."""
    at = start + markers.values
    places = np.zeros((_BLOCK, len(at)), dtype=np.int64)
    lengths = np.zeros_like(places)
    left = count - (len(at) - 1) * _BLOCK  # in the last block
    for row in range(_BLOCK):
        budget.spend(1 + len(at) // _BLOCK)
        if row == left:
            if not 0 <= markers.at - int(at[-1]) <= 8:
                return None
            at = at[:-1]
        if not len(at):
            break
        if at.max() >= markers.at:
            return None
        length = data[at].astype(np.int64)
        is_long = length >= 0x80  # ULEB128, since 6.1
        length = np.where(is_long, (length & 0x7F) | data[at + 1].astype(np.int64) << 7, length)
        if not length.all():
            return None
        at = at + 1 + is_long
        places[row, : len(at)], lengths[row, : len(at)] = at, length
        at = at + length
    follows = at if left < _BLOCK else at[:-1]
    if (follows != start + markers.values[1:]).any():
        return None
    return _Names(num_syms, count, start, places.T.ravel()[:count], lengths.T.ravel()[:count])


def _spell(data: U8, tokens: _Tokens, names: _Names) -> tuple[bytes, bytes] | None:
    """The letters and the names, one a line; None where they are not as many as they should be."""
    end = int(names.at[-1] + names.lengths[-1])
    if end - names.start > _NAMES_LIMIT:
        return None
    codes = data[names.start : end].astype(np.int64)
    first = names.at - names.start
    begins = np.concatenate([[0], (first + names.lengths)[:-1]])
    codes[first - 1] = _NOTHING
    codes[begins] = _NEWLINE
    table = data[tokens.table : tokens.index]
    newline = len(table)
    spelling = np.append(table, ord("\n")).astype(np.uint8)
    starts = np.append(tokens.starts, [newline, newline])
    lengths = np.append(tokens.lengths, [1, 0])[codes]
    ends = np.cumsum(lengths)
    if ends[-1] > _NAMES_LIMIT:
        return None
    text = spelling[np.repeat(starts[codes] - ends + lengths, lengths) + np.arange(ends[-1])]
    lines = np.flatnonzero(text == ord("\n"))
    if len(lines) != names.count or lines[-1] + 1 == len(text):
        return None
    kept = np.ones(len(text), dtype=bool)
    kept[lines + 1] = False
    kept[0] = False
    return text[lines + 1].tobytes(), text[kept].tobytes()


# --- addresses ------------------------------------------------------------------------------------


def _find_addresses(elf: ElfFile, data: U8, tokens: _Tokens, names: _Names) -> Iterator[U64]:
    """The addresses of the names, in each way they are written down."""
    count = names.count
    behind = tokens.index + 2 * _TOKENS
    for align in (8, 4):
        offsets = -(-behind // align) * align
        base = -(-(offsets + 4 * count) // 8) * 8
        yield from _relative(data, offsets, base, count)
        yield from _place_relative(elf, data, offsets, count)
    base = names.num_syms - 8
    yield from _relative(data, base - -(-4 * count // 8) * 8, base, count)
    start = names.num_syms - 8 * count
    if start >= 0:
        yield data[start : names.num_syms].view("<u8").astype(np.uint64)


def _relative(data: U8, offsets: int, base: int, count: int) -> Iterator[U64]:
    if offsets < 0 or base + 8 > len(data):
        return
    (start,) = data[base : base + 8].view("<u8").tolist()
    values = data[offsets : offsets + 4 * count].view("<i4").astype(np.int64)
    # KALLSYMS_ABSOLUTE_PERCPU: what is not negative is an address itself.
    words = values.view(np.uint64)
    yield np.where(values >= 0, words, ~words + np.uint64(start))
    yield (values & 0xFFFFFFFF).view(np.uint64) + np.uint64(start)


def _place_relative(elf: ElfFile, data: U8, offsets: int, count: int) -> Iterator[U64]:
    values = data[offsets : offsets + 4 * count]
    place = elf.address(offsets)
    if place is not None and len(values) == 4 * count:
        places = np.uint64(place) + np.arange(0, 4 * count, 4, dtype=np.uint64)
        yield places + values.view("<i4").astype(np.int64).view(np.uint64)

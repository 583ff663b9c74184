"""The kernel's own type information: where the members of its structures lie (kernel/bpf/btf.c).

A header, then types one behind the other, each naming others by number, then all strings. Left out:
functions and their arguments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from emulated_kernel.errors import ImageError

_MAGIC, _VERSION, _HEADER_BYTES = 0xEB9F, 1, 24
(_INT, _PTR, _ARRAY, _STRUCT, _UNION, _ENUM, _FWD, _TYPEDEF, _VOLATILE, _CONST, _RESTRICT) = range(
    1, 12
)
_FUNC, _FUNC_PROTO, _VAR, _DATASEC, _FLOAT, _DECL_TAG, _TYPE_TAG, _ENUM64 = range(12, 20)
_POINTER_BYTES = 8
_FIXED_WORDS = 3  # of every type
# A kind, and the words behind the fixed ones: once, and for each part of it.
_BEHIND = (
    *((_INT, 1, 0), (_PTR, 0, 0), (_ARRAY, 3, 0), (_STRUCT, 0, 3), (_UNION, 0, 3), (_ENUM, 0, 2)),
    *((_FWD, 0, 0), (_TYPEDEF, 0, 0), (_VOLATILE, 0, 0), (_CONST, 0, 0), (_RESTRICT, 0, 0)),
    *((_FUNC, 0, 0), (_FUNC_PROTO, 0, 2), (_VAR, 1, 0), (_DATASEC, 0, 3), (_FLOAT, 0, 0)),
    *((_DECL_TAG, 1, 0), (_TYPE_TAG, 0, 0), (_ENUM64, 0, 3)),
)
_KINDS = {kind: (once, each) for kind, once, each in _BEHIND}
_NAMES_ANOTHER = {_TYPEDEF, _VOLATILE, _CONST, _RESTRICT, _TYPE_TAG}
_DEPTH_LIMIT = 64

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a structure: `bits` is 0 for one that is no bit field."""

    bit_offset: int
    bits: int
    type: int

    @property
    def offset(self) -> int:
        return self.bit_offset // 8


class _Type(NamedTuple):
    """Where a type begins, in words; `parts` is how many it has, `flag` as in btf_type."""

    at: int
    kind: int
    parts: int
    flag: bool


class Btf:
    """The types in a .BTF section. `starts` is what `starts` of the same section was, if known."""

    def __init__(self, data: memoryview, starts: npt.NDArray[np.int64] | None = None) -> None:
        if len(data) < _HEADER_BYTES:
            raise ImageError("broken: no BTF header")
        header = np.frombuffer(data[:_HEADER_BYTES], dtype="<u4").tolist()
        magic, version = header[0] & 0xFFFF, header[0] >> 16 & 0xFF
        length, type_at, type_bytes, string_at, string_bytes = header[1:]
        if magic != _MAGIC or version != _VERSION:
            raise ImageError("broken: BTF of another kind")
        if max(length + type_at + type_bytes, length + string_at + string_bytes) > len(data):
            raise ImageError("truncated: the BTF is not all there")
        types = data[length + type_at : length + type_at + (type_bytes & ~3)]
        self._words: Words = np.frombuffer(bytes(types), dtype="<u4")
        self._strings = bytes(data[length + string_at : length + string_at + string_bytes])
        self.starts = self._find_starts() if starts is None else starts
        self._called: dict[str, list[tuple[int, int]]] = {}  # number and kind of what has a name

    def _find_starts(self) -> npt.NDArray[np.int64]:
        """Where each type begins, in words; what has number 0 is void and has none."""
        words = self._words.tolist()
        starts, at, end = [0], 0, len(words) - _FIXED_WORDS + 1
        while at < end:
            starts.append(at)
            info = words[at + 1]
            extra = _KINDS.get(info >> 24 & 0x1F)
            if extra is None:
                raise ImageError(f"broken: BTF of kind {info >> 24 & 0x1F}")
            at += _FIXED_WORDS + extra[0] + extra[1] * (info & 0xFFFF)
        if at != len(words):
            raise ImageError("broken: BTF that ends in the middle of a type")
        return np.array(starts, dtype=np.int64)

    @cached_property
    def _by_kind(self) -> tuple[Words, Words]:
        """The name and the kind of each type."""
        kinds = self._words[self.starts + 1] >> np.uint32(24) & np.uint32(0x1F)
        return self._words[self.starts], kinds

    # --- what is asked for ------------------------------------------------------------------------

    def offset(self, struct: str, path: str) -> int:
        """Where a member lies in a structure, in bytes.

        `path` may lead on into it: `thread.sp`. Members of what has no name count as members of
        what it is in. Raises ImageError for a bit field, or if there is none.
        """
        member = self.member(struct, path)
        if member.bits:
            raise ImageError(f"{struct}.{path} is a bit field")
        return member.offset

    def member(self, struct: str, path: str) -> Member:
        """A member of a structure, bit fields too. Raises ImageError if there is none."""
        type_id, offset, bits = self._named(struct), 0, 0
        for name in path.split("."):
            found = self._find_member(type_id, name, set())
            if found is None:
                raise ImageError(f"its BTF has no member {path} in {struct}")
            type_id, offset, bits = found.type, offset + found.bit_offset, found.bits
        return Member(offset, bits, type_id)

    def has(self, struct: str, path: str) -> bool:
        """Whether there is such a member."""
        try:
            self.member(struct, path)
        except ImageError:
            return False
        return True

    def size(self, name: str, path: str = "") -> int:
        """How many bytes a structure has, or a member of it, or what a typedef names."""
        return self._size(self.member(name, path).type if path else self._named(name), 0)

    def enum(self, name: str) -> dict[str, int]:
        """The names in an enum and their values."""
        found = self._type(self._find(name, (_ENUM, _ENUM64)))
        values = {}
        for name_at, low, *high in self._parts(found, 3 if found.kind == _ENUM64 else 2):
            sign = 1 << (63 if high else 31)
            value = low | high[0] << 32 if high else low
            is_negative = found.flag and value & sign
            values[self._string(name_at)] = value - 2 * sign if is_negative else value
        return values

    def enumerator(self, name: str) -> int:
        """The value of a name in some enum, which itself may have none."""
        place = self._strings.find(b"\0" + name.encode() + b"\0") + 1
        _, kinds = self._by_kind
        for at in np.flatnonzero(self._words == place).tolist() if place else []:
            type_id = int(np.searchsorted(self.starts, at, "right")) - 1
            found = self._type(type_id)
            behind = at - found.at - _FIXED_WORDS
            if kinds[type_id] == _ENUM and behind >= 0 and behind % 2 == 0:
                return int(self._words[at + 1])
        raise ImageError(f"its BTF knows no {name}")

    # --- how it is found --------------------------------------------------------------------------

    def _string(self, offset: int) -> str:
        return self._strings[offset : self._strings.find(b"\0", offset)].decode("utf-8", "replace")

    def _type(self, type_id: int) -> _Type:
        if not 0 < type_id < len(self.starts):
            raise ImageError(f"broken: BTF names a type {type_id}")
        at = int(self.starts[type_id])
        info = int(self._words[at + 1])
        return _Type(at, info >> 24 & 0x1F, info & 0xFFFF, bool(info >> 31))

    def _parts(self, whole: _Type, words: int) -> list[list[int]]:
        """What stands behind a type, `words` for each of its parts."""
        begin = whole.at + _FIXED_WORDS
        parts: list[list[int]] = (
            self._words[begin : begin + words * whole.parts].reshape(-1, words).tolist()
        )
        return parts

    def _find(self, name: str, kinds: tuple[int, ...]) -> int:
        if name not in self._called:
            place = self._strings.find(b"\0" + name.encode() + b"\0")
            names, all_kinds = self._by_kind
            found = np.flatnonzero(names == place + 1) if place >= 0 else names[:0]
            self._called[name] = [(number, int(all_kinds[number])) for number in found.tolist()]
        for number, kind in self._called[name]:
            if number and kind in kinds:
                return number
        raise ImageError(f"its BTF knows no {name}")

    def _named(self, name: str) -> int:
        try:
            return self._find(name, (_STRUCT, _UNION))
        except ImageError:
            return self._find(name, (_TYPEDEF, _INT, _ENUM, _ENUM64, _FLOAT))

    def _resolve(self, type_id: int) -> int:
        """What is behind typedefs, const and the like."""
        for _ in range(_DEPTH_LIMIT):
            found = self._type(type_id)
            if found.kind not in _NAMES_ANOTHER:
                return type_id
            type_id = int(self._words[found.at + 2])
        raise ImageError("broken: BTF whose types go round in a circle")

    def _find_member(self, type_id: int, name: str, seen: set[int]) -> Member | None:
        type_id = self._resolve(type_id)
        struct = self._type(type_id)
        if struct.kind not in (_STRUCT, _UNION) or type_id in seen or len(seen) > _DEPTH_LIMIT:
            return None
        seen.add(type_id)
        unnamed = []
        for name_at, member_type, place in self._parts(struct, 3):
            offset, bits = (place & 0xFFFFFF, place >> 24) if struct.flag else (place, 0)
            found_name = self._string(name_at)
            if found_name == name:
                return Member(offset, bits, member_type)
            if not found_name:
                unnamed.append((offset, member_type))
        for offset, member_type in unnamed:
            found = self._find_member(member_type, name, seen)
            if found is not None:
                return Member(offset + found.bit_offset, found.bits, found.type)
        return None

    def _size(self, type_id: int, depth: int) -> int:
        found = self._type(self._resolve(type_id))
        if found.kind == _PTR:
            return _POINTER_BYTES
        if found.kind == _ARRAY and depth < _DEPTH_LIMIT:
            element, _, count = self._words[found.at + 3 : found.at + 6].tolist()
            return int(count) * self._size(element, depth + 1)
        if found.kind in (_INT, _STRUCT, _UNION, _ENUM, _ENUM64, _FLOAT):
            return int(self._words[found.at + 2])
        raise ImageError("its BTF gives no size for that")

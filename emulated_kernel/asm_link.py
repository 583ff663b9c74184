"""The assembler's back end: gives everything an address and writes it down.

A section is kept as chunks. A chunk is a run of bytes of known length with at most one thing behind
it whose length depends on addresses: an alignment, or a jump that is two bytes long when its target
is near. Jumps start short and grow until all of them reach, in the order in which GNU `as` does it:
where an alignment swallows the growth of one jump, the order decides whether another has to follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from emulated_kernel.asm_expression import (
    Expression,
    Refused,
    evaluate,
    fold,
    names,
    parse,
    signed64,
)
from emulated_kernel.asm_instruction import Encoding, Fixup, Jump
from emulated_kernel.asm_source import (
    Align,
    Complaints,
    Instruction,
    Label,
    Program,
    Raw,
    Site,
    Statement,
    Values,
)
from emulated_kernel.assembly import Assembly, Symbol
from emulated_kernel.errors import AssemblerError


@dataclass(slots=True)
class _Patch:
    """A fixup at its place in a chunk: bytes `start` to `end` are the statement it belongs to."""

    fixup: Fixup
    start: int
    end: int
    site: Site


@dataclass(slots=True)
class _Branch:
    jump: Jump
    site: Site
    is_near: bool = False
    home: _Chunk | None = None  # where the target stands, if in the same section

    @property
    def opcode(self) -> bytes:
        return self.jump.near if self.is_near else self.jump.short

    @property
    def width(self) -> int:
        return 4 if self.is_near else 1

    def length(self, _address: int) -> int:
        return len(self.opcode) + self.width


@dataclass(slots=True)
class _Padding:
    align: Align

    def length(self, address: int) -> int:
        return -address % self.align.size


@dataclass(slots=True)
class _Chunk:
    code: bytearray = field(default_factory=bytearray)
    labels: list[tuple[str, int]] = field(default_factory=list)
    patches: list[_Patch] = field(default_factory=list)
    tail: _Branch | _Padding | None = None
    address: int = 0
    number: int = 0
    region: int = 0  # how many alignments stand before it

    @property
    def end(self) -> int:
        return self.address + len(self.code)


def link(
    program: Program,
    read_instruction: Callable[[str], Encoding | Jump],
    bases: Mapping[str, int],
    externs: Mapping[str, int],
) -> Assembly:
    """Turn a program into bytes at the addresses of `bases`."""
    linker = _Linker(program, bases, externs)
    linker.encode(read_instruction)
    linker.relax()
    return linker.finish()


class _Linker:
    def __init__(
        self, program: Program, bases: Mapping[str, int], externs: Mapping[str, int]
    ) -> None:
        self.program = program
        self.bases = bases
        self.addresses: dict[str, int] = {}
        self.externs = externs
        self.complaints = Complaints()
        self.sections: dict[str, list[_Chunk]] = {name: [_Chunk()] for name in bases}
        for name, site in program.labels.items():
            if name in externs:
                self.complaints.add(site.error(f"{name} exists elsewhere already"))

    # --- statements to chunks -------------------------------------------------------------------

    def encode(self, read_instruction: Callable[[str], Encoding | Jump]) -> None:
        constants = self.program.constants
        for statement in self.program.statements:
            try:
                chunks = self.sections[statement.section]
            except KeyError:
                what = f"no address for section {statement.section}"
                self.complaints.add(statement.site.error(what))
                continue
            chunk = chunks[-1]
            try:
                if isinstance(statement, Instruction):
                    self._add_instruction(chunk, statement, read_instruction(statement.text))
                elif isinstance(statement, Values):
                    self._add_values(chunk, statement, constants)
                else:
                    self._add_plain(chunk, statement)
            except Refused as what:
                self.complaints.add(statement.site.error(what))
            if chunk.tail is not None:
                chunks.append(_Chunk())
        self.complaints.raise_any()

    @staticmethod
    def _add_plain(chunk: _Chunk, statement: Statement) -> None:
        if isinstance(statement, Label):
            chunk.labels.append((statement.name, len(chunk.code)))
        elif isinstance(statement, Raw):
            chunk.code += statement.data
        elif isinstance(statement, Align):
            chunk.tail = _Padding(statement)

    @staticmethod
    def _add_instruction(chunk: _Chunk, statement: Instruction, encoding: Encoding | Jump) -> None:
        if isinstance(encoding, Jump):
            chunk.tail = _Branch(encoding, statement.site)
            return
        start = len(chunk.code)
        chunk.code += encoding.code
        for fixup in encoding.fixups:
            chunk.patches.append(_Patch(fixup, start, len(chunk.code), statement.site))

    @staticmethod
    def _add_values(chunk: _Chunk, statement: Values, constants: Mapping[str, int]) -> None:
        for expression in statement.expressions:
            start = len(chunk.code)
            value = fold(parse(expression), constants)
            chunk.code += bytes(statement.width)
            fixup = Fixup(0, statement.width, value, signed=False)
            chunk.patches.append(_Patch(fixup, start, len(chunk.code), statement.site))

    # --- addresses ------------------------------------------------------------------------------

    def _place(self, chunk: _Chunk, address: int) -> None:
        chunk.address = address
        for label, offset in chunk.labels:
            self.addresses[label] = address + offset

    def _value(self, tree: Expression, here: int) -> int:
        addresses = self.addresses
        if isinstance(tree, str) and tree in addresses:
            return addresses[tree]

        def value_of(name: str) -> int:
            if name == ".":
                return here
            if name in addresses:
                return addresses[name]
            raise Refused(f"undefined symbol {self.program.written.get(name, name)}")

        return evaluate(tree, value_of)

    def relax(self) -> None:
        """Give everything its address and every jump the shortest form that reaches."""
        self.addresses.update(self.externs)
        for name, chunks in self.sections.items():
            self._place_all(chunks, self.bases[name])
            homes = {label: chunk for chunk in chunks for label, _ in chunk.labels}
            for chunk in chunks:
                if isinstance(chunk.tail, _Branch):
                    chunk.tail.home = _home(chunk.tail.jump.target, chunk, homes)
                    chunk.tail.is_near = chunk.tail.home is None
            while self._stretch(chunks):
                pass

    def _place_all(self, chunks: list[_Chunk], address: int) -> None:
        region = 0
        for number, chunk in enumerate(chunks):
            chunk.number, chunk.region = number, region
            self._place(chunk, address)
            address = chunk.end
            if chunk.tail is not None:
                address += chunk.tail.length(address)
                region += isinstance(chunk.tail, _Padding)

    def _stretch(self, chunks: list[_Chunk]) -> bool:
        """One pass over a section: lengthen what does not reach, move what comes behind."""
        stretch, changed = 0, False
        for chunk in chunks:
            end = chunk.end
            if stretch:
                self._place(chunk, chunk.address + stretch)
            growth = 0
            if isinstance(chunk.tail, _Padding):
                growth = chunk.tail.length(end + stretch) - chunk.tail.length(end)
            elif chunk.tail is not None and not self._reaches(chunk, chunk.tail, stretch):
                short = chunk.tail.length(end)
                chunk.tail.is_near = True
                growth = chunk.tail.length(end) - short
            stretch += growth
            changed = changed or growth != 0
        return changed

    def _reaches(self, chunk: _Chunk, branch: _Branch, stretch: int) -> bool:
        if branch.home is None or branch.is_near:
            return True
        target = self._value(branch.jump.target, chunk.end)
        if branch.home.number > chunk.number and stretch:
            # The target is still to be moved: by as much as this jump, if no alignment is between.
            if stretch < 0 or branch.home.region == chunk.region:
                target += stretch
            elif target < chunk.end:
                return True
        return -128 <= target - (chunk.end + 2) < 128

    # --- bytes ----------------------------------------------------------------------------------

    def finish(self) -> Assembly:
        segments = {
            name: (self.bases[name], self._section_bytes(chunks))
            for name, chunks in self.sections.items()
        }
        self.complaints.raise_any()
        _check_overlaps(segments)
        return Assembly(
            segments=segments,
            symbols=self._symbols(),
            labels={name: self.addresses[name] for name in self.program.global_labels},
            mcount=sorted(self.addresses[label] for label in self.program.mcount),
            constants=dict(self.program.defined),
        )

    def _section_bytes(self, chunks: list[_Chunk]) -> bytes:
        data = bytearray()
        for chunk in chunks:
            for patch in chunk.patches:
                self._apply(patch, chunk)
            data += chunk.code
            if isinstance(chunk.tail, _Padding):
                data += bytes([chunk.tail.align.fill]) * chunk.tail.length(chunk.end)
            elif chunk.tail is not None:
                data += self._branch_bytes(chunk.tail, chunk.end)
        return bytes(data)

    def _branch_bytes(self, branch: _Branch, address: int) -> bytes:
        code = bytearray(branch.opcode + bytes(branch.width))
        fixup = Fixup(len(branch.opcode), branch.width, branch.jump.target, relative=True)
        self._patch(code, _Patch(fixup, 0, len(code), branch.site), address)
        return bytes(code)

    def _apply(self, patch: _Patch, chunk: _Chunk) -> None:
        self._patch(chunk.code, patch, chunk.address)

    def _patch(self, code: bytearray, patch: _Patch, base: int) -> None:
        fixup = patch.fixup
        position = patch.start + fixup.offset
        try:
            value = self._value(fixup.value, base + patch.start)
            if fixup.relative:
                value -= base + patch.end
            code[position : position + fixup.width] = _to_bytes(value, fixup)
        except Refused as what:
            self.complaints.add(patch.site.error(what))

    def _symbols(self) -> list[Symbol]:
        addresses = self.addresses
        symbols = []
        for definition in self.program.definitions:
            start = addresses[definition.start]
            size = addresses[definition.end] - start if definition.end else 0
            symbols.append(
                Symbol(definition.name, start, size, definition.section, definition.kind)
            )
        return sorted(symbols, key=lambda symbol: symbol.address)


def _home(target: Expression, chunk: _Chunk, homes: Mapping[str, _Chunk]) -> _Chunk | None:
    """The chunk that a jump goes to; None if that is not certain to be in its section."""
    labels = list(names(target))
    if len(labels) != 1:
        return None
    return chunk if labels[0] == "." else homes.get(labels[0])


def _to_bytes(value: int, fixup: Fixup) -> bytes:
    bits = 8 * fixup.width
    low, high = -1 << (bits - 1), 1 << bits
    if fixup.signed:
        value, high = signed64(value), 1 << (bits - 1)
    if not low <= value < high:
        what = "is out of reach" if fixup.relative else f"does not fit in {bits} bits"
        raise Refused(f"{value:#x} {what}")
    return (value & ((1 << bits) - 1)).to_bytes(fixup.width, "little")


def _check_overlaps(segments: Mapping[str, tuple[int, bytes]]) -> None:
    ordered = sorted(
        (address, address + len(data), name) for name, (address, data) in segments.items() if data
    )
    for (_, end, name), (start, _, following) in pairwise(ordered):
        if start < end:
            raise AssemblerError(f"section {name} ends at {end:#x}, inside section {following}")

"""One instruction: what it says, whether it may be said, and what is left to fill in.

The encoder behind it (Keystone) is right about plain registers, sizes and hexadecimal numbers and
silently wrong about nearly everything else: symbols, sums, decimal numbers, immediates that do not
fit, addresses without a base. So an instruction is taken apart here, every number is computed and
checked, addresses not known yet are replaced by a recognisable number, and only text put together
again from known parts reaches the encoder. The same care keeps it from hanging, which it does on
text that does not begin with a letter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from emulated_kernel.asm_expression import (
    Binary,
    Expression,
    Refused,
    fold,
    names,
    parse,
    signed64,
)
from emulated_kernel.asm_mnemonics import (
    BRANCHES,
    EARLIER_PREFIXES,
    FIXED,
    HINTS,
    LOCKABLE,
    NARROW_IMMEDIATES,
    NEEDS_NO_SIZE,
    NEEDS_SIZE,
    OPERANDS,
    PREFIXES,
    SHIFTS,
    STRING_OPERATIONS,
)
from emulated_kernel.asm_registers import (
    FORBIDS_REX,
    GENERAL,
    NEEDS_REX,
    RESERVED,
    SEGMENT,
    SIZES,
    SPECIAL,
    VECTOR,
)
from emulated_kernel.asm_source import split_operands

# Stand for addresses not known yet: 32 bits wide, positive, with no short form.
DISPLACEMENT_HOLE = 0x7C0DE7C0
IMMEDIATE_HOLE = 0x7A1DAB1E
WIDE_HOLE = DISPLACEMENT_HOLE << 32 | IMMEDIATE_HOLE

_INSTRUCTION = re.compile(
    r"(?:(?P<prefix>lock|repn?[ez]|rep) )?(?P<mnemonic>[a-z][a-z0-9]*)(?: (?P<operands>.+))?"
)
_MEMORY = re.compile(
    r"(?:(?P<size>[a-z]+) ptr ?)?(?:(?P<segment>[a-z]+) ?: ?)?\[(?P<address>[^][]+)\]"
)
_REGISTERS = frozenset([*GENERAL, *SEGMENT, *SPECIAL, *VECTOR])


@dataclass(frozen=True, slots=True)
class Fixup:
    """An expression to be written into code once labels have addresses.

    `relative`: to the end of the instruction. `signed`: has to fit as a signed number, which x86
    extends; otherwise an unsigned one will do as well.
    """

    offset: int
    width: int
    value: Expression
    relative: bool = False
    signed: bool = True


@dataclass(frozen=True, slots=True)
class Encoding:
    code: bytes
    fixups: tuple[Fixup, ...] = ()


@dataclass(frozen=True, slots=True)
class Jump:
    """A branch with a short form, a near form, or both; which one depends on the distance."""

    short: bytes
    near: bytes
    target: Expression


@dataclass(frozen=True, slots=True)
class _Operand:
    text: str
    kind: str  # register, memory, immediate, offset
    bits: int = 0  # 0: the text does not say
    registers: tuple[str, ...] = ()
    value: int = 0
    symbol: Expression = 0
    relative: bool = False


class InstructionReader:
    """Instruction text to encodings, with the constants of one assembly.

    `gs_base`: where what `gs:` reaches lies, if gs itself is not to be used.
    """

    def __init__(
        self,
        constants: Mapping[str, int],
        encode: Callable[[str], bytes],
        gs_base: int | None = None,
    ) -> None:
        self._constants = constants
        self._encode = encode
        self._gs_base = gs_base
        self._known: dict[str, Encoding | Jump] = {}

    def read(self, text: str) -> Encoding | Jump:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._read(text)
        return known

    def _read(self, text: str) -> Encoding | Jump:
        match = _INSTRUCTION.fullmatch(text)
        if match is None:
            raise Refused("neither an instruction nor a macro")
        prefix, mnemonic, rest = match["prefix"] or "", match["mnemonic"], match["operands"] or ""
        if hint := HINTS.get(mnemonic):
            raise Refused(f"{mnemonic}: {hint}")
        if mnemonic in BRANCHES and self._is_direct(rest):
            if prefix:
                raise Refused(f"{prefix} before {mnemonic}")
            return self._branch(mnemonic, rest)
        if mnemonic not in OPERANDS:
            raise Refused(f"unknown instruction {mnemonic}")
        operands = [self._operand(operand) for operand in split_operands(rest)]
        if len(operands) not in OPERANDS[mnemonic]:
            wanted = " or ".join(map(str, OPERANDS[mnemonic]))
            raise Refused(f"{mnemonic} takes {wanted} operands")
        _check_prefix(prefix, mnemonic, operands)
        _check_registers(operands)
        _check_memory(mnemonic, operands)
        _check_immediates(mnemonic, operands)
        if mnemonic == "push" and operands[0].kind in ("immediate", "offset"):
            return _push(operands[0])
        code = self._code(prefix, mnemonic, operands)
        return Encoding(code, tuple(_fixups(code, mnemonic, operands)))

    # --- branches -------------------------------------------------------------------------------

    @staticmethod
    def _is_direct(operand: str) -> bool:
        return "[" not in operand and operand not in _REGISTERS

    def _branch(self, mnemonic: str, operand: str) -> Encoding | Jump:
        if not operand:
            raise Refused(f"{mnemonic} to where?")
        short, near = BRANCHES[mnemonic]
        target = self._expression(operand)
        if short and near:
            return Jump(short, near, target)
        opcode, width = (short, 1) if short else (near, 4)
        fixup = Fixup(len(opcode), width, target, relative=True)
        return Encoding(opcode + bytes(width), (fixup,))

    # --- operands -------------------------------------------------------------------------------

    def _expression(self, text: str) -> Expression:
        tree = fold(parse(text), self._constants)
        for name in names(tree):
            if name.lower() in RESERVED:
                raise Refused(f"{name} has no place in an expression")
        return tree

    def _operand(self, text: str) -> _Operand:
        if text in _REGISTERS:
            return _Operand(text, "register", _register_bits(text), (text,))
        if match := _MEMORY.fullmatch(text):
            return self._memory(match["size"], match["segment"], match["address"])
        if any(c in text for c in "[]:") or " ptr" in text:
            raise Refused(f"{text!r} is not an address: write 'SIZE ptr gs:[...]'")
        if text.startswith("offset "):
            value = self._expression(text[len("offset ") :])
            if isinstance(value, int):
                raise Refused(f"{text!r} is a constant, not an address")
            return _Operand("", "offset", symbol=value)
        number = self._expression(text)
        if isinstance(number, int):
            return _Operand("", "immediate", value=number)
        unknown = next(names(number))
        raise Refused(f"{unknown} is no constant: for an address write 'offset' or '[rip + …]'")

    def _memory(self, size: str | None, segment: str | None, text: str) -> _Operand:
        if size is not None and size not in SIZES:
            raise Refused(f"unknown size {size!r}")
        if segment not in (None, "fs", "gs"):
            raise Refused(f"{segment}: has no effect in 64-bit mode")
        address = _Address(self._constants)
        address.add(parse(text))
        if segment == "gs" and self._gs_base is not None:
            address.add(self._gs_base)
            segment = None
        form, symbol = address.form()
        shown = f"{segment}:[{form}]" if segment else f"[{form}]"
        return _Operand(
            f"{size} ptr {shown}" if size else shown,
            "memory",
            SIZES[size] if size else 0,
            tuple(address.registers),
            symbol=symbol,
            relative=address.relative,
        )

    # --- encoding -------------------------------------------------------------------------------

    def _code(self, prefix: str, mnemonic: str, operands: list[_Operand]) -> bytes:
        shown = [_shown(operand, mnemonic) for operand in operands]
        if mnemonic == "mov" and any(operand.text in SEGMENT for operand in operands):
            return self._segment_move(operands)
        if mnemonic in ("push", "pop") and operands[0].kind == "memory":
            shown = [text if operands[0].bits else f"qword ptr {text}" for text in shown]
        if mnemonic == "movsx" and [operand.bits for operand in operands] == [64, 32]:
            mnemonic = "movsxd"
        text = f"{mnemonic} {','.join(shown)}" if shown else mnemonic
        code = FIXED.get(text) or self._encode(text)
        if not prefix:
            return code
        rest = code.lstrip(EARLIER_PREFIXES)
        return code[: len(code) - len(rest)] + PREFIXES[prefix] + rest

    def _segment_move(self, operands: list[_Operand]) -> bytes:
        """16 bits move whatever the size, so the size prefix stands only where it clears the rest.

        Into a 16-bit register, that is; the encoder writes it everywhere, and REX.W too.
        """
        shown = []
        for operand in operands:
            text = operand.text
            if GENERAL.get(text, 0) == 64 or (operand is operands[1] and GENERAL.get(text) == 16):
                text = _as_32_bits(text)
            shown.append(text)
        code = self._encode(f"mov {','.join(shown)}")
        return code.replace(b"\x66", b"", 1) if operands[0].kind == "memory" else code


def _as_32_bits(register: str) -> str:
    """The 32-bit name of a 16- or 64-bit register."""
    if register[1].isdigit():
        return register.rstrip("w") + "d"
    return f"e{register[-2:]}"


class _Address:
    """What stands between brackets, sorted into registers and displacement."""

    def __init__(self, constants: Mapping[str, int]) -> None:
        self._constants = constants
        self.registers: list[str] = []
        self._forms: list[str] = []
        self._displacement: Expression = 0
        self.relative = False

    def add(self, tree: Expression, *, negative: bool = False) -> None:
        """Take apart the sum; a register may only be added, alone or with a scale."""
        if isinstance(tree, Binary) and tree.operator in "+-":
            self.add(tree.left, negative=negative)
            self.add(tree.right, negative=negative != (tree.operator == "-"))
        elif not any(name in GENERAL or name.lower() in RESERVED for name in names(tree)):
            self._add_displacement(fold(tree, self._constants), negative=negative)
        elif negative:
            raise Refused("a register cannot be subtracted")
        elif isinstance(tree, str):
            self._add_register(tree)
        elif isinstance(tree, Binary) and tree.operator == "*":
            self._add_scaled(tree)
        else:
            raise Refused("bad address")

    def _add_displacement(self, tree: Expression, *, negative: bool) -> None:
        tree = Binary("-" if negative else "+", self._displacement, tree)
        self._displacement = fold(tree, {})

    def _add_register(self, name: str) -> None:
        if name == "rip":
            self.relative = True
        elif GENERAL.get(name) != 64:
            raise Refused(f"{name} cannot be part of an address")
        self.registers.append(name)
        # rsp is no index, so it has to come first, as base.
        position = 0 if name == "rsp" else len(self._forms)
        self._forms.insert(position, name)

    def _add_scaled(self, tree: Binary) -> None:
        register, scale = tree.left, fold(tree.right, self._constants)
        if not (isinstance(register, str) and register in GENERAL):
            register, scale = tree.right, fold(tree.left, self._constants)
        if not isinstance(register, str) or GENERAL.get(register) != 64 or register == "rsp":
            raise Refused("only a 64-bit register other than rsp can have a scale")
        if scale not in (1, 2, 4, 8):
            raise Refused("the scale is 1, 2, 4 or 8")
        self.registers.append(register)
        self._forms.append(f"{register}*{scale:#x}")

    def form(self) -> tuple[str, Expression]:
        """The address as the encoder is to see it, and the symbol to be added later."""
        self._check()
        forms = self._forms
        offset: int
        symbol: Expression
        if not isinstance(self._displacement, int):
            offset, symbol = DISPLACEMENT_HOLE, self._displacement
        else:
            offset, symbol = signed64(self._displacement), 0
        if not -1 << 31 <= offset < 1 << 31:
            raise Refused(f"displacement {offset:#x} does not fit")
        if not forms:
            # With riz as index the encoder leaves the address absolute.
            forms = ["riz*0x1"]
        elif not offset:
            return "+".join(forms), symbol
        return f"{'+'.join(forms)}{offset:+#x}", symbol

    def _check(self) -> None:
        if self.relative and len(self._forms) > 1:
            raise Refused("rip stands alone in an address")
        if len(self._forms) > 2 or sum("*" in form for form in self._forms) > 1:
            raise Refused("more registers than an address can hold")
        if self._forms.count("rsp") > 1:
            raise Refused("rsp is no index")


def _register_bits(name: str) -> int:
    return GENERAL.get(name) or SPECIAL.get(name) or VECTOR.get(name) or 16


def _shown(operand: _Operand, mnemonic: str) -> str:
    if operand.kind == "immediate":
        return f"{signed64(operand.value):#x}"
    if operand.kind == "offset":
        return f"{WIDE_HOLE if mnemonic == 'movabs' else IMMEDIATE_HOLE:#x}"
    return operand.text


# --- what the encoder would get wrong -------------------------------------------------------------


def _check_prefix(prefix: str, mnemonic: str, operands: list[_Operand]) -> None:
    if prefix == "lock":
        in_memory = [operand.kind == "memory" for operand in operands]
        if mnemonic not in LOCKABLE or not (
            any(in_memory) if mnemonic == "xchg" else any(in_memory[:1])
        ):
            raise Refused(f"lock does not go with this {mnemonic}")
    elif prefix and mnemonic not in STRING_OPERATIONS:
        raise Refused(f"{prefix} does not go with {mnemonic}")


def _check_registers(operands: list[_Operand]) -> None:
    named = {register for operand in operands for register in operand.registers}
    direct = {operand.text for operand in operands if operand.kind == "register"}
    if direct & FORBIDS_REX and (
        named & NEEDS_REX or any(GENERAL.get(register) == 64 for register in direct)
    ):
        raise Refused("ah, bh, ch and dh do not go with a REX prefix")


def _check_memory(mnemonic: str, operands: list[_Operand]) -> None:
    memory = [operand for operand in operands if operand.kind == "memory"]
    if not memory:
        return
    if len(memory) > 1:
        raise Refused("two memory operands")
    if mnemonic in ("call", "jmp") and memory[0].bits not in (0, 64):
        raise Refused(f"{mnemonic} needs a qword")
    if memory[0].bits:
        if mnemonic in NEEDS_NO_SIZE:
            raise Refused(f"{mnemonic} takes no size")
        return
    count_only = mnemonic in SHIFTS and operands[-1].text == "cl"
    alone = len(operands) == 1 and mnemonic in ("inc", "dec", "neg", "not")
    immediate = any(operand.kind in ("immediate", "offset") for operand in operands[1:2])
    if mnemonic in NEEDS_SIZE or count_only or alone or (immediate and operands[0] is memory[0]):
        raise Refused("how wide is the memory operand? write 'SIZE ptr [...]'")


def _check_immediates(mnemonic: str, operands: list[_Operand]) -> None:
    for position, operand in enumerate(operands):
        if operand.kind == "offset":
            _check_offset(mnemonic, operands)
        if operand.kind != "immediate":
            continue
        low, high = _immediate_range(mnemonic, operands, position)
        value = operand.value if high > 1 << 63 else signed64(operand.value)
        if not low <= value < high:
            raise Refused(f"immediate {operand.value:#x} does not fit")


def _immediate_range(mnemonic: str, operands: list[_Operand], position: int) -> tuple[int, int]:
    if bits := NARROW_IMMEDIATES.get(mnemonic):
        return 0, 1 << (8 if mnemonic == "enter" and position else bits)
    first = operands[0]
    if mnemonic == "push":
        return -1 << 31, 1 << 31
    if position == 0 or not first.bits:
        raise Refused("an immediate has no place here")
    if first.bits > 64:
        return 0, 1 << 8
    if first.bits == 64:
        if mnemonic in ("mov", "movabs") and first.kind == "register":
            return -1 << 63, 1 << 64
        return -1 << 31, 1 << 31
    return -1 << (first.bits - 1), 1 << first.bits


def _check_offset(mnemonic: str, operands: list[_Operand]) -> None:
    first = operands[0]
    if mnemonic == "push":
        return
    if first.kind not in ("register", "memory") or first.bits not in (32, 64):
        raise Refused("an address needs 32 or 64 bits")
    if mnemonic == "movabs" and (first.kind != "register" or first.bits != 64):
        raise Refused("movabs needs a 64-bit register")


# --- forms of our own -----------------------------------------------------------------------------


def _push(operand: _Operand) -> Encoding:
    """The encoder makes `push 0xffff` a `push -1`."""
    if operand.kind == "offset":
        return Encoding(b"\x68" + bytes(4), (Fixup(1, 4, operand.symbol),))
    value = signed64(operand.value)
    if -128 <= value < 128:
        return Encoding(b"\x6a" + value.to_bytes(1, "little", signed=True))
    return Encoding(b"\x68" + value.to_bytes(4, "little", signed=True))


def _fixups(code: bytes, mnemonic: str, operands: list[_Operand]) -> Iterator[Fixup]:
    for operand in operands:
        if operand.kind == "memory" and operand.symbol != 0:
            offset = _find(code, DISPLACEMENT_HOLE, 4)
            yield Fixup(offset, 4, operand.symbol, relative=operand.relative)
        elif operand.kind == "offset":
            if mnemonic == "movabs":
                yield Fixup(_find(code, WIDE_HOLE, 8), 8, operand.symbol, signed=False)
            else:
                signed = operands[0].bits == 64
                offset = _find(code, IMMEDIATE_HOLE, 4)
                yield Fixup(offset, 4, operand.symbol, signed=signed)


def _find(code: bytes, hole: int, width: int) -> int:
    pattern = hole.to_bytes(width, "little")
    if code.count(pattern) != 1:
        raise Refused("this instruction has no room for an address")
    return code.index(pattern)

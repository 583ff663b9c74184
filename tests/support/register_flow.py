"""Which registers a kernel's code expects to live through a call that may be traced.

A traced call keeps what the ABI says and nothing more, and function graph tracing changes every
other register on the way back. Code written by hand gets along with less: it knows what the callee
leaves alone. Here the machine code of all functions is followed along every path, with the set of
registers that a call may have changed, and each use of one of them is told.

Not seen: what an indirect call takes as arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import capstone

from emulated_kernel.image import KernelImage, Module

CHANGED = frozenset({"rcx", "rsi", "rdi", "r8", "r9", "r10", "r11", "flags"})
RESULTS = frozenset({"rax", "rdx"})
ARGUMENTS = (CHANGED | RESULTS) - {"flags"}
_ENDS = {"ret", "iretq", "ud2", "hlt"}
_NONE: frozenset[str] = frozenset()


def _families() -> dict[str, str]:
    names = {"rflags": "flags", "eflags": "flags"}
    for letter in "abcd":
        whole = f"r{letter}x"
        names |= dict.fromkeys((whole, whole.replace("r", "e"), f"{letter}x"), whole)
        names |= dict.fromkeys((f"{letter}l", f"{letter}h"), whole)
    for name in ("si", "di", "bp", "sp"):
        names |= dict.fromkeys((f"r{name}", f"e{name}", name, f"{name}l"), f"r{name}")
    for number in range(8, 16):
        names |= dict.fromkeys((f"r{number}{width}" for width in ("", "d", "w", "b")), f"r{number}")
    return names


_WHOLE = _families()


@dataclass(frozen=True, slots=True)
class Instruction:
    address: int
    mnemonic: str
    reads: frozenset[str]
    writes: frozenset[str]
    target: int | None  # of a direct call or jump
    following: tuple[int, ...]

    @property
    def is_call(self) -> bool:
        return self.mnemonic == "call"


@dataclass(frozen=True, slots=True)
class Misuse:
    """At `place` a register is used that a call before it may have changed."""

    place: str
    registers: tuple[str, ...]


class RegisterFlow:
    """The functions of `image` and of its modules."""

    def __init__(self, image: KernelImage) -> None:
        self._capstone = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self._capstone.detail = True
        self._names: dict[int, str] = {}
        self._functions: dict[int, dict[int, Instruction]] = {}
        self._sites: set[int] = set()
        parts: list[KernelImage | Module] = [image, *image.modules]
        for part in parts:
            self._sites |= set(part.mcount)
            segments = list(part.segments.values())
            for symbol in part.symbols:
                if symbol.kind in "Tt" and symbol.size and symbol.address not in self._names:
                    self._names[symbol.address] = symbol.name
                    code = _code(segments, symbol.address, symbol.size)
                    self._functions[symbol.address] = self._decode(code, symbol.address)
        self._takes: dict[int, frozenset[str]] = dict.fromkeys(self._functions, _NONE)

    def _decode(self, code: bytes, address: int) -> dict[int, Instruction]:
        found = {}
        for raw in self._capstone.disasm(code, address):
            read, written = raw.regs_access()
            reads, writes = (
                frozenset(_WHOLE.get(raw.reg_name(reg), raw.reg_name(reg)) for reg in regs)
                for regs in (read, written)
            )
            operands = raw.op_str.split(", ")
            if raw.mnemonic in {"xor", "sub"} and len(set(operands)) == 1:
                reads = _NONE
            if raw.mnemonic in {"test", "cmp"}:
                writes |= {"flags"}
            if raw.mnemonic.startswith("rep"):
                reads -= {"flags"}  # the direction, which every function leaves as it was
            branches = raw.mnemonic == "call" or raw.mnemonic[0] == "j"
            is_direct = branches and raw.op_str.startswith("0x")
            target = int(raw.op_str, 16) if is_direct else None
            behind = raw.address + raw.size
            following: tuple[int, ...] = (behind,)
            if raw.mnemonic in _ENDS:
                following = ()
            elif raw.mnemonic == "jmp":
                following = () if target is None else (target,)
            elif raw.mnemonic[0] == "j" and target is not None:
                following = (target, behind)
            found[raw.address] = Instruction(
                raw.address, raw.mnemonic, reads, writes, target, following
            )
        return found

    # --- what functions take ----------------------------------------------------------------------

    def settle(self, known: Mapping[str, frozenset[str]]) -> None:
        """Find out which registers each function reads as arguments; `known` are told by name."""
        changed = True
        while changed:
            changed = False
            for address, code in self._functions.items():
                name = self._names[address]
                takes = known[name] if name in known else self._taken(code)
                if takes != self._takes[address]:
                    self._takes[address] = takes
                    changed = True

    def _taken(self, code: Mapping[int, Instruction]) -> frozenset[str]:
        """The argument registers that are read before they are written, on some path."""
        live = dict.fromkeys(code, _NONE)
        changed = True
        while changed:
            changed = False
            for address in sorted(code, reverse=True):
                instruction = code[address]
                behind = _NONE.union(
                    *(live.get(n, self._takes.get(n, _NONE)) for n in instruction.following)
                )
                if address in self._sites or instruction.mnemonic == "push":
                    now = behind
                elif instruction.is_call:
                    now = (behind - ARGUMENTS) | self._needs(instruction, live)
                else:
                    now = (behind - instruction.writes) | (instruction.reads & ARGUMENTS)
                if now != live[address]:
                    live[address] = now
                    changed = True
        return live[min(code)] & ARGUMENTS if code else _NONE

    def _needs(self, call: Instruction, live: Mapping[int, frozenset[str]]) -> frozenset[str]:
        needs = call.reads & ARGUMENTS
        if call.target is not None:
            needs |= self._takes.get(call.target, live.get(call.target, _NONE))
        return needs

    # --- what is used behind calls ----------------------------------------------------------------

    def misuses(self) -> Iterator[Misuse]:
        """Every use of a register that a call may have changed, once for each place."""
        for address, code in self._functions.items():
            told: dict[int, frozenset[str]] = {}
            states = {address: _NONE}
            work = [address]
            while work:
                at = work.pop()
                instruction = code.get(at)
                if instruction is None:
                    continue
                used, after = self._step(instruction, states[at], code)
                if used:
                    told[at] = told.get(at, _NONE) | used
                for following in instruction.following:
                    known = states.get(following)
                    merged = after if known is None else known | after
                    if merged != known:
                        states[following] = merged
                        work.append(following)
            for at, registers in sorted(told.items()):
                yield Misuse(f"{self._names[address]}+{at - address:#x}", tuple(sorted(registers)))

    def _step(
        self, instruction: Instruction, changed: frozenset[str], code: Mapping[int, Instruction]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """The changed registers that an instruction uses, and which are changed behind it."""
        if instruction.address in self._sites or (not changed and not instruction.is_call):
            return _NONE, changed
        target = instruction.target
        if instruction.is_call:
            used = instruction.reads & changed
            if target in self._takes:
                used |= self._takes[target] & changed
            if target in code and target not in self._functions:  # a part of the function itself
                return used, changed - RESULTS - {"flags"}
            is_traceable = target is None or target in self._sites or target + 4 in self._sites
            return used, (changed | CHANGED if is_traceable else changed) - RESULTS
        used = instruction.reads & changed
        if instruction.mnemonic == "push" or instruction.mnemonic in _ENDS:
            used = _NONE
        if instruction.mnemonic == "jmp" and target not in code:
            used |= self._takes.get(target or 0, _NONE) & changed
        return used, changed - instruction.writes


def _code(segments: list[tuple[int, bytes]], address: int, size: int) -> bytes:
    base, data = next((b, d) for b, d in segments if b <= address < b + len(d))
    return data[address - base : address - base + size]

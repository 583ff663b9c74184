"""emulator/text/: each function of kernel and engine, disassembled from the bytes there now.

    ffffffff81001230 <vfs_read>:
    ffffffff81001230  0f 1f 44 00 00           nop                         # call site: nop
    ffffffff81001235  55                       push rbp

The directory makes its files when they are looked up: there are as many as functions.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from emulated_kernel.kallsyms import Symbol
from emulated_kernel.text_poke import CALL_INSN_SIZE, INT3_INSN_OPCODE, NOP5
from ftracefs.errors import TracefsError
from ftracefs.files.base import Directory, Node
from ftracefs.files.kernel_functions import LoadedFunctions
from ftracefs.files.simple import SeqFile
from ftracefs.trace.tracing import Tracing

_SHOWN_BYTES = 8
# Of text: for the head of a function, and for each of its bytes. Not less than it is, or who goes
# by the size would not get all of it.
_HEAD_MOST, _TEXT_MOST = 1024, 128


class TextDirectory(Directory):
    """`emulator/text`."""

    makes_entries = True

    def __init__(self, tracing: Tracing) -> None:
        super().__init__()
        self._disassembler = Disassembler(tracing)
        self._functions = LoadedFunctions(tracing, engine=True)

    def lookup(self, name: str) -> Node:
        symbols = self._functions().named(name)
        if not symbols:
            raise TracefsError(errno.ENOENT, name)
        return _Functions(self._disassembler, symbols)

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions())


class _Functions(SeqFile):
    """All functions of a name."""

    def __init__(self, disassembler: Disassembler, symbols: Sequence[Symbol]) -> None:
        super().__init__(lambda: "\n".join(disassembler.function(symbol) for symbol in symbols))
        self._disassembler = disassembler
        self._symbols = symbols
        self.size_in_list = sum(_HEAD_MOST + _TEXT_MOST * symbol.size for symbol in symbols)

    def size(self) -> int:
        lengths = [self._disassembler.function_length(symbol) for symbol in self._symbols]
        return sum(lengths) + len(lengths) - 1


class Disassembler:
    """Text of guest memory as it stands."""

    def __init__(self, tracing: Tracing) -> None:
        self.tracing = tracing
        # By address and name: the hash of a function's bytes, and how long its text was.
        self._lengths: dict[tuple[int, str], tuple[int, int]] = {}
        self._lengths_names: object = None

    @cached_property
    def _capstone(self) -> Any:
        import capstone  # takes as long as a tenth of a start, and most mounts never need it

        engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        engine.skipdata = True
        return engine

    def function(self, symbol: Symbol) -> str:
        """One function, up to the filler behind it."""
        head = f"{symbol.address:016x} <{symbol.name}>:\n"
        site, branches = self._call_site(symbol), self._tracepoints(symbol)
        return head + self.code(symbol.address, symbol.size, site, branches=branches)

    def function_length(self, symbol: Symbol) -> int:
        """How long the text of `function` is, which is asked for with every look at a directory.

        It is made again if the bytes have changed since, or what they are called.
        """
        ftrace = self.tracing.ftrace
        ops = [(op.trampoline, op.trampoline_size, op.func, op.name) for op in ftrace.ops_list]
        names = ftrace.kallsyms.generation, ops
        if names != self._lengths_names:
            self._lengths.clear()
            self._lengths_names = names
        code = hash(self.tracing.machine.memory.read(symbol.address, symbol.size))
        key = symbol.address, symbol.name
        known = self._lengths.get(key)
        if known is None or known[0] != code:
            known = self._lengths[key] = code, len(self.function(symbol).encode())
        return known[1]

    def code(
        self,
        start: int,
        size: int,
        site: int | None = None,
        notes: Mapping[int, str] = MappingProxyType({}),
        branches: Mapping[int, str] = MappingProxyType({}),
    ) -> str:
        """The instructions from `start`; `site` is a call site, `notes` are for addresses.

        `branches` are the sites of tracepoints, by address.
        """
        code = self.tracing.machine.memory.read(start, size)
        lines = []
        for address, length, mnemonic, operands in self._capstone.disasm_lite(code, start):
            at = address - start
            text = f"{mnemonic} {operands}".rstrip()
            note = self._target(operands) if mnemonic == "call" or mnemonic[0] == "j" else ""
            if address == site:
                what, patched = "call site", code[at : at + CALL_INSN_SIZE]
                text, note = self._site_text(text, patched, note, what)
            elif address in branches:
                what, patched = f"tracepoint {branches[address]}", code[at : at + CALL_INSN_SIZE]
                text, note = self._site_text(text, patched, note, what)
            elif note and _is_within(operands, range(start, start + size)):
                note = ""
            note = notes.get(address, note)
            lines.append(code_line(address, code[at : at + length], text, note))
        return "".join(lines)

    def _call_site(self, symbol: Symbol) -> int | None:
        """The address in `symbol` that ftrace patches, if there is one."""
        ips = self.tracing.ftrace.records.ip
        index = int(ips.searchsorted(symbol.address))
        if index == len(ips) or ips[index] >= symbol.address + symbol.size:
            return None
        return int(ips[index])

    def _tracepoints(self, symbol: Symbol) -> Mapping[int, str]:
        """The places in `symbol` where a tracepoint is passed."""
        sites = self.tracing.tracepoints.site_names
        end = symbol.address + symbol.size
        return {address: sites[address] for address in sites if symbol.address <= address < end}

    @staticmethod
    def _site_text(text: str, code: bytes, note: str, what: str) -> tuple[str, str]:
        """The instruction at a place that is patched, and what it is there."""
        if code == NOP5:
            return "nop", f"{what}: nop"
        if code[0] == INT3_INSN_OPCODE:
            return text, f"{what}: being patched"
        return text, f"{what}: {note}"

    def _target(self, operands: str) -> str:
        """What a direct call or jump leads to."""
        try:
            address = int(operands, 16)
        except ValueError:
            return ""
        return self._trampoline(address) or self.tracing.ftrace.kallsyms.sprint_symbol(address)

    def _trampoline(self, address: int) -> str:
        sprint_symbol = self.tracing.ftrace.kallsyms.sprint_symbol
        for ops in self.tracing.ftrace.ops_list:
            if ops.trampoline <= address < ops.trampoline + ops.trampoline_size:
                callback = sprint_symbol(ops.func).partition("+")[0]
                return f"trampoline of {ops.name or 'an op'}, which calls {callback}"
        return ""


def _is_within(operands: str, shown: range) -> bool:
    """Whether an instruction leads to code that is being shown, by its address."""
    try:
        return int(operands, 16) in shown
    except ValueError:
        return False


def code_line(address: int, code: bytes, text: str, note: str) -> str:
    """An instruction: address, bytes, text and a note."""
    shown = code[:_SHOWN_BYTES].hex(" ")
    line = f"{address:016x}  {shown:<{_SHOWN_BYTES * 3 - 1}}  {text}"
    line = f"{line:<72}  # {note}" if note else line
    rest = code[_SHOWN_BYTES:].hex(" ")
    return f"{line}\n" + (f"{address + _SHOWN_BYTES:016x}  {rest}\n" if rest else "")

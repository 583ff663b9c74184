"""emulator/trampolines: every trampoline there is, disassembled from memory, and whose it is.

First the two that every op with company uses, then those of the ops, those made as targets of
direct calls, and those that were dropped while somebody was in them.
"""

from __future__ import annotations

from collections import Counter

from emulated_kernel.text_poke import NOP5
from ftracefs.files.base import TracefsFile
from ftracefs.files.disassembly import Disassembler, code_line
from ftracefs.files.ops import site_targets
from ftracefs.files.simple import SeqFile
from ftracefs.ftrace import Ftrace, FtraceOps
from ftracefs.ftrace.ops import FTRACE_OPS_FL_ALLOC_TRAMP, FTRACE_OPS_FL_SAVE_REGS
from ftracefs.trace.tracing import Tracing

_CALLER, _REGS_CALLER, _JUMP = "ftrace_caller", "ftrace_regs_caller", "ftrace_regs_caller_jmp"
_POINTER_SIZE = 8


def trampolines(tracing: Tracing) -> TracefsFile:
    """`emulator/trampolines`."""
    texts = Trampolines(tracing)
    return SeqFile(texts.text)


class Trampolines:
    """The text of the trampolines of one machine."""

    def __init__(self, tracing: Tracing) -> None:
        self._ftrace: Ftrace = tracing.ftrace
        self._symbols = tracing.guest.symbols
        self._disassembler = Disassembler(tracing)

    def text(self) -> str:
        """All of them."""
        ftrace = self._ftrace
        users = site_targets(ftrace)
        blocks = [self._template(name, users) for name in (_CALLER, _REGS_CALLER)]
        blocks += [
            self._of_op(op, users)
            for op in reversed(ftrace.ops_list)
            if op.flags & FTRACE_OPS_FL_ALLOC_TRAMP
        ]
        for address, (size, name) in ftrace.direct_trampolines.items():
            head = f"{name}: target of the direct call of {_sites(users[address])}"
            blocks.append(self._block(head, address, size))
        for address, size in ftrace.dead_trampolines:
            head = "dropped: freed when no task is in it any more"
            blocks.append(self._block(head, address, size))
        return "\n".join(blocks)

    def _block(
        self, head: str, address: int, size: int, notes: dict[int, str] | None = None
    ) -> str:
        return f"{head}\n" + self._disassembler.code(address, size, notes=notes or {})

    def _template(self, name: str, users: Counter[int]) -> str:
        ftrace = self._ftrace
        start = ftrace.labels[name]
        size = next(s.size for s in self._symbols if s.address == start and s.size)
        word = ftrace.memory.u64(ftrace.labels["function_trace_op"])
        names = {op.address: op.name for op in ftrace.ops_list}
        notes = {ftrace.labels[f"{name}_op_ptr"]: f"op: {names.get(word, 'ftrace_list_end')}"}
        if name == _REGS_CALLER:
            notes[ftrace.labels[_JUMP]] = "to a direct call, if a callback asked for one"
        head = f"{name}: for functions with several ops; called from {_sites(users[start])}"
        return self._block(head, start, size, notes)

    def _inline(self, op: FtraceOps) -> tuple[str, dict[int, str]]:
        """What the code in front of the frame is called, and notes to it."""
        if not op.inline_size:
            return "", {}
        is_used = self._ftrace.memory.read(op.trampoline, len(NOP5)) == NOP5
        note = "in line: what the callback does" if is_used else "not in line: another callback"
        frame = "the copy of ftrace_caller"
        return "a callback in line and ", {
            op.trampoline: note,
            op.trampoline + op.inline_size: frame,
        }

    def _of_op(self, op: FtraceOps, users: Counter[int]) -> str:
        ftrace = self._ftrace
        name = _REGS_CALLER if op.flags & FTRACE_OPS_FL_SAVE_REGS else _CALLER
        start, load, end = (ftrace.labels[name + s] for s in ("", "_op_ptr", "_end"))
        frame = op.trampoline + op.inline_size
        inline, notes = self._inline(op)
        pointer = op.trampoline + op.trampoline_size - _POINTER_SIZE
        address = ftrace.memory.u64(pointer)
        owner = next((o.name for o in ftrace.ops_list if o.address == address), "nobody")
        note = f"op: {owner}"
        head = (
            f"trampoline of {op.name or 'an op'}, {inline}a copy of {name};"
            f" called from {_sites(users[op.trampoline])}"
        )
        code_size = op.inline_size + end - start + 1  # and its ret
        notes[frame + load - start] = note
        if name == _REGS_CALLER:
            notes[op.trampoline + ftrace.labels[_JUMP] - start] = "no direct call from a copy"
        text = self._block(head, op.trampoline, code_size, notes)
        code = ftrace.memory.read(pointer, _POINTER_SIZE)
        return text + code_line(pointer, code, f".quad {address:#x}", note)


def _sites(count: int) -> str:
    return f"{count} site" if count == 1 else f"{count} sites"

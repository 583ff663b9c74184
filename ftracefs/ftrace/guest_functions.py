"""Functions of one's own in the guest: callbacks, targets of direct calls, functions to be traced.

They are assembled against the kernel and the engine and taken in like a module: call sites of FUNC
become nops and records, names are known to kallsyms. They stay for as long as the machine runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.assembler import assemble
from emulated_kernel.image import Module
from ftracefs.ftrace.module import ftrace_module_load
from ftracefs.ftrace.state import FtraceState

# Beyond every module; below the engine's own data.
_TEXT_START, _TEXT_END = 0xE00000, 0xFFF000  # of the modules' area; the rest is the host's
_DATA_START, _DATA_END = 0x600000, 0x700000  # of the area of their data
_PAGE = 4096


class GuestFunctions:
    """What was loaded on one machine."""

    def __init__(self, state: FtraceState) -> None:
        self._state = state
        layout = state.memory.layout
        self._text = layout.modules_vaddr + _TEXT_START
        self._text_end = layout.modules_vaddr + _TEXT_END
        self._data = layout.modules_data + _DATA_START
        self._data_end = layout.modules_data + _DATA_END

    def load(self, name: str, source: str) -> Mapping[str, int]:
        """Assemble `source`, put it into memory and return the addresses of its labels.

        `name` is shown in brackets behind the functions that can be traced. MemoryError when there
        is no room left.
        """
        state = self._state
        known = {**state.machine.image.labels, **state.labels}
        bases = {".text": self._text, ".data": self._data}
        built = assemble({f"{name}.S": source}, bases, CONSTANTS, known)
        ends = {section: base + len(code) for section, (base, code) in built.segments.items()}
        text, data = ends.get(".text", self._text), ends.get(".data", self._data)
        if text > self._text_end or data > self._data_end:
            raise MemoryError(f"no room for {name}")
        self._text, self._data = (-(-end // _PAGE) * _PAGE for end in (text, data))
        module = Module(name, built.segments, built.symbols, built.mcount, built.labels)
        state.machine.load_segments(dict(module.segments))
        ftrace_module_load(state, module)
        return built.labels

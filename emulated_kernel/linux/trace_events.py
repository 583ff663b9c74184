"""The trace events of a booted Linux, as they stand in its memory: kernel/trace/trace_events.c.

    ftrace_events → struct trace_event_call, one behind the other
                      name, or that of its tracepoint; class → system, reg; event.type, the id
                      print_fmt, in which boot has put numbers for the names of enums
                      the class's fields, or those of the system call it is about

All of it is read when it is asked for: a kernel has well over a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from emulated_kernel.asm_offsets import CONSTANTS
from emulated_kernel.errors import EmulatedKernelError
from emulated_kernel.linux.vmlinux import Vmlinux
from emulated_kernel.machine.memory import Memory

_LIMIT = 1 << 16  # of events, and of the fields of one
_TEXT_LIMIT = 1 << 16
FILE_BYTES = CONSTANTS["EVENT_FILE_SIZE"] - CONSTANTS["EVENT_FILE_LINUX"]
_SYSCALLS, _RESERVE = "syscalls", "trace_event_buffer_reserve"
_CALL, _FUNCTION_BYTES = 0xE8, 512
_SYSCALL_ENTER = "syscall_get_enter_fields"


@dataclass(frozen=True, slots=True)
class LinuxField:
    """struct ftrace_event_field; `type` as in C, `length` that of an array where it is kept."""

    type: str
    name: str
    offset: int
    size: int
    is_signed: bool
    length: int | None


@dataclass(frozen=True, slots=True)
class LinuxEvent:
    """struct trace_event_call, which is at `address`.

    `reg` is the kernel's function that switches it on and off; `can_be_enabled` tells whether a
    user may.
    """

    address: int
    class_address: int
    reg: int
    system: str
    name: str
    id: int
    can_be_enabled: bool


class LinuxEvents:
    """Reads them. For the machine thread."""

    def __init__(self, memory: Memory, vmlinux: Vmlinux) -> None:
        self._memory = memory
        self._vmlinux = vmlinux
        self._call = {
            name: vmlinux.btf.offset("trace_event_call", name)
            for name in ("list", "class", "name", "event.type", "print_fmt", "flags", "data")
        }
        self._class = {
            name: vmlinux.btf.offset("trace_event_class", name)
            for name in ("system", "reg", "get_fields", "fields")
        }

    def ftrace_events(self) -> list[LinuxEvent]:
        """Every event, in the order of the files: the list's last one comes first.

        None where the kernel was built without.
        """
        if self._vmlinux.symbols.get("ftrace_events") is None:
            return []
        ignore = 1 << self._vmlinux.btf.enumerator("TRACE_EVENT_FL_IGNORE_ENABLE_BIT")
        memory, in_call, in_class = self._memory, self._call, self._class
        nodes = self._list(self._vmlinux.symbol("ftrace_events"))
        calls = [node - in_call["list"] for node in nodes]
        of_class = memory.u64s([call + in_call["class"] for call in calls])
        classes = list(dict.fromkeys(of_class))
        systems = memory.u64s([each + in_class["system"] for each in classes])
        regs = memory.u64s([each + in_class["reg"] for each in classes])
        known = dict(zip(classes, zip(map(self._string, systems), regs, strict=True), strict=True))
        flags = memory.u32s([call + in_call["flags"] for call in calls])
        ids = memory.u32s([call + in_call["event.type"] for call in calls])
        names = self._names(calls, flags)
        events = []
        for call, class_, flag, id_, name in zip(calls, of_class, flags, ids, names, strict=True):
            system, reg = known[class_]
            if system != _SYSCALLS or self._syscalls_reserve:
                switches = bool(reg) and not flag & ignore
                events.append(LinuxEvent(call, class_, reg, system, name, id_, switches))
        return events

    @cached_property
    def _syscalls_reserve(self) -> bool:
        """Whether events of system calls get their records as the others do; before 5.17 not."""
        symbols = self._vmlinux.symbols
        start, target = symbols.get("ftrace_syscall_enter"), symbols.get(_RESERVE)
        if start is None or target is None:
            return False
        code = self._memory.read(start, _FUNCTION_BYTES)
        ends = (at + 5 for at, byte in enumerate(code[:-4]) if byte == _CALL)
        return any(
            start + end + int.from_bytes(code[end - 4 : end], "little", signed=True) == target
            for end in ends
        )

    def print_fmt(self, event: LinuxEvent) -> str:
        return self._string(self._u64(event.address + self._call["print_fmt"]))

    def fields(self, event: LinuxEvent) -> list[LinuxField]:
        """The fields of its own, in order (trace_get_fields)."""
        return [self._field(node) for node in self._list(self._fields_at(event))]

    def syscall_name(self, event: LinuxEvent) -> str:
        """Of an event of the system `syscalls` the system call's name: sys_openat."""
        name = self._vmlinux.btf.offset("syscall_metadata", "name")
        return self._string(self._u64(self._metadata(event) + name))

    # --- what the kernel is given -----------------------------------------------------------------

    def symbol(self, name: str) -> int:
        """The address of a function of the kernel."""
        return self._vmlinux.symbol(name)

    @property
    def array_bytes(self) -> int:
        """The size of a struct trace_array."""
        return self._vmlinux.btf.size("trace_array")

    def fill_file(self, file: int, event: LinuxEvent, array: int) -> None:
        """Make a struct trace_event_file of zeroed memory: one that is enabled, and no more."""
        offset = self._vmlinux.btf.offset
        if self._vmlinux.btf.size("trace_event_file") > FILE_BYTES:
            raise EmulatedKernelError("struct trace_event_file is larger than thought")
        self._memory.set_u64(file + offset("trace_event_file", "event_call"), event.address)
        self._memory.set_u64(file + offset("trace_event_file", "tr"), array)

    # --- structures ------------------------------------------------------------------------------

    def _metadata(self, event: LinuxEvent) -> int:
        return self._u64(event.address + self._call["data"])

    def _fields_at(self, event: LinuxEvent) -> int:
        get_fields = self._u64(event.class_address + self._class["get_fields"])
        if not get_fields:
            return event.class_address + self._class["fields"]
        if get_fields != self._vmlinux.symbols.get(_SYSCALL_ENTER):
            raise EmulatedKernelError(f"fields of {event.name} that are nobody knows where")
        offset = self._vmlinux.btf.offset("syscall_metadata", "enter_fields")
        return self._metadata(event) + offset

    @cached_property
    def _field_offsets(self) -> dict[str, int]:
        btf, struct = self._vmlinux.btf, "ftrace_event_field"
        names = ["link", "name", "type", "offset", "size"]
        if btf.has(struct, "len"):
            names.append("len")
        return {name: btf.offset(struct, name) for name in names}

    @cached_property
    def _signed(self) -> tuple[int, int]:
        """Where it is told and by which bits; since 6.12 it is one bit of several."""
        member = self._vmlinux.btf.member("ftrace_event_field", "is_signed")
        shift = member.bit_offset % 32
        mask = ((1 << member.bits) - 1) << shift if member.bits else 0xFFFFFFFF
        return (member.bit_offset - shift) // 8, mask

    def _field(self, node: int) -> LinuxField:
        at, memory = self._field_offsets, self._memory
        signed_at, signed_mask = self._signed
        field = node - at["link"]
        type_ = self._string(self._u64(field + at["type"]))
        length = None
        if "[" in type_ and not type_.startswith("__data_loc"):
            type_, _, rest = type_.partition("[")
            number = rest.rstrip("]")
            length = int(number) if number.isdigit() else 0
            if "len" in at:
                length = memory.u32(field + at["len"])
        return LinuxField(
            type_,
            self._string(self._u64(field + at["name"])),
            memory.u32(field + at["offset"]),
            memory.u32(field + at["size"]),
            bool(memory.u32(field + signed_at) & signed_mask),
            length,
        )

    @cached_property
    def _tracepoint_flag(self) -> int:
        return 1 << self._vmlinux.btf.enumerator("TRACE_EVENT_FL_TRACEPOINT_BIT")

    def _names(self, calls: list[int], flags: list[int]) -> list[str]:
        """trace_event_name of each; a tracepoint's first member is its name."""
        found = self._memory.u64s([call + self._call["name"] for call in calls])
        rows = [row for row, flag in enumerate(flags) if flag & self._tracepoint_flag]
        for row, at in zip(rows, self._memory.u64s([found[row] for row in rows]), strict=True):
            found[row] = at
        return [self._string(at) for at in found]

    def _list(self, head: int) -> list[int]:
        """The nodes of a list_head, the last one first."""
        nodes: list[int] = []
        node = self._u64(head + 8)
        while node != head:
            if len(nodes) > _LIMIT:
                raise EmulatedKernelError(f"the list at {head:#x} has no end")
            nodes.append(node)
            node = self._u64(node + 8)
        return nodes

    def _u64(self, address: int) -> int:
        return self._memory.u64(address)

    def _string(self, address: int) -> str:
        if not address:
            return ""
        ram, at = self._memory.ram, self._memory.physical(address)
        end = ram.find(b"\0", at, at + _TEXT_LIMIT)
        if end < 0:
            raise EmulatedKernelError(f"the text at {address:#x} has no end")
        return ram[at:end].decode("utf-8", "replace")

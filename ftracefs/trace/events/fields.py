"""The fields of an event's record (struct ftrace_event_field) and where they lie.

A record begins with the common fields of struct trace_entry; behind them the event's own follow as
a C compiler would lay them out. Models TP_STRUCT__entry and trace_define_field of
kernel/trace/trace_events.c.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# C type -> size, signed
_TYPES = {
    "char": (1, True),
    "unsigned char": (1, False),
    "unsigned short": (2, False),
    "int": (4, True),
    "unsigned int": (4, False),
    "long": (8, True),
    "unsigned long": (8, False),
    "unsigned long long": (8, False),
    "pid_t": (4, True),
    "u16": (2, False),
    "u32": (4, False),
    "u64": (8, False),
    "s64": (8, True),
    "resource_size_t": (8, False),
    "const char *": (8, False),
}
DATA_LOC, REL_LOC = "__data_loc", "__rel_loc"
_DATA_LOC_TYPE = f"{DATA_LOC} char[]"


@dataclass(frozen=True, slots=True)
class Declaration:
    """A field as TP_STRUCT__entry declares it; `length` counts the elements of an array.

    Of a `dynamic` one only length and place are in the structure; its bytes follow behind it.
    """

    type: str
    name: str
    length: int | None = None
    dynamic: bool = False


def field(type_: str, name: str) -> Declaration:
    """__field."""
    return Declaration(type_, name)


def array(type_: str, name: str, length: int) -> Declaration:
    """__array; of length 0 it is all that is left of the record (`__dynamic_array` of ftrace's)."""
    return Declaration(type_, name, length)


def string(name: str) -> Declaration:
    """__string."""
    return Declaration("char", name, dynamic=True)


@dataclass(frozen=True, slots=True)
class EventField:
    """A field at its place."""

    type: str
    name: str
    offset: int
    size: int
    is_signed: bool
    length: int | None = None

    @property
    def is_dynamic(self) -> bool:
        """Whether place and length are in the record, and the bytes somewhere behind it."""
        return self.type.startswith((DATA_LOC, REL_LOC))

    @property
    def element_size(self) -> int:
        """Bytes of a number in an array."""
        if self.is_dynamic:
            return _TYPES.get(self.type.split()[-1].removesuffix("[]"), (1, False))[0]
        return self.size // self.length if self.length else self.size

    @property
    def is_string(self) -> bool:
        return self.is_dynamic or (self.type == "char" and self.length is not None)

    def text(self) -> str:
        """Its line in a format file (f_show)."""
        declared = f"{self.type} {self.name}"
        if self.length is not None:
            declared += f"[{self.length or ''}]"
        return (
            f"\tfield:{declared};\toffset:{self.offset};\tsize:{self.size};"
            f"\tsigned:{int(self.is_signed)};\n"
        )


def lay_out(declarations: Iterable[Declaration], start: int = 0) -> tuple[EventField, ...]:
    """Fields in order, each at its natural alignment from `start` on."""
    fields: list[EventField] = []
    offset = start
    for declaration in declarations:
        if declaration.dynamic:
            type_, size, is_signed, align = _DATA_LOC_TYPE, 4, True, 4
        else:
            type_ = declaration.type
            align, is_signed = _TYPES[type_]
            size = align * (1 if declaration.length is None else declaration.length)
        offset = -(-offset // align) * align
        fields.append(
            EventField(type_, declaration.name, offset, size, is_signed, declaration.length)
        )
        offset += size
    return tuple(fields)


COMMON_FIELDS = lay_out(
    (
        field("unsigned short", "common_type"),
        field("unsigned char", "common_flags"),
        field("unsigned char", "common_preempt_count"),
        field("int", "common_pid"),
    )
)
COMMON_SIZE = 8


def event_fields(declarations: Iterable[Declaration]) -> tuple[EventField, ...]:
    """The fields of an event's own, behind the common ones."""
    return lay_out(declarations, COMMON_SIZE)

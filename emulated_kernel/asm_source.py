"""The assembler's front end: source text in, statements out.

It strips comments, expands macros, collects constants, gives private labels a name of their own and
breaks `FUNC`, `OBJECT` and their kin down into alignments, labels and instructions. What is left
has no structure beyond its section, so another assembler can take it from here just as well.

The dialect is the part of GNU `as` (Intel syntax) that the kernel sources need: no `.if`, no
`.rept`, no character constants, one statement a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from emulated_kernel.asm_expression import Refused, fold, names, parse
from emulated_kernel.asm_registers import RESERVED
from emulated_kernel.errors import AssemblerError

MAX_ALIGNMENT = 1 << 21
MAX_ZEROS = 1 << 26
MAX_EXPANSIONS = 1 << 18
MAX_MACRO_DEPTH = 32
MAX_COMPLAINTS = 50

CODE_FILL = 0x90  # inside a function padding is executed
GAP_FILL = 0xCC  # between functions it must not be
FUNCTION_ALIGNMENT = 16

_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|#.*')
_LABEL = re.compile(r"([A-Za-z_.][\w.]*|[0-9]+):[ \t]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_LOCAL_NAME = re.compile(r"\.L[\w.]+", re.ASCII)
_SECTION = re.compile(r"(?:\.|__)[A-Za-z_][\w.]*", re.ASCII)
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ASSIGNMENT = re.compile(r"([A-Za-z_][\w.]*)\s*=\s*(.+)", re.ASCII)
_PARAMETER = re.compile(r"\\(\w+|@)(?:\\\(\))?", re.ASCII)
# What is private to a function or a place, where it is used: .Lname, 1b, 1f
_PRIVATE = re.compile(r"(?<![\w.])(?:([0-9]+)([bf])|(\.L[\w.]+))(?![\w.])", re.ASCII)
_STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
_STRUCTURE = re.compile(r'"(?:\\.|[^"\\])*"|[][(),]')
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"'}
_WIDTHS = {".byte": 1, ".word": 2, ".long": 4, ".quad": 8}


@dataclass(frozen=True, slots=True)
class Site:
    """Where a statement stands; `caller` is the macro call that brought it there."""

    file: str
    line: int
    text: str
    caller: Site | None = None

    def error(self, what: object) -> AssemblerError:
        outermost = self
        while outermost.caller is not None:
            outermost = outermost.caller
        origin = "" if outermost is self else f" (macro line {self.file}:{self.line})"
        return AssemblerError(
            f"{outermost.file}:{outermost.line}: {what}: {self.text.strip()}{origin}"
        )


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that takes room, or a label, in a section."""

    site: Site
    section: str


@dataclass(frozen=True, slots=True)
class Label(Statement):
    name: str


@dataclass(frozen=True, slots=True)
class Align(Statement):
    size: int
    fill: int


@dataclass(frozen=True, slots=True)
class Raw(Statement):
    data: bytes


@dataclass(frozen=True, slots=True)
class Values(Statement):
    """`.byte` to `.quad`: expressions of `width` bytes each."""

    width: int
    expressions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Instruction(Statement):
    text: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A symbol to be: from the label `start` to the label `end` (none: size 0)."""

    name: str
    section: str
    start: str
    end: str | None
    kind: str


@dataclass(slots=True)
class Program:
    """Everything the sources say, in order. Names with `..` in them were made by the front end."""

    statements: list[Statement] = field(default_factory=list)
    constants: dict[str, int] = field(default_factory=dict)  # those given, and those defined
    defined: dict[str, int] = field(default_factory=dict)
    definitions: list[Definition] = field(default_factory=list)
    labels: dict[str, Site] = field(default_factory=dict)
    global_labels: list[str] = field(default_factory=list)
    mcount: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)  # made-up name -> as in the source


@dataclass(frozen=True, slots=True)
class _Macro:
    parameters: tuple[str, ...]
    body: list[tuple[int, str]]
    file: str


@dataclass(frozen=True, slots=True)
class _Scope:
    """An open FUNC or OBJECT."""

    keyword: str
    name: str
    label: str
    section: str
    static: bool
    site: Site


class Complaints:
    """Errors so far: an author wants all of them at once."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, error: AssemblerError) -> None:
        text = str(error)
        if text not in self._lines:
            self._lines.append(text)

    def __bool__(self) -> bool:
        return bool(self._lines)

    def raise_any(self) -> None:
        if self._lines:
            shown = self._lines[:MAX_COMPLAINTS]
            if more := len(self._lines) - len(shown):
                shown.append(f"and {more} more")
            raise AssemblerError("\n".join(shown))


def is_include(name: str) -> bool:
    return name.endswith(".inc")


def read_sources(sources: Mapping[str, str], constants: Mapping[str, int]) -> Program:
    """All statements of an image. Includes come first: their macros are seen by every file."""
    reader = _Reader(constants)
    for name in sorted(sources, key=lambda name: not is_include(name)):
        reader.file(name, sources[name])
    reader.finish()
    return reader.program


def split_operands(text: str) -> list[str]:
    """Split at commas that stand outside brackets and strings."""
    if not text:
        return []
    if not any(c in text for c in '[("'):
        return [part.strip() for part in text.split(",")]
    parts, depth, start = [], 0, 0
    for match in _STRUCTURE.finditer(text):
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(match[0], 0)
        if match[0] == "," and depth == 0:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    parts.append(text[start:].strip())
    return parts


class _Reader:
    """Reads one file after the other into one program."""

    def __init__(self, constants: Mapping[str, int]) -> None:
        self.program = Program()
        self.complaints = Complaints()
        self.constants = dict(constants)
        self.constant_sites: dict[str, Site | None] = dict.fromkeys(constants)
        for name in constants:
            if name.lower() in RESERVED:
                raise AssemblerError(f"constant {name} has the name of a register or operator")
        self.shared_macros: dict[str, _Macro] = {}
        self.expansions = 0
        self.file_number = 0
        self.file_name = ""
        self.section = ".text"
        self.site = Site("", 0, "")
        self._start_file("")

    def _start_file(self, name: str) -> None:
        self.file_name = name
        self.section = ".text"
        self.scope: _Scope | None = None
        self.macros = dict(self.shared_macros)
        self.recording: tuple[str, _Macro] | None = None
        self.expanding: list[str] = []
        self.numeric: dict[str, int] = {}
        self.statics: dict[str, str] = {}

    # --- files and lines ------------------------------------------------------------------------

    def file(self, name: str, text: str) -> None:
        self.file_number += 1
        self._start_file(name)
        first = len(self.program.statements)
        for number, line in enumerate(text.split("\n"), 1):
            self.site = Site(name, number, line)
            try:
                self._line(line)
            except Refused as what:
                self.complaints.add(self.site.error(what))
                self.site = Site(name, number, line)
                self.expanding.clear()
        self._end_file()
        if is_include(name):
            self.shared_macros = self.macros
        if self.statics:
            self._rename_statics(first)

    def _end_file(self) -> None:
        if self.recording is not None:
            self.complaints.add(self.site.error(f".macro {self.recording[0]} has no .endm"))
        if self.scope is not None:
            what = f"{self.scope.keyword} {self.scope.name} is never closed"
            self.complaints.add(self.scope.site.error(what))

    def finish(self) -> None:
        for label, site in self.program.labels.items():
            name = self.program.written.get(label, label)
            if name in self.constants:
                self.complaints.add(site.error(f"{name} is a constant already"))
        self.complaints.raise_any()
        self.program.constants = self.constants
        self.program.defined = {
            name: value for name, value in self.constants.items() if self.constant_sites[name]
        }

    def _line(self, line: str) -> None:
        if "#" in line:
            line = _COMMENT.sub(lambda match: match[1] or "", line)
        line = line.strip()
        if not line:
            return
        if not line.isascii():
            raise Refused("only comments may hold characters beyond ASCII")
        if self.recording is not None:
            self._record(line)
            return
        while match := _LABEL.match(line):
            self._label(match[1])
            line = line[match.end() :]
        if line:
            self._operation(line)

    def _operation(self, line: str) -> None:
        operation, *rest = line.split(None, 1)
        arguments = rest[0] if rest else ""
        if operation in self.macros:
            self._expand(operation, arguments)
        elif operation in _WIDTHS:
            self._values(_WIDTHS[operation], arguments)
        elif operation in self._directives:
            self._directives[operation](self, arguments)
        elif operation.startswith("."):
            raise Refused(f"unknown directive {operation}")
        elif "=" in line and (match := _ASSIGNMENT.fullmatch(line)):
            self._assign(match[1], match[2])
        else:
            self._instruction(operation, arguments)

    def _emit(self, statement: Statement) -> None:
        if is_include(self.file_name):
            raise Refused("a .inc file holds constants and macros only")
        self.program.statements.append(statement)

    # --- names ----------------------------------------------------------------------------------

    def _label(self, name: str) -> None:
        if name.isdigit():
            count = self.numeric[name] = self.numeric.get(name, 0) + 1
            self._define_label(self._numeric_name(name, count), name)
        elif _LOCAL_NAME.fullmatch(name):
            self._define_label(self._private_name(name), name)
        else:
            label = self._new_symbol(name)
            self._define_label(label, name)
            self.program.global_labels.append(label)
            self.program.definitions.append(
                Definition(name, self.section, label, None, self._kind(static=True))
            )

    def _new_symbol(self, name: str) -> str:
        if not _NAME.fullmatch(name) or ".." in name:
            raise Refused(f"bad name {name!r}")
        if name.lower() in RESERVED:
            raise Refused(f"{name} is the name of a register or operator")
        return name

    def _define_label(self, label: str, written: str) -> None:
        if known := self.program.labels.get(label):
            raise Refused(f"{written} is already defined at {known.file}:{known.line}")
        self._emit(Label(self.site, self.section, label))
        self.program.labels[label] = self.site
        if label != written:
            self.program.written[label] = written

    def _kind(self, *, static: bool) -> str:
        kind = "t" if self.section.startswith(".text") else "d"
        return kind if static else kind.upper()

    def _private_name(self, name: str) -> str:
        scope = self.scope.label if self.scope else ""
        return f".L{self.file_number}..{scope}..{name[2:]}"

    def _numeric_name(self, number: str, count: int) -> str:
        return f".L{self.file_number}..{number}..{count}"

    def _resolve_private(self, text: str) -> str:
        """Give .L names and 1b/1f in a statement the names of the labels they mean."""
        return _PRIVATE.sub(self._resolve_match, text)

    def _resolve_match(self, match: re.Match[str]) -> str:
        number, direction, name = match.groups()
        if name:
            label = self._private_name(name)
        else:
            count = self.numeric.get(number, 0) + (direction == "f")
            if count == 0:
                raise Refused(f"no label {number} before this line")
            label = self._numeric_name(number, count)
        self.program.written.setdefault(label, match[0])
        return label

    def _rename_statics(self, first: int) -> None:
        """Let the file's own static symbols take precedence over global ones of that name."""
        alternatives = "|".join(re.escape(name) for name in self.statics)
        pattern = re.compile(rf"(?<![\w.])(?:{alternatives})(?![\w.])", re.ASCII)

        def rename(text: str) -> str:
            return pattern.sub(lambda match: self.statics[match[0]], text)

        statements = self.program.statements
        for index in range(first, len(statements)):
            statement = statements[index]
            if isinstance(statement, Instruction):
                operation, space, operands = statement.text.partition(" ")
                text = operation + space + rename(operands)
                if text != statement.text:
                    statements[index] = replace(statement, text=text)
            elif isinstance(statement, Values):
                expressions = tuple(rename(text) for text in statement.expressions)
                statements[index] = replace(statement, expressions=expressions)

    # --- constants and data ---------------------------------------------------------------------

    def _assign(self, name: str, text: str) -> None:
        if not _WORD.fullmatch(name):
            raise Refused(f"bad name {name!r}")
        if name.lower() in RESERVED:
            raise Refused(f"{name} is the name of a register or operator")
        value = self._constant(text)
        if self.constants.get(name, value) != value:
            site = self.constant_sites[name]
            place = f"at {site.file}:{site.line}" if site else "by the caller"
            raise Refused(f"{name} is already {self.constants[name]:#x}, defined {place}")
        if name not in self.constants:
            self.constants[name] = value
            self.constant_sites[name] = self.site

    def _constant(self, text: str) -> int:
        value = fold(parse(text), self.constants)
        if not isinstance(value, int):
            unknown = sorted(set(names(value)))
            raise Refused(f"{', '.join(unknown)}: not a constant defined before this line")
        return value

    def _values(self, width: int, arguments: str) -> None:
        expressions = tuple(split_operands(self._resolve_private(arguments)))
        if not expressions or "" in expressions:
            raise Refused("a value is missing")
        for expression in expressions:
            parse(expression)
        self._emit(Values(self.site, self.section, width, expressions))

    def _string(self, arguments: str, end: bytes) -> None:
        strings = split_operands(arguments)
        if not strings:
            raise Refused("a string is missing")
        data = bytearray()
        for string in strings:
            match = _STRING.fullmatch(string)
            if match is None:
                raise Refused(f"{string!r} is not a string in double quotes")
            data += _ESCAPE.sub(self._unescape, match[1]).encode("latin-1") + end
        self._emit(Raw(self.site, self.section, bytes(data)))

    @staticmethod
    def _unescape(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] in "01234567":
            if int(escape, 8) > 0xFF:
                raise Refused(f"\\{escape} is more than a byte")
            return chr(int(escape, 8))
        if escape not in _ESCAPES:
            raise Refused(f"unknown escape \\{escape}")
        return _ESCAPES[escape]

    def _ascii(self, arguments: str) -> None:
        self._string(arguments, b"")

    def _asciz(self, arguments: str) -> None:
        self._string(arguments, b"\0")

    def _zero(self, arguments: str) -> None:
        count = self._constant(arguments)
        if not 0 <= count <= MAX_ZEROS:
            raise Refused(f"cannot make {count} bytes of zeros")
        self._emit(Raw(self.site, self.section, bytes(count)))

    def _balign(self, arguments: str) -> None:
        size, *fill = [self._constant(text) for text in split_operands(arguments)] or [0]
        if size <= 0 or size & (size - 1) or size > MAX_ALIGNMENT:
            raise Refused(f"cannot align to {size}")
        if len(fill) > 1 or any(not 0 <= byte <= 0xFF for byte in fill):
            raise Refused("the fill is one byte")
        self._emit(Align(self.site, self.section, size, fill[0] if fill else self._fill()))

    def _fill(self) -> int:
        if not self.section.startswith(".text"):
            return 0
        return CODE_FILL if self.scope else GAP_FILL

    # --- sections and symbols -------------------------------------------------------------------

    def _text(self, arguments: str) -> None:
        self._no_arguments(arguments)
        self.section = ".text"

    def _data(self, arguments: str) -> None:
        self._no_arguments(arguments)
        self.section = ".data"

    def _section(self, arguments: str) -> None:
        if not _SECTION.fullmatch(arguments):
            raise Refused(f"bad section name {arguments!r}")
        self.section = arguments

    @staticmethod
    def _no_arguments(arguments: str) -> None:
        if arguments:
            raise Refused(f"unexpected {arguments!r}")

    def _open(self, keyword: str, name: str, *, static: bool) -> _Scope:
        if self.scope is not None:
            raise Refused(f"{self.scope.keyword} {self.scope.name} is still open")
        label = self._new_symbol(name)
        if static:
            label = f"{name}..{self.file_number}"
        self._define_label(label, name)
        if static:
            self.statics[name] = label
        else:
            self.program.global_labels.append(label)
        scope = _Scope(keyword, name, label, self.section, static, self.site)
        self.scope = scope
        return scope

    def _close(self, keyword: str, name: str) -> None:
        scope = self.scope
        if scope is None or scope.keyword != keyword:
            raise Refused(f"no {keyword} is open here")
        if scope.name != name:
            raise Refused(f"the open {keyword} is {scope.name}")
        if scope.section != self.section:
            raise Refused(f"{name} began in section {scope.section}")
        self.scope = None
        end = f"{scope.label}..end"
        self._define_label(end, name)
        self.program.definitions.append(
            Definition(name, scope.section, scope.label, end, self._kind(static=scope.static))
        )

    def _function(
        self, name: str, *, traced: bool = True, endbr: bool = False, static: bool = False
    ) -> None:
        if not self.section.startswith(".text"):
            raise Refused(f"a function in section {self.section}")
        if self.scope is None:
            self._emit(Align(self.site, self.section, FUNCTION_ALIGNMENT, GAP_FILL))
        scope = self._open("FUNC", name, static=static)
        if endbr:
            self._instruction("endbr64", "")
        if traced:
            site = f"{scope.label}..mcount"
            self._define_label(site, name)
            self.program.mcount.append(site)
            self._instruction("call", "__fentry__")

    def _func(self, name: str) -> None:
        self._function(name)

    def _func_endbr(self, name: str) -> None:
        self._function(name, endbr=True)

    def _func_static(self, name: str) -> None:
        self._function(name, static=True)

    def _func_endbr_static(self, name: str) -> None:
        self._function(name, endbr=True, static=True)

    def _func_notrace(self, name: str) -> None:
        self._function(name, traced=False)

    def _func_notrace_static(self, name: str) -> None:
        self._function(name, traced=False, static=True)

    def _endfunc(self, name: str) -> None:
        self._close("FUNC", name)

    def _object(self, name: str) -> None:
        self._open("OBJECT", name, static=False)

    def _object_static(self, name: str) -> None:
        self._open("OBJECT", name, static=True)

    def _endobject(self, name: str) -> None:
        self._close("OBJECT", name)

    def _instruction(self, operation: str, arguments: str) -> None:
        text = f"{operation} {' '.join(arguments.split())}" if arguments else operation
        self._emit(Instruction(self.site, self.section, self._resolve_private(text)))

    # --- macros ---------------------------------------------------------------------------------

    def _macro(self, arguments: str) -> None:
        name, *parameters = arguments.replace(",", " ").split() or [""]
        # Whatever is wrong with its first line, the body belongs to the macro.
        self.recording = "", _Macro((), [], self.file_name)
        if not all(_WORD.fullmatch(word) for word in (name, *parameters)):
            raise Refused(".macro NAME a, b: plain names only, no defaults")
        if len(set(parameters)) != len(parameters):
            raise Refused("a parameter is named twice")
        if name in self._directives:
            raise Refused(f"{name} is a directive")
        if known := self.macros.get(name):
            raise Refused(f"macro {name} is already defined in {known.file}")
        self.recording = name, _Macro(tuple(parameters), [], self.file_name)

    def _record(self, line: str) -> None:
        assert self.recording is not None
        name, macro = self.recording
        if line == ".endm":
            self.recording = None
            if name:
                self.macros[name] = macro
        elif line.split(None, 1)[0] == ".macro":
            raise Refused("a macro cannot define a macro")
        else:
            macro.body.append((self.site.line, line))

    def _endm(self, _arguments: str) -> None:
        raise Refused(".endm without .macro")

    def _expand(self, name: str, arguments: str) -> None:
        macro = self.macros[name]
        values = split_operands(arguments)
        if len(values) != len(macro.parameters) or "" in values:
            wanted = ", ".join(macro.parameters) or "nothing"
            raise Refused(f"macro {name} takes {wanted}")
        if name in self.expanding:
            raise Refused(f"macro {name} calls itself")
        self.expansions += 1
        if self.expansions > MAX_EXPANSIONS or len(self.expanding) == MAX_MACRO_DEPTH:
            raise Refused("too many macro expansions")
        given = dict(zip(macro.parameters, values, strict=True)) | {"@": str(self.expansions)}
        caller = self.site
        self.expanding.append(name)
        for number, line in macro.body:
            self.site = Site(macro.file, number, line, caller)
            if "\\" in line:
                line = self._substitute(line, given)
                self.site = Site(macro.file, number, line, caller)
            self._line(line)
        self.expanding.pop()
        self.site = caller

    @staticmethod
    def _substitute(line: str, given: Mapping[str, str]) -> str:
        def in_code(match: re.Match[str]) -> str:
            if match[1] not in given:
                raise Refused(f"the macro has no parameter {match[1]}")
            return given[match[1]]

        def in_string(match: re.Match[str]) -> str:
            return given.get(match[1], match[0])

        if '"' not in line:
            return _PARAMETER.sub(in_code, line)
        pieces = re.split(r'("(?:\\.|[^"\\])*")', line)
        for index, piece in enumerate(pieces):
            pieces[index] = _PARAMETER.sub(in_string if index % 2 else in_code, piece)
        return "".join(pieces)

    _directives: ClassVar[dict[str, Callable[[_Reader, str], None]]] = {
        ".text": _text,
        ".data": _data,
        ".section": _section,
        ".balign": _balign,
        ".ascii": _ascii,
        ".asciz": _asciz,
        ".zero": _zero,
        ".macro": _macro,
        ".endm": _endm,
        "FUNC": _func,
        "FUNC_ENDBR": _func_endbr,
        "FUNC_STATIC": _func_static,
        "FUNC_ENDBR_STATIC": _func_endbr_static,
        "FUNC_NOTRACE": _func_notrace,
        "FUNC_NOTRACE_STATIC": _func_notrace_static,
        "ENDFUNC": _endfunc,
        "OBJECT": _object,
        "OBJECT_STATIC": _object_static,
        "ENDOBJECT": _endobject,
    }

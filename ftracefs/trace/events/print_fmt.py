"""From an event's print format to a printer of its records.

A print format is C: a format string and its arguments, expressions over the fields (`REC->name`)
and a few helpers. libtraceevent interprets it in user space; here it is translated into one Python
expression, once for an event, which is then evaluated for each record.

    "pid=%d %s", REC->pid, REC->state & 3 ? "S" : "R"
    b'pid=%d %s' % (f_pid, b'S' if f_state & 3 else b'R')

Left out: helpers and conversions that no event here has need of; they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:\\.|[^"\\])*")
      | (?P<number>0[xX][0-9a-fA-F]+|[0-9]+)[uUlL]*
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>->|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>?:(),{}\[\]])
    )""",
    re.VERBOSE,
)
_CONVERSION = re.compile(r"%([-+ #0]*[0-9]*(?:\.[0-9]+)?)(hh|h|ll|l|z)?([a-zA-Z%])")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "r": "\r", "0": "\0"}
# Loosest first; && and || are written apart, since Python's give back an operand.
_BINARY = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*",),
)
_CASTS = {"int", "long", "unsigned", "char", "short", "void", "u64", "u32", "s64", "s32"}


class PrintFmtError(ValueError):
    """A print format that cannot be translated."""


def print_flags(value: int, delimiter: bytes, names: Sequence[tuple[int, bytes]]) -> bytes:
    """__print_flags: the names of the bits that are set, what is left over as a number."""
    found = []
    for mask, name in names:
        if value & mask == mask and value:
            found.append(name)
            value &= ~mask
    if value:
        found.append(b"0x%x" % value)
    return delimiter.join(found)


def print_symbolic(value: int, names: Sequence[tuple[int, bytes]]) -> bytes:
    """__print_symbolic: the name of a value, or the value."""
    return next((name for number, name in names if number == value), b"0x%x" % value)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise PrintFmtError(f"cannot read {text[position:]!r}")
        yield _Token(match.lastgroup, match[match.lastgroup])
        position = match.end()
    yield _Token("end", "")


def _unquote(text: str) -> bytes:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text[1:-1]).encode("latin-1")


class _Translator:
    """A recursive descent over C's expressions; what it returns is Python."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self.fields: list[str] = []

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _accept(self, sign: str) -> bool:
        if self._next.kind == "sign" and self._next.text == sign:
            self._at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise PrintFmtError(f"{sign!r} expected, not {self._next.text!r}")

    def whole(self) -> str:
        """`format, argument, ...` as a Python expression of bytes."""
        template, kinds = _template(self._string())
        arguments = []
        while self._accept(","):
            arguments.append(self.conditional())
        if self._next.kind != "end" or len(arguments) != len(kinds):
            raise PrintFmtError("conversions and arguments do not match")
        packed = "".join(f"{argument}, " for argument in arguments)
        return f"{template!r} % ({packed})"

    def _string(self) -> bytes:
        if self._next.kind != "string":
            raise PrintFmtError(f"a string expected, not {self._next.text!r}")
        parts = []
        while self._next.kind == "string":
            parts.append(_unquote(self._take().text))
        return b"".join(parts)

    def conditional(self) -> str:
        condition = self._binary(0)
        if not self._accept("?"):
            return condition
        yes = self.conditional()
        self._expect(":")
        no = self.conditional()
        return f"({yes} if {condition} else {no})"

    def _binary(self, level: int) -> str:
        if level == len(_BINARY):
            return self._unary()
        left = self._binary(level + 1)
        while self._next.kind == "sign" and self._next.text in _BINARY[level]:
            sign = self._take().text
            right = self._binary(level + 1)
            word = {"&&": "and", "||": "or"}.get(sign)
            left = f"int(bool({left} {word} {right}))" if word else f"({left} {sign} {right})"
        return left

    def _unary(self) -> str:
        if self._accept("!"):
            return f"int(not {self._unary()})"
        for sign in ("-", "~"):
            if self._accept(sign):
                return f"({sign}{self._unary()})"
        return self._primary()

    def _is_cast(self) -> bool:
        following = self._tokens[self._at]
        return following.kind == "name" and following.text in _CASTS

    def _primary(self) -> str:
        token = self._next
        if token.kind == "number":
            return str(int(self._take().text, 0))
        if token.kind == "string":
            return repr(self._string())
        if self._accept("("):
            if self._is_cast():
                while not self._accept(")"):
                    self._take()
                return self._unary()  # fields come as the type of their format says
            inner = self.conditional()
            self._expect(")")
            return inner if inner != "REC" else self._member()
        if token.kind == "name":
            self._take()
            if token.text == "REC":
                return "REC" if self._next.text == ")" else self._member()
            return self._helper(token.text)
        raise PrintFmtError(f"unexpected {token.text!r}")

    def _member(self) -> str:
        self._expect("->")
        return self._field(self._take().text)

    def _field(self, name: str) -> str:
        if name not in self.fields:
            self.fields.append(name)
        return f"f_{name}"

    def _helper(self, name: str) -> str:
        self._expect("(")
        if name == "__get_str":
            result = self._field(self._take().text)
        elif name == "__print_flags":
            value = self.conditional()
            self._expect(",")
            result = f"print_flags({value}, {self._string()!r}, {self._names()!r})"
        elif name == "__print_symbolic":
            result = f"print_symbolic({self.conditional()}, {self._names()!r})"
        else:
            raise PrintFmtError(f"no helper {name}")
        self._expect(")")
        return result

    def _names(self) -> tuple[tuple[int, bytes], ...]:
        names = []
        while self._accept(","):
            self._expect("{")
            number = int(self._take().text, 0)
            self._expect(",")
            names.append((number, self._string()))
            self._expect("}")
        return tuple(names)


def _template(text: bytes) -> tuple[bytes, list[str]]:
    """A C format string as Python's, and its conversions."""
    kinds: list[str] = []

    def convert(match: re.Match[str]) -> str:
        flags, _, kind = match.groups()
        if kind == "%":
            return "%%"
        if kind not in "sduxXoc":
            raise PrintFmtError(f"no conversion {match[0]}")
        kinds.append(kind)
        return f"%{flags}{'d' if kind == 'u' else kind}"

    return _CONVERSION.sub(convert, text.decode("latin-1")).encode("latin-1"), kinds


@dataclass(frozen=True, slots=True)
class PrintFmt:
    """A print format that was translated: give `render` a column for each of `fields`."""

    fields: tuple[str, ...]
    source: str
    render: Callable[..., list[bytes]]


def compile_print_fmt(text: str) -> PrintFmt:
    """Translate a print format. Raises PrintFmtError."""
    translator = _Translator(text)
    body = translator.whole()
    names = tuple(translator.fields)
    variables = "".join(f"f_{name}, " for name in names)
    columns = ", ".join(f"c_{name}" for name in names)
    source = f"lambda {columns}: [{body} for {variables}in zip({columns}, strict=True)]"
    if not names:
        raise PrintFmtError("no field is printed")
    helpers = {"print_flags": print_flags, "print_symbolic": print_symbolic}
    render = eval(compile(source, "<print fmt>", "eval"), helpers)
    return PrintFmt(names, source, render)

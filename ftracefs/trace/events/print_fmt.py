"""From an event's print format to a printer of its records.

A print format is C: a format string and its arguments, expressions over the fields (`REC->name`)
and a few helpers. libtraceevent interprets it in user space; here it is translated into one Python
expression, once for an event, which is then evaluated for each record that differs.

    "pid=%d %s", REC->pid, REC->state & 3 ? "S" : "R"
    b'pid=%d %s' % (f_pid, b'S' if f_state & 3 else b'R')

Numbers have C's types: what a conversion or an operator makes of a negative number, or of one that
is too large, is what C makes of it. Left out: calls of functions of the kernel's own, and forms of
%p that nobody uses; they are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, NamedTuple, Protocol

from ftracefs.trace.events import print_helpers
from ftracefs.trace.events.fields import EventField

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:\\.|[^"\\])*")
      | (?P<number>0[xX][0-9a-fA-F]+[uUlL]*|[0-9]+[uUlL]*)
      | (?P<character>'(?:\\.|[^'\\])')
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>->|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>?:(),{}\[\]])
    )""",
    re.VERBOSE | re.DOTALL,
)
_CONVERSION = re.compile(
    r"%([-+ #0]*)(\*|[0-9]*)((?:\.(?:\*|[0-9]+))?)(hh|h|ll|l|L|z|t)?([a-zA-Z%])"
)
_POINTER = re.compile(r"[A-Za-z0-9]*")
# What follows %p, and the function that shows it.
_OF_NUMBERS = {"": "e.pointer", "s": "e.symbol", "S": "e.symbol_offset", "x": "raw_pointer"}
_OF_BYTES = {"I4": "ipv4", "I6c": "ipv6", "I6": "ipv6_long", "ISpc": "sockaddr", "U": "uuid"}
_SEPARATORS = {"h": " ", "hC": ":", "hD": "-", "hN": ""}
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
    ("*", "/", "%"),
)
_COMPARISONS = {"==", "!=", "<", ">", "<=", ">="}
_LENGTHS = {"hh": 8, "h": 16, None: 32, "l": 64, "ll": 64, "L": 64, "z": 64, "t": 64}
# Types by their one name: bits, signed. Longer names are put together.
_NAMED = {
    **{f"{p}u{bits}": (bits, False) for bits in (8, 16, 32, 64) for p in ("", "__")},
    **{f"{p}s{bits}": (bits, True) for bits in (8, 16, 32, 64) for p in ("", "__")},
    **dict.fromkeys(("gfp_t", "dev_t", "uid_t", "gid_t", "tid_t", "slab_flags_t"), (32, False)),
    **dict.fromkeys(("size_t", "sector_t", "ino_t", "uintptr_t", "dma_addr_t"), (64, False)),
    **dict.fromkeys(("loff_t", "ktime_t", "ssize_t", "time64_t"), (64, True)),
    "pid_t": (32, True),
    "bool": (8, False),
    "umode_t": (16, False),
}
_WORDS = {"int", "long", "unsigned", "signed", "char", "short", "void", "const"}
_SIZED = (("long", 64), ("short", 16), ("char", 8))
_TAGS = {"struct", "union", "enum"}
# Calls that give back their first argument.
_TRANSPARENT = re.compile(
    r"__builtin_expect|native_make_p(te|md|ud|4d|gd)|p(te|md|ud|4d|gd)_val|likely|unlikely"
)
_MSECS_PER_SEC = 1000
_EXACT = 1024  # bits of what has not been cut to its type yet
_LITERAL = re.compile(r"\(?(-?\d+)\)?")


class PrintFmtError(ValueError):
    """A print format that cannot be translated."""


class Kind(Enum):
    """What an expression is."""

    NUMBER = auto()
    TEXT = auto()  # bytes that are a string
    BYTES = auto()  # an array


class Expression(NamedTuple):
    """Python, and C's type. `size` is what a pointer points at, or an array is of, in bytes."""

    code: str
    kind: Kind = Kind.NUMBER
    bits: int = 32
    signed: bool = True
    size: int = 0


class KernelNames(Protocol):
    """What a print format may name beside fields and helpers."""

    def enumerator(self, name: str) -> int | None:
        """The value of a name in an enum."""

    def size(self, name: str) -> int | None:
        """The bytes of a structure, or of what a typedef names."""

    def has_variable(self, name: str) -> bool:
        """Whether the kernel has a variable of that name, of 64 bits."""


class _NoNames:
    def enumerator(self, name: str) -> int | None:
        return None

    def size(self, name: str) -> int | None:
        return None

    def has_variable(self, name: str) -> bool:
        return False


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


def _convert(what: Expression, bits: int, signed: bool) -> str:
    """The number as one of another type."""
    if what.kind is not Kind.NUMBER:
        raise PrintFmtError(f"{what.code} is no number")
    fits = what.bits <= bits if what.signed == signed else not what.signed and what.bits < bits
    if fits:
        return what.code
    mask = (1 << bits) - 1
    if literal := _LITERAL.fullmatch(what.code):
        value = int(literal[1]) & mask
        return str(value - (1 << bits) if signed and value >> (bits - 1) else value)
    if not signed:
        return f"({what.code} & {mask:#x})"
    sign = 1 << (bits - 1)
    return f"((({what.code} & {mask:#x}) ^ {sign:#x}) - {sign:#x})"


def _folded(code: str, *parts: str) -> str:
    """What constants come to."""
    return str(eval(code)) if all(map(_LITERAL.fullmatch, parts)) else code


def _promoted(what: Expression) -> tuple[int, bool]:
    return (32, True) if what.bits < 32 else (what.bits, what.signed)


def _common(left: Expression, right: Expression) -> tuple[int, bool]:
    """The usual arithmetic conversions."""
    (a, a_signed), (b, b_signed) = _promoted(left), _promoted(right)
    bits = max(a, b)
    signed = not ((a == bits and not a_signed) or (b == bits and not b_signed))
    return bits, signed


class _Translator:
    """A recursive descent over C's expressions."""

    def __init__(
        self, text: str, fields: Mapping[str, EventField] | None, kernel: KernelNames
    ) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._by_name = fields
        self._kernel = kernel
        self.columns: dict[str, tuple[str, str]] = {}  # variable -> field, and how it is wanted
        self.constants: dict[str, Any] = {}
        self.is_lasting = True  # the text of a record is the same whenever it is made

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
        template = self._string()
        arguments = []
        while self._accept(","):
            arguments.append(self._conditional())
        if self._next.kind != "end":
            raise PrintFmtError(f"unexpected {self._next.text!r}")
        return _Formatter(self, arguments).whole(template)

    def _string(self) -> bytes:
        if self._next.kind != "string":
            raise PrintFmtError(f"a string expected, not {self._next.text!r}")
        parts = []
        while self._next.kind == "string":
            parts.append(_unquote(self._take().text))
        return b"".join(parts)

    def as_text(self, what: Expression) -> str:
        """An expression as %s takes it: an array, a pointer to the kernel's own, or a text."""
        if what.kind is Kind.BYTES:
            return f"{what.code}.partition(b'\\0')[0]"
        if what.kind is Kind.NUMBER and what.size == 1:
            return f"e.string({what.code})"
        if what.kind is Kind.TEXT or self._by_name is None:
            return what.code
        raise PrintFmtError(f"{what.code} is no text")

    # --- operators -------------------------------------------------------------------------------

    def _conditional(self) -> Expression:
        condition = self._binary(0)
        if not self._accept("?"):
            return condition
        yes = self._conditional()
        self._expect(":")
        no = self._conditional()
        if yes.kind is not Kind.NUMBER or no.kind is not Kind.NUMBER:
            one, other = self.as_text(yes), self.as_text(no)
            return Expression(f"({one} if {condition.code} else {other})", Kind.TEXT)
        bits, signed = _common(yes, no)
        codes = (_convert(each, bits, signed) for each in (yes, no))
        code = f"({next(codes)} if {condition.code} else {next(codes)})"
        return Expression(code, Kind.NUMBER, bits, signed, yes.size or no.size)

    def _binary(self, level: int) -> Expression:
        if level == len(_BINARY):
            return self._unary()
        left = self._binary(level + 1)
        while self._next.kind == "sign" and self._next.text in _BINARY[level]:
            sign = self._take().text
            left = self._operation(sign, left, self._binary(level + 1))
        return left

    def _operation(self, sign: str, left: Expression, right: Expression) -> Expression:
        if sign in ("&&", "||"):
            word = "and" if sign == "&&" else "or"
            return Expression(f"int(bool({left.code} {word} {right.code}))")
        if sign in ("<<", ">>"):
            bits, signed = _promoted(left)
            places = _convert(right, 8, False)
            code = _folded(f"({left.code} {sign} {places})", left.code, places)
        else:
            bits, signed = _common(left, right)
            one, other = (_convert(each, bits, signed) for each in (left, right))
            if sign in _COMPARISONS:
                return Expression(f"int({one} {sign} {other})")
            if sign in "+-" and left.size > 1:
                other = f"{other} * {left.size}"
            if sign in "/%":
                name = "divide" if sign == "/" else "remainder"
                return Expression(f"{name}({one}, {other})", Kind.NUMBER, bits, signed)
            code = _folded(f"({one} {sign} {other})", one, other)
        result = Expression(code, Kind.NUMBER, bits, signed, left.size)
        if sign in ("&", "|", "^", ">>"):
            return result
        # A number that may have become too large.
        return result._replace(
            code=_convert(result._replace(bits=_EXACT, signed=True), bits, signed)
        )

    def _unary(self) -> Expression:
        if self._accept("!"):
            return Expression(f"int(not {self._unary().code})")
        if self._accept("+"):
            return self._unary()
        if self._accept("&"):
            return self._unary()
        for sign in ("-", "~"):
            if self._accept(sign):
                of = self._unary()
                bits, signed = _promoted(of)
                code = f"({sign}{_convert(of, bits, signed)})"
                code = _convert(Expression(code, Kind.NUMBER, _EXACT), bits, signed)
                return Expression(code, Kind.NUMBER, bits, signed)
        return self._postfix(self._primary())

    def _postfix(self, of: Expression) -> Expression:
        while self._accept("["):
            index = self._conditional()
            self._expect("]")
            if of.kind is not Kind.BYTES or not of.size:
                raise PrintFmtError(f"{of.code} is no array")
            code = f"element({of.code}, {index.code}, {of.size}, {of.signed})"
            of = Expression(code, Kind.NUMBER, 8 * of.size, of.signed)
        return of

    # --- operands --------------------------------------------------------------------------------

    def _cast(self) -> tuple[int, bool, int] | None:
        """The type in brackets that begins here: bits, signed, what it points at."""
        at = self._at
        words: list[str] = []
        while self._tokens[at].kind == "name":
            words.append(self._tokens[at].text)
            at += 1
        stars = 0
        while self._tokens[at].text == "*":
            stars += 1
            at += 1
        if not words or self._tokens[at].text != ")":
            return None
        found = self._type(words, stars)
        if found is not None:
            self._at = at + 1
        return found

    def _type(self, words: list[str], stars: int) -> tuple[int, bool, int] | None:
        plain = [word for word in words if word not in ("const", "volatile", "signed")]
        if not plain:
            return (32, True, 0) if "signed" in words else None
        named = plain[-1]
        if plain[0] in _TAGS:
            bits, signed = 32, plain[0] != "enum"
        elif set(plain) <= _WORDS:
            bits = (
                64 if "long" in plain else 16 if "short" in plain else 8 if "char" in plain else 32
            )
            signed = "unsigned" not in plain
        elif len(plain) == 1 and (named in _NAMED or stars or named.endswith("_t")):
            bits, signed = _NAMED.get(named, (64, False))
            if named not in _NAMED and not stars:
                bits = 8 * (self._kernel.size(named) or 8)
        else:
            return None
        if not stars:
            return bits, signed, 0
        size = 8 if stars > 1 else 1 if "void" in plain else bits // 8
        if stars == 1 and plain[0] in _TAGS:
            size = self._kernel.size(named) or 1
        return 64, False, size

    def _primary(self) -> Expression:
        token = self._next
        if token.kind == "number":
            return _number(self._take().text)
        if token.kind == "character":
            return Expression(str(_unquote(self._take().text)[0]))
        if token.kind == "string":
            return Expression(repr(self._string()), Kind.TEXT)
        if self._accept("("):
            cast = self._cast()
            if cast is not None:
                return self._casted(self._unary(), *cast)
            inner = self._conditional()
            self._expect(")")
            return self._member() if inner.code == "REC" else inner
        if token.kind == "name":
            self._take()
            if token.text == "REC":
                return Expression("REC") if self._next.text == ")" else self._member()
            if self._next.text == "(":
                return self._call(token.text)
            return self._name(token.text)
        raise PrintFmtError(f"unexpected {token.text!r}")

    def _casted(self, of: Expression, bits: int, signed: bool, size: int) -> Expression:
        if of.kind is not Kind.NUMBER:
            if size:  # another view of the same bytes
                return of._replace(size=size, signed=signed) if of.kind is Kind.BYTES else of
            raise PrintFmtError(f"{of.code} as a number")
        return Expression(_convert(of, bits, signed), Kind.NUMBER, bits, signed, size)

    def _name(self, name: str) -> Expression:
        value = self._kernel.enumerator(name)
        if value is not None:
            bits = 32 if -(1 << 31) <= value < 1 << 31 else 64
            return Expression(f"({value})", Kind.NUMBER, bits, value < 1 << 63)
        if self._kernel.has_variable(name):
            self.is_lasting = False
            return Expression(f"e.variable({name!r})", Kind.NUMBER, 64, False)
        raise PrintFmtError(f"no name {name}")

    def _member(self) -> Expression:
        self._expect("->")
        return self.field(self._take().text)

    def field(self, name: str, wanted: str = "") -> Expression:
        """A field; `wanted` is `raw` for the bytes of a dynamic one, `length` for how many."""
        field = None if self._by_name is None else self._by_name.get(name)
        if field is None and self._by_name is not None:
            raise PrintFmtError(f"no field {name}")
        variable = f"f_{name}{'_' * bool(wanted)}{wanted}"
        if field is None:
            kind = Kind.TEXT if wanted == "text" else Kind.NUMBER
            variable = f"f_{name}"
            self.columns[variable] = name, ""
            return Expression(variable, kind, 64, True)
        if wanted == "text" and not field.is_dynamic:
            raise PrintFmtError(f"{name} is no dynamic field")
        self.columns[variable] = name, wanted
        if wanted == "length":
            return Expression(variable, Kind.NUMBER, 32, False)
        if wanted == "text":
            return Expression(variable, Kind.TEXT, size=1)
        if wanted == "raw":
            return Expression(variable, Kind.BYTES, size=field.element_size, signed=False)
        if field.length is not None:
            return Expression(variable, Kind.BYTES, size=field.element_size, signed=field.is_signed)
        if field.type.endswith("*"):
            is_text = field.type.removeprefix("const ") == "char *"
            return Expression(variable, Kind.NUMBER, 64, False, 1 if is_text else 0)
        return Expression(variable, Kind.NUMBER, 8 * field.size, field.is_signed)

    # --- helpers ---------------------------------------------------------------------------------

    def _call(self, name: str) -> Expression:
        self._expect("(")
        helper = getattr(self, f"_helper{name}", None) if name.startswith("__") else None
        if helper is not None:
            result: Expression = helper()
        elif _TRANSPARENT.fullmatch(name):
            result = self._conditional()
            while self._accept(","):
                self._conditional()
        elif name == "jiffies_to_msecs":
            what = _convert(self._conditional(), 64, False)
            code = f"({what} * {_MSECS_PER_SEC} // e.variable('HZ'))"
            result = Expression(code, Kind.NUMBER, 32, False)
        elif name == "sizeof":
            result = self._sizeof()
        else:
            raise PrintFmtError(f"no helper {name}")
        self._expect(")")
        return result

    def _sizeof(self) -> Expression:
        found = self._cast()
        if found is None:
            raise PrintFmtError("sizeof of no type")
        self._at -= 1  # the bracket is the call's
        return Expression(str(found[0] // 8), Kind.NUMBER, 64, False)

    def _helper__get_str(self) -> Expression:
        return self.field(self._take().text, "text")

    _helper__get_rel_str = _helper__get_str

    def _helper__get_dynamic_array(self) -> Expression:
        return self.field(self._take().text, "raw")

    _helper__get_rel_dynamic_array = _helper__get_dynamic_array

    def _helper__get_dynamic_array_len(self) -> Expression:
        return self.field(self._take().text, "length")

    def _helper__get_sockaddr(self) -> Expression:
        return self.field(self._take().text, "raw")

    def _helper__get_bitmask(self) -> Expression:
        return Expression(f"print_bitmask({self.field(self._take().text, 'raw').code})", Kind.TEXT)

    _helper__get_cpumask = _helper__get_bitmask

    def _helper__print_flags(self) -> Expression:
        value = _convert(self._conditional(), 64, False)
        self._expect(",")
        delimiter = self._string()
        names = self._constant(tuple(self._names()))
        return Expression(f"print_flags({value}, {delimiter!r}, {names})", Kind.TEXT)

    _helper__print_flags_u64 = _helper__print_flags

    def _helper__print_symbolic(self) -> Expression:
        value = _convert(self._conditional(), 64, False)
        names: dict[int, bytes] = {}
        for number, name in self._names():
            names.setdefault(number, name)
        return Expression(f"print_symbolic({value}, {self._constant(names)})", Kind.TEXT)

    _helper__print_symbolic_u64 = _helper__print_symbolic

    def _bytes_and_numbers(self, function: str, count: int) -> Expression:
        data = self._conditional()
        if data.kind is Kind.NUMBER:
            raise PrintFmtError(f"{data.code} is no array")
        numbers = []
        for _ in range(count):
            self._expect(",")
            numbers.append(self._conditional().code)
        return Expression(f"{function}({data.code}, {', '.join(numbers)})", Kind.TEXT)

    def _helper__print_hex(self) -> Expression:
        return self._bytes_and_numbers("print_hex", 1)

    def _helper__print_hex_str(self) -> Expression:
        return self._bytes_and_numbers("print_hex_str", 1)

    def _helper__print_array(self) -> Expression:
        return self._bytes_and_numbers("print_array", 2)

    def _names(self) -> Iterator[tuple[int, bytes]]:
        """Pairs in braces; one without a name ends them."""
        is_ended = False
        while self._accept(","):
            self._expect("{")
            number = _convert(self._conditional(), 64, False)
            self._expect(",")
            name = self._string() if self._next.kind == "string" else None
            if name is None and self._conditional().code != "0":
                raise PrintFmtError(f"{number} has no name")
            self._expect("}")
            if not is_ended and name is not None:
                try:
                    yield int(eval(number, {"__builtins__": {}, "int": int, "bool": bool})), name
                except (NameError, TypeError):
                    raise PrintFmtError(f"{number} is no constant") from None
            is_ended = is_ended or name is None

    def _constant(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name


def _number(text: str) -> Expression:
    digits = text.rstrip("uUlL")
    suffix = text[len(digits) :].lower()
    is_octal = digits.startswith("0") and digits.isdigit() and len(digits) > 1
    value = int(digits, 8) if is_octal else int(digits, 0)
    is_decimal = not digits.startswith("0") or digits == "0"
    for bits, signed in ((32, True), (32, False), (64, True), (64, False)):
        if ("l" in suffix and bits == 32) or ("u" in suffix and signed):
            continue
        if bits == 32 and not signed and is_decimal and "u" not in suffix:
            continue
        if value < 1 << (bits - signed):
            return Expression(str(value), Kind.NUMBER, bits, signed)
    raise PrintFmtError(f"{text} is too large")


class _Formatter:
    """The format string and its arguments as one Python expression."""

    def __init__(self, translator: _Translator, arguments: list[Expression]) -> None:
        self._translator = translator
        self._arguments = arguments
        self._used = 0
        self._values: list[str] = []

    def _argument(self) -> Expression:
        if self._used == len(self._arguments):
            raise PrintFmtError("conversions and arguments do not match")
        self._used += 1
        return self._arguments[self._used - 1]

    def whole(self, template: bytes) -> str:
        text = template.decode("latin-1")
        parts, at = [], 0
        while (found := text.find("%", at)) >= 0:
            parts.append(text[at:found])
            match = _CONVERSION.match(text, found)
            if match is None:
                raise PrintFmtError(f"no conversion {text[found : found + 4]}")
            at = match.end()
            if match[5] == "p":
                form = _POINTER.match(text, at)
                assert form is not None
                at = form.end()
                parts.append(self._pointer(match[2], form[0]))
            else:
                parts.append(self._conversion(match))
        parts.append(text[at:])
        if self._used != len(self._arguments):
            raise PrintFmtError("conversions and arguments do not match")
        values = "".join(f"{value}, " for value in self._values)
        return f"{''.join(parts).encode('latin-1')!r} % ({values})"

    def _star(self, digits: str) -> str:
        if "*" in digits:
            self._values.append(_convert(self._argument(), 32, True))
        return digits

    def _conversion(self, match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%%"
        width, precision = self._star(width), self._star(precision)
        if kind == "s":
            self._values.append(self._translator.as_text(self._argument()))
            return f"%{flags}{width}{precision}s"
        if kind == "c":
            self._values.append(_convert(self._argument(), 8, False))
            return f"%{flags}{width}c"
        if kind not in "diuxXo":
            raise PrintFmtError(f"no conversion {match[0]}")
        bits = _LENGTHS[length]
        value = _convert(self._argument(), bits, kind in "di")
        kind = "d" if kind in "diu" else kind
        if "#" in flags:
            if kind == "o" or "*" in width:
                raise PrintFmtError(f"no conversion {match[0]}")
            plain = f"%{flags.replace('#', '')}{width}{precision}{kind}"
            marked = f"%{flags}{width}{precision}{kind}"
            self._values.append(f"alternate(b'{marked}', b'{plain}', {value})")
            return "%b"
        self._values.append(value)
        return f"%{flags}{width}{precision}{kind}"

    def _pointer(self, width: str, form: str) -> str:
        star = self._argument() if width == "*" else None
        what = self._argument()
        if form in _OF_NUMBERS and what.kind is Kind.NUMBER and star is None:
            self._values.append(f"{_OF_NUMBERS[form]}({_convert(what, 64, False)})")
            return f"%{width}s"
        if form in _OF_BYTES and what.kind is not Kind.NUMBER and star is None:
            self._values.append(f"{_OF_BYTES[form]}({what.code})")
            return f"%{width}s"
        if form in _SEPARATORS and what.kind is not Kind.NUMBER:
            length = star.code if star is not None else width or "1"
            self._values.append(f"hex_string({what.code}, {length}, {_SEPARATORS[form]!r})")
            return "%s"
        raise PrintFmtError(f"no conversion %p{form} of {what.code}")


@dataclass(frozen=True, slots=True)
class PrintFmt:
    """A print format that was translated.

    Give `render` an environment, how many records there are and a column for each of `columns`,
    which are fields and how they are wanted: as they are (""), `text`, `raw` or `length`. Where not
    `is_lasting` a text is only true when it is made.
    """

    columns: tuple[tuple[str, str], ...]
    source: str
    is_lasting: bool
    render: Callable[..., list[bytes]]

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)


def compile_print_fmt(
    text: str,
    fields: Mapping[str, EventField] | None = None,
    kernel: KernelNames | None = None,
) -> PrintFmt:
    """Translate a print format; without `fields` they are what they are taken for.

    Raises PrintFmtError.
    """
    translator = _Translator(text, fields, _NoNames() if kernel is None else kernel)
    body = translator.whole()
    variables = list(translator.columns)
    columns = "".join(f", {name}_column" for name in variables)
    if variables:
        pairs = ", ".join(f"{name}_column" for name in variables)
        rows = f"for {''.join(f'{name}, ' for name in variables)}in zip({pairs}, strict=True)"
    else:
        rows = "for _ in range(count)"
    source = f"lambda e, count{columns}: [{body} {rows}]"
    names = {**vars(print_helpers), **translator.constants}
    render = eval(compile(source, "<print fmt>", "eval"), names)
    return PrintFmt(tuple(translator.columns.values()), source, translator.is_lasting, render)

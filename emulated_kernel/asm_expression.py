"""Integer expressions of the assembler: numbers, constants, labels and what joins them.

An expression is parsed once into a tree, constants are folded in where the statement is read, and
labels where it is linked. C and GNU `as` disagree on the precedence of shifts and bit operators,
so an expression that would mean two things has to say which with parentheses.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

MAX_NESTING = 32
MAX_SHIFT = 64

_TOKEN = re.compile(
    r"[ \t]*(?:(?P<number>0[xX][0-9a-fA-F]+|[0-9]+)(?![\w.])"
    r"|(?P<name>[A-Za-z_.][A-Za-z0-9_.]*)"
    r"|(?P<operator><<|>>|[-+*/%&|^~()]))"
)


class Refused(Exception):
    """What is wrong with a statement. Who knows its place makes an AssemblerError of it."""


class Unary(NamedTuple):
    operator: str
    operand: Expression


class Binary(NamedTuple):
    operator: str
    left: Expression
    right: Expression


Expression: TypeAlias = int | str | Unary | Binary


def _divide(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    return left - right * _divide(left, right)


_UNARY: dict[str, Callable[[int], int]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
}
_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "%": _remainder,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
_SUMS = frozenset("+-")
_PRODUCTS = frozenset("*/%")
_CHAINS = frozenset("&|^")


@lru_cache(maxsize=1 << 16)
def parse(text: str) -> Expression:
    """The tree of an expression."""
    parser = _Parser(text)
    tree = parser.expression()
    if parser.token:
        raise Refused(f"unexpected {parser.token!r} in {text.strip()!r}")
    return tree


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokens()
        self.depth = 0
        self.token: str | int = ""
        self.is_name = False
        self.advance()

    def _tokens(self) -> Iterator[tuple[str | int, bool]]:
        text, position = self.text.rstrip(), 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise Refused(f"bad expression {text.strip()!r}")
            position = match.end()
            if number := match["number"]:
                yield self._number(number), False
            else:
                yield match["name"] or match["operator"], match["name"] is not None
        while True:
            yield "", False

    @staticmethod
    def _number(text: str) -> int:
        if len(text) > 1 and text[0] == "0" and text[1] not in "xX":
            raise Refused(f"{text}: numbers are decimal or 0x, never octal")
        if len(text) > 20:
            raise Refused(f"{text}: too many digits")
        return int(text, 0)

    def advance(self) -> None:
        self.token, self.is_name = next(self.tokens)

    def expression(self) -> Expression:
        """Operands and the operators between them, up to a closing parenthesis or the end."""
        operands, operators = [self.operand()], []
        while isinstance(self.token, str) and self.token in _BINARY:
            operators.append(self.token)
            self.advance()
            operands.append(self.operand())
        kinds = set(operators)
        if kinds <= _SUMS | _PRODUCTS:
            return _fold_chain(*_fold_products(operands, operators))
        if len(kinds) == 1 and (kinds <= _CHAINS or len(operators) == 1):
            return _fold_chain(operands, operators)
        raise Refused(f"{self.text.strip()!r} needs parentheses: C and as read it differently")

    def operand(self) -> Expression:
        token = self.token
        if isinstance(token, int) or self.is_name:
            self.advance()
            return token
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise Refused("expression nested too deeply")
        if token in _UNARY:
            self.advance()
            tree: Expression = Unary(token, self.operand())
        elif token == "(":
            self.advance()
            tree = self.expression()
            if self.token != ")":
                raise Refused(f"missing ) in {self.text.strip()!r}")
            self.advance()
        else:
            raise Refused(f"bad expression {self.text.strip()!r}")
        self.depth -= 1
        return tree


def _fold_products(
    operands: list[Expression], operators: list[str]
) -> tuple[list[Expression], list[str]]:
    terms, signs = operands[:1], []
    for symbol, operand in zip(operators, operands[1:], strict=True):
        if symbol in _PRODUCTS:
            terms[-1] = Binary(symbol, terms[-1], operand)
        else:
            signs.append(symbol)
            terms.append(operand)
    return terms, signs


def _fold_chain(operands: list[Expression], operators: list[str]) -> Expression:
    tree = operands[0]
    for symbol, operand in zip(operators, operands[1:], strict=True):
        tree = Binary(symbol, tree, operand)
    return tree


def _apply(symbol: str, left: int, right: int) -> int:
    if symbol in "/%" and right == 0:
        raise Refused("division by zero")
    if symbol in ("<<", ">>") and not 0 <= right <= MAX_SHIFT:
        raise Refused(f"shift by {right}")
    return _BINARY[symbol](left, right)


def fold(tree: Expression, constants: Mapping[str, int]) -> Expression:
    """The tree with constants filled in: an int where no other name is left."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return constants.get(tree, tree)
    if isinstance(tree, Unary):
        operand = fold(tree.operand, constants)
        if isinstance(operand, int):
            return _UNARY[tree.operator](operand)
        return Unary(tree.operator, operand)
    left, right = fold(tree.left, constants), fold(tree.right, constants)
    if isinstance(left, int) and isinstance(right, int):
        return _apply(tree.operator, left, right)
    return Binary(tree.operator, left, right)


def evaluate(tree: Expression, value_of: Callable[[str], int]) -> int:
    """The value of a tree; `value_of` answers for each name or raises."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return value_of(tree)
    if isinstance(tree, Unary):
        return _UNARY[tree.operator](evaluate(tree.operand, value_of))
    left, right = evaluate(tree.left, value_of), evaluate(tree.right, value_of)
    return _apply(tree.operator, left, right)


def names(tree: Expression) -> Iterator[str]:
    """Every name in a tree."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Unary):
        yield from names(tree.operand)
    elif isinstance(tree, Binary):
        yield from names(tree.left)
        yield from names(tree.right)


def signed64(value: int) -> int:
    """A 64-bit address or mask as the signed number that x86 sign-extends."""
    return value - (1 << 64) if value >> 63 == 1 else value

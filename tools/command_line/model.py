"""The command line as values, read from its argparse parser.

argparse has no public way to ask a parser for its arguments; `_actions` has been there since it was
written, and every generator of completions uses it. What stands for a value is told by its metavar,
so that a new metavar needs a line here: without it nothing is generated.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from enum import Enum

from ftracefs import cli

_MOST = 64  # of the numbers that are tried


class Value(Enum):
    """What can stand for an argument, apart from fixed words."""

    WORD = "word"
    DIRECTORY = "directory"
    FILE = "file"
    MOUNT = "mount"
    COMMAND = "command"


@dataclass(frozen=True, slots=True)
class Argument:
    """An option (with names) or a positional argument; `value` is None for a mere switch."""

    names: tuple[str, ...]
    metavar: str
    help: str
    value: Value | None
    words: tuple[str, ...] = ()
    is_repeated: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand, or the program itself."""

    name: str
    help: str
    description: str
    options: tuple[Argument, ...]
    positionals: tuple[Argument, ...]

    @property
    def runs_a_command(self) -> bool:
        """Whether the rest of the line is a command line of its own."""
        return any(argument.value is Value.COMMAND for argument in self.positionals)

    @property
    def options_with_value(self) -> list[Argument]:
        return [option for option in self.options if option.value is not None]


@dataclass(frozen=True, slots=True)
class Program:
    top: Command
    commands: tuple[Command, ...]


def command_line() -> Program:
    """That of `ftracefs`."""
    parser = cli.parser()
    (subparsers,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    helps = {action.dest: action.help or "" for action in subparsers._get_subactions()}
    return Program(
        _command(parser, "ftracefs", ""),
        tuple(
            _command(subparser, name, helps[name]) for name, subparser in subparsers.choices.items()
        ),
    )


def _command(parser: argparse.ArgumentParser, name: str, help_: str) -> Command:
    arguments = [
        _argument(parser, action, name)
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction)
    ]
    return Command(
        name,
        help_,
        parser.description or "",
        tuple(argument for argument in arguments if argument.names),
        tuple(argument for argument in arguments if not argument.names),
    )


def _argument(parser: argparse.ArgumentParser, action: argparse.Action, command: str) -> Argument:
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    names = tuple(action.option_strings)
    if names and action.nargs == 0:
        return Argument(names, "", text, None)
    if action.choices is not None:
        words = tuple(map(str, action.choices))
        return Argument(names, "|".join(words), text, Value.WORD, words)
    metavar = str(action.metavar)
    value, words = _value(action, metavar, command)
    is_repeated = isinstance(action, argparse._AppendAction)
    return Argument(names, metavar, text, value, words, is_repeated)


def _value(action: argparse.Action, metavar: str, command: str) -> tuple[Value, tuple[str, ...]]:
    match metavar:
        case "MOUNTPOINT":
            return (Value.DIRECTORY if command == "mount" else Value.MOUNT), ()
        case "IMAGE":
            return Value.FILE, (str(action.default),)
        case "FILE":
            return Value.FILE, ()
        case "COMMAND":
            return Value.COMMAND, ()
        case "N":
            return Value.WORD, tuple(str(n) for n in range(_MOST) if _takes(action, str(n)))
    raise ValueError(f"ftracefs {command}: nobody knows what completes a {metavar}")


def _takes(action: argparse.Action, text: str) -> bool:
    assert callable(action.type)
    try:
        action.type(text)
    except ValueError:
        return False
    return True

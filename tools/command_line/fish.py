"""The completion for fish."""

from __future__ import annotations

from collections.abc import Iterator

from tools.command_line.model import Argument, Command, Program, Value

_HEAD = r"""# Completion of ftracefs for fish; made by `python -m tools.command_line`.

function __ftracefs_mounts
    # A blank is \040 there.
    sed -n 's/^\([^ ]* \)\{4\}\([^ ]*\) .* - fuse\.tracefs ftracefs .*/\2/p' \
        /proc/self/mountinfo 2>/dev/null | string replace -a '\\' '\\0' | while read -l name
        printf '%b\n' $name
    end
end

complete -c ftracefs -f
"""


def completion(program: Program) -> str:
    """The text of the file."""
    first = "-n __fish_use_subcommand"
    lines = [f"complete -c ftracefs {first} {_option(option)}" for option in program.top.options]
    lines += [
        f"complete -c ftracefs {first} -a {command.name} -d {_quoted(command.help)}"
        for command in program.commands
    ]
    for command in program.commands:
        lines += ["", *_command(command)]
    return _HEAD + "\n".join(lines) + "\n"


def _command(command: Command) -> Iterator[str]:
    head = f"complete -c ftracefs -n '__fish_seen_subcommand_from {command.name}'"
    for option in command.options:
        yield f"{head} {_option(option)}"
    for argument in command.positionals:
        if argument.value is Value.COMMAND:
            valued = [name for option in command.options_with_value for name in option.names]
            call = " ".join(["__fish_complete_subcommand", "--fcs-skip=2", "--", *valued])
            yield f"{head} -x -a '({call})'"
        else:
            yield f"{head} {_value(argument)}"


def _option(option: Argument) -> str:
    words = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    ]
    if option.value is not None:
        words.append(_value(option))
    return " ".join([*words, "-d", _quoted(option.help)])


def _value(argument: Argument) -> str:
    match argument.value:
        case Value.DIRECTORY:
            return "-x -a '(__fish_complete_directories)'"
        case Value.MOUNT:
            return "-x -a '(__ftracefs_mounts; __fish_complete_directories)'"
        case Value.FILE:
            return " ".join(["-r -F", *(f"-a {word}" for word in argument.words)])
        case _:
            return f"-x -a {_quoted(' '.join(argument.words))}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

"""The completion for zsh, by its own `_arguments`."""

from __future__ import annotations

from tools.command_line.model import Argument, Command, Program, Value

_TEMPLATE = r"""#compdef ftracefs
# Completion of ftracefs for zsh; made by `python -m tools.command_line`.

_ftracefs_mounts() {
  local -a mounts
  mounts=(${(f)"$(
    sed -n 's/^\([^ ]* \)\{4\}\([^ ]*\) .* - fuse\.tracefs ftracefs .*/\2/p' \
      /proc/self/mountinfo 2>/dev/null
  )"})
  mounts=(${(g::)mounts//\\/\\0}) # a blank is \040 there
  _alternative 'mounts:mounted tracefs:compadd -f -a mounts' 'directories:directory:_files -/'
}

_ftracefs_images() {
  _alternative 'images:kernel:(@images@)' 'files:file:_files'
}

_ftracefs() {
  local curcontext=$curcontext state line ret=1
  local -a commands
  typeset -A opt_args

  _arguments -C \
@top@
    '1: :->command' \
    '*:: :->arguments' && ret=0

  case $state in
    command)
      commands=(
@commands@
      )
      _describe -t commands 'ftracefs command' commands && ret=0
      ;;
    arguments)
      curcontext=${curcontext%:*:*}:ftracefs-$words[1]:
      case $words[1] in
@cases@
      esac
      ;;
  esac
  return ret
}

_ftracefs "$@"
"""


def completion(program: Program) -> str:
    """The text of the file."""
    images = sorted(
        {
            word
            for command in program.commands
            for option in command.options
            if option.value is Value.FILE
            for word in option.words
        }
    )
    parts = {
        "images": " ".join(images),
        "top": "\n".join(f"    {_option(option)} \\" for option in program.top.options),
        "commands": "\n".join(
            f"        {_quoted(f'{command.name}:{command.help}')}" for command in program.commands
        ),
        "cases": "\n".join(map(_case, program.commands)),
    }
    text = _TEMPLATE
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def _case(command: Command) -> str:
    specs = [
        *map(_option, command.options),
        *(spec for argument in command.positionals for spec in _positional(argument)),
    ]
    indented = " \\\n            ".join(["_arguments -S", *specs])
    return f"        {command.name})\n          {indented} && ret=0\n          ;;"


def _option(option: Argument) -> str:
    exclusive = "- *" if {"--help", "--version"} & set(option.names) else " ".join(option.names)
    text = _escaped(option.help)
    if option.value is None:
        head = option.names[0] if len(option.names) == 1 else "{" + ",".join(option.names) + "}"
        return _quoted(f"({exclusive})") + head + _quoted(f"[{text}]")
    (name,) = option.names
    often = "*" if option.is_repeated else f"({exclusive})"
    return _quoted(f"{often}{name}=[{text}]:{_escaped(option.metavar)}:{_action(option)}")


def _positional(argument: Argument) -> list[str]:
    if argument.value is Value.COMMAND:
        return [_quoted("(-):command:_command_names -e"), _quoted("*::arguments:_normal")]
    return [_quoted(f":{_escaped(argument.metavar)}:{_action(argument)}")]


def _action(argument: Argument) -> str:
    match argument.value:
        case Value.DIRECTORY:
            return "_files -/"
        case Value.MOUNT:
            return "_ftracefs_mounts"
        case Value.FILE:
            return "_ftracefs_images" if argument.words else "_files"
        case _:
            return f"({' '.join(argument.words)})"


def _escaped(text: str) -> str:
    for special in "\\[]:":
        text = text.replace(special, f"\\{special}")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"

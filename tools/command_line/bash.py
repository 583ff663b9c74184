"""The completion for bash, which needs no package bash-completion, and uses it if it is there."""

from __future__ import annotations

from tools.command_line.model import Argument, Program

_TEMPLATE = r"""# shellcheck shell=bash
# Completion of ftracefs for bash; made by `python -m tools.command_line`.

_ftracefs_mounts() {
    local name
    while read -r name; do
        printf '%b\n' "${name//\\/\\0}" # a blank is \040 there
    done < <(
        sed -n 's/^\([^ ]* \)\{4\}\([^ ]*\) .* - fuse\.tracefs ftracefs .*/\2/p' \
            /proc/self/mountinfo 2>/dev/null
    )
}

_ftracefs_takes_value() { # COMMAND OPTION
    case $1,$2 in
@takes@
        *) return 1 ;;
    esac
}

_ftracefs_complete() { # KIND CURRENT WORD...: fills COMPREPLY
    local kind=$1 cur=$2 name
    shift 2
    mapfile -t COMPREPLY < <(compgen -W "$*" -- "$cur")
    case $kind in
        directory) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$cur") ;;
        file) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur") ;;
        command) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -c -- "$cur") ;;
        mount)
            while read -r name; do
                [[ $name != "$cur"* ]] || COMPREPLY+=("$name")
            done < <(_ftracefs_mounts)
            [[ ${#COMPREPLY[@]} -gt 0 ]] ||
                mapfile -t COMPREPLY < <(compgen -d -- "$cur")
            ;;
        *) return ;;
    esac
    [[ $kind == command ]] || compopt -o filenames 2>/dev/null
}

_ftracefs_rest() { # INDEX: a command line of its own begins there
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    elif [[ $COMP_CWORD -eq $1 ]]; then
        _ftracefs_complete command "${COMP_WORDS[COMP_CWORD]}"
    else
        _ftracefs_complete file "${COMP_WORDS[COMP_CWORD]}"
    fi
}

_ftracefs() {
    local cur=${COMP_WORDS[COMP_CWORD]} command='' option='' word i position=0
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ -n $option ]]; then
            [[ $word == = ]] || option=''
        elif [[ -z $command ]]; then
            [[ $word == -* ]] || command=$word
        elif [[ $word == -- ]]; then
            case $command in
                @runners@)
                    _ftracefs_rest "$((i + 1))"
                    return
                    ;;
            esac
        elif [[ $word == -* ]]; then
            ! _ftracefs_takes_value "$command" "$word" || option=$word
        else
            case $command in
                @runners@)
                    _ftracefs_rest "$i"
                    return
                    ;;
            esac
            position=$((position + 1))
        fi
    done
    if [[ -n $option ]]; then
        [[ $cur != = ]] || cur=''
        case $command,$option in
@values@
        esac
    elif [[ $cur == -* ]]; then
        case $command in
@options@
        esac
    else
        case $command,$position in
            ,*) _ftracefs_complete word "$cur" @commands@ ;;
@positionals@
        esac
    fi
}

complete -F _ftracefs ftracefs
"""


def completion(program: Program) -> str:
    """The text of the file."""
    valued = [
        (command.name, name, option)
        for command in program.commands
        for option in command.options_with_value
        for name in option.names
    ]
    everybody = [("''", program.top), *((command.name, command) for command in program.commands)]
    parts = {
        "takes": f"        {' | '.join(f'{command},{name}' for command, name, _ in valued)}) ;;",
        "runners": " | ".join(c.name for c in program.commands if c.runs_a_command),
        "values": "\n".join(
            f"            {command},{name}) {_complete(option)} ;;"
            for command, name, option in valued
        ),
        "options": "\n".join(
            f'            {name}) _ftracefs_complete word "$cur" {_options(command.options)} ;;'
            for name, command in everybody
        ),
        "commands": " ".join(command.name for command in program.commands),
        "positionals": "\n".join(
            f"            {command.name},{place}) {_complete(argument)} ;;"
            for command in program.commands
            for place, argument in enumerate(command.positionals)
        ),
    }
    text = _TEMPLATE
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def _complete(argument: Argument) -> str:
    assert argument.value is not None
    return " ".join(["_ftracefs_complete", argument.value.value, '"$cur"', *argument.words])


def _options(options: tuple[Argument, ...]) -> str:
    return " ".join(name for option in options for name in option.names)

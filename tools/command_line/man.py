"""The manual page, in the macros of man(7): the parser's words, and what it cannot know."""

from __future__ import annotations

import re

from tools.command_line.model import Argument, Command, Program

_AFTER = r"""
.SH EXIT STATUS
0: done. 1: failed, with a reason on the standard error. 2: wrong usage.
.B run
passes on the exit status of its command.
.SH ENVIRONMENT
.TP
.B FUSE_LIBRARY_PATH
The libfuse 2 to use, if it is not where the dynamic linker looks.
.TP
.B XDG_STATE_HOME
The log of a mount is below it, in
.IR ftracefs/ ;
the default is
.IR ~/.local/state .
.TP
.B XDG_CACHE_HOME
The assembled kernel is kept below it, in
.IR ftracefs/ ;
the default is
.IR ~/.cache .
.SH EXAMPLES
Mount, trace the functions of the virtual file system, look, unmount:
.PP
.in +4n
.EX
mkdir tracing
ftracefs mount tracing
echo 'vfs_*' > tracing/set_ftrace_filter
echo function > tracing/current_tracer
head tracing/trace
ftracefs unmount tracing
.EE
.in
.PP
The same trace in every run:
.PP
.in +4n
.EX
ftracefs mount \-\-isolated \-\-clock virtual tracing
echo function > tracing/current_tracer
echo 'gcd 270 192' > tracing/emulator/call
cat tracing/trace
.EE
.in
.PP
A tool that looks for the tracefs where Linux has it:
.PP
.in +4n
.EX
ftracefs run \-\- trace\-cmd list \-t
.EE
.in
.SH SEE ALSO
.BR fusermount (1),
.BR trace\-cmd (1),
.BR mount (8),
and the documents of the package: every file in
.IR docs/files.md ,
every deviation from Linux in
.IR docs/differences.md .
"""


def page(program: Program) -> str:
    """The text of the page."""
    title = program.top.description.partition(": ")
    lines = [
        '.\\" Made by `python -m tools.command_line`.',
        ".TH FTRACEFS 1",
        ".SH NAME",
        f"ftracefs \\- {_escaped(title[0][0].lower() + title[0][1:])}",
        ".SH SYNOPSIS",
    ]
    for command in (*program.commands, program.top):
        lines += [_synopsis(command), ".br"]
    lines += [
        ".SH DESCRIPTION",
        _escaped(program.top.description),
        "The files behave as those of Linux 6.1, without root where FUSE needs none, and without",
        "touching the host\\(aqs kernel.",
        ".SH COMMANDS",
    ]
    for command in program.commands:
        lines += [f".SS {_escaped(command.name)}", _escaped(command.description)]
        lines += _arguments(command)
    lines += [".SH OPTIONS", *_arguments(program.top)]
    return "\n".join(lines) + _AFTER


def _synopsis(command: Command) -> str:
    is_top = command.name == "ftracefs"
    words = ["\\fBftracefs\\fR" if is_top else f"\\fBftracefs {_escaped(command.name)}\\fR"]
    if is_top:
        words.append(" | ".join(_names(option) for option in command.options))
    elif [option for option in command.options if "--help" not in option.names]:
        words.append("[\\fIOPTION\\fR...]")
    for argument in command.positionals:
        if command.runs_a_command:
            words += ["\\-\\-", f"\\fI{_escaped(argument.metavar)}\\fR [\\fIARGUMENT\\fR...]"]
        else:
            words.append(f"\\fI{_escaped(argument.metavar)}\\fR")
    return " ".join(words)


def _arguments(command: Command) -> list[str]:
    lines = []
    for argument in (*command.positionals, *command.options):
        if argument.help:
            name = _names(argument) or f"\\fI{_escaped(argument.metavar)}\\fR"
            lines += [".TP", name, _escaped(argument.help)]
    return lines


def _names(option: Argument) -> str:
    names = ", ".join(f"\\fB{_escaped(name)}\\fR" for name in option.names)
    if option.value is None or not names:
        return names
    shown = _escaped(option.metavar)
    return f"{names} \\fB{shown}\\fR" if "|" in shown else f"{names} \\fI{shown}\\fR"


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return re.sub(r"(?m)^\.", r"\\&.", text)

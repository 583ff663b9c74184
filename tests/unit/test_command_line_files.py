"""The manual page and the completions below share/ are the parser's, and they work."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tools.command_line import generate
from tools.command_line.model import command_line

ROOT = Path(__file__).resolve().parents[2]
SHARE = ROOT / "share"
BASH = SHARE / "bash-completion/completions/ftracefs"
ZSH = SHARE / "zsh/site-functions/_ftracefs"
FISH = SHARE / "fish/vendor_completions.d/ftracefs.fish"
MAN = SHARE / "man/man1/ftracefs.1"
SECONDS = 60.0


def require(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def output(*command: str | Path, stdin: str = "") -> str:
    done = subprocess.run(
        [str(word) for word in command],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def every_option() -> list[str]:
    program = command_line()
    return [
        name
        for command in (program.top, *program.commands)
        for option in command.options
        for name in option.names
    ]


def test_they_are_as_the_parser_is() -> None:
    stored = {
        str(path.relative_to(SHARE)): path.read_text(encoding="utf-8")
        for path in SHARE.rglob("*")
        if path.is_file()
    }
    assert stored == generate(), "python -m tools.command_line"


def test_the_model_has_what_the_parser_has() -> None:
    program = command_line()
    (mount,) = (command for command in program.commands if command.name == "mount")
    (cpus,) = (option for option in mount.options if option.names == ("--cpus",))
    assert cpus.words == tuple("12345678")
    assert {"mount", "unmount", "run", "reset", "check"} <= {c.name for c in program.commands}
    assert [command.name for command in program.commands if command.runs_a_command] == ["run"]


def test_the_manual_page_is_well_formed_and_names_every_option() -> None:
    require("groff")
    assert output("groff", "-man", "-Tutf8", "-ww", "-z", MAN) == ""  # no warning
    page = output("groff", "-man", "-Tutf8", "-P-cbou", "-rHY=0", MAN)
    assert page.startswith("FTRACEFS(1)")
    words = set(page.replace(",", " ").split())
    assert set(every_option()) - words == set()


def complete_in_bash(*words: str) -> list[str]:
    """What completes the last of these words of a command line."""
    script = (
        'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ftracefs;'
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return output("bash", "--norc", "-c", script, BASH, *words).split("\n")[:-1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ftracefs", "un"], ["unmount"]),
        (["ftracefs", "--ve"], ["--version"]),
        (["ftracefs", "mount", "--c"], ["--cpus", "--clock"]),
        (["ftracefs", "mount", "--clock", ""], ["real", "virtual"]),
        (["ftracefs", "mount", "--clock", "="], ["real", "virtual"]),
        (["ftracefs", "mount", "--clock", "=", "v"], ["virtual"]),
        (["ftracefs", "mount", "--clock", "real", "--pure", "doc"], ["docs"]),
        (["ftracefs", "mount", "--cpus", ""], list("12345678")),
        (["ftracefs", "mount", "--kernel", "bu"], ["builtin"]),
        (["ftracefs", "mount", "--log", "READ"], ["README.md"]),
        (["ftracefs", "mount", "there", ""], [""]),
        (["ftracefs", "check", "--he"], ["--help"]),
        (["ftracefs", "run", "--isol"], ["--isolated"]),
        (["ftracefs", "run", "--cpus", "1", "--", "cat", "READ"], ["README.md"]),
        (["ftracefs", "run", "cat", "READ"], ["README.md"]),
    ],
)
def test_bash_completes(words: list[str], expected: list[str]) -> None:
    assert complete_in_bash(*words) == expected


def test_bash_completes_a_command_to_run() -> None:
    assert "printf" in complete_in_bash("ftracefs", "run", "--", "print")


def typed(shell: list[str], setup: str, keys: str, expected: str) -> None:
    """Type into a shell on a terminal of its own until `expected` shows."""
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        shell,
        stdin=inner,
        stdout=inner,
        stderr=inner,
        cwd=ROOT,
        env={**os.environ, "TERM": "dumb", "PS1": "$ ", "INPUTRC": "/dev/null"},
        start_new_session=True,
    )
    os.close(inner)
    try:
        for text, answer in ((f"{setup}; echo rea''dy\n", "ready"), (keys, expected)):
            os.write(terminal, text.encode())
            deadline = time.monotonic() + SECONDS
            said = ""
            while answer not in said:
                left = deadline - time.monotonic()
                assert left > 0, said
                if select.select([terminal], [], [], left)[0]:
                    said += os.read(terminal, 4096).decode(errors="replace")
    finally:
        process.kill()
        process.wait(SECONDS)
        os.close(terminal)


def test_bash_completes_what_is_typed() -> None:
    typed(["bash", "--norc", "-i"], f"source {BASH}", "ftracefs unm\t", "unmount ")
    typed(["bash", "--norc", "-i"], f"source {BASH}", "ftracefs run --clock=v\t", "=virtual ")


def test_zsh_completes_what_is_typed() -> None:
    require("zsh")
    output("zsh", "-n", ZSH)
    setup = f"fpath=({ZSH.parent} $fpath); autoload -Uz compinit; compinit -D -u"
    for keys, expected in (
        ("ftracefs unm\t", "unmount"),
        ("ftracefs mount --clock=v\t", "virtual"),
        ("ftracefs run --isol\t", "--isolated"),
        ("ftracefs run --cpus 1 -- cat READ\t", "README.md"),
        ("ftracefs mount do\t", "docs/"),
    ):
        typed(["zsh", "-f", "-i"], setup, keys, expected)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ftracefs un", ["unmount"]),
        ("ftracefs --ve", ["--version"]),
        ("ftracefs mount --clock ", ["real", "virtual"]),
        ("ftracefs mount --cpus ", list("12345678")),
        ("ftracefs mount --isol", ["--isolated"]),
        ("ftracefs mount doc", ["docs/"]),
        ("ftracefs run --cpus 1 cat READ", ["README.md"]),
    ],
)
def test_fish_completes(line: str, expected: list[str]) -> None:
    require("fish")
    said = output("fish", "--no-config", "-c", f"source {FISH}; complete -C '{line}'")
    assert [candidate.split("\t")[0] for candidate in said.splitlines()] == expected


def test_a_value_that_nothing_completes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from ftracefs import cli

    parser = cli.parser()
    mount = parser._subparsers._group_actions[0].choices["mount"]  # type: ignore[union-attr,index]
    mount.add_argument("--colour", metavar="COLOUR")
    monkeypatch.setattr(cli, "parser", lambda: parser)
    with pytest.raises(ValueError, match="completes a COLOUR"):
        generate()

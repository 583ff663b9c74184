"""Facts about the repository itself."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 700

# Spelt in pieces, so that this file does not name them itself.
WORKPLACE = re.compile(
    "|".join(["/" + "work/(main|shared)", r"\.\./" + "shared", "/root" + "/venv", "/tmp" + "/w/"])
)

FUNC = re.compile(r"\s*(FUNC|FUNC_ENDBR|FUNC_STATIC|FUNC_NOTRACE)\s+([\w.$]+)\s*")
OBJECT = re.compile(r"\s*OBJECT\s+([\w.$]+)\s*")


def repository_files() -> list[Path]:
    """What git tracks, or outside of a checkout (an sdist) all there is."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True
        ).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    else:
        hidden = re.compile(r"(^|/)(\.|__pycache__)")
        paths = [
            path
            for path in ROOT.rglob("*")
            if path.is_file() and not hidden.search(str(path.relative_to(ROOT)))
        ]
    return [path for path in paths if path.is_file()]


FILES = repository_files()


def named(*suffixes: str) -> list[Path]:
    return [path for path in FILES if path.suffix in suffixes]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of assembler source without comments, strings emptied."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line)
        bare = re.sub(r"'(?:[^'\\]|\\.)'", "' '", bare)
        yield number, bare.partition("#")[0].rstrip()


def test_no_file_tells_of_the_workplace_it_was_made_in() -> None:
    telling = [
        f"{relative(path)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_bytes().splitlines(), 1)
        if WORKPLACE.search(line.decode(errors="replace"))
    ]
    assert telling == []


def test_no_source_file_is_too_long_to_hold_one_idea() -> None:
    lengths = {
        relative(path): len(path.read_text().splitlines()) for path in named(".py", ".S", ".sh")
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def test_every_module_says_what_it_is() -> None:
    silent = [
        relative(path)
        for path in named(".py")
        if path.read_text().strip() and ast.get_docstring(ast.parse(path.read_text())) is None
    ]
    assert silent == []


def links(text: str) -> Iterator[str]:
    outside_code = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)\s]+)\)", outside_code):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(text: str) -> set[str]:
    """The anchors a forge gives the headings of a Markdown text."""
    outside_code = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    headings = re.findall(r"^#+ +(.+?) *$", outside_code, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_documents_resolve() -> None:
    dead = []
    for path in named(".md"):
        for link in links(path.read_text()):
            name, _, anchor = link.partition("#")
            target = path.parent / name if name else path
            if not target.exists() or (
                anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())
            ):
                dead.append(f"{relative(path)}: {link}")
    assert dead == []


@pytest.mark.parametrize("path", named(".S"), ids=relative)
def test_assembler_source_has_the_form_of_the_house(path: Path) -> None:
    wrong = []
    text = path.read_text()
    if not text.startswith("#"):
        wrong.append("1: no comment says what the file is")
    open_name: str | None = None
    closes = ""
    for number, line in code_lines(path):
        statement = line.strip()
        if begun := FUNC.fullmatch(line) or OBJECT.fullmatch(line):
            if open_name is not None:
                wrong.append(f"{number}: {statement} inside {open_name}")
            open_name = begun[begun.lastindex or 1]
            closes = "ENDOBJECT" if statement.startswith("OBJECT") else "ENDFUNC"
        elif re.fullmatch(r"END(FUNC|OBJECT)( +[\w.$]+)?", statement):
            kind, _, name = statement.partition(" ")
            if open_name is None or kind != closes or name.strip() != open_name:
                wrong.append(f"{number}: {statement} does not close {open_name}")
            open_name = None
        if ";" in line:
            wrong.append(f"{number}: more than one statement")
        if re.search(r"\bcall\s+__fentry__\b", line):
            wrong.append(f"{number}: the call site is FUNC's to write")
        if line.startswith("\t") or "\t" in line.strip():
            wrong.append(f"{number}: tab")
    if open_name is not None:
        wrong.append(f"{open_name} is not closed")
    assert wrong == [], f"{relative(path)}: {wrong}"


def test_shell_scripts_can_be_run() -> None:
    scripts = [path for path in FILES if path.read_bytes()[:2] == b"#!"]
    assert [relative(path) for path in scripts if not path.stat().st_mode & 0o111] == []
    assert all(path in scripts for path in named(".sh")), (
        "a script without its #! line cannot be run"
    )

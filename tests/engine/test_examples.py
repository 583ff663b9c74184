"""The examples of docs/examples print what their docstrings say they print."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "docs/examples").glob("*.py"))


def promised(path: Path) -> str:
    """The last indented block of the docstring."""
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring is not None
    paragraph = docstring.rstrip().rpartition("\n\n")[2]
    assert all(line.startswith("    ") for line in paragraph.splitlines())
    return textwrap.dedent(paragraph) + "\n"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, path],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
        text=True,
    )
    assert done.stdout == promised(path)


def test_there_is_one() -> None:
    assert EXAMPLES

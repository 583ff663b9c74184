"""emulator/livepatch: what it takes, shows and refuses."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from support.tracefs import TRUNC, Tree, W, tracefs

from ftracefs.errors import TracefsError

FILE = "emulator/livepatch"


@pytest.fixture
def tree() -> Iterator[Tree]:
    with tracefs() as tree:
        yield tree


def test_a_function_and_its_replacement_are_written_and_read_back(tree: Tree) -> None:
    assert tree.read(FILE) == ""
    tree.echo("add_one replacement", FILE)
    assert tree.call("add_one", 5) == 105
    assert tree.read(FILE) == "add_one replacement\n"
    tree.echo("double untraced", FILE)
    assert tree.read(FILE) == "add_one replacement\ndouble untraced\n"
    assert tree.call("double", 5) == 7
    tree.echo("!add_one", FILE)
    assert tree.read(FILE) == "double untraced\n"
    assert tree.call("add_one", 5) == 6


def test_one_of_several_replacements_is_taken_back(tree: Tree) -> None:
    tree.echo("add_one replacement", FILE)
    tree.echo("add_one double", FILE)
    assert tree.read(FILE) == "add_one replacement\nadd_one double\n"
    assert tree.call("add_one", 5) == 10
    tree.echo("!add_one double", FILE)
    assert tree.call("add_one", 5) == 105


def test_what_was_read_can_be_written_back(tree: Tree) -> None:
    tree.write(FILE, "add_one replacement\n\n  double   untraced\n", W | TRUNC)
    text = tree.read(FILE)
    assert text == "add_one replacement\ndouble untraced\n"
    tree.write(FILE, "!add_one\n!double")
    assert tree.read(FILE) == ""
    tree.write(FILE, text)
    assert tree.read(FILE) == text


def test_a_call_through_a_patched_function_is_traced_in_both(tree: Tree) -> None:
    tree.echo("add_one replacement", FILE)
    tree.echo("function", "current_tracer")
    tree.echo("add_one_twice 1", "emulator/call")
    lines = [line.split(": ")[-1] for line in tree.read("trace").splitlines() if "<-" in line]
    assert lines[0].startswith("add_one_twice <-")
    assert lines[1:] == [
        "add_one <-add_one_twice",
        "replacement <-add_one_twice",
        "add_one <-add_one_twice",
        "replacement <-add_one_twice",
    ]
    assert tree.read("emulator/call") == "add_one_twice(1) = 201\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", errno.EINVAL),
        ("add_one", errno.EINVAL),
        ("add_one replacement double", errno.EINVAL),
        ("no_such_function replacement", errno.ENOENT),
        ("add_one no_such_function", errno.ENOENT),
        ("untraced replacement", errno.EINVAL),
        ("!add_one", errno.ENOENT),
        ("!add_one replacement double", errno.EINVAL),
        ("add_one ftrace_ops_list", errno.ENOENT),
    ],
)
def test_what_cannot_be_patched_is_refused(tree: Tree, text: str, code: int) -> None:
    with pytest.raises(TracefsError) as error:
        tree.run(lambda: tree.open(FILE, W).write(text.encode()))
    assert error.value.errno == code
    assert tree.read(FILE) == ""


def test_the_same_patch_twice_is_refused(tree: Tree) -> None:
    tree.echo("add_one replacement", FILE)
    with pytest.raises(TracefsError) as error:
        tree.echo("add_one replacement", FILE)
    assert error.value.errno == errno.EEXIST

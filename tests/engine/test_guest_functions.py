"""Guest functions of one's own: found by name, traced like others, in memory of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.ftrace_kernel import ftrace_machine
from support.shell import Shell

from ftracefs.ftrace import Ftrace
from ftracefs.ftrace.hash_update import ftrace_set_filter
from ftracefs.guest import load_guest

SOURCE = """# A function, a callback, and data.
FUNC three_more
    push rbp
    mov rbp, rsp
    call add_one
    lea rax, [rax + 2]
    pop rbp
    ret
ENDFUNC three_more
FUNC_NOTRACE count
    mov rax, [rdx + OP_PRIVATE]
    inc qword ptr [rax]
    ret
ENDFUNC count
.data
OBJECT counter
    .quad 0
ENDOBJECT counter
"""


@pytest.fixture
def ftrace() -> Iterator[Ftrace]:
    with ftrace_machine() as made:
        yield made
        assert made.bugs == []


def load(ftrace: Ftrace, name: str) -> dict[str, int]:
    return dict(ftrace.machine.run(lambda: ftrace.load_functions(name, SOURCE)))


def test_they_are_called_traced_and_known_by_name(ftrace: Ftrace) -> None:
    labels = load(ftrace, "mine")
    assert ftrace.machine.call(labels["three_more"], 4) == 7
    assert ftrace.kallsyms.sprint_symbol(labels["count"] + 1) == "count+0x1/0x8 [mine]"
    assert "three_more [mine]" in ftrace.available_filter_functions().decode().splitlines()
    ops = ftrace.new_ops(labels["count"], private=labels["counter"])

    def register() -> None:
        ftrace_set_filter(ftrace, ops, b"three_more")
        ftrace.register_ftrace_function(ops)

    ftrace.machine.run(register)
    assert [ftrace.machine.call(labels["three_more"], 4, cpu=cpu) for cpu in (0, 1)] == [7, 7]
    assert ftrace.memory.u64(labels["counter"]) == 2
    ftrace.machine.run(lambda: ftrace.unregister_ftrace_function(ops))


def test_what_is_loaded_later_lies_elsewhere(ftrace: Ftrace) -> None:
    first, second = load(ftrace, "first"), load(ftrace, "second")
    assert set(first.values()).isdisjoint(second.values())
    ftrace.memory.set_u64(second["counter"], 5)
    assert ftrace.memory.u64(first["counter"]) == 0
    assert [ftrace.machine.call(labels["three_more"], 1) for labels in (first, second)] == [4, 4]


def test_there_is_an_end_to_the_room(ftrace: Ftrace) -> None:
    large = ".data\nOBJECT large\n    .zero 0x90000\nENDOBJECT large\n"
    ftrace.machine.run(lambda: ftrace.load_functions("large", large))
    with pytest.raises(MemoryError):
        ftrace.machine.run(lambda: ftrace.load_functions("larger", large))
    assert load(ftrace, "small")


def test_their_data_leaves_the_engines_alone(shell: Shell) -> None:
    session = shell.session
    segments = load_guest(session.image.labels).segments
    taken = [(start, start + len(data)) for start, data in segments.values()]
    source = "FUNC mine\n    ret\nENDFUNC mine\n.data\nwords:\n    .zero 4096\n"
    shell.echo("gcd", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    labels = shell.machine.run(lambda: session.ftrace.load_functions("mine", source))
    for address in labels.values():
        assert not any(start <= address < end for start, end in taken)
    shell.echo("lcm 4 6", "emulator/call")
    assert "gcd <-lcm" in shell.cat("trace")

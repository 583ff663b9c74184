"""Stacks of a Linux whose functions keep frame pointers, as those of the test kernel do."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.fake_linux import OFFSETS, FakeLinux, fake_linux

from emulated_kernel.asm_offsets import CONSTANTS as _C

USER_CS = 0x33


@pytest.fixture
def linux() -> Iterator[FakeLinux]:
    with fake_linux(offsets=replace(OFFSETS, orc_lookup=0)) as made:
        made.switch_to(made.new_task(41, "sh", stack=stack(made)))
        made.tree.echo("add_one", "set_ftrace_filter")
        made.tree.echo("1", "options/func_stack_trace")
        made.tree.echo("function", "current_tracer")
        yield made


def stack(linux: FakeLinux) -> int:
    """What a call of the host's runs on."""
    return linux.machine._bare_stacks[0] - _C["STACK_BYTES"]


def callers(linux: FakeLinux) -> list[str]:
    names = re.findall(r"^ => (\S+)", linux.tree.read("trace"), re.MULTILINE)
    return [name for name in names if not name.startswith("0x")]  # the trampoline


def test_every_frame_leads_to_its_caller(linux: FakeLinux) -> None:
    linux.tree.call("loop_add", 1)
    assert callers(linux) == ["add_one", "loop_add", "host_return"]


def test_what_is_on_no_stack_of_the_task_is_not_followed(linux: FakeLinux) -> None:
    linux.switch_to(linux.new_task(42, "cat", stack=stack(linux) - (1 << 20)))
    linux.tree.call("loop_add", 1)
    assert callers(linux) == ["add_one"]


@pytest.mark.parametrize(
    ("cs", "expected"), [(_C["KERNEL_CS"], ["double"]), (USER_CS, [])], ids=["kernel", "user"]
)
def test_an_odd_frame_pointer_is_where_an_interrupt_came(
    linux: FakeLinux, cs: int, expected: list[str]
) -> None:
    memory, labels = linux.memory, linux.machine.image.labels
    regs = stack(linux) + 256
    memory.set_u64(regs + _C["PT_RIP"], labels["double"] + 1)
    memory.set_u64(regs + _C["PT_CS"], cs)
    memory.set_u64(regs + _C["PT_RBP"], 0)
    words_in, words_out = (linux.machine.alloc(256) for _ in range(2))
    memory.write(words_in, struct.pack("<17Q", *[1] * 6, regs | 1, *[1] * 10))
    linux.tree.call("with_registers", labels["loop_add"], words_in, words_out)
    assert callers(linux) == ["add_one", "loop_add", "with_registers_return", *expected]

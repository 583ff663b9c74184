"""Call sites that come and go with a module."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from support.ftrace_kernel import NAMES, ftrace_machine, load_module, module_of

from ftracefs.ftrace import Ftrace, FtraceOps

EXT4 = module_of("ext4", ["ext4_open", "ext4_read"])
XFS = module_of("xfs", ["xfs_open", "xfs_read"], EXT4.mcount[0] + 0x10000)


@pytest.fixture
def ftrace() -> Iterator[Ftrace]:
    with ftrace_machine() as made:
        yield made
        assert made.bugs == []


def counting(ftrace: Ftrace) -> FtraceOps:
    """global_ops, registered with a callback that counts."""
    ops = ftrace.global_ops
    ops.func = ftrace.machine.image.labels["count_call"]
    ops.private = ftrace.machine.alloc(64)
    ftrace.machine.run(lambda: ftrace.register_ftrace_function(ops))
    return ops


def echo(ftrace: Ftrace, text: str, *, notrace: bool = False) -> None:
    def work() -> None:
        regex = ftrace.open_regex(ftrace.global_ops, notrace=notrace, flags=os.O_WRONLY)
        data = text.encode() + b"\n"
        while data:
            data = data[regex.write(data) :]
        regex.flush()
        regex.release()

    ftrace.machine.run(work)


def cat(ftrace: Ftrace) -> str:
    return ftrace.machine.run(
        lambda: ftrace.open_regex(ftrace.global_ops, notrace=False, flags=os.O_RDONLY).read()
    ).decode()


def enabled(ftrace: Ftrace) -> list[str]:
    lines = ftrace.enabled_functions().decode().splitlines()
    return [line.partition(" (")[0] for line in lines]


def unload(ftrace: Ftrace, name: str) -> None:
    ftrace.machine.run(lambda: ftrace.unload_module(name))


def test_a_module_adds_its_functions_with_its_name(ftrace: Ftrace) -> None:
    load_module(ftrace, EXT4)
    listing = ftrace.available_filter_functions().decode().splitlines()
    assert listing == [*NAMES, "ext4_open [ext4]", "ext4_read [ext4]"]
    assert ftrace.dyn_ftrace_total_info() == b"%d pages:2 groups: 2\n" % (len(NAMES) + 2)
    assert ftrace.memory.read(EXT4.mcount[0], 5) == bytes.fromhex("0f1f440000")
    unload(ftrace, "ext4")
    assert ftrace.available_filter_functions().decode().splitlines() == NAMES
    assert ftrace.dyn_ftrace_total_info() == b"%d pages:1 groups: 1\n" % len(NAMES)
    load_module(ftrace, EXT4)
    assert ftrace.available_filter_functions().decode().splitlines() == listing


def test_its_functions_are_traced_at_once_when_everything_is(ftrace: Ftrace) -> None:
    ops = counting(ftrace)
    load_module(ftrace, EXT4)
    assert enabled(ftrace)[-2:] == ["ext4_open [ext4]", "ext4_read [ext4]"]
    ftrace.machine.call(EXT4.labels["ext4_read"])
    assert ftrace.memory.u64(ops.private) == 1
    ftrace.machine.run(lambda: ftrace.unregister_ftrace_function(ops))
    assert ftrace.memory.read(EXT4.mcount[1], 5) == bytes.fromhex("0f1f440000")


def test_two_ops_share_a_new_function(ftrace: Ftrace) -> None:
    ops = counting(ftrace)
    other = ftrace.new_ops(ops.func, private=ftrace.machine.alloc(64), name="other")
    ftrace.machine.run(lambda: ftrace.register_ftrace_function(other))
    load_module(ftrace, EXT4)
    assert "ext4_read [ext4] (2) " in ftrace.enabled_functions().decode()
    ftrace.machine.call(EXT4.labels["ext4_read"])
    assert [ftrace.memory.u64(op.private) for op in (ops, other)] == [1, 1]


def test_a_filter_that_waited_takes_effect(ftrace: Ftrace) -> None:
    echo(ftrace, "*_read:mod:ext4 xfs_*:mod:xfs")
    ops = counting(ftrace)
    assert enabled(ftrace) == []
    load_module(ftrace, EXT4)
    assert enabled(ftrace) == ["ext4_read [ext4]"]
    assert cat(ftrace).splitlines() == ["ext4_read [ext4]", "xfs_*:mod:xfs"]
    load_module(ftrace, XFS)
    assert enabled(ftrace) == ["ext4_read [ext4]", "xfs_open [xfs]", "xfs_read [xfs]"]
    assert cat(ftrace).splitlines() == enabled(ftrace)
    ftrace.machine.call(XFS.labels["xfs_open"])
    assert ftrace.memory.u64(ops.private) == 1


def test_a_notrace_filter_that_waited_takes_effect(ftrace: Ftrace) -> None:
    echo(ftrace, "*_read:mod:ext4", notrace=True)
    counting(ftrace)
    load_module(ftrace, EXT4)
    assert enabled(ftrace) == [*NAMES, "ext4_open [ext4]"]


def test_a_filter_does_not_become_everything_when_its_module_goes(ftrace: Ftrace) -> None:
    load_module(ftrace, EXT4)
    echo(ftrace, "ext4_*")
    ops = counting(ftrace)
    assert enabled(ftrace) == ["ext4_open [ext4]", "ext4_read [ext4]"]
    unload(ftrace, "ext4")
    assert enabled(ftrace) == []
    assert cat(ftrace) == ""
    other = ftrace.new_ops(ops.func, private=ftrace.machine.alloc(64), name="other")
    ftrace.machine.run(lambda: ftrace.register_ftrace_function(other))
    ftrace.machine.call("add_one", 1)
    assert [ftrace.memory.u64(op.private) for op in (ops, other)] == [0, 1]
    echo(ftrace, "add_one")
    ftrace.machine.call("add_one", 1)
    assert [ftrace.memory.u64(op.private) for op in (ops, other)] == [1, 2]

"""The module ext4 under ftrace: direct calls, live patches and tracers when it goes and comes."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator

import pytest
from support.kernel_scenario import AT_FDCWD, O_CREAT, O_RDWR, Walk
from support.shell import Shell, isolated

from emulated_kernel.tasks import Task
from ftracefs.errors import TracefsError
from ftracefs.ftrace.modify import addr_from_call

MODULES = "emulator/modules"
FUNCTION = "ext4_da_write_begin"


@pytest.fixture
def shell(caplog: pytest.LogCaptureFixture) -> Iterator[Shell]:
    with isolated() as made:
        yield made
        assert made.session.ftrace.bugs == []
        assert [r.message for r in caplog.records if r.levelno >= logging.WARNING] == []


@pytest.fixture
def walk(shell: Shell) -> Walk:
    return Walk(shell.machine, shell.session.tasks)


def write_a_file(walk: Walk, task: Task) -> None:
    fd = walk.call(task, "openat", AT_FDCWD, walk.path("/mnt/new"), O_RDWR | O_CREAT, 0o644)
    assert fd >= 0
    assert walk.call(task, "write", fd, walk.put(b"abc" * 1000), 3000) == 3000
    assert walk.call(task, "close", fd) == 0


def refused(shell: Shell, text: str) -> int:
    with pytest.raises(TracefsError) as error:
        shell.echo(text, MODULES)
    return error.value.errno


def site(shell: Shell) -> int:
    module = shell.session.image.modules[0]
    assert module.name == "ext4"
    return module.labels[FUNCTION]


def module_text(shell: Shell) -> bytes:
    address, code = shell.session.image.modules[0].segments[".text"]
    return shell.machine.memory.read(address, len(code))


def test_a_direct_call_keeps_it_loaded(shell: Shell, walk: Walk) -> None:
    shell.echo(f"{FUNCTION} my_tramp", "emulator/direct")
    task = walk.task(800, "writer")
    write_a_file(walk, task)
    assert "my_direct_func: ip " in shell.cat("trace")
    assert refused(shell, "unload ext4") == errno.EBUSY
    assert (
        addr_from_call(shell.session.ftrace, site(shell)) == shell.session.ftrace.labels["my_tramp"]
    )
    shell.echo(f"!{FUNCTION}", "emulator/direct")
    walk.exit(task)
    shell.echo("unload ext4", MODULES)
    assert shell.session.ftrace.direct_functions == {}
    assert "ext4" not in shell.cat(MODULES)


def test_a_live_patch_of_it_goes_with_it_and_one_to_it_keeps_it(shell: Shell) -> None:
    shell.echo("ext4_has_free_clusters int_sqrt", "emulator/livepatch")
    shell.echo("ext4_has_free_clusters 49", "emulator/call")
    assert shell.cat("emulator/call") == "ext4_has_free_clusters(49) = 7\n"
    shell.echo("int_sqrt ext4_can_extents_be_merged", "emulator/livepatch")
    assert refused(shell, "unload ext4") == errno.EBUSY
    shell.echo("!int_sqrt", "emulator/livepatch")
    shell.echo("unload ext4", MODULES)
    assert (shell.cat("emulator/livepatch"), shell.cat("emulator/ops").count("livepatch")) == (
        "",
        0,
    )
    assert shell.session.ftrace.dead_trampolines == []
    shell.echo("load ext4", MODULES)
    assert "ext4_has_free_clusters" not in shell.cat("enabled_functions")


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
def test_it_goes_and_comes_under_a_tracer(shell: Shell, walk: Walk, tracer: str) -> None:
    untouched = module_text(shell)
    sites = shell.cat("available_filter_functions").count("[ext4]")
    shell.echo(tracer, "current_tracer")
    for number in range(3):
        task = walk.task(810 + number, "writer")
        write_a_file(walk, task)
        assert FUNCTION in shell.cat("trace")
        walk.exit(task)
        shell.echo("unload ext4", MODULES)
        assert "[ext4]" not in shell.cat("enabled_functions")
        assert "[ext4]" not in shell.cat("available_filter_functions")
        assert set(module_text(shell)) == {0xCC}
        shell.echo("load ext4", MODULES)
        assert shell.cat("enabled_functions").count("[ext4]") == sites
        assert addr_from_call(shell.session.ftrace, site(shell)) != 0
    shell.echo("nop", "current_tracer")
    assert module_text(shell) == untouched

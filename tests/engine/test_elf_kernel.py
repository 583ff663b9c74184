"""A kernel of one's own: the example in C, compiled here, and files that are no such kernel."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.elf_kernel import COMPILERS, EXAMPLE, build, make
from support.shell import Shell

from emulated_kernel.errors import ImageError
from emulated_kernel.images import load_image
from ftracefs.bare_session import BareSession
from ftracefs.errors import TracefsError
from ftracefs.mount.tracefs import Options


@pytest.fixture(scope="module", params=COMPILERS)
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("elf") / "kernel", compiler=request.param)


@pytest.fixture
def shell(image: Path) -> Iterator[Shell]:
    session = BareSession(Options(kernel=image, cpus=1, clock="virtual", isolated=True))
    try:
        yield Shell(session)  # type: ignore[arg-type]
    finally:
        session.close()


def calls(shell: Shell) -> list[str]:
    return re.findall(r": (\S+ <-\S+)$", shell.cat("trace"), re.MULTILINE)


def test_its_functions_are_listed_and_its_sites_are_nops(shell: Shell) -> None:
    names = shell.cat("available_filter_functions").split()
    assert {"factorial", "binomial", "polynomial", "number_of_calls"} < set(names)
    assert "__fentry__" not in names
    assert shell.cat("emulator/text/factorial").splitlines()[1].endswith("call site: nop")


def test_a_function_of_it_is_called_and_traced(shell: Shell) -> None:
    shell.echo("polynomial 4", "emulator/call")
    untraced = shell.cat("emulator/call")
    assert untraced == "polynomial(4) = 58\n"  # 3 * 4² + 10
    shell.echo("function", "current_tracer")
    shell.echo("polynomial 4", "emulator/call")
    assert shell.cat("emulator/call") == untraced
    found = calls(shell)
    assert found[0] == "polynomial <-host_return"
    assert "binomial <-polynomial" in found
    assert "factorial <-factorial" in found
    assert "script-1000" in shell.cat("trace")


def test_its_own_data_is_counted_up_by_its_own_code(shell: Shell) -> None:
    shell.echo("factorial 5", "emulator/call")
    assert shell.cat("emulator/call") == "factorial(5) = 120\n"
    shell.echo("number_of_calls", "emulator/call")
    assert shell.cat("emulator/call") == "number_of_calls() = 5\n"


def test_a_filter_and_the_graph(shell: Shell) -> None:
    shell.echo("polynomial binomial", "set_ftrace_filter")
    shell.echo("function_graph", "current_tracer")
    shell.echo("polynomial 4", "emulator/call")
    text = shell.cat("trace")
    assert re.search(r"\|  polynomial\(\) \{\n.*\|    binomial\(\);\n.*\|  \}\n", text), text


def test_a_live_patch_and_a_second_op(shell: Shell) -> None:
    shell.echo("binomial number_of_calls", "emulator/livepatch")
    shell.mkdir("instances/a")
    shell.echo("binomial", "instances/a/set_ftrace_filter")
    shell.echo("function", "instances/a/current_tracer")
    shell.echo("polynomial 4", "emulator/call")
    assert shell.cat("emulator/call") == "polynomial(4) = 48\n"
    assert "binomial <-polynomial" in shell.cat("instances/a/trace")


def test_a_function_that_faults_ends_and_the_machine_goes_on(shell: Shell) -> None:
    text = shell.cat("emulator/text/factorial")
    with pytest.raises(TracefsError) as error:
        shell.echo("factorial -1", "emulator/call")  # the recursion has no end, but the stack
    assert error.value.errno == errno.EFAULT
    assert "page fault" in shell.cat("emulator/call")
    assert shell.cat("emulator/text/factorial") == text
    shell.echo("factorial 3", "emulator/call")
    assert shell.cat("emulator/call") == "factorial(3) = 6\n"


def test_what_needs_the_built_in_kernel_is_not_offered(shell: Shell) -> None:
    assert shell.cat("available_tracers") == "function_graph function nop\n"
    assert shell.cat("emulator/modules") == ""


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "neither a vmlinuz for x86-64 nor an ELF file"),
        (b"#!/bin/sh\n", "neither a vmlinuz for x86-64 nor an ELF file"),
        (b"\x7fELF", "EI_CLASS"),
        (b"\x7fELF\x01\x01\x01" + bytes(200), "x86-64|EI_|e_"),
    ],
)
def test_what_is_no_kernel_is_refused_in_a_line(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "image"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=reason) as error:
        load_image(path)
    assert "\n" not in str(error.value)


def test_a_truncated_kernel_is_refused(tmp_path: Path, image: Path) -> None:
    data = image.read_bytes()
    for size in range(64, len(data), max(1, len(data) // 40)):
        path = tmp_path / "image"
        path.write_bytes(data[:size])
        with pytest.raises(ImageError) as error:
            load_image(path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("CFLAGS=-O2 -ffreestanding -fno-pic -mcmodel=kernel -mno-red-zone", "compile with -pg"),
        ("LDFLAGS_EXTRA=-s", "it has no symbols"),
    ],
)
def test_a_kernel_without_what_is_needed_is_refused(
    tmp_path: Path, argument: str, reason: str
) -> None:
    with pytest.raises(ImageError, match=reason):
        load_image(make(tmp_path / "kernel", argument))


@pytest.mark.parametrize("flags", ["", "-mrecord-mcount", "-fcf-protection=branch"])
def test_call_sites_are_found_with_and_without_a_list_of_them(tmp_path: Path, flags: str) -> None:
    """Where there is none the functions' entries are looked at, behind an endbr64 too."""
    path = make(tmp_path / "kernel", f"RECORD={flags}")
    found = load_image(path)
    sites = [found.label(name) for name in ("factorial", "binomial", "polynomial")]
    behind = 4 if "branch" in flags else 0
    assert len(found.mcount) == 5
    assert {site + behind for site in sites} < set(found.mcount)
    assert ("__mcount_loc" in found.segments) == ("mcount" in flags)


def test_text_may_lie_in_several_sections(tmp_path: Path) -> None:
    script = (EXAMPLE / "kernel.lds").read_text()
    text = "\t.text : { *(.text .text.*) }\n"
    parts = "".join(
        f"\t{name} : {{ *({name}) }}\n" for name in (".text.power", ".init.text", ".text")
    )
    assert text in script
    source = (EXAMPLE / "kernel.c").read_text()
    for name, section in {"power": ".text.power", "polynomial": ".init.text"}.items():
        source, count = re.subn(
            rf"^((?:static )?unsigned long {name}\()",
            rf'__attribute__((section("{section}"))) \1',
            source,
            flags=re.M,
        )
        assert count == 1
    kernel = make(tmp_path / "kernel", "-n")
    (kernel.parent / "kernel.lds").write_text(script.replace(text, parts))
    (kernel.parent / "kernel.c").write_text(source)
    build(kernel.parent)
    image = load_image(kernel)
    assert {".text.power", ".init.text", ".text"} <= set(image.segments)
    session = BareSession(Options(kernel=kernel, cpus=1, clock="virtual", isolated=True))
    try:
        shell = Shell(session)  # type: ignore[arg-type]
        shell.echo("function", "current_tracer")
        shell.echo("polynomial 4", "emulator/call")
        assert shell.cat("emulator/call") == "polynomial(4) = 58\n"
        assert calls(shell)[:3] == [
            "polynomial <-host_return",
            "power <-polynomial",
            "binomial <-polynomial",
        ]
    finally:
        session.close()


def test_a_program_of_the_host_is_refused() -> None:
    with pytest.raises(ImageError, match=r"fixed addresses|is not in|symbols"):
        load_image(Path(shutil.which("true") or "/bin/true"))


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_broken_kernel_is_read_or_refused(
    tmp_path: Path, image: Path, data: st.DataObject
) -> None:
    broken = bytearray(image.read_bytes())
    # Headers first, section headers last: what is broken there leads astray.
    places = st.one_of(st.integers(0, 300), st.integers(len(broken) - 1500, len(broken) - 1))
    for place in data.draw(st.lists(places, max_size=4)):
        new = data.draw(st.binary(min_size=1, max_size=8))
        broken[place : place + len(new)] = new
    path = tmp_path / "broken"
    path.write_bytes(broken)
    reason = ""
    try:
        load_image(path)
    except ImageError as error:
        reason = str(error)
    assert "\n" not in reason

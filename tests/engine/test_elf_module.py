"""A module of one's own: an object file, put beside the example kernel and the built-in one."""

from __future__ import annotations

import errno
import re
import struct
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.elf_kernel import COMPILERS, compiled, make
from support.shell import Shell

from emulated_kernel.errors import EmulatedKernelError, ImageError
from emulated_kernel.image import Module
from emulated_kernel.images import load_image
from ftracefs.bare_session import BareSession
from ftracefs.errors import TracefsError
from ftracefs.mount.tracefs import Options
from ftracefs.session import Session

INT3 = 0xCC


@pytest.fixture(scope="module", params=COMPILERS)
def kernel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("elf") / "kernel", compiler=request.param)


@pytest.fixture
def shell(kernel: Path) -> Iterator[Shell]:
    yield from opened(kernel, kernel.parent / "statistics.o")


def opened(kernel: Path | None, *modules: Path) -> Iterator[Shell]:
    options = Options(kernel=kernel, modules=modules, cpus=1, clock="virtual", isolated=True)
    session = Session(options) if kernel is None else BareSession(options)
    try:
        yield Shell(session)  # type: ignore[arg-type]
    finally:
        session.close()


def loaded(kernel: Path | None, *modules: Path) -> list[Module]:
    return load_image(kernel, modules).modules


def calls(shell: Shell) -> list[str]:
    return re.findall(r": (\S+ <-\S+)$", shell.cat("trace"), re.MULTILINE)


def answer(shell: Shell, call: str) -> str:
    shell.echo(call, "emulator/call")
    return shell.cat("emulator/call").strip()


def text_of(shell: Shell, module: Module) -> bytes:
    address, code = module.segments[".text"]
    return shell.machine.run(lambda: shell.machine.memory.read(address, len(code)))


# --- it comes and goes ----------------------------------------------------------------------------


def test_it_is_loaded_and_its_functions_are_listed(shell: Shell) -> None:
    (line,) = shell.cat("emulator/modules").splitlines()
    assert re.fullmatch(r"statistics \d+ 0 - Live 0xffffffffc0800000", line)
    functions = shell.cat("available_filter_functions").splitlines()
    names = ["mean", "variance", "variance_of_polynomial", "times_asked", "square"]
    assert {f"{name} [statistics]" for name in names} < set(functions)
    assert "polynomial" in functions
    assert " T variance\t[statistics]\n" in shell.cat("emulator/kallsyms")
    assert "call site: nop" in shell.cat("emulator/text/variance")


def test_its_functions_run_and_are_traced_with_those_of_the_kernel(shell: Shell) -> None:
    shell.echo("function", "current_tracer")
    assert answer(shell, "variance_of_polynomial") == "variance_of_polynomial() = 9"
    found = calls(shell)
    assert found[:3] == [
        "variance_of_polynomial <-host_return",
        "polynomial <-variance_of_polynomial",
        "power <-polynomial",
    ]
    assert len([line for line in found if line.startswith("square")]) == 8


def test_its_data_is_as_new_when_it_is_loaded_again(shell: Shell) -> None:
    assert answer(shell, "times_asked") == "times_asked() = 1"  # by init_module
    answer(shell, "mean")
    assert answer(shell, "times_asked") == "times_asked() = 2"
    shell.echo("unload statistics", "emulator/modules")
    shell.echo("load statistics", "emulator/modules")
    assert answer(shell, "times_asked") == "times_asked() = 1"


def test_unloaded_it_is_gone_with_all_that_was_known_of_it(shell: Shell) -> None:
    module = shell.session.image.modules[0]
    shell.echo("mean polynomial", "set_ftrace_filter")
    shell.echo("unload statistics", "emulator/modules")
    assert shell.cat("emulator/modules") == ""
    assert "statistics" not in shell.cat("available_filter_functions")
    assert "statistics" not in shell.cat("emulator/kallsyms")
    assert shell.cat("set_ftrace_filter") == "polynomial\n"
    assert set(text_of(shell, module)) == {INT3}
    with pytest.raises(TracefsError):
        shell.echo("mean", "emulator/call")


def test_a_filter_waits_for_it_and_a_tracer_that_runs_takes_it_in(shell: Shell) -> None:
    shell.echo("unload statistics", "emulator/modules")
    shell.echo("*:mod:statistics", "set_ftrace_filter")
    shell.echo("function", "current_tracer")
    shell.echo("load statistics", "emulator/modules")
    names = [line.split()[0] for line in calls(shell)]
    assert names == ["init_module", "mean"]
    shell.echo("polynomial 4", "emulator/call")
    assert len(calls(shell)) == 2


def test_who_leads_into_it_keeps_it(shell: Shell) -> None:
    shell.echo("binomial variance", "emulator/livepatch")
    assert answer(shell, "polynomial 4") == "polynomial(4) = 52"  # 3 * 4² + 4
    with pytest.raises(TracefsError) as error:
        shell.echo("unload statistics", "emulator/modules")
    assert error.value.errno == errno.EBUSY
    shell.echo("!binomial", "emulator/livepatch")
    shell.echo("unload statistics", "emulator/modules")
    assert answer(shell, "polynomial 4") == "polynomial(4) = 58"


def test_the_graph_goes_from_the_kernel_into_it(shell: Shell) -> None:
    shell.echo("variance mean square", "set_ftrace_filter")
    shell.echo("function_graph", "current_tracer")
    answer(shell, "variance")
    lines = re.findall(r"\|  +(.+)$", shell.cat("trace"), re.MULTILINE)
    bare = [line.replace(" [statistics]", "") for line in lines if not line.startswith("|")]
    assert bare == ["variance() {", "mean();", *["square();"] * 8, "}"]


def test_the_built_in_kernel_takes_one_too(tmp_path: Path) -> None:
    source = """
    unsigned long gcd(unsigned long a, unsigned long b);
    unsigned long lcm_of(unsigned long a, unsigned long b) { return a / gcd(a, b) * b; }
    """
    for shell in opened(None, compiled(tmp_path / "lcm-of.o", source)):
        names = [line.split()[0] for line in shell.cat("emulator/modules").splitlines()]
        assert names == ["lcm_of", "ext4"]
        shell.echo("gcd lcm_of", "set_ftrace_filter")
        shell.echo("function", "current_tracer")
        assert answer(shell, "lcm_of 21 6") == "lcm_of(21, 6) = 42"
        assert [line.split()[0] for line in calls(shell)] == ["lcm_of", "gcd"]
        shell.echo("unload lcm_of", "emulator/modules")
        assert "lcm_of" not in shell.cat("available_filter_functions")


# --- what a compiler and a linker make ------------------------------------------------------------


def test_code_may_lie_in_several_sections(kernel: Path, tmp_path: Path) -> None:
    sections = (".text.hot", ".text.unlikely", ".text.startup", ".init.text")
    source = "\n".join(
        f'__attribute__((section("{name}"))) int f{number}(void) {{ return {number}; }}'
        for number, name in enumerate(sections)
    )
    source += "\nint all(void) { return f0() + f1() * 10 + f2() * 100 + f3() * 1000; }"
    object_ = compiled(tmp_path / "sections.o", source, "-fno-inline", "-fno-ipa-cp")
    for shell in opened(kernel, object_):
        shell.echo("function", "current_tracer")
        assert answer(shell, "all") == "all() = 3210"
        assert [line.split()[0] for line in calls(shell)] == ["all", "f0", "f1", "f2", "f3"]


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flags", [(), ("-ffunction-sections", "-fdata-sections"), ("-O2", "-g")])
def test_several_objects_joined_by_the_linker(
    kernel: Path, tmp_path: Path, compiler: str, flags: tuple[str, ...]
) -> None:
    first = "int twice(int); int value = 4; int four_times(void) { return twice(twice(value)); }"
    second = "static int times = 2; int zero; int twice(int x) { return x * times + zero; }"
    parts = [
        compiled(tmp_path / f"{number}.o", source, *flags, compiler=compiler)
        for number, source in enumerate((first, second))
    ]
    joined = tmp_path / "joined.o"
    subprocess.run(["ld", "-r", "-o", joined, *parts], check=True, timeout=60)
    for shell in opened(kernel, joined):
        shell.echo("function", "current_tracer")
        assert answer(shell, "four_times") == "four_times() = 16"
        assert [line.split()[0] for line in calls(shell)] == ["four_times", "twice", "twice"]


SOURCE = """
    .text
    .globl function
    .type function, @function
    .globl absolute
    .set absolute, 0x1234
    .weak nowhere
function:
    call __fentry__
    mov $object + 2, %rax
    movl $absolute, %eax
    call polynomial
    ret
    .data
    .skip 8
object:
    .quad polynomial + 1, object, nowhere
    .long polynomial - ., object - . + 3
    .quad function - .
    .quad absolute
    .bss
    .balign 64
    .globl zeros
zeros:
    .skip 100
"""


def test_each_kind_of_relocation(kernel: Path, tmp_path: Path) -> None:
    image = load_image(kernel, [compiled(tmp_path / "all.s.o", SOURCE)])
    (module,) = image.modules
    polynomial, fentry = image.label("polynomial"), image.label("__fentry__")
    text, code = module.segments[".text"]
    start, data = module.segments[".data"]
    object_ = start + 8
    assert {"function": text, "zeros": module.labels["zeros"]} == dict(module.labels)
    assert module.labels["zeros"] % 64 == 0
    assert module.mcount == [text]
    assert [(s.name, s.address, s.kind) for s in module.symbols] == [
        ("function", text, "T"),
        ("object", object_, "d"),
        ("zeros", module.labels["zeros"], "B"),
    ]
    values = struct.unpack_from("<QQQiiqQ", data, 8)
    assert values == (
        *(polynomial + 1, object_, 0),
        *(polynomial - (object_ + 24), object_ - (object_ + 28) + 3),
        *(text - (object_ + 32), 0x1234),
    )
    to_fentry, to_object, to_absolute, to_polynomial = struct.unpack("<xi3xixIxi", code[:22])
    assert text + 5 + to_fentry == fentry
    assert to_object & (1 << 64) - 1 == object_ + 2
    assert to_absolute == 0x1234
    assert text + 22 + to_polynomial == polynomial
    assert data[-100:] == bytes(100)


def test_several_modules_lie_behind_each_other(kernel: Path, tmp_path: Path) -> None:
    big = "char room[300000]; int {0}(void) {{ return room[0]; }}"
    paths = [compiled(tmp_path / f"m{n}.o", big.format(f"f{n}")) for n in range(3)]
    places = sorted(
        (address, address + len(data))
        for module in [*loaded(None), *loaded(kernel, *paths)]
        for address, data in module.segments.values()
        if module.name != "ext4"
    )
    assert len(places) == 6
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    builtin, *ours = loaded(None, *paths[:1])
    for section in (".text", ".data"):
        address, data = builtin.segments[section]
        assert ours[0].segments[section][0] >= address + len(data)


# --- what is refused ------------------------------------------------------------------------------

REFUSED = {
    "an unknown function": ("int no_such(int); int f(void) { return no_such(1); }", (), "no_such"),
    "two of them": ("int b(int), a(int); int f(void) { return a(b(1)); }", (), "has no a, b$"),
    "code for a library": (
        "extern int last_result; int f(void) { return last_result; }",
        ("-mcmodel=small", "-fPIC"),
        "compile with -fno-pic",
    ),
    "common symbols": ("int common; int f(void) { return common; }", ("-fcommon",), "-fno-common"),
    "code that is not traced": (
        "int f(void) { return 1; }",
        ("-pg", "-mno-fentry"),
        "__mcount|mcount",
    ),
    "no code": ("int data = 4;", (), "no code"),
    "more than there is room for": ("int f(void) { return 1; } char x[9 << 20];", (), "no room"),
    "code for low memory": (
        'int f(void) { return 1; } asm(".pushsection .data; .long f; .popsection");',
        (),
        "out of reach: compile with -fno-pic -mcmodel=kernel",
    ),
}


@pytest.mark.parametrize(("source", "flags", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_loaded_is_refused_in_a_line(
    kernel: Path, tmp_path: Path, source: str, flags: tuple[str, ...], reason: str
) -> None:
    path = compiled(tmp_path / "bad.o", source, *flags)
    with pytest.raises(ImageError, match=reason) as error:
        loaded(kernel, path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_code_without_a_call_at_its_entries_is_refused(kernel: Path, tmp_path: Path) -> None:
    path = compiled(tmp_path / "bare.s.o", ".globl f\nf: ret\n")
    with pytest.raises(ImageError, match="compile with -pg -mfentry"):
        loaded(kernel, path)


def test_what_is_no_object_is_refused(kernel: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.o"
    for content, reason in ((b"", "broken"), (b"#!/bin/sh\n", "broken"), (b"\x7fELF", "broken")):
        path.write_bytes(content)
        with pytest.raises(ImageError, match=reason):
            loaded(kernel, path)
    for other, reason in (
        (kernel, "not an object file"),
        (tmp_path / "none.o", "No such file"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(ImageError, match=reason):
            loaded(kernel, other)


def test_a_name_is_taken_once(kernel: Path, tmp_path: Path) -> None:
    path = kernel.parent / "statistics.o"
    with pytest.raises(ImageError, match="another module statistics"):
        loaded(kernel, path, path)
    with pytest.raises(ImageError, match="another module ext4"):
        loaded(None, compiled(tmp_path / "ext4.o", "int f(void) { return 1; }"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [("return -12;", "init_module of bad failed"), ("*(volatile int *)8 = 1; return 0;", "fault")],
)
def test_one_that_does_not_want_to_be_loaded_ends_the_start(
    kernel: Path, tmp_path: Path, body: str, reason: str
) -> None:
    path = compiled(tmp_path / "bad.o", f"int init_module(void) {{ {body} }}")
    with pytest.raises(EmulatedKernelError, match=reason) as error:
        list(opened(kernel, path))
    assert "\n" not in str(error.value)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_broken_object_is_read_or_refused(
    tmp_path: Path, kernel: Path, data: st.DataObject
) -> None:
    broken = bytearray((kernel.parent / "statistics.o").read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(broken) - 1), max_size=4)):
        new = data.draw(st.binary(min_size=1, max_size=8))
        broken[place : place + len(new)] = new
    path = tmp_path / "broken.o"
    path.write_bytes(broken[: data.draw(st.integers(len(broken) // 2, len(broken) * 2))])
    reason = ""
    try:
        loaded(kernel, path)
    except ImageError as error:
        reason = str(error)
    assert "\n" not in reason

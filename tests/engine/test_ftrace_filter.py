"""set_ftrace_filter and set_ftrace_notrace: what Linux 6.1 answered, word for word."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from support.ftrace_kernel import ftrace_machine, load_module, many_functions, module_of

from ftracefs.errors import TracefsError
from ftracefs.ftrace import Ftrace, FtraceOps, FtraceRegex

VFS = [
    "vfs_fadvise",
    "vfs_open",
    "vfs_readv",
    "vfs_writev",
    "vfs_read",
    "vfs_write",
    "vfs_readlink",
]
OTHERS = ["x86_pmu_read", "dummy_handler", "name_show", "name_show", "do_exit.isra.0"]
DUMMY = ["set_multicast_list", "dummy_validate", "dummy_setup"]
EVERYTHING = b"#### all functions enabled ####\n"
NOTHING = b"#### no functions disabled ####\n"

READ, WRITE, APPEND = os.O_RDONLY, os.O_WRONLY, os.O_WRONLY | os.O_APPEND
TRUNCATE, BOTH = os.O_WRONLY | os.O_TRUNC, os.O_RDWR


@pytest.fixture(scope="module")
def machine() -> Iterator[Ftrace]:
    with ftrace_machine(many_functions([*VFS, *OTHERS])) as made:
        load_module(made, module_of("dummy", DUMMY))
        yield made


@pytest.fixture
def ftrace(machine: Ftrace) -> Iterator[Ftrace]:
    """ftrace with nothing filtered, traced or waiting."""
    yield machine
    for notrace in (False, True):
        regex = open_file(machine, TRUNCATE, notrace=notrace)
        close(regex)
    assert machine.bugs == []


def open_file(
    ftrace: Ftrace, flags: int, *, notrace: bool = False, ops: FtraceOps | None = None
) -> FtraceRegex:
    return ftrace.machine.run(
        lambda: ftrace.open_regex(ops or ftrace.global_ops, notrace=notrace, flags=flags)
    )


def write(regex: FtraceRegex, data: bytes) -> int:
    """What write(2) returns: bytes, or the negative errno."""
    try:
        return regex.state.machine.run(lambda: regex.write(data))
    except TracefsError as error:
        return -error.errno


def close(regex: FtraceRegex) -> None:
    regex.state.machine.run(regex.flush)
    regex.state.machine.run(regex.release)


def write_all(regex: FtraceRegex, data: bytes) -> int:
    """As a shell does it: the rest again, until all is written or an error comes (0, or errno)."""
    while data:
        written = write(regex, data)
        if written < 0:
            return -written
        data = data[written:]
    return 0


def echo(ftrace: Ftrace, text: str, flags: int = TRUNCATE, *, notrace: bool = False) -> int:
    regex = open_file(ftrace, flags, notrace=notrace)
    result = write_all(regex, text.encode() + b"\n")
    close(regex)
    return result


def cat(ftrace: Ftrace, *, notrace: bool = False) -> bytes:
    regex = open_file(ftrace, READ, notrace=notrace)
    text = regex.state.machine.run(regex.read)
    close(regex)
    return text


def lines(ftrace: Ftrace) -> list[str]:
    return cat(ftrace).decode().splitlines()


def test_unfiltered_files_say_so(ftrace: Ftrace) -> None:
    assert cat(ftrace) == EVERYTHING
    assert cat(ftrace, notrace=True) == NOTHING


@pytest.mark.parametrize(
    ("word", "functions"),
    [
        ("vfs_read", ["vfs_read"]),
        ("vfs_read*", ["vfs_readv", "vfs_read", "vfs_readlink"]),
        ("*_read", ["vfs_read", "x86_pmu_read"]),
        ("name_show", ["name_show", "name_show"]),
        ("do_exit.*", ["do_exit.isra.0"]),
        ("d*.isra.[0-9]", ["do_exit.isra.0"]),
        (" vfs_read", ["vfs_read"]),
        ("vfs_read\\", ["vfs_read"]),
        ("vfs_r*d\\", ["vfs_read"]),
        ("vfs_rea[!x]", ["vfs_read"]),
        ("vfs_read[!x]", ["vfs_readv"]),
        ("vfs_read ", ["vfs_read"]),
        ("vfs_read vfs_write", ["vfs_read", "vfs_write"]),
        ("vfs_write vfs_read", ["vfs_read", "vfs_write"]),
        ("*:mod:dummy", [f"{f} [dummy]" for f in DUMMY]),
        (":mod:dummy", [f"{f} [dummy]" for f in DUMMY]),
        (":mod:", [f"{f} [dummy]" for f in DUMMY]),
        ("*:mod:*", [f"{f} [dummy]" for f in DUMMY]),
        ("dummy_*", ["dummy_handler", "dummy_validate [dummy]", "dummy_setup [dummy]"]),
        ("dummy_*:mod:dum*", ["dummy_validate [dummy]", "dummy_setup [dummy]"]),
        ("vfs_read:mod", ["vfs_read"]),
        ("1:mod:dummy", ["add_one"]),
    ],
)
def test_words_are_read_back_in_the_order_of_available_filter_functions(
    ftrace: Ftrace, word: str, functions: list[str]
) -> None:
    assert echo(ftrace, word) == 0
    assert lines(ftrace) == functions


@pytest.mark.parametrize("word", ["*", "**", "*:mod", "*:mod:!dummy", ":mod:!", "*:mod:!"])
def test_a_star_is_every_function_of_the_kernel_or_of_all(ftrace: Ftrace, word: str) -> None:
    assert echo(ftrace, word) == 0
    everything = ftrace.available_filter_functions().decode().splitlines()
    with_modules = "!" not in word
    assert lines(ftrace) == [f for f in everything if with_modules or "[dummy]" not in f]


@pytest.mark.parametrize(
    ("word", "error", "left"),
    [
        ("nosuch", errno.EINVAL, EVERYTHING),
        ("nosuch vfs_read", errno.EINVAL, EVERYTHING),
        ("vfs_read nosuch vfs_write", errno.EINVAL, b"vfs_read\n"),
        ("vfs_read,vfs_write", errno.EINVAL, EVERYTHING),
        ("vfs_*:", errno.EINVAL, EVERYTHING),
        ("vfs_read::", errno.EINVAL, EVERYTHING),
        (":", errno.EINVAL, EVERYTHING),
        ("vfs_read:nope", errno.EINVAL, EVERYTHING),
        ("a:b:c", errno.EINVAL, EVERYTHING),
        ("vfs_read:mod:dummy", errno.EINVAL, EVERYTHING),
        ("!nosuch:mod:dummy", errno.EINVAL, EVERYTHING),
        ("!foo:mod:later", errno.EINVAL, EVERYTHING),
        ("nosuch:mod", errno.ENOMEM, EVERYTHING),
        (":mod", errno.ENOMEM, EVERYTHING),
        ("!nosuch:mod", errno.EINVAL, EVERYTHING),
        ("0", errno.EINVAL, EVERYTHING),
        ("99999", errno.EINVAL, EVERYTHING),
        ("-1", errno.EINVAL, EVERYTHING),
        ("!", errno.EINVAL, EVERYTHING),
        ("#vfs_read", errno.EINVAL, EVERYTHING),
        ("", 0, EVERYTHING),
        ("!vfs_read", 0, EVERYTHING),
    ],
)
def test_what_is_refused_leaves_the_words_before_it(
    ftrace: Ftrace, word: str, error: int, left: bytes
) -> None:
    assert echo(ftrace, word) == error
    assert cat(ftrace) == left


def test_append_truncate_and_remove(ftrace: Ftrace) -> None:
    echo(ftrace, "vfs_read")
    echo(ftrace, "vfs_write", APPEND)
    assert lines(ftrace) == ["vfs_read", "vfs_write"]
    echo(ftrace, "vfs_open")
    assert lines(ftrace) == ["vfs_open"]
    echo(ftrace, "vfs_*")
    echo(ftrace, "!vfs_read", APPEND)
    assert lines(ftrace) == [f for f in VFS if f != "vfs_read"]
    echo(ftrace, "!vfs_r*", APPEND)
    assert lines(ftrace) == ["vfs_fadvise", "vfs_open", "vfs_writev", "vfs_write"]
    assert echo(ftrace, "!nosuch", APPEND) == errno.EINVAL
    assert echo(ftrace, "!*", APPEND) == 0
    assert cat(ftrace) == EVERYTHING


def test_opening_without_truncation_appends_too(ftrace: Ftrace) -> None:
    echo(ftrace, "vfs_read", WRITE)
    echo(ftrace, "vfs_write", WRITE)
    assert lines(ftrace) == ["vfs_read", "vfs_write"]


@pytest.mark.parametrize(
    ("writes", "returned", "shown"),
    [
        ([b"vfs_read vfs_write"], [9], b"vfs_read\n"),
        ([b"vfs_", b"read"], [4, 4], b"vfs_read\n"),
        ([b"vfs_", b"read", b"\n"], [4, 4, 1], b"vfs_read\n"),
        ([b"vfs_read\n", b"vfs_write\n"], [9, 10], b"vfs_read\nvfs_write\n"),
        ([b"vfs_read", b"vfs_write"], [8, 9], EVERYTHING),
        ([b"nosuch"], [6], EVERYTHING),
        ([b"nosuch\n"], [-errno.EINVAL], EVERYTHING),
        ([b"vfs_read\nnosuch\nvfs_write\n"], [9], b"vfs_read\n"),
        ([b"", b"\n", b"  ", b"\n\n"], [0, 1, 2, 2], EVERYTHING),
        ([b"vfs_read\0vfs_write\n"], [9], b"vfs_read\n"),
        ([b"a" * 669, b"\n"], [669, -errno.EINVAL], EVERYTHING),
        ([b"a" * 1000, b"\n", b"vfs_read\n"], [-errno.EINVAL, 1, 9], EVERYTHING),
    ],
)
def test_exact_writes(
    ftrace: Ftrace, writes: list[bytes], returned: list[int], shown: bytes
) -> None:
    regex = open_file(ftrace, TRUNCATE)
    assert [write(regex, data) for data in writes] == returned
    close(regex)
    assert cat(ftrace) == shown


def test_truncation_takes_effect_at_close(ftrace: Ftrace) -> None:
    echo(ftrace, "vfs_read")
    regex = open_file(ftrace, TRUNCATE)
    assert cat(ftrace) == b"vfs_read\n"
    close(regex)
    assert cat(ftrace) == EVERYTHING


def test_a_reader_and_writer_sees_its_own_list(ftrace: Ftrace) -> None:
    echo(ftrace, "vfs_read")
    regex = open_file(ftrace, BOTH | os.O_TRUNC)
    assert regex.read() == EVERYTHING
    write(regex, b"vfs_write\n")
    assert regex.read() == b"vfs_write\n"
    assert cat(ftrace) == b"vfs_read\n"
    close(regex)
    assert cat(ftrace) == b"vfs_write\n"


def test_of_two_writers_the_last_to_close_wins(ftrace: Ftrace) -> None:
    first, second = open_file(ftrace, TRUNCATE), open_file(ftrace, TRUNCATE)
    write(first, b"vfs_read\n")
    write(second, b"vfs_write\n")
    close(second)
    assert cat(ftrace) == b"vfs_write\n"
    close(first)
    assert cat(ftrace) == b"vfs_read\n"


def test_a_reader_keeps_the_list_it_opened(ftrace: Ftrace) -> None:
    echo(ftrace, "vfs_read")
    reader = open_file(ftrace, READ)
    echo(ftrace, "vfs_write")
    assert reader.read() == b"vfs_read\n"
    assert write(reader, b"vfs_open\n") == -errno.EBADF
    close(reader)
    assert cat(ftrace) == b"vfs_write\n"


# --- closing through FUSE: several flushes, a late release ----------------------------------------


def test_a_shells_redirection_takes_effect_at_the_flush_after_the_write(ftrace: Ftrace) -> None:
    echo(ftrace, "vfs_read")
    regex = open_file(ftrace, TRUNCATE)
    ftrace.machine.run(regex.flush)  # dup2 has closed the descriptor open(2) gave
    write(regex, b"vfs_write\n")
    ftrace.machine.run(regex.flush)
    assert cat(ftrace) == b"vfs_write\n"
    echo(ftrace, "vfs_open")
    ftrace.machine.run(regex.release)
    assert cat(ftrace) == b"vfs_open\n", "a late release undoes nothing"


def test_a_truncation_alone_waits_for_the_release_or_for_another_open(ftrace: Ftrace) -> None:
    echo(ftrace, "vfs_read")
    regex = open_file(ftrace, TRUNCATE)
    ftrace.machine.run(regex.flush)
    assert ftrace.global_ops.func_hash.filter_hash.count == 1
    assert cat(ftrace) == EVERYTHING
    write(regex, b"vfs_write\n")
    ftrace.machine.run(regex.flush)
    assert cat(ftrace) == b"vfs_write\n"
    ftrace.machine.run(regex.release)
    assert cat(ftrace) == b"vfs_write\n"


def test_a_word_without_an_end_is_taken_at_the_flush(ftrace: Ftrace) -> None:
    regex = open_file(ftrace, TRUNCATE)
    write(regex, b"vfs_read")
    ftrace.machine.run(regex.flush)
    assert cat(ftrace) == b"vfs_read\n"
    write(regex, b"vfs_write")
    close(regex)
    assert lines(ftrace) == ["vfs_read", "vfs_write"]


# --- filters that wait for a module ---------------------------------------------------------------


def test_a_filter_waits_for_its_module(ftrace: Ftrace) -> None:
    assert echo(ftrace, "*:mod:nosuch") == 0
    assert cat(ftrace) == b"*:mod:nosuch\n"
    echo(ftrace, "foo*:mod:later", APPEND)
    assert lines(ftrace) == ["foo*:mod:later", "*:mod:nosuch"]
    echo(ftrace, "vfs_read", APPEND)
    assert lines(ftrace) == ["vfs_read", "foo*:mod:later", "*:mod:nosuch"]
    echo(ftrace, "!foo*:mod:later", APPEND)
    assert lines(ftrace) == ["vfs_read", "*:mod:nosuch"]
    echo(ftrace, "vfs_read:mod:later:x", APPEND)
    assert lines(ftrace) == ["vfs_read", "vfs_read:mod:later:x", "*:mod:nosuch"]
    echo(ftrace, "vfs_write")
    assert lines(ftrace) == ["vfs_write"]


def test_all_filters_of_a_module_are_taken_back_at_once(ftrace: Ftrace) -> None:
    echo(ftrace, "foo:mod:later")
    echo(ftrace, "bar:mod:later", APPEND)
    assert echo(ftrace, "!*:mod:later", APPEND) == 0
    assert cat(ftrace) == EVERYTHING


def test_notrace_shows_what_waits_below_its_first_line(ftrace: Ftrace) -> None:
    echo(ftrace, "*:mod:nosuch", notrace=True)
    assert cat(ftrace, notrace=True) == NOTHING + b"*:mod:nosuch\n"


# --- what the filters do to the text --------------------------------------------------------------


@pytest.fixture
def traced(ftrace: Ftrace) -> Iterator[Callable[[], list[str]]]:
    """global_ops registered; gives the names of the functions that are patched."""
    ops = ftrace.global_ops
    ops.func = ftrace.machine.image.labels["count_call"]
    ops.private = ftrace.machine.alloc(64)
    ftrace.machine.run(lambda: ftrace.register_ftrace_function(ops))
    yield lambda: [line.split()[0] for line in ftrace.enabled_functions().decode().splitlines()]
    ftrace.machine.run(lambda: ftrace.unregister_ftrace_function(ops))


def test_filter_and_notrace_decide_together(
    ftrace: Ftrace, traced: Callable[[], list[str]]
) -> None:
    assert len(traced()) == len(ftrace.records)
    echo(ftrace, "vfs_*")
    echo(ftrace, "vfs_read", notrace=True)
    assert traced() == [f for f in VFS if f != "vfs_read"]
    echo(ftrace, "vfs_read")
    assert traced() == []
    echo(ftrace, "", notrace=True)
    assert traced() == ["vfs_read"]


def test_a_filter_that_only_waits_traces_nothing(
    ftrace: Ftrace, traced: Callable[[], list[str]]
) -> None:
    echo(ftrace, "foo:mod:later")
    assert traced() == []


def test_changing_the_filter_never_passes_through_all_functions(
    ftrace: Ftrace, traced: Callable[[], list[str]]
) -> None:
    echo(ftrace, "vfs_read")
    patched, seen = ftrace.text_poke.sites_patched, []

    def look() -> None:
        first = ftrace.text_poke.read(ftrace.records.ip)[:, 0]
        seen.append(int(np.count_nonzero(first != 0x0F)))

    ftrace.text_poke.between_phases = look
    try:
        regex = open_file(ftrace, TRUNCATE)
        ftrace.machine.run(regex.flush)
        write(regex, b"vfs_write\n")
        close(regex)
    finally:
        ftrace.text_poke.between_phases = lambda: None
    assert traced() == ["vfs_write"]
    assert ftrace.text_poke.sites_patched == patched + 2
    assert max(seen) == 2
    log = ftrace.text_poke.patch_log().splitlines()[-6:]
    assert {line.split()[3].partition("+")[0] for line in log} == {"vfs_read", "vfs_write"}


def test_a_word_per_close_at_most_patches_what_differs(
    ftrace: Ftrace, traced: Callable[[], list[str]]
) -> None:
    echo(ftrace, "vfs_*")
    patched = ftrace.text_poke.sites_patched
    echo(ftrace, "!vfs_read", APPEND)
    assert ftrace.text_poke.sites_patched == patched + 1
    echo(ftrace, "vfs_w*", APPEND)
    assert ftrace.text_poke.sites_patched == patched + 1
    assert traced() == [f for f in VFS if f != "vfs_read"]


def test_commands_reach_their_handler(ftrace: Ftrace) -> None:
    got: list[tuple[bytes, bytes, bytes | None, bool]] = []

    def command(regex: FtraceRegex, func: bytes, name: bytes, parameter: bytes | None) -> None:
        if regex.notrace:
            raise TracefsError(errno.EINVAL)
        got.append((func, name, parameter, regex.notrace))

    def opened(notrace: bool) -> FtraceRegex:
        return ftrace.machine.run(
            lambda: ftrace.open_regex(
                ftrace.global_ops,
                notrace=notrace,
                flags=TRUNCATE,
                commands={b"traceoff": command},
                probes=lambda: b"vfs_read:traceoff:count=3\n",
            )
        )

    regex = opened(False)
    assert write(regex, b"vfs_read:traceoff\n") == 18
    assert write(regex, b"vfs_read:traceoff:3:4 ") == 22
    assert write(regex, b"!vfs_read:traceoff:\n") == 20
    assert regex.read() == EVERYTHING + b"vfs_read:traceoff:count=3\n"
    close(regex)
    assert got == [
        (b"vfs_read", b"traceoff", None, False),
        (b"vfs_read", b"traceoff", b"3:4", False),
        (b"!vfs_read", b"traceoff", b"", False),
    ]
    regex = opened(True)
    assert write(regex, b"vfs_read:traceoff\n") == -errno.EINVAL
    assert regex.read() == NOTHING
    close(regex)

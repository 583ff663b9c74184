"""Processes of the host that touch a mount of a booted Linux live in it as well."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import environment, run, wait_until, wait_until_reading
from support.linux_kernel import require_linux
from support.mounts import mounted

pytestmark = pytest.mark.timeout(300)

SHORT_LIVED = 200


@pytest.fixture(scope="module")
def linux(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with mounted(tmp_path_factory.mktemp("callers") / "t", "--kernel", str(require_linux())) as t:
        yield t


@pytest.fixture(autouse=True)
def afresh(linux: Path) -> Iterator[None]:
    yield
    (linux / "current_tracer").write_text("nop\n")
    for name in ("set_ftrace_pid", "set_ftrace_filter", "trace"):
        (linux / name).write_text("\n")
    (linux / "options/function-fork").write_text("0\n")
    (linux / "tracing_on").write_text("1\n")


def script(linux: Path, text: str) -> str:
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=linux,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout


def guest(linux: Path, command: str) -> str:
    (linux / "emulator/sh").write_text(f"{command}\n")
    return (linux / "emulator/sh").read_text()


def processes(linux: Path) -> dict[int, str]:
    """The guest's processes by its own account, pid -> name."""
    listed = guest(
        linux, "for p in /proc/[0-9]*; do read n < $p/comm && echo ${p##*/} $n; done 2>&1"
    )
    return {
        int(line.split()[0]): line.split(None, 1)[1]
        for line in listed.splitlines()
        if line[0].isdigit()
    }


def names(directory: Path) -> set[str]:
    return {entry.name for entry in directory.iterdir()}


def records(linux: Path) -> list[tuple[str, int, str, str]]:
    """(comm, pid, function, caller) of each record of the function tracer."""
    found = re.findall(
        r"^ *(\S.*)-(\d+) +\[\d+\] .*: (\S+) <-(\S+)$", (linux / "trace").read_text(), re.M
    )
    return [(comm, int(pid), function, caller) for comm, pid, function, caller in found]


def test_a_write_is_the_writers_system_call_in_the_guest(linux: Path) -> None:
    out = script(
        linux,
        """
        echo $$ > set_ftrace_pid
        echo 'vfs_write ksys_write vfs_read ksys_read do_sys_openat2' > set_ftrace_filter
        echo function > current_tracer
        echo hello > trace_marker
        echo 0 > tracing_on
        echo $$
        """,
    )
    pid = int(out)
    found = records(linux)
    assert {(comm, who) for comm, who, _, _ in found} == {("bash", pid)}
    functions = [(function, caller) for _, _, function, caller in found]
    # `echo function` was still in the kernel when it began, then came two whole lines.
    one_line = [
        ("do_sys_openat2", "__x64_sys_openat"),
        ("ksys_write", "do_syscall_64"),
        ("vfs_write", "ksys_write"),
    ]
    assert functions[-3:] == one_line
    assert functions[-6:-3] == one_line
    marker = re.findall(r"bash-(\d+) .*: tracing_mark_write: hello", (linux / "trace").read_text())
    assert marker == [str(pid)]


def test_a_read_is_the_readers_system_call_in_the_guest(linux: Path) -> None:
    (linux / "set_ftrace_filter").write_text("vfs_read\n")
    (linux / "current_tracer").write_text("function\n")
    out = script(linux, "exec cat current_tracer tracing_on")
    assert out == "function\n1\n"
    reads = [pid for comm, pid, *_ in records(linux) if comm == "cat"]
    assert len(reads) == 4  # each file, and its end
    assert len(set(reads)) == 1


def test_a_process_has_its_pid_and_name_in_the_guest_until_it_ends(linux: Path) -> None:
    command = 'read x < tracing_on; exec -a other sh -c "read x < tracing_on; echo; read x"'
    with subprocess.Popen(
        ["bash", "-c", command], cwd=linux, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        try:
            assert host.stdout.readline() == b"\n"
            assert processes(linux)[host.pid] == "sh"
        finally:
            host.stdin.close()
        assert host.wait(20) == 1
    wait_until(lambda: host.pid not in processes(linux), "a mirror ends with its process")


def test_a_program_that_a_process_executes_is_executed_in_the_guest(linux: Path) -> None:
    (linux / "set_ftrace_filter").write_text("do_execve* begin_new_exec\n")
    (linux / "current_tracer").write_text("function\n")
    pid = int(script(linux, "echo $$ > trace_marker; echo $$; exec cat tracing_on").split()[0])
    found = [function for _, who, function, _ in records(linux) if who == pid]
    # bash, which is what its parent's mirror was not, and cat
    assert found[-2].startswith("do_execve")
    assert found[-1] == "begin_new_exec"
    assert guest(linux, "dmesg | grep -c segfault") == "0\n"


@pytest.fixture
def realtime() -> None:
    """Skip who may not have the priority that a test is about."""
    may = subprocess.run(["chrt", "-f", "5", "true"], capture_output=True, timeout=60)
    if may.returncode:
        pytest.skip(may.stderr.decode())


def priority(linux: Path, *command: str) -> list[str]:
    """Priority, niceness and policy in the guest of a shell that has touched a file."""
    reads = "read x < tracing_on; echo; read x"
    with subprocess.Popen(
        [*command, "sh", "-c", reads], cwd=linux, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as host:
        assert host.stdin is not None
        assert host.stdout is not None
        assert host.stdout.readline() == b"\n"
        stat = guest(linux, f"cat /proc/{host.pid}/stat").rpartition(")")[2].split()
        host.stdin.close()
    return [stat[15], stat[16], stat[38]]


def test_a_process_is_as_nice_in_the_guest(linux: Path) -> None:
    assert priority(linux, "nice", "-n", "0") == ["20", "0", "0"]
    assert priority(linux, "nice", "-n", "7") == ["27", "7", "0"]


@pytest.mark.usefixtures("realtime")
def test_a_realtime_process_is_one_in_the_guest(linux: Path) -> None:
    assert priority(linux, "chrt", "-f", "5") == ["-6", "0", "1"]


@pytest.mark.usefixtures("realtime")
def test_the_wait_of_a_realtime_process_is_measured_when_it_is_woken_to_end(linux: Path) -> None:
    guest(linux, "echo 0 > /proc/sys/kernel/watchdog")  # it has realtime tasks of its own
    pid = script(
        linux,
        """
        echo wakeup_rt > current_tracer
        chrt -f 5 sh -c 'echo $$; read x < tracing_on; exec sleep 0.1'
        echo 0 > tracing_on
        """,
    ).strip()
    text = (linux / "trace").read_text()
    assert re.search(rf"\| task: \w+-{pid} \(uid:0 nice:0 policy:1 rt_prio:5\)\n", text), text
    assert re.search(rf" \+ \[000\] +{pid}: 94:R \w+\n", text)
    assert re.search(rf" ==> \[000\] +{pid}: 94:R \w+\n", text)


def test_a_child_that_was_waited_for_has_ended_before_what_its_parent_does_next(
    linux: Path,
) -> None:
    (linux / "events/sched/sched_process_exit/enable").write_text("1\n")
    children = script(
        linux,
        """
        for i in 1 2 3 4 5 6 7 8 9 10; do
            sh -c 'echo $$; read x < tracing_on'
            echo 0 > tracing_on
            echo 1 > tracing_on
        done
        """,
    ).split()
    (linux / "events/sched/sched_process_exit/enable").write_text("0\n")
    ended = re.findall(r"sched_process_exit: comm=sh pid=(\d+) ", (linux / "trace").read_text())
    assert ended == children


def test_an_error_of_a_file_is_the_system_calls_error(linux: Path) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        (linux / "current_tracer").write_text("no such tracer\n")
    with pytest.raises(FileNotFoundError):
        (linux / "nothing").read_text()


def test_a_blocking_read_sleeps_in_the_guest_and_a_signal_ends_it(linux: Path) -> None:
    (linux / "trace").write_text("\n")
    with subprocess.Popen(["cat", str(linux / "trace_pipe")], stdout=subprocess.PIPE) as reader:
        try:
            wait_until_reading(reader)
            state = guest(linux, f"cat /proc/{reader.pid}/stat").split()
            assert state[1:3] == ["(cat)", "S"]
            (linux / "trace_marker").write_text("wake up\n")
            assert reader.stdout is not None
            assert b"tracing_mark_write: wake up" in reader.stdout.readline()
            wait_until_reading(reader)
        finally:
            reader.send_signal(signal.SIGTERM)
        assert reader.wait(20) == -signal.SIGTERM
    wait_until(lambda: reader.pid not in processes(linux), "it is gone in the guest as well")


def test_a_read_that_a_signal_handler_interrupts_is_eintr(linux: Path) -> None:
    code = """
import errno, os, signal
class Come(Exception): pass
def come(*_): raise Come
signal.signal(signal.SIGALRM, come)
pipe = os.open("trace_pipe", os.O_RDONLY)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    os.read(pipe, 100)
except Come:
    print("interrupted")
os.close(pipe)
print(open("current_tracer").read())
"""
    done = run("bash", "-c", 'cd "$0"; exec python3 -c "$1"', str(linux), code)
    assert done.stdout.split() == ["interrupted", "nop"], done.stderr


def test_a_signal_to_the_writer_ends_a_call_that_sleeps(linux: Path) -> None:
    (linux / "set_ftrace_filter").write_text("msleep_interruptible\n")
    (linux / "current_tracer").write_text("function\n")
    code = f'cd "{linux}"; echo msleep_interruptible 100000000 > emulator/call'
    with subprocess.Popen(["bash", "-c", code], env=environment()) as writer:
        try:
            wait_until(lambda: "msleep_interruptible" in (linux / "trace").read_text(), "it sleeps")
        finally:
            writer.send_signal(signal.SIGTERM)
        assert writer.wait(60) == -signal.SIGTERM
    assert "interrupted" in (linux / "emulator/call").read_text()
    (caller,) = {pid for name, pid, *_ in records(linux) if name == "ftracefs"}
    wait_until(lambda: caller not in processes(linux), "who slept for him is gone")
    # Whoever comes next does not call in his place.
    run("bash", "-c", 'cd "$0"; echo gcd > set_ftrace_filter; echo gcd 1 2 > emulator/call', linux)
    assert {name for name, _, function, *_ in records(linux) if function == "gcd"} == {"ftracefs"}
    (linux / "emulator/call").write_text("gcd 12 18\n")
    assert (linux / "emulator/call").read_text() == "gcd(12, 18) = 6\n"


def test_directories_and_attributes_are_asked_for_as_usual(linux: Path) -> None:
    assert "current_tracer" in names(linux)
    assert (linux / "instances").is_dir()
    (linux / "instances/one").mkdir()
    try:
        assert "trace" in names(linux / "instances/one")
        assert (linux / "instances/one/trace").stat().st_mode & 0o777 == 0o640
    finally:
        (linux / "instances/one").rmdir()
    assert names(linux / "instances") == set()


def test_many_short_lived_processes_leave_nothing_behind(linux: Path) -> None:
    before = processes(linux)
    free = int(re.findall(r"MemFree: +(\d+)", guest(linux, "cat /proc/meminfo"))[0])
    script(linux, f"for i in {{1..{SHORT_LIVED}}}; do (echo $i > trace_marker) & done; wait")
    assert len(re.findall(r"tracing_mark_write", (linux / "trace").read_text())) == SHORT_LIVED
    wait_until(lambda: len(processes(linux)) <= len(before) + 1, "mirrors end with their processes")
    assert "sh" in processes(linux).values()
    log = guest(linux, "dmesg")
    assert not re.findall(r"WARN|BUG|Oops|Call Trace|stall|lockup|scheduling while", log)
    left = int(re.findall(r"MemFree: +(\d+)", guest(linux, "cat /proc/meminfo"))[0])
    assert left > free - 20_000


def test_a_new_process_costs_little(linux: Path) -> None:
    """Of a process that is known already: some hundred microseconds a file operation."""
    with (linux / "tracing_on").open() as file:
        os.pread(file.fileno(), 10, 0)
        took = []
        for _ in range(300):
            began = time.perf_counter()
            os.pread(file.fileno(), 10, 0)
            took.append(time.perf_counter() - began)
    assert sorted(took)[30] < 0.002


def test_a_script_and_its_children_are_followed(linux: Path) -> None:
    out = script(
        linux,
        """
        echo 1 > options/function-fork
        echo vfs_write > set_ftrace_filter
        echo $$ > set_ftrace_pid
        echo function > current_tracer
        echo parent > trace_marker
        (echo child > trace_marker; echo $BASHPID)
        echo 0 > tracing_on
        echo $$
        """,
    )
    child, parent = (int(word) for word in out.split())
    assert {pid for _, pid, *_ in records(linux)} == {child, parent}

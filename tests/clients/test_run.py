"""`ftracefs run`: what the command sees, what it cannot reach, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.clients import ftracefs_run
from support.daemon import TIMEOUT, environment, wait_until
from support.mounts import require_fuse


@pytest.fixture(autouse=True)
def fuse() -> None:
    require_fuse()


def shell(script: str, tmp_path: Path, *options: str, stdin: str = "") -> tuple[int, str, str]:
    done = ftracefs_run(
        "bash", "-c", script, options=("--isolated", *options), directory=tmp_path, stdin=stdin
    )
    return done.returncode, done.stdout, done.stderr


def test_the_tracefs_is_where_clients_look_for_one(tmp_path: Path) -> None:
    code, out, err = shell(
        "cd /sys/kernel/tracing; cat current_tracer; cd /sys/kernel/debug/tracing;"
        " echo function > current_tracer; cat /sys/kernel/tracing/current_tracer;"
        " awk '$3 == \"tracefs\" { print $2 }' /proc/mounts; echo $TRACEFS_PATH",
        tmp_path,
    )
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "nop",
        "function",
        "/sys/kernel/tracing",
        "/sys/kernel/debug/tracing",
        "/sys/kernel/tracing",
    ]


@pytest.mark.parametrize("fstype", ["tracefs", "debugfs"])
def test_the_hosts_own_tracefs_cannot_be_mounted(tmp_path: Path, fstype: str) -> None:
    code, out, _ = shell(
        f"mount -t {fstype} none /mnt && echo mounted; umount /sys/kernel/tracing && echo gone;"
        " umount /sys/kernel/debug/tracing && echo gone; stat -fc %T /sys/kernel/tracing",
        tmp_path,
    )
    assert (code, out) == (0, "fuseblk\n")


def test_symbols_cpus_and_sysctls_are_the_emulated_kernels(tmp_path: Path) -> None:
    enabled = Path("/proc/sys/kernel/ftrace_enabled")
    before = enabled.read_text() if enabled.exists() else None
    restrict = Path("/proc/sys/kernel/kptr_restrict").read_text()
    code, out, err = shell(
        "cmp /proc/kallsyms /sys/kernel/tracing/emulator/kallsyms;"
        " cat /sys/devices/system/cpu/{possible,present,online};"
        " [ ! -e /proc/sys/kernel/ftrace_enabled ] ||"
        " { echo 0 > /proc/sys/kernel/ftrace_enabled; cat /proc/sys/kernel/ftrace_enabled; } |"
        " cmp - /sys/kernel/tracing/emulator/sysctl/ftrace_enabled;"
        " echo 2 > /proc/sys/kernel/kptr_restrict; cat /proc/sys/kernel/kptr_restrict",
        tmp_path,
        "--cpus",
        "3",
    )
    assert (code, err) == (0, "")
    assert out.split() == ["0-2"] * 3 + ["2"]
    assert Path("/proc/sys/kernel/kptr_restrict").read_text() == restrict
    assert before == (enabled.read_text() if enabled.exists() else None)


def test_without_emulator_the_symbols_are_there_all_the_same(tmp_path: Path) -> None:
    code, out, _ = shell(
        "ls /sys/kernel/tracing/emulator; grep -c ' vfs_read$' /proc/kallsyms", tmp_path, "--pure"
    )
    assert (code, out) == (0, "1\n")


def test_the_exit_code_is_the_commands(tmp_path: Path) -> None:
    assert shell("exit 7", tmp_path)[0] == 7
    assert shell("kill -TERM $$", tmp_path)[0] == -signal.SIGTERM
    assert ftracefs_run("/nonexistent", directory=tmp_path).returncode == 127
    assert ftracefs_run("/etc/passwd", directory=tmp_path).returncode == 126


def test_input_and_output_are_the_commands(tmp_path: Path) -> None:
    assert shell("cat; echo err >&2", tmp_path, stdin="in\n") == (0, "in\n", "err\n")
    code, _, _ = shell("set -o pipefail; yes | head -1", tmp_path)
    assert code == 128 + signal.SIGPIPE  # which Python ignores


def mounts_on_the_kernels_files() -> list[str]:
    mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return [
        line for line in mountinfo.splitlines() if line.split()[4].startswith(("/sys", "/proc"))
    ]


def test_the_host_sees_nothing_of_it(tmp_path: Path) -> None:
    before = mounts_on_the_kernels_files()
    assert shell("mount | grep -c '/sys/kernel/tracing '", tmp_path)[0] == 0
    assert mounts_on_the_kernels_files() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_daemon_ends_with_the_command_whatever_ended_it(
    tmp_path: Path, number: signal.Signals
) -> None:
    program = "echo $$; exec sleep 1000"
    command = [sys.executable, "-m", "ftracefs", "run", "--isolated", "--log", "log"]
    process = subprocess.Popen(
        [*command, "--", "sh", "-c", program],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"%d\n" % process.pid  # it is the command itself
        process.send_signal(number)
        assert process.wait(TIMEOUT) == -number
        wait_until(lambda: "the command has ended" in (tmp_path / "log").read_text(), "it ends")
    finally:
        process.kill()
        process.wait(TIMEOUT)
        if process.stdout is not None:
            process.stdout.close()


def test_a_file_that_exec_closes_does_not_hang_the_daemon(tmp_path: Path) -> None:
    program = (
        "import os\n"
        "fd = os.open('/sys/kernel/tracing/tracing_on', os.O_RDWR | os.O_CLOEXEC)\n"
        "for _ in range(10):\n"
        "    if (pid := os.fork()) == 0:\n"
        "        os.write(fd, b'1')\n"
        "        os.execvp('true', ['true'])\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
    )
    done = ftracefs_run(sys.executable, "-c", program, directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_two_at_once_know_nothing_of_each_other(tmp_path: Path) -> None:
    inner = f"{sys.executable} -m ftracefs run --isolated -- cat /sys/kernel/tracing/current_tracer"
    if os.geteuid() == 0:
        code, _, err = shell(inner, tmp_path)
        # No right to mount is left, and what is left is a user namespace, if there may be one.
        assert code in (0, 125), err
    script = "cd /sys/kernel/tracing; echo $0 > current_tracer; sleep 1; cat current_tracer"
    launch = [sys.executable, "-m", "ftracefs", "run", "--isolated", "--", "sh", "-c", script]
    processes = [
        subprocess.Popen(
            [*launch, tracer],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        for tracer in ("function", "nop", "function_graph")
    ]
    found = [process.communicate(timeout=60)[0] for process in processes]
    assert found == ["function\n", "nop\n", "function_graph\n"]

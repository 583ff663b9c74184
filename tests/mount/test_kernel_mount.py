"""Mounts with the emulated kernel behind them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support.daemon import MountedDaemon, environment, run, wait_until, wait_until_reading
from support.linux_kernel import require_linux

SCRIPT = """
set -eu
echo 'gcd lcm mutex_*' > set_ftrace_filter
echo function > current_tracer
echo 'gcd 12 18 x5' > emulator/call
echo first > trace_marker
echo 'lcm 4 6' > emulator/call
echo 'gcd' > set_ftrace_filter
echo 'lcm 4 6' > emulator/call
echo second > trace_marker
cat trace per_cpu/cpu*/trace
echo nop > current_tracer
cat trace
"""


def output_of_script(directory: Path, script: str, *options: str) -> str:
    directory.mkdir()
    with MountedDaemon(directory, "--isolated", "--clock", "virtual", *options) as daemon:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=daemon.path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
    return done.stdout


def test_the_same_script_gives_the_same_bytes_through_two_mounts(
    fuse: None, tmp_path: Path
) -> None:
    first = output_of_script(tmp_path / "first", SCRIPT)
    assert first == output_of_script(tmp_path / "second", SCRIPT)
    assert first.count("gcd <-host_call") == 10
    assert "tracing_mark_write: second" in first


LINUX_SCRIPT = """
set -eu
echo vfs_read > set_graph_function
echo function_graph > current_tracer
echo 'cat /proc/version; sleep 1; cat /proc/uptime' > emulator/sh
cat emulator/sh trace
echo nop > current_tracer
echo function > current_tracer
echo 'seq 10 | md5sum' > emulator/sh
cat trace
"""


def test_a_linux_in_virtual_time_gives_the_same_bytes_through_two_mounts(
    fuse: None, tmp_path: Path
) -> None:
    kernel = ("--kernel", str(require_linux()))
    first = output_of_script(tmp_path / "first", LINUX_SCRIPT, *kernel)
    assert "vfs_read() {" in first
    assert first.count("\n") > 10_000
    assert first == output_of_script(tmp_path / "second", LINUX_SCRIPT, *kernel)


def test_a_reader_asleep_in_trace_pipe_gets_end_of_file_when_the_daemon_ends(
    fuse: None, tmp_path: Path
) -> None:
    with MountedDaemon(tmp_path) as daemon:
        with subprocess.Popen(
            ["cat", str(daemon.path / "trace_pipe")], stdout=subprocess.PIPE
        ) as reader:
            wait_until_reading(reader)
            daemon.process.terminate()
            reader.communicate(timeout=20)
        assert reader.returncode == 0
        assert daemon.process.wait(20) == 0


def test_trace_pipe_gives_up_its_reader_500_times(fuse: None, tmp_path: Path) -> None:
    with MountedDaemon(tmp_path, "--isolated") as daemon:
        pipe = daemon.path / "trace_pipe"
        done = run(
            "bash", "-c", f'for i in {{1..500}}; do exec 3<"{pipe}" || exit 1; exec 3<&-; done'
        )
    assert done.returncode == 0, done.stderr


def test_a_task_is_gone_when_its_process_is(fuse: None, tmp_path: Path) -> None:
    with MountedDaemon(tmp_path) as daemon:
        (daemon.path / "set_ftrace_filter").write_text("do_exit release_task\n")
        (daemon.path / "current_tracer").write_text("function\n")
        pid = int(
            run("bash", "-c", f'echo $$; exec cat "{daemon.path}/tracing_on"').stdout.split()[0]
        )

        def has_exited() -> bool:
            trace = (daemon.path / "trace").read_text()
            return re.search(rf"cat-{pid} .* do_exit", trace) is not None

        wait_until(has_exited, "the task of a process that has ended runs do_exit")


@pytest.mark.parametrize("cpus", ["1", "8"])
def test_there_are_as_many_cpus_as_asked_for(fuse: None, tmp_path: Path, cpus: str) -> None:
    with MountedDaemon(tmp_path, "--isolated", "--cpus", cpus) as daemon:
        assert len(list((daemon.path / "per_cpu").iterdir())) == int(cpus)
        assert f"#P:{cpus}" in (daemon.path / "trace").read_text()


@pytest.mark.parametrize("glob", ["vfs_*", "*"])
def test_a_reader_of_trace_pipe_goes_on_over_many_pages_of_two_cpus(
    fuse: None, tmp_path: Path, glob: str
) -> None:
    with MountedDaemon(tmp_path) as daemon:
        (daemon.path / "set_ftrace_filter").write_text(f"{glob}\n")
        (daemon.path / "current_tracer").write_text("function\n")
        lister = f'for i in {{1..40}}; do ls -l "{daemon.path}" "{daemon.path}/per_cpu"; done'
        with subprocess.Popen(["bash", "-c", lister], stdout=subprocess.DEVNULL) as others:
            pipe = os.open(daemon.path / "trace_pipe", os.O_RDONLY)
            try:
                text = bytearray()
                while len(text) < 500_000:
                    part = os.read(pipe, 1 << 17)
                    assert part
                    text += part
            finally:
                os.close(pipe)
                others.wait(60)
    lines = [line for line in text.decode().splitlines() if "LOST" not in line]
    shape = re.compile(r".{16}-\d+ +\[(\d{3})\] \S{5} +(\d+\.\d{6}): \S+ <-\S+")
    found = [shape.fullmatch(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if not match][:5]
    by_cpu: dict[str, list[float]] = {}
    for match in found:
        assert match is not None
        by_cpu.setdefault(match[1], []).append(float(match[2]))
    assert set(by_cpu) == {"000", "001"}
    assert all(stamps == sorted(stamps) for stamps in by_cpu.values())

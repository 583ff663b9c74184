"""The pytest plugin in a test session of its own, as somebody else's tests would use it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from support.daemon import environment, wait_until
from support.mounts import ROOT, is_mounted

pytestmark = [pytest.mark.usefixtures("fuse"), pytest.mark.timeout(300)]

IS_INSTALLED = any(
    point.value == "ftracefs.pytest_plugin" for point in metadata.entry_points(group="pytest11")
)
EXAMPLE = ROOT / "docs/examples/tested_script"
SECONDS = 200  # for a session; then it is killed
PLUGIN = [] if IS_INSTALLED else ["-p", "ftracefs.pytest_plugin"]


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory for tests; they import this checkout."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    return pytester


def run(session: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return session.runpytest_subprocess(
        "-p", "no:cacheprovider", *PLUGIN, *arguments, timeout=SECONDS
    )


def test_a_session_has_one_daemon_and_each_test_finds_the_files_as_new(
    session: pytest.Pytester,
) -> None:
    session.makepyfile("""
        import os, pytest
        seen = []

        @pytest.mark.parametrize("number", range(4))
        def test_each(tracefs, number):
            seen.append((tracefs.path, tracefs._daemon.pid))
            assert len(set(seen)) == 1
            assert tracefs.read("current_tracer") == "nop\\n"
            assert tracefs.read("set_ftrace_filter") == "#### all functions enabled ####\\n"
            assert tracefs.read("trace_clock").startswith("[local]")
            assert tracefs.read("options/sym-offset") == "0\\n"
            assert tracefs.read("buffer_size_kb") == "7 (expanded: 1408)\\n"
            assert os.listdir(tracefs / "instances") == []
            assert (tracefs / "set_ftrace_filter").stat().st_mode & 0o777 == 0o640
            tracefs.echo("vfs_*", "set_ftrace_filter")
            tracefs.echo("function", "current_tracer")
            tracefs.echo("mono", "trace_clock")
            tracefs.echo("1", "options/sym-offset")
            (tracefs / "set_ftrace_filter").chmod(0o600)
            (tracefs / "instances/mine").mkdir()
            tracefs.echo("vfs_read", "instances/mine/set_ftrace_filter")
            tracefs.echo("function", "instances/mine/current_tracer")
            assert number != 2, "a test that fails"
    """)
    run(session).assert_outcomes(passed=3, failed=1)


def test_the_fixture_calls_writes_and_reads_records(session: pytest.Pytester) -> None:
    session.makepyfile("""
        import errno, os, pytest
        from ftracefs.testing import CallFailed

        def test_it(tracefs):
            assert tracefs.call("gcd", 12, 18) == 6
            tracefs.echo("gcd", "set_ftrace_filter")
            tracefs.write("set_ftrace_filter", "lcm", append=True)
            assert tracefs.read("set_ftrace_filter").split() == ["gcd", "lcm"]
            tracefs.echo("function", "current_tracer")
            assert tracefs.call("lcm", 4, 6, times=3) == 12
            mine = [line for line in tracefs.trace() if line.pid == os.getpid()]
            assert [line.function for line in mine] == ["lcm", "gcd"] * 3
            assert mine[1].caller == "lcm"
            assert sorted(line.timestamp for line in mine) == [line.timestamp for line in mine]
            with pytest.raises(OSError) as caught:
                tracefs.echo("no_such_tracer", "current_tracer")
            assert (caught.value.errno, caught.value.filename) == (
                errno.EINVAL, str(tracefs / "current_tracer"))
            with pytest.raises(OSError):
                tracefs.call("no_such_function")
    """)
    run(session).assert_outcomes(passed=1)


def test_a_script_runs_in_the_mount_and_leaves_nothing_behind(session: pytest.Pytester) -> None:
    session.makefile(
        ".sh",
        leaver="""
        #!/bin/sh
        cd "$TRACEFS" || exit 1
        echo "$1 $(pwd)"
        setsid sh -c 'exec 3<trace_pipe; while :; do sleep 1000; done' &
        while ! [ -s "$2" ]; do echo "$!" >"$2"; done
    """,
    )
    (session.path / "leaver.sh").write_text((session.path / "leaver.sh").read_text().lstrip())
    (session.path / "leaver.sh").chmod(0o755)
    session.makepyfile("""
        import os, subprocess, pytest
        from pathlib import Path
        from ftracefs.testing import ScriptFailed
        PID = Path("pid").absolute()

        def test_first(tracefs):
            done = tracefs.run(Path("leaver.sh"), "in", PID, timeout=30)
            assert done.stdout == f"in {tracefs.path}\\n"
            os.kill(int(PID.read_text()), 0)
            tracefs.daemon_pid = tracefs._daemon.pid
            tracefs.popen("cat", "trace_pipe")

        def test_second(tracefs):
            assert tracefs._daemon.pid == tracefs.daemon_pid  # it was reset, not mounted anew
            assert not Path("/proc", PID.read_text().strip()).exists()
            assert tracefs.sh("cat current_tracer") == "nop\\n"
            with pytest.raises(ScriptFailed, match="(?s)status 3.*said.*complained"):
                tracefs.run("sh", "-c", "echo said; echo complained >&2; exit 3")
            assert tracefs.run("sh", "-c", "exit 3", check=False).returncode == 3
            assert tracefs.run("tr", "a", "b", stdin="aha").stdout == "bhb"
            with pytest.raises(subprocess.TimeoutExpired):
                tracefs.run("sleep", "1000", timeout=0.1)
    """)
    run(session).assert_outcomes(passed=2)


def test_what_a_test_starts_itself_is_left_alone(session: pytest.Pytester) -> None:
    session.makepyfile("""
        import ctypes, subprocess
        mine = []

        def is_subreaper():
            value = ctypes.c_int()
            assert ctypes.CDLL(None).prctl(37, ctypes.byref(value), 0, 0, 0) == 0
            return value.value

        def test_first(tracefs):
            for new_session in False, True:
                mine.append(subprocess.Popen(["sleep", "1000"], start_new_session=new_session))
            tracefs.sh("sleep 1000 & exec cat README")
            assert is_subreaper()

        def test_second():
            assert not is_subreaper()
            for process in mine:
                assert process.poll() is None
                process.kill()
                process.wait()
    """)
    run(session).assert_outcomes(passed=2)


def test_a_program_that_cannot_be_started_says_why(session: pytest.Pytester) -> None:
    session.makepyfile("""
        import pytest
        from pathlib import Path

        def test_it(tracefs, monkeypatch, tmp_path):
            monkeypatch.setenv("TRACEFS", "/another/mount")
            assert tracefs.sh('echo "$TRACEFS"') == f"{tracefs.path}\\n"
            with pytest.raises(FileNotFoundError, match="no_such_program"):
                tracefs.run("no_such_program")
            with pytest.raises(FileNotFoundError):
                tracefs.popen(tmp_path / "none")
            (tmp_path / "text").write_text("")
            with pytest.raises(PermissionError):
                tracefs.popen(tmp_path / "text")
            with pytest.raises(ProcessLookupError):
                ended = tracefs.popen("true")
                ended.wait()
                tracefs.interrupt(ended)
    """)
    run(session).assert_outcomes(passed=1)


def test_ctrl_c_arrives_though_the_session_itself_ignores_it(session: pytest.Pytester) -> None:
    session.makepyfile("""
        import signal

        def test_it(tracefs):
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            reader = tracefs.popen("cat", "trace_pipe")
            tracefs.echo("here", "trace_marker")
            assert "here" in reader.stdout.readline()
            tracefs.interrupt(reader)
            assert reader.wait(20) == -signal.SIGINT
    """)
    pytest_command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *PLUGIN]
    ignoring = ["sh", "-c", 'trap "" INT && exec "$@"', "sh"]
    session.run(*ignoring, *pytest_command, timeout=SECONDS).assert_outcomes(passed=1)


def test_a_mount_is_found_though_its_directory_was_renamed(session: pytest.Pytester) -> None:
    session.makepyfile("""
        from pathlib import Path
        places = []

        def test_first(tracefs):
            there = tracefs.path.parent
            away = there.with_name(there.name + "-away")
            places.extend([there, away])
            there.rename(away)
            assert (away / "tracing/current_tracer").read_text() == "nop\\n"

        def test_second(tracefs):
            assert tracefs.read("current_tracer") == "nop\\n"
            mounts = Path("/proc/self/mountinfo").read_text()
            assert [place for place in places if str(place) in mounts or place.exists()] == []
            places.append(tracefs.path.parent)

        def test_names():
            assert "pytest-of" not in str(places[-1])
    """)
    run(session).assert_outcomes(passed=3)


def test_a_daemon_that_is_stuck_is_ended_with_who_waits_for_it(session: pytest.Pytester) -> None:
    session.makeconftest("""
        from ftracefs.testing import mounted, scripts
        mounted._END_SECONDS = scripts._END_SECONDS = 1.0
    """)
    session.makepyfile("""
        import os, signal, subprocess, time, pytest
        from pathlib import Path
        stuck = []

        def test_first(tracefs):
            reader = tracefs.popen("cat", "trace_pipe")
            deadline = time.monotonic() + 60
            while not Path(f"/proc/{reader.pid}/syscall").read_text().startswith("0 0x3"):
                assert time.monotonic() < deadline
            os.kill(tracefs._daemon.pid, signal.SIGSTOP)
            stuck.extend([tracefs.path, tracefs._daemon.pid, reader.pid])
            with pytest.raises(subprocess.TimeoutExpired):
                tracefs.run("cat", "current_tracer", timeout=0.5)

        def test_second(tracefs):
            assert tracefs.read("current_tracer") == "nop\\n"
            assert tracefs.path != stuck[0]
            assert str(stuck[0]) not in Path("/proc/self/mountinfo").read_text()
            assert not [pid for pid in stuck[1:] if Path("/proc", str(pid)).exists()]
    """)
    run(session).assert_outcomes(passed=2)


def test_a_file_that_a_test_keeps_open_costs_it_the_mount(session: pytest.Pytester) -> None:
    session.makepyfile("""
        import os
        kept = []

        def test_first(tracefs):
            kept.append((os.open(tracefs / "set_ftrace_filter", os.O_WRONLY), tracefs.path))

        def test_second(tracefs):
            assert tracefs.path != kept[0][1]
            assert tracefs.read("current_tracer") == "nop\\n"
    """)
    run(session).assert_outcomes(passed=2)


def test_a_daemon_that_a_test_ended_is_replaced(session: pytest.Pytester) -> None:
    session.makepyfile("""
        import os, signal

        def test_first(tracefs):
            os.kill(tracefs._daemon.pid, signal.SIGKILL)
            tracefs._daemon.wait()

        def test_second(tracefs):
            assert tracefs.read("current_tracer") == "nop\\n"
    """)
    run(session).assert_outcomes(passed=2)


def test_the_mark_gives_a_mount_of_ones_own(session: pytest.Pytester) -> None:
    session.makepyfile("""
        import os, pytest
        seen = []

        def test_shared(tracefs):
            seen.append(tracefs.path)
            assert len(os.listdir(tracefs / "per_cpu")) == 1

        @pytest.mark.tracefs
        def test_own(tracefs):
            assert tracefs.path not in seen
            assert len(os.listdir(tracefs / "per_cpu")) == 1

        @pytest.mark.tracefs(cpus=3, pure=True, isolated=False, clock="real")
        def test_options(tracefs):
            assert len(os.listdir(tracefs / "per_cpu")) == 3
            assert not (tracefs / "emulator").exists()

        @pytest.mark.tracefs(cpu=3)
        def test_wrong(tracefs):
            pass

        def test_shared_again(tracefs):
            assert tracefs.path in seen
            tracefs.echo("function", "current_tracer")
            tracefs.call("gcd", 4, 6)
            assert {line.task for line in tracefs.trace()} == {"script"}
    """)
    session.makeini("""
        [pytest]
        tracefs_cpus = 4
        tracefs_isolated = yes
    """)
    result = run(session, "--tracefs-cpus", "1", "--tracefs-clock", "virtual", "--strict-markers")
    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["*the mark tracefs takes*not cpu"])


def test_where_fuse_is_missing_tests_are_skipped_or_fail_as_asked(
    session: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FTRACEFS_REQUIRE_FUSE", raising=False)
    monkeypatch.setenv("FUSE_LIBRARY_PATH", "/no/such/libfuse.so")
    session.makepyfile("def test_it(tracefs): pass")
    result = run(session, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*no tracefs can be mounted here: libfuse 2: install libfuse2*"])
    run(session, "--tracefs-require").assert_outcomes(errors=1)
    monkeypatch.setenv("FTRACEFS_REQUIRE_FUSE", "1")
    run(session).assert_outcomes(errors=1)


def test_a_session_that_is_killed_leaves_no_mount(session: pytest.Pytester) -> None:
    test = session.makepyfile("""
        import os, signal
        from pathlib import Path

        def test_it(tracefs):
            Path("mount").write_text(f"{tracefs._daemon.pid} {tracefs.path}")
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    command = [sys.executable, "-m", "pytest", *PLUGIN, str(test)]
    killed = subprocess.run(command, cwd=session.path, capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    pid, path = (session.path / "mount").read_text().split(" ", 1)
    wait_until(lambda: not is_mounted(Path(path)), f"{path} is unmounted")
    shutil.rmtree(Path(path).parent)
    wait_until(lambda: not Path("/proc", pid, "exe").exists(), "the daemon ends")


def test_a_test_costs_a_reset_and_no_mount(session: pytest.Pytester) -> None:
    session.makepyfile("""
        import time, pytest
        times = []

        @pytest.fixture
        def clock():
            times.append(time.perf_counter())

        @pytest.mark.parametrize("number", range(20))
        def test_it(clock, tracefs, number):
            tracefs.echo("function", "current_tracer")

        def test_time():
            steps = sorted(b - a for a, b in zip(times[1:], times[2:]))
            assert steps[len(steps) // 4] < 0.5  # a mount takes longer than that
    """)
    result = run(session, "-s")
    result.assert_outcomes(passed=21)


def test_importing_the_plugin_loads_nothing_heavy() -> None:
    program = (
        "import sys, ftracefs.pytest_plugin\n"
        "print(sorted({'unicorn', 'keystone', 'capstone', 'numpy', 'fuse', 'ftracefs.testing',"
        " 'emulated_kernel'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_plugin_can_be_switched_off_and_is_quiet(session: pytest.Pytester) -> None:
    session.makepyfile("def test_it(): pass")
    run(session, "-W", "error", "--strict-config", "--strict-markers").assert_outcomes(passed=1)
    name = "ftracefs" if IS_INSTALLED else "ftracefs.pytest_plugin"
    switched_off = session.runpytest_subprocess("-p", f"no:{name}", "--fixtures")
    assert "tracefs" not in switched_off.stdout.str()


def test_the_documented_example_passes(session: pytest.Pytester) -> None:
    shutil.copytree(EXAMPLE, session.path, dirs_exist_ok=True)
    run(session).assert_outcomes(passed=8)

"""The scripts that were recorded on a real Linux 6.1, run as a whole against a mount of ours.

Such a script asks a tracefs some hundred things, by the shell and by `fx`, a program that makes
exact system calls. Here it runs under `ftracefs run`, so that it finds the mount at
/sys/kernel/tracing and never the host's own tracefs. What it prints and the files it leaves are one
text, which stands beside it as Linux gave it.

What it asks is not changed; the places are. A file of the host that it reads in order to have
something traced becomes one of the mount, because reads elsewhere are not seen here, and where a
buffer is to overflow it is read fewer times. Sysctls and scratch files get places of their own, and
no module is loaded into the host.

    PYTHONPATH=tests python -m support.recorded_scripts 3-errno

runs one and prints how its text differs from the recorded one beyond what is expected.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from support.alike import alike_line
from support.clients import ftracefs_run
from support.differences import Differences

SCRIPTS = Path(__file__).resolve().parents[1] / "conformance/scripts"
SECONDS = 300.0

SYSCTLS = ("/proc/sys/kernel", "/sys/kernel/tracing/emulator/sysctl")
TRACED = "/sys/kernel/tracing/README"
MANY = 1000  # reads, in order that a small buffer overflows
TEXT_HEAD = "==> {} <=="  # before the text of each file that a script left


@dataclass(frozen=True, slots=True)
class RecordedScript:
    """A script, what Linux answered to it, and in what our answer differs."""

    name: str

    @property
    def cpus(self) -> int:
        """As many as when it was recorded: header lines and buffer totals tell."""
        return 2 if self.name == "6-extra" else 1

    def path(self, suffix: str) -> Path:
        return SCRIPTS / f"{self.name}{suffix}"

    @property
    def recorded(self) -> list[str]:
        return normal(self.path(".txt").read_text())

    @property
    def differences(self) -> Differences:
        return Differences.parse(self.path(".differences").read_text())

    def run(self, directory: Path) -> list[str]:
        """The text that our mount gives, in the form in which texts are compared."""
        fx = directory / "fx"
        subprocess.run([compiler(), "-O1", "-o", str(fx), str(SCRIPTS / "fx.c")], check=True)
        left = directory / "out"
        for place in (left, directory / "tmp", directory / "bin"):
            place.mkdir()
        for command in ("modprobe", "insmod", "rmmod"):
            stub = directory / "bin" / command
            stub.write_text("#!/bin/sh\nexit 1\n")
            stub.chmod(0o755)
        (directory / ".script").write_text(self._moved(directory, fx))  # bash names it in messages
        launch = f'export HOME={directory} PATH={directory}/bin:"$PATH" LC_ALL=C; bash ./.script'
        done = ftracefs_run(
            "bash", "-c", f"{launch} 3>/dev/null 2>{directory}/stderr >{directory}/stdout",
            options=("--cpus", str(self.cpus), "--log", str(directory / "log")),
            directory=directory, seconds=SECONDS,
        )  # fmt: skip
        # The exit code is that of the script's last command, which says nothing.
        assert not done.stderr
        assert "Traceback" not in (directory / "log").read_text()
        printed = shown((directory / "stdout").read_bytes())
        return normal(gathered(printed.replace(*reversed(SYSCTLS)), left))

    def _moved(self, directory: Path, fx: Path) -> str:
        """The script, told where here is what it uses."""
        places = {
            SYSCTLS[0]: SYSCTLS[1],
            "/usr/bin/fx": str(fx),
            "/out/": f"{directory}/out/",
            "/tmp/": f"{directory}/tmp/",
            "</etc/passwd": f"<{TRACED}",
            "if=/dev/zero": f"if={TRACED}",
            "count=5000": f"count={MANY}",
        }
        anywhere = "|".join(map(re.escape, places))
        script = self.path(".bash").read_text()
        return re.sub(rf"(?<![\w/])(?:{anywhere})", lambda match: places[match[0]], script)


def compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc")
    assert found, "no C compiler"
    return found


def gathered(printed: str, left: Path) -> str:
    """One text of what a script printed and of the files it left below `left`."""
    parts = [printed]
    for path in sorted(path for path in left.rglob("*") if path.is_file()):
        parts += [TEXT_HEAD.format(path.name), shown(path.read_bytes()).removesuffix("\n")]
    return "\n".join(parts).strip("\n") + "\n"


def shown(data: bytes) -> str:
    """`data` as text, whatever is no printable character as \\xNN."""
    return "".join(chr(byte) if byte in _PRINTED else f"\\x{byte:02x}" for byte in data)


_PRINTED = {*b"\n\t", *range(32, 127)}
_BYTE = r"(?:\\x[0-9a-f]{2}|.)"

# What no two runs have in common, beyond what `alike` knows: of the option `bin` pid, CPU and time,
# and the same with addresses ...
_OPTION_BIN = r"^==> \S+-opt-bin\.txt <==\n.*?(?=^==> |\Z)"
_BINARY = [
    (rf"{_BYTE}{{4}}(?:\\x00){{4}}{_BYTE}{{8}}(?=type: \d)", "PID CPU TIME "),
    (
        rf"{_BYTE}{{4}}(?:\\x00){{4}}{_BYTE}{{8}}(?:{_BYTE}{{4}}(?:\\xff){{4}}){{2}}",
        "PID CPU TIME ADDRESS ADDRESS\n",
    ),
]
# ... and in a line.
_ALIKE = [
    # ls -l and stat
    (
        r"^([-d][rwx-]{9}) +(\d+ root root) +(\d+) \w{3} [ \d]\d (\d\d:\d\d| \d{4}) ",
        r"\1 \2 \3 DATE ",
    ),
    (r"^(Device): \d+,\d+\s+(Inode): \d+ +", r"\1 \2 "),
    (r"^(Access|Modify|Change): \d{4}-.*", r"\1: DATE"),
    # a record takes more after a long while
    (r"^bytes: \d+", "bytes: MANY"),
    # who runs, where it stands alone or behind something
    (r" +(\S+)-\d+ +=> +(\S+)-\d+ *$", r" \1-PID => \2-PID"),
    (r"^(#    \| task: \S+)-\d+", r"\1-PID"),
    (r"^( *\d+\.\d+ \| +\d+\)) +\S+-\d+ +\|", r"\1 TASK-PID |"),
    (r"(?<=\S) +<\.\.\.>-\d+ +\[", " TASK-PID ["),
    # the options raw, hex and verbose
    (r"(^|(?<=nul))\d+ 0 \d{7,} (?=\S)", "PID 0 TIME "),
    (r"^[0-9a-f]{8} 00000000 (?=[0-9a-f]{16} )", "PID 00000000 "),
    (
        r"^ {0,15}(\S+) +\d+ +(\d+ \d+ [0-9a-f]{8} [0-9a-f]{8}) "
        r"\[[0-9a-f]{8}\] +\d+\.\d{3}ms \(\+\d+\.\d{3}ms\)",
        r"\1 PID \2 TIME",
    ),
]


def normal(text: str) -> list[str]:
    """The lines of `text` without what no two runs have in common."""
    text = re.sub(_OPTION_BIN, lambda match: _normal_binary(match[0]), text, flags=re.S | re.M)
    return [_normal_line(line) for line in text.splitlines()]


def _normal_binary(text: str) -> str:
    for pattern, stands_for in _BINARY:
        text = re.sub(pattern, stands_for, text, flags=re.S)
    return text


def _normal_line(line: str) -> str:
    # A read as fx prints it holds lines of its own.
    quoted = re.fullmatch(r'((?:\S+ => )?read\[\d+\](?:\(\d+\))? ")(.*)(" = \d+)', line)
    if quoted:
        inner = "\\n".join(alike_line(part) for part in quoted[2].split("\\n"))
        line = f"{quoted[1]}{inner}{quoted[3]}"
    for pattern, stands_for in _ALIKE:
        line = re.sub(pattern, stands_for, line)
    return alike_line(line)


def main(names: list[str]) -> int:
    different = 0
    for name in names:
        script = RecordedScript(name)
        with tempfile.TemporaryDirectory() as directory:
            unexpected = script.differences.unexpected(script.recorded, script.run(Path(directory)))
        print(unexpected or f"{name}: as expected")
        different += bool(unexpected)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

#!/usr/bin/env bash
# Everything the tests need, then all tests. Works from a fresh clone.
#
#   tests/run.sh               linters, types, every test, the package, the kernel's own suite
#   tests/run.sh --quick       linters, types and the unit tests: seconds, no mount, nothing installed by apt
#   tests/run.sh ARGUMENT...   pytest alone with these arguments (tests/mount, -k words, -x, ...)
#
# System packages are installed where that may be done (as root, or by sudo without a password);
# otherwise the command to type is printed, and tests that miss something are skipped and say so.
# FTRACEFS_REQUIRE_FUSE=1, FTRACEFS_REQUIRE_CLIENTS=1 (trace-cmd, perf, perf-tools, busybox),
# FTRACEFS_REQUIRE_CONFORMANCE=1, FTRACEFS_REQUIRE_BINUTILS=1 and FTRACEFS_REQUIRE_LINUX=1 (a Linux
# kernel: the host's, or Debian's through apt) turn such skips into failures. The last line counts:
# N passed, N failed, N skipped.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
export PYTHON=$root/.venv/bin/python
# Marks every process of this run, so that one left behind is found.
export FTRACEFS_TEST_RUN=$$

quick=no
pytest_only=no
case ${1:-} in
--quick)
    quick=yes
    shift
    ;;
-h | --help)
    sed -n 's/^# \{0,1\}//; 2,13p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
esac
[ $# = 0 ] || pytest_only=yes

passed=0 failed=0 skipped=0 failures=()
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

heading() { printf '\n== %s\n' "$*"; }

give_up() {
    printf 'tests/run.sh: %s\n' "$*" >&2
    exit 1
}

step() { # NAME COMMAND...: one test that a command is
    local name=$1
    shift
    heading "$name"
    if "$@"; then
        passed=$((passed + 1))
    else
        printf 'FAILED: %s\n' "$name"
        failed=$((failed + 1)) failures+=("$name")
    fi
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

system_packages() {
    local wanted=(binutils busybox-static fish gcc groff-base iputils-ping shellcheck xz-utils zsh) missing=() name
    wanted+=(linux-perf perf-tools-unstable trace-cmd)
    [ "${FTRACEFS_REQUIRE_CONFORMANCE:-0}" != 1 ] || wanted+=(linux-source-6.1)
    command -v dpkg-query >/dev/null || return 0
    for name in "${wanted[@]}"; do
        is_installed "$name" || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    heading "system packages: ${missing[*]}"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get)
    if [ "$(id -u)" != 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "not installed; to run every test: sudo apt-get install ${missing[*]}"
            return 0
        fi
        apt=(sudo "${apt[@]}")
    fi
    "${apt[@]}" update -qq </dev/null || echo "apt-get update failed; trying with the old lists"
    # One by one if not together: a package this release has not must not cost the others.
    if ! "${apt[@]}" install -y -qq --no-install-recommends "${missing[@]}" </dev/null >"$scratch/apt" 2>&1; then
        for name in "${missing[@]}"; do
            "${apt[@]}" install -y -qq --no-install-recommends "$name" </dev/null >"$scratch/apt" 2>&1 ||
                { tail -n 3 "$scratch/apt" && echo "could not install $name"; }
        done
    fi
}

python_packages() {
    local stamp_file=.venv/tests-stamp stamp
    stamp=$(sha256sum pyproject.toml)
    if [ "$(cat "$stamp_file" 2>/dev/null)" != "$stamp" ]; then
        heading "Python packages of the tests"
        # --group came with pip 25.1.
        if ! "$PYTHON" -m pip install -q --upgrade 'pip>=25.1' ||
            ! "$PYTHON" -m pip install -q --group dev; then
            give_up "the tests' Python packages could not be installed"
        fi
        printf '%s\n' "$stamp" >"$stamp_file"
    fi
}

shell_scripts() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files '*.sh' .ci/run share/bash-completion
    else
        find . -name .venv -prune -o \( -name '*.sh' -o -path ./.ci/run -o -path './share/bash-completion/*/*' \) -print
    fi
}

run_shellcheck() {
    local command=$root/.venv/bin/shellcheck
    [ -x "$command" ] || command=shellcheck
    shell_scripts | xargs "$command"
}

run_pytest() { # ARGUMENT...
    local report=$scratch/report.xml counted
    "$PYTHON" -m pytest --junitxml="$report" "$@"
    local status=$?
    if ! mapfile -t counted < <("$PYTHON" - "$report" <<'PYTHON'
import sys
import xml.etree.ElementTree as ElementTree

total = skipped = 0
failures = []
for suite in ElementTree.parse(sys.argv[1]).getroot().iter("testsuite"):
    total += int(suite.get("tests", 0))
    skipped += int(suite.get("skipped", 0))
    for case in suite.iter("testcase"):
        failures += [
            f"{case.get('classname')}::{case.get('name')}: {' '.join(reason.get('message', '').split())[:200]}"
            for reason in case
            if reason.tag in ("failure", "error")
        ]
print(max(total - len(failures) - skipped, 0), len(failures), skipped)
for failure in failures:
    print(failure)
PYTHON
    ) || [ ${#counted[@]} = 0 ]; then
        counted=("0 1 0" "pytest: no report") # pytest did not get as far as one
    fi
    local ok bad skip
    read -r ok bad skip <<<"${counted[0]}"
    failures+=("${counted[@]:1}")
    # No test at all, an interrupt, an internal error: failures that no test counted.
    [ "$status" = 0 ] || [ "$bad" != 0 ] || { bad=1 && failures+=("pytest: exit status $status"); }
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
}

run_conformance() {
    local output=$scratch/conformance counts status
    heading "the kernel's own suite"
    tests/conformance/run.sh 2>&1 | tee "$output"
    status=${PIPESTATUS[0]}
    counts=$(sed -nE 's/^conformance: ([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped$/\1 \2 \3/p' "$output")
    if [ -n "$counts" ]; then
        local ok bad skip
        read -r ok bad skip <<<"$counts"
        [ "$status" = 0 ] || [ "$bad" != 0 ] || bad=1
        passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + skip))
        [ "$bad" = 0 ] || failures+=("the kernel's own suite: $bad, see above")
    elif [ "$status" = 0 ]; then
        skipped=$((skipped + 1))
    else
        failed=$((failed + 1)) failures+=("the kernel's own suite: no count")
    fi
}

mounts() { awk '$3 == "fuse.tracefs" { print $2 }' /proc/mounts | sort; }

processes() { # those that this run started and that have outlived who started them
    "$PYTHON" - $$ <<'PYTHON'
import sys
from pathlib import Path

run = sys.argv[1]
parents, marked = {}, {}
for status in Path("/proc").glob("[0-9]*/status"):
    try:
        fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
        environ = (status.parent / "environ").read_bytes().split(b"\0")
        command = (status.parent / "cmdline").read_bytes()
    except OSError:
        continue
    pid = status.parent.name
    parents[pid] = fields["PPid"].strip()
    if f"FTRACEFS_TEST_RUN={run}".encode() in environ and not fields["State"].startswith("Z"):
        marked[pid] = command.replace(b"\0", b" ").decode(errors="replace")
for pid, command in marked.items():
    ancestor = pid
    while ancestor in parents and ancestor != run:
        ancestor = parents[ancestor]
    if ancestor != run:
        print(pid, command)
PYTHON
}

nothing_left() {
    local left try
    for ((try = 0; try < 20; try++)); do # an unmounted daemon may take a moment to end
        left=$(comm -13 <(printf '%s\n' "$mounts_before") <(mounts))
        left+=$(processes)
        [ -n "$left" ] || return 0
        sleep 0.25
    done
    printf '%s\n' "$left"
    return 1
}

mounts_before=$(mounts)
if [ "$quick" = no ]; then
    system_packages
fi
./mount.sh --prepare || give_up "./mount.sh --prepare failed"
python_packages

if [ "$pytest_only" = yes ]; then
    run_pytest "$@"
else
    step "ruff check" "$PYTHON" -m ruff check .
    step "ruff format" "$PYTHON" -m ruff format --check .
    step "mypy --strict" "$PYTHON" -m mypy --strict
    step "shellcheck" run_shellcheck
    heading "pytest"
    if [ "$quick" = yes ]; then
        run_pytest tests/unit
    else
        # A file's tests share what it has made; mounts, sessions and ports are each test's own.
        run_pytest tests --numprocesses auto --maxprocesses 4 --dist loadfile
        run_conformance
    fi
fi
[ "$quick" = yes ] || step "no mount and no process is left" nothing_left

# Told again at the end, where a long log is read first.
echo
for name in "${failures[@]}"; do
    printf 'FAILED: %s\n' "$name"
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]

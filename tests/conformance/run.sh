#!/usr/bin/env bash
# Run the kernel's own tests of ftrace (tools/testing/selftests/ftrace), unmodified, against a mount.
#
#   tests/conformance/run.sh [--kernel IMAGE] [-t SECONDS] [-o LOGDIR] [MOUNT] [TEST...]
#
# MOUNT is a mounted ftracefs; without one, one is mounted for the run and unmounted after it, with
# IMAGE as its kernel and two CPUs. TEST is a name or pattern below test.d/ without .tc
# (00basic/basic1, 'ftrace/*'); all by default. Prints a line a test. Fails if a test of
# must_pass.txt that was to run did not pass; a kernel of one's own, an ELF file, must pass none.
# -t limits each test (60 s, on a Linux 300); -o keeps the logs of tests that did not pass. The suite
# comes from Debian's package linux-source-6.1; without it nothing is run, which is a failure if
# FTRACEFS_REQUIRE_CONFORMANCE=1.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
source=${LINUX_SOURCE:-/usr/src/linux-source-6.1.tar.xz}
member=linux-source-6.1/tools/testing/selftests/ftrace
limit=
logs=
mount=

say() { printf 'conformance: %s\n' "$*"; }

usage() {
    sed -n 's/^# \{0,1\}//; 2,13p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

# Nothing to run with: what that means depends on who asked.
lack() {
    if [ "${FTRACEFS_REQUIRE_CONFORMANCE:-0}" = 1 ]; then
        say "FAILED: $1"
        exit 1
    fi
    say "skipped: $1"
    exit 0
}

is_linux() { # KERNEL: whether it is one that boots
    (cd "$root" && "$python" -c '
import sys
from pathlib import Path
from emulated_kernel.images import is_linux
sys.exit(not is_linux(Path(sys.argv[1])))' "$1")
}

kernel=builtin
while getopts t:o:h-: option; do
    case $option in
    -)
        if [ "$OPTARG" != kernel ] || [ "$OPTIND" -gt $# ]; then usage; fi
        kernel=${!OPTIND}
        OPTIND=$((OPTIND + 1))
        ;;
    t) limit=$OPTARG ;;
    o) logs=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ ! -f "$kernel" ] || kernel=$(readlink -f "$kernel")
if [ $# -gt 0 ] && [ -d "$1" ]; then
    mount=$(readlink -f "$1")
    shift
    grep -qF " $mount fuse" /proc/mounts || {
        say "$mount is not a FUSE mount" >&2
        exit 2
    }
fi

[ -r "$source" ] || lack "$source is missing (apt-get install linux-source-6.1)"
[ "$(id -u)" = 0 ] || lack "the kernel's suite must be run by root"
unshare -m true 2>/dev/null || lack "mount namespaces cannot be made here (unshare -m)"
if [ -z "$mount" ] && ! { : <>/dev/fuse; } 2>/dev/null; then
    lack "/dev/fuse cannot be opened"
fi

# The suite, extracted once for each version of the package, and as it was when extracted.
stamp=$(stat -c '%s %Y' "$source" | sha256sum | cut -c1-16)
suite=${XDG_CACHE_HOME:-$HOME/.cache}/ftracefs/selftests-$stamp
if ! (cd "$suite" && sha256sum --check --quiet --strict MANIFEST) >/dev/null 2>&1; then
    say "extracting $member from $source"
    rm -rf "$suite"
    mkdir -p "$suite"
    tar -xf "$source" -C "$suite" --strip-components=4 "$member"
    (cd "$suite" && find ftrace -type f -print0 | sort -z | xargs -0 sha256sum >MANIFEST)
fi

python=${PYTHON:-}
if [ -z "$python" ]; then
    python=$root/.venv/bin/python
    [ -x "$python" ] || python=python3
fi

# What a kernel must pass, and in which time: in a Linux each operation is a system call of its own.
must_pass=$here/must_pass.txt
if [ -n "$mount" ] && [ -e "$mount/emulator/sh" ] || is_linux "$kernel"; then
    limit=${limit:-300}
elif [ "$kernel" = builtin ]; then
    limit=${limit:-60}
else
    must_pass=/dev/null limit=${limit:-60}
fi

work=$(mktemp -d)
own_mount=

# shellcheck disable=SC2329  # called by the trap
finish() {
    local status=$?
    trap - EXIT
    if [ -n "$own_mount" ]; then
        if ! (cd "$root" && "$python" -m ftracefs unmount "$own_mount") >>"$work/mount.log" 2>&1; then
            say "the mount could not be unmounted:"
            cat "$work/mount.log"
            fusermount -uz "$own_mount" || true
            [ "$status" != 0 ] || status=1
        fi
    fi
    rm -rf --one-file-system "$work"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -z "$mount" ]; then
    mount=$work/mount
    mkdir "$mount"
    if ! (cd "$root" && "$python" -m ftracefs mount "$mount" --kernel "$kernel" --cpus 2) >"$work/mount.log" 2>&1 </dev/null; then
        say "FAILED: nothing could be mounted:"
        cat "$work/mount.log"
        exit 1
    fi
    own_mount=$mount
fi

[ -n "$logs" ] || logs=$work/logs
mkdir -p "$logs"
logs=$(readlink -f "$logs")

unshare -m --propagation private \
    "$here/namespace.sh" "$mount" "$suite/ftrace" "$work" "$logs" "$limit" "$@" |
    "$here/judge.sh" "$must_pass" "$logs" "$@"

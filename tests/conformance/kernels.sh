#!/usr/bin/env bash
# Boot Linux kernels, trace each in every way, and print its row of the table in docs/linux.md.
#
#   tests/conformance/kernels.sh VMLINUZ...
#
# One after the other is mounted. It must trace vfs_read as a graph, all of 20,000 reads, with stack
# traces, and each function there is with both tracers, compute meanwhile what the host computes, and
# complain of nothing in its log. Fails if one of them did not. It takes half a minute each and leaves
# the snapshots of others alone. busybox is needed, for the guests' tools.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-}
if [ -z "$python" ]; then
    python=$root/.venv/bin/python
    [ -x "$python" ] || python=python3
fi
reads=20000
compute='seq 200 | md5sum'

case ${1:--} in
-*)
    sed -n 's/^# \{0,1\}//; 2,9p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac

work=$(mktemp -d)
mount=$work/mount
mkdir "$mount"
export XDG_CACHE_HOME=$work/cache

ftracefs() { (cd "$root" && timeout -k 5 400 "$python" -m ftracefs "$@") </dev/null; }

# shellcheck disable=SC2317,SC2329  # called by the trap
finish() {
    trap - EXIT
    ! grep -qF " $mount fuse" /proc/mounts || ftracefs unmount "$mount" || fusermount -uz "$mount" || true
    rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

put() { # TEXT FILE
    # shellcheck disable=SC2016  # for that shell to expand
    timeout -k 5 120 sh -c 'printf "%s\n" "$1" >"$2"' - "$1" "$mount/$2" && return
    printf 'FAILED: %s > %s\n' "$1" "$2"
    exit 1
}

show() { timeout -k 5 120 cat "$mount/$1"; } # FILE

run() { # COMMAND: in the guest; what it prints
    put "$1" emulator/sh
    show emulator/sh
}

use() { # TRACER: from an empty buffer
    put nop current_tracer
    put '' trace
    put "$1" current_tracer
}

fail() {
    printf 'FAILED: %s\n' "$*"
    return 1
}

is_traced() { # all that the kernel must do
    local expected
    expected=$(sh -c "$compute")

    put vfs_read set_graph_function
    use function_graph
    [[ $(run 'cat /proc/version') == 'Linux version '* ]] || fail 'no /proc/version' || return
    show trace | grep -F 'vfs_read() {' >/dev/null || fail 'no graph of vfs_read' || return
    put '' set_graph_function

    put vfs_read set_ftrace_filter
    use function
    run "dd if=/dev/zero of=/dev/null bs=1 count=$reads" >/dev/null
    local count
    count=$(show trace | grep -c ' dd-[0-9]* .*: vfs_read <-') || true
    [ "$count" -ge "$reads" ] || fail "$count of $reads reads" || return

    put 1 options/func_stack_trace
    use function
    run 'cat /proc/version' >/dev/null
    show trace >"$work/trace"
    grep -A14 -m1 ' cat-[0-9]* .*: vfs_read <-' "$work/trace" | grep ' => entry_SYSCALL_64' >/dev/null ||
        fail 'no stack down to the system call' || return
    put nop current_tracer
    put 0 options/func_stack_trace
    put '' set_ftrace_filter

    local tracer lines
    for tracer in function function_graph; do
        use $tracer
        [ "$(run "$compute")" = "$expected" ] || fail "$tracer on all: another result" || return
        lines=$(show trace | grep -vc '^#') || true
        [ "$lines" -ge 1000 ] || fail "$tracer on all: $lines lines" || return
        put nop current_tracer
    done

    local complaints
    complaints=$(run 'dmesg' | grep -E 'WARNING|BUG|Oops|stall|Call Trace' | grep -v RETBleed) || true
    [ -z "$complaints" ] || fail "${complaints%%$'\n'*}" || return
    grep -q '^state: *running' <(show emulator/kernel) || fail 'it is dead' || return
}

row() {
    local version functions name
    version=$(show emulator/kernel | sed -n 's/^version: *//p')
    functions=$(show emulator/kernel | sed -n 's/.*(\([0-9]*\) can be traced).*/\1/p')
    name=$(grep -oE -m1 'Debian|Ubuntu' <<<"$version" | head -n 1) || true
    printf '| %s%s | %s |\n' "${name:+$name }" "$(awk '{ print $3 }' <<<"$version")" "$functions"
}

status=0
for kernel; do
    kernel=$(readlink -f "$kernel")
    name=${kernel##*/}
    if ! ftracefs mount "$mount" --kernel "$kernel" --log "$work/log" >"$work/said" 2>&1; then
        printf '%s: FAILED: %s\n' "$name" "$(tail -n 1 "$work/said")"
        status=1
        continue
    fi
    if why=$(is_traced); then
        row
    else
        printf '%s: %s\n' "$name" "${why:-FAILED: no answer}"
        status=1
    fi
    if ! ftracefs unmount "$mount" >"$work/said" 2>&1; then
        printf '%s: FAILED: %s\n' "$name" "$(cat "$work/said")"
        status=1
        break
    fi
done
exit $status

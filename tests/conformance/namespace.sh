#!/usr/bin/env bash
# Run the suite inside a mount namespace of its own. Called by run.sh through `unshare -m`:
#
#   namespace.sh MOUNT SUITE WORK LOGS SECONDS [TEST...]
#
# Everything of the host that the suite reads or writes is covered first: its tracefs and debugfs,
# /proc/sys/kernel, /proc/kallsyms, module loading, HOME. Prints RESULT, TEST and seconds a line.
set -euo pipefail

mount=$1 suite=$2 work=$3 logs=$4 limit=$5
shift 5

die() {
    printf 'conformance: %s\n' "$*" >&2
    exit 1
}

# Without this the covering below would be seen by the host.
[ "$(readlink /proc/self/ns/mnt)" != "$(readlink "/proc/$PPID/ns/mnt")" ] ||
    die "namespace.sh is for run.sh only: this is the caller's own mount namespace"

cover_sysctls() {
    # Plain copies, so that a write reaches nobody; then what the emulated kernel has itself.
    local scratch=$work/sysctl file name
    mkdir "$scratch"
    for file in /proc/sys/kernel/*; do
        if [ -f "$file" ] && [ -r "$file" ]; then
            cat "$file" >"$scratch/${file##*/}" 2>/dev/null || true
        fi
    done
    # What a kernel with ftrace has and this host may lack.
    for name in ftrace_enabled sched_rt_runtime_us kptr_restrict; do
        [ -e "$scratch/$name" ] || echo 1 >"$scratch/$name"
    done
    mount --bind "$scratch" /proc/sys/kernel
    for file in "$mount"/emulator/sysctl/*; do
        [ -f "$file" ] || continue
        name=${file##*/}
        [ -e "/proc/sys/kernel/$name" ] || : >"/proc/sys/kernel/$name"
        mount --bind "$file" "/proc/sys/kernel/$name"
    done
}

cover_tracing() {
    # The whole of /sys/kernel, so that neither the tracefs nor the debugfs path leads to the host.
    mount -t tmpfs none /sys/kernel
    mkdir -p /sys/kernel/tracing /sys/kernel/debug/tracing
    mount --bind "$mount" /sys/kernel/tracing
    mount --bind "$mount" /sys/kernel/debug/tracing
}

cover_kallsyms() {
    local kallsyms=$mount/emulator/kallsyms
    if [ ! -e "$kallsyms" ]; then # as with --pure
        kallsyms=$work/kallsyms
        : >"$kallsyms"
    fi
    mount --bind "$kallsyms" /proc/kallsyms
}

cover_commands() {
    local name
    mkdir "$work/bin" "$work/home"
    for name in modprobe insmod rmmod; do
        printf '#!/bin/sh\necho "%s: not in the emulated kernel" >&2\nexit 1\n' "$name" >"$work/bin/$name"
        chmod +x "$work/bin/$name"
    done
    PATH=$work/bin:$PATH HOME=$work/home
    export PATH HOME
    unset TRACEFS_PATH
}

# The suite takes the first line of /proc/mounts that holds "tracefs" anywhere. Every other mount
# that could be it is detached, in this namespace only.
detach_others() {
    local point round
    for ((round = 0; round < 100; round++)); do
        point=$(awk '/tracefs|debugfs/ && $2 != "/sys/kernel/tracing" && $2 != "/sys/kernel/debug/tracing" &&
            $2 !~ "^/proc/" { print $2 }' /proc/mounts | tail -n 1)
        [ -n "$point" ] || return 0
        umount -l "$(printf '%b' "${point//\\/\\0}")" 2>/dev/null || return 0
    done
}

# What the suite will find, by its own rule, is our mount and no tracefs of the host.
verify() {
    local found
    found=$(grep tracefs /proc/mounts | cut -f2 -d' ' | head -n 1)
    [ -n "$found" ] || die "the suite would find no tracefs at all"
    [ "$(stat -fc %T "$found")" = fuseblk ] || [ "$(stat -fc %T "$found")" = fuse ] ||
        die "the suite would use $found, which is no FUSE mount but $(stat -fc %T "$found")"
    [ "$(stat -c %d:%i "$found")" = "$mount_root" ] ||
        die "the suite would use $found, which is not the mount"
    for found in /sys/kernel/tracing /sys/kernel/debug/tracing; do
        [ "$(stat -c %d:%i "$found")" = "$mount_root" ] || die "$found is not covered"
    done
    if grep -q '^[^ ]* [^ ]* tracefs ' /proc/mounts &&
        [ "$(stat -fc %t "$(awk '$3 == "tracefs" { print $2; exit }' /proc/mounts)")" = 74726163 ]; then
        die "a tracefs of the host can still be reached"
    fi
}

selected() { # TEST PATTERN...: true if there are no patterns or one fits
    local test=$1 pattern
    shift
    [ $# -gt 0 ] || return 0
    for pattern in "$@"; do
        # shellcheck disable=SC2053  # a pattern is meant to match as one
        [[ $test == $pattern ]] && return 0
    done
    return 1
}

run_one() { # TEST: a process of the suite for each, so that each has its own time limit
    local test=$1 begin=$EPOCHREALTIME log=$logs/${1//\//_} output status=0 result seconds lines
    mkdir -p "$log"
    output=$log/output
    # In HOME, because that is where a `cd` to an instance that could not be made ends up anyway.
    (cd "$HOME" && exec timeout -k 5 "$limit" sh "$suite/ftracetest" -k -l "$log" \
        "$suite/test.d/$test.tc") >"$output" 2>&1 </dev/null || status=$?
    seconds=$(((${EPOCHREALTIME/[.,]/} - ${begin/[.,]/}) / 100000))
    seconds=$((seconds / 10)).$((seconds % 10))
    if [ "$status" -ge 124 ]; then
        printf 'TIMEOUT %s %s\n' "$test" "$seconds"
        return 0
    fi
    lines=$(grep -E '^\[[0-9]+\]' "$output") || lines=
    if [ -z "$lines" ]; then
        printf 'ERROR %s %s\n' "$test" "$seconds"
        return 0
    fi
    while IFS= read -r line; do
        result=$(sed -E 's/.*\[([A-Z]+)\][[:space:]]*$/\1/' <<<"$line")
        case $line in
        *"] (instance) "*)
            # Where no instance can be made the suite runs this one in HOME, which tells nothing.
            [ "$instances" = yes ] || result=UNSUPPORTED
            printf '%s %s(instance) %s\n' "$result" "$test" "$seconds"
            ;;
        *) printf '%s %s %s\n' "$result" "$test" "$seconds" ;;
        esac
    done <<<"$lines"
    case $lines in
    *FAIL* | *UNRESOLVED*) ;;
    *) rm -rf "$log" ;;
    esac
}

mount_root=$(stat -c %d:%i "$mount")
# First, so that of all our own mounts this one comes first in /proc/mounts.
cover_tracing
cover_sysctls
cover_kallsyms
cover_commands
detach_others
verify

instances=no
if mkdir /sys/kernel/tracing/instances/conformance 2>/dev/null; then
    rmdir /sys/kernel/tracing/instances/conformance
    instances=yes
fi

find "$suite/test.d" -name '*.tc' | sort | while IFS= read -r path; do
    test=${path#"$suite/test.d/"}
    test=${test%.tc}
    if selected "$test" "$@"; then
        run_one "$test"
    fi
done

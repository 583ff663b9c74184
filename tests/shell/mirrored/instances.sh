#!/usr/bin/env bash
# description: instances come and go, each with its own tracer, never busy without a reason
set -eu

refuses() { # COMMAND...
    if "$@" 2> /dev/null; then
        echo "was not refused: $*"
        exit 1
    fi
}

mkdir instances/a instances/b
echo vfs_read > instances/a/set_ftrace_filter
echo 'vfs_read vfs_write' > instances/b/set_ftrace_filter
echo function > instances/a/current_tracer
echo function > instances/b/current_tracer
grep -q '^vfs_read (2) .*->arch_ftrace_ops_list_func' enabled_functions
cat current_tracer > /dev/null
echo nop > current_tracer
grep -q 'vfs_read <-ksys_read' instances/a/trace
grep -q 'vfs_write <-ksys_write' instances/b/trace
refuses grep -q vfs_write instances/a/trace

# Busy while a file is open, but not for an open directory or a running tracer.
exec 3< instances/a/trace_pipe
refuses rmdir instances/a
exec 3<&-
exec 4< instances/a
rmdir instances/a
exec 4<&-
rmdir instances/b
test -z "$(cat enabled_functions)"
test -z "$(ls instances)"

# A file closed a moment ago is closed.
for _ in {1..500}; do
    mkdir instances/a
    echo > instances/a/trace
    rmdir instances/a
done

# What a directory held is gone for who stands in it.
mkdir instances/a
(
    cd instances/a
    rmdir ../a
    refuses cat trace
)

# From all sides at once.
for _ in {1..4}; do
    for _ in {1..8}; do
        mkdir instances/x instances/y 2> /dev/null || true
        cat instances/x/trace > /dev/null 2>&1 || true
        rmdir instances/x instances/y 2> /dev/null || true
    done &
done
wait
rmdir instances/x instances/y 2> /dev/null || true
test -z "$(ls instances)"

# Made in the emulated kernel as well, by its own functions.
echo 'tracefs_create_dir tracefs_create_file tracefs_remove' > set_ftrace_filter
echo function > current_tracer
mkdir instances/a
rmdir instances/a
echo 0 > tracing_on
grep -q 'mkdir-.*: tracefs_create_dir <-' trace
grep -q 'mkdir-.*: tracefs_create_file <-' trace
grep -q 'rmdir-.*: tracefs_remove <-' trace

# Names are names.
mkdir 'instances/a b' instances/.hidden $'instances/\xff'
rmdir 'instances/a b' instances/.hidden $'instances/\xff'

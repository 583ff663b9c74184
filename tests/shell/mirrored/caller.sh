#!/usr/bin/env bash
# description: who touches the mount is traced by pid and name
set -eu
echo 'vfs_read' > set_ftrace_filter
echo function > current_tracer
pid=$(bash -c 'echo $$; exec cat current_tracer' | head -n 1)
grep -q "cat-$pid .* vfs_read <-ksys_read" trace

# Of the files in emulator/text the guest has one for all, which is opened and read like any other.
echo > trace
pid=$(bash -c 'echo $$; exec cat emulator/text/gcd' | head -n 1)
grep -q "cat-$pid .* vfs_read <-ksys_read" trace

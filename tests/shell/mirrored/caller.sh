#!/usr/bin/env bash
# description: who touches the mount is traced by pid and name
set -eu
echo 'vfs_read' > set_ftrace_filter
echo function > current_tracer
pid=$(bash -c 'echo $$; exec cat current_tracer' | head -n 1)
grep -q "cat-$pid .* vfs_read <-ksys_read" trace

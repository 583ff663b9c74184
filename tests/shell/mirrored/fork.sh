#!/usr/bin/env bash
# description: a command is a fork of the shell and an exec
set -eu
echo 'kernel_clone __x64_sys_execve do_exit' > set_ftrace_filter
echo function > current_tracer
cat current_tracer > /dev/null
for ((i = 0; i < 200; i++)); do
    if grep -q do_exit trace; then break; fi
done
grep -q "bash-$$ .* kernel_clone" trace
grep -q '__x64_sys_execve' trace
grep -q 'do_exit' trace

#!/usr/bin/env bash
# description: a process runs on the vCPU of the host CPU it is pinned to
# needs: two CPUs
set -eu
echo vfs_read > set_ftrace_filter
echo function > current_tracer
for cpu in 0 1; do
    : > trace
    taskset -c "$cpu" cat current_tracer > /dev/null
    grep -q "cat-[0-9]* .*\[00$cpu\] .* vfs_read" trace
done

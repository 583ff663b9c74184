#!/usr/bin/env bash
# description: set_ftrace_pid and set_ftrace_notrace_pid, with and without function-fork
set -eu

# Whose reads are in the trace, one pid a line.
traced() { sed -n 's/^ *[^#]*-\([0-9]*\) .* vfs_read <-ksys_read$/\1/p' trace | sort -u; }

echo vfs_read > set_ftrace_filter

# A child that puts itself on the list is traced, through its execve; its parent is not.
child=$(sh -c 'echo $$ > set_ftrace_pid; echo function > current_tracer; exec cat set_ftrace_pid')
read -r on < tracing_on
cat tracing_on > set_ftrace_notrace
[ "$on" = 1 ]
[ "$(traced)" = "$child" ]
grep -q "cat-$child " trace

# A shell on the list: without function-fork what it starts is left out, with it is followed.
echo nop > current_tracer
echo > trace
echo $$ > set_ftrace_pid
echo function > current_tracer
read -r on < tracing_on
cat tracing_on > set_ftrace_notrace
[ "$(traced)" = $$ ]
echo 1 > options/function-fork
child=$(sh -c 'echo $$; exec cat tracing_on' | head -n 1)
traced | grep -qx "$child"
echo 0 > options/function-fork

# The list of those who are left out counts whatever the other one says.
echo $$ > set_ftrace_notrace_pid
echo > trace
read -r on < tracing_on
[ -z "$(traced)" ]
: > set_ftrace_pid
[ "$(cat set_ftrace_pid)" = 'no pid' ]
child=$(sh -c 'echo $$; exec cat tracing_on' | head -n 1)
traced | grep -qx "$child"
if traced | grep -qx $$; then exit 1; fi

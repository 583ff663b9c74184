#!/usr/bin/env bash
# description: commands on what the shell itself calls
set -eu

# The first write puts it on, the next ones are traced.
echo 0 > tracing_on
echo 'ksys_write:traceon:1' > set_ftrace_filter
echo nop > current_tracer
[ "$(cat tracing_on)" = 1 ]
grep -q '^ksys_write:traceon:count=0$' set_ftrace_filter
echo '!*:traceon:0' > set_ftrace_filter

# Where a read comes from, by whom, from the system call on.
echo 'vfs_read:stacktrace:1' > set_ftrace_filter
echo > trace
cat current_tracer > /dev/null
echo '!*:stacktrace:0' > set_ftrace_filter
[ "$(grep -c '<stack trace>' trace)" = 1 ]
echo 'vfs_read:stacktrace' > set_ftrace_filter
cat current_tracer > /dev/null
echo '!*:stacktrace' > set_ftrace_filter
stack=$(tail -n 4 trace)
[ "$stack" = "$(printf ' => %s\n' vfs_read ksys_read do_syscall_64 entry_SYSCALL_64_after_hwframe)" ]

# The tracer's own stacks, under the tracer.
echo vfs_write > set_ftrace_filter
echo 1 > options/func_stack_trace
echo function > current_tracer
echo > trace
echo hello > trace_marker
echo 0 > tracing_on
grep -q 'vfs_write <-ksys_write$' trace
grep -A 3 '<stack trace>' trace | grep -q ' => ksys_write$'

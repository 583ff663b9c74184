#!/usr/bin/env bash
# description: lists of pids and a mask of CPUs where all there is is one task
set -eu
count() { grep -c 'script-1000 .* gcd <-' trace || true; }

echo gcd > set_ftrace_filter
echo 1 > set_ftrace_pid
echo function > current_tracer
echo 'gcd 12 18 x3' > emulator/call
[ "$(count)" = 0 ]
echo 1000 >> set_ftrace_pid
[ "$(tr '\n' ' ' < set_ftrace_pid)" = '1 1000 ' ]
echo 'gcd 12 18 x3' > emulator/call
[ "$(count)" = 3 ]
echo 1000 > set_ftrace_notrace_pid
echo 'gcd 12 18 x3' > emulator/call
[ "$(count)" = 3 ]
: > set_ftrace_notrace_pid
: > set_ftrace_pid

mask=$(cat tracing_cpumask)
echo 0 > tracing_cpumask
echo 'gcd 12 18 x3' > emulator/call
[ "$(count)" = 3 ]
if echo fff > tracing_cpumask 2> /dev/null; then exit 1; fi
echo "$mask" > tracing_cpumask
echo 'gcd 12 18 x3' > emulator/call
[ "$(count)" = 6 ]

echo 1 > options/record-tgid
grep -q 'TASK-PID       TGID    CPU#' trace
grep -q '^          script-1000    (-------) \[000\]' trace
echo 20000 > saved_cmdlines_size
[ "$(cat saved_cmdlines_size)" = 45874 ]

#!/usr/bin/env bash
# description: a trace that begins at one function and ends at another
set -eu
echo 'lcm gcd int_sqrt' > set_ftrace_filter
echo 'lcm:traceon:1' >> set_ftrace_filter
echo 'int_sqrt:traceoff' >> set_ftrace_filter
echo function > current_tracer
echo 0 > tracing_on
echo 'gcd 12 18' > emulator/call
echo 'lcm 4 6' > emulator/call
[ "$(cat tracing_on)" = 1 ]
echo 'int_sqrt 9' > emulator/call
echo 'gcd 12 18' > emulator/call
[ "$(cat tracing_on)" = 0 ]
# The tracer's op is the one that came last, so it is called before the commands.
[ "$(grep -v '^#' trace | sed 's/.*: //')" = $'gcd <-lcm\nint_sqrt <-host_call' ]
grep -q '^lcm:traceon:count=0$' set_ftrace_filter
grep -q '^int_sqrt:traceoff:unlimited$' set_ftrace_filter

# Counted or not are two kinds, and each is taken back by its own form.
if echo '!lcm:traceon' >> set_ftrace_filter; then exit 1; fi
echo '!lcm:traceon:0' >> set_ftrace_filter
echo '!*:traceoff' >> set_ftrace_filter
[ "$(grep -c : set_ftrace_filter)" = 0 ]

echo 'gcd:dump' >> set_ftrace_filter
echo 1 > tracing_on
echo marked > trace_marker
echo 'gcd 12 18' > emulator/call
grep -q 'Dumping ftrace buffer:$' emulator/console
grep -q 'tracing_mark_write: marked$' emulator/console
[ "$(cat tracing_on)" = 0 ]

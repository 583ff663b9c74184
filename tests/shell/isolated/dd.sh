#!/usr/bin/env bash
# description: a trace read byte by byte is the trace
set -eu
echo gcd > set_ftrace_filter
echo function > current_tracer
echo 'gcd 12 18 x20' > emulator/call
[ "$(dd if=trace bs=1 2>/dev/null)" = "$(cat trace)" ]
[ "$(grep -c 'gcd <-host_call' trace)" = 20 ]

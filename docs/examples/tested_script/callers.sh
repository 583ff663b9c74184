#!/bin/sh
# callers.sh FUNCTION COMMAND...: who calls FUNCTION of the kernel while COMMAND runs, and how often
set -eu

cd "${TRACEFS:-/sys/kernel/tracing}"
function=$1
shift

if ! grep -q "^$function\( \[.*\]\)\?\$" available_filter_functions; then
    echo "callers.sh: $function cannot be traced" >&2
    exit 2
fi

trap 'echo nop > current_tracer; echo > set_ftrace_filter; echo 1 > tracing_on' EXIT
trap 'exit 130' INT TERM

echo 0 > tracing_on
echo "$function" > set_ftrace_filter
echo function > current_tracer
echo 1 > tracing_on
"$@" > /dev/null || echo "callers.sh: $1 failed" >&2
echo 0 > tracing_on

sed -n "s/.*: $function\( \[.*\]\)\{0,1\} <-//p" trace | sort | uniq -c | sort -rn

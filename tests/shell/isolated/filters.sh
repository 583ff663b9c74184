#!/usr/bin/env bash
# description: filters are added to, taken from, emptied, and read back at once
set -eu
echo 'mutex_*' > set_ftrace_filter
grep -qx mutex_lock set_ftrace_filter
echo '!mutex_lock' >> set_ftrace_filter
if grep -qx mutex_lock set_ftrace_filter; then exit 1; fi
echo 'mutex_lock mutex_unlock' > set_ftrace_filter
[ "$(wc -l < set_ftrace_filter)" = 2 ]
if echo no_such_function > set_ftrace_filter; then exit 1; fi 2>/dev/null
: > set_ftrace_filter
grep -qx '#### all functions enabled ####' set_ftrace_filter
for ((i = 0; i < 200; i++)); do
    echo "$(((i % 2) + 1))" > set_ftrace_filter
    [ "$(cat set_ftrace_filter)" = "$(sed -n "$(((i % 2) + 1))p" available_filter_functions)" ]
done

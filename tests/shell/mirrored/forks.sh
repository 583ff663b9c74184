#!/usr/bin/env bash
# description: every command of a shell is a fork of it, however soon it is over
# needs: root
set -eu
echo kernel_clone > set_ftrace_filter
echo $$ > set_ftrace_pid
echo function > current_tracer
lines=
count() { # how many forks of this shell the trace shows, without a fork
    local line found=0
    while read -r line; do
        if [[ $line == *"-$$ "*kernel_clone* ]]; then found=$((found + 1)); fi
    done < trace
    lines=$found
}
forks=60
for ((i = 0; i < forks; i++)); do /bin/true; done
for ((i = 0; i < 500; i++)); do
    count
    if [ "$lines" -ge $forks ]; then break; fi
done
if [ "$lines" != $forks ]; then
    echo "$lines forks of $forks"
    exit 1
fi

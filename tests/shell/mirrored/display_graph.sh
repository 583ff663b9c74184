#!/usr/bin/env bash
# description: the worst section with interrupts off and the longest wait of a task are shown as graphs
set -eu

graphs() { # TRACER: what it saw, with calls inside each other
    echo nop > current_tracer # what the one before saw would stay
    echo "$1" > current_tracer
    for _ in $(seq 200); do
        chrt -f 5 sleep 0.01 2> /dev/null || sleep 0.01
        grep -q '() {$' trace && return
    done
    echo "$1 saw nothing"
    cat trace
    exit 1
}

echo 1 > options/display-graph
graphs irqsoff
heads='^#   REL TIME      CPU  TASK/PID       ||||     DURATION                  FUNCTION CALLS$'
grep -q "$heads" trace
grep -q '|   0.000 us    |  tracer_hardirqs_on();$' trace
grep -q ftrace_graph_func enabled_functions
[ "$(< tracing_max_latency)" != 0 ]
if (echo 1 > function_profile_enabled) 2> /dev/null; then
    echo "two use the graph"
    exit 1
fi

echo 0 > options/display-graph
if grep -q "$heads" trace; then exit 1; fi
grep -q irqsoff_tracer_call enabled_functions

echo 1 > options/display-graph
graphs wakeup
grep -q '|  /\* .* ==> \[00[01]\] .* \*/$' trace
grep -q "$heads" trace

echo nop > current_tracer
[ -z "$(< enabled_functions)" ]

#!/usr/bin/env bash
# description: what is written to trace_marker comes out of trace_pipe once, and leaves trace
set -eu
out=$(mktemp)
trap 'rm -f "$out"' EXIT
timeout 30 head -n 20 trace_pipe > "$out" &
reader=$!
for ((i = 0; i < 20; i++)); do
    echo "marker $i" > trace_marker
done
wait "$reader"
[ "$(grep -c 'tracing_mark_write: marker' "$out")" = 20 ]
if grep -q marker trace; then exit 1; fi

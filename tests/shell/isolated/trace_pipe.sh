#!/usr/bin/env bash
# description: what is written to trace_marker comes out of trace_pipe once, and leaves trace
set -eu
out=$(mktemp)
cat trace_pipe > "$out" &
reader=$!
trap 'kill -INT "$reader" 2>/dev/null || true; rm -f "$out"' EXIT
for ((i = 0; i < 20; i++)); do
    echo "marker $i" > trace_marker
done
for ((i = 0; i < 1000; i++)); do
    if grep -q 'marker 19' "$out"; then break; fi
    read -rt 0.01 <> <(:) || true
done
[ "$(grep -c 'tracing_mark_write: marker' "$out")" = 20 ]
if grep -q marker trace; then exit 1; fi

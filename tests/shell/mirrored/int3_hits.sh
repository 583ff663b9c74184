#!/usr/bin/env bash
# description: under load somebody meets an INT3 of a patch, and every call returns right
set -eu
hits() {
    sed -n '1s/.*int3 hits: \([0-9]*\).*/\1/p' emulator/patch_log
}
before=$(hits)
for ((i = 0; i < 5; i++)); do
    echo function > current_tracer
    echo 'lcm 4 6' > emulator/call
    [ "$(cat emulator/call)" = 'lcm(4, 6) = 12' ]
    echo function_graph > current_tracer
    echo 'lcm 4 6' > emulator/call
    [ "$(cat emulator/call)" = 'lcm(4, 6) = 12' ]
    echo nop > current_tracer
done
[ "$(hits)" -gt "$before" ]
grep -q 'int3 ' emulator/patch_log
echo stop_machine > emulator/patching
before=$(hits)
echo function > current_tracer
echo nop > current_tracer
[ "$(hits)" = "$before" ]

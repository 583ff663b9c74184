#!/usr/bin/env bash
# description: tracers, filters, direct calls and live patches in any order: results are right, text comes back
set -eu
RANDOM=11
text() {
    cat emulator/text/{gcd,lcm,int_sqrt,vfs_read,mutex_lock,ftrace_caller,ftrace_regs_caller}
}
either() {
    one=$1
    if ((RANDOM % 2)); then one=$2; fi
}
result_of() {
    echo "$1" > emulator/call
    sed 's/.* = //' emulator/call
}
before=$(text)
direct='' patched=''
for ((i = 0; i < 120; i++)); do
    case $((RANDOM % 7)) in
    0) echo function > current_tracer ;;
    1) echo function_graph > current_tracer ;;
    2) echo nop > current_tracer ;;
    3)
        either 'gcd lcm' 'int_sqrt mutex_*'
        echo "$one" > set_ftrace_filter
        ;;
    4)
        if [ "$direct" ]; then
            echo '!gcd' > emulator/direct
            direct=''
        else
            either my_tramp bpf_trampoline
            direct=$one
            echo "gcd $direct" > emulator/direct
        fi
        ;;
    5)
        if [ "$patched" ]; then
            echo '!lcm' > emulator/livepatch
            patched=''
        else
            either gcd int_sqrt
            patched=$one
            echo "lcm $patched" > emulator/livepatch
        fi
        ;;
    6)
        either int3 stop_machine
        echo "$one" > emulator/patching
        ;;
    esac
    [ "$(result_of 'gcd 144 60')" = 12 ]
    case $patched in
    '') [ "$(result_of 'lcm 16 24')" = 48 ] ;;
    gcd) [ "$(result_of 'lcm 16 24')" = 8 ] ;;
    int_sqrt) [ "$(result_of 'lcm 16 24')" = 4 ] ;;
    esac
done
echo nop > current_tracer
[ -z "$direct" ] || echo '!gcd' > emulator/direct
[ -z "$patched" ] || echo '!lcm' > emulator/livepatch
[ "$(cat enabled_functions)" = '' ]
[ "$(text)" = "$before" ]

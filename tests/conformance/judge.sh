#!/usr/bin/env bash
# Judge the results of the kernel's suite. Called by run.sh:
#
#   namespace.sh … | judge.sh MUST_PASS LOGS [TEST...]
#
# Reads lines of RESULT, TEST and seconds, prints them as they come, then the sum, then one line
# that counts the tests of the list MUST_PASS. Fails if one of those did not pass or did not run,
# and then prints the end of its log from LOGS.
set -euo pipefail

list=$1 logs=$2
shift 2

show_log() { # TEST: the run in an instance shares the directory, and comes last
    local directory=$logs/${1//\//_} log
    log=$(find "${directory%(instance)}" -name '*-log.*' 2>/dev/null | sort | head -n 1) || return 0
    tail -n 20 "${log:-${directory%(instance)}/output}" 2>/dev/null | sed 's/^/    /' || true
}

must=()
while IFS= read -r name; do
    must+=("$name")
done < <(sed 's/#.*//; s/[[:space:]]*$//; s/ (instance)/(instance)/; /^$/d' "$list")

declare -A results=() totals=()
while read -r result test seconds; do
    printf '%-11s %-52s %6s s\n' "$result" "${test/(instance)/ (instance)}" "$seconds"
    results[$test]=$result
    totals[$result]=$((${totals[$result]:-0} + 1))
done

sum=
for result in "${!totals[@]}"; do
    sum+="${sum:+, }${totals[$result]} $result"
done
printf 'the kernel'"'"'s own suite: %s\n' "${sum:-nothing ran}"

passed=0 failed=0 skipped=0
for test in "${must[@]}"; do
    wanted=no
    [ $# -gt 0 ] || wanted=yes
    for pattern in "$@"; do
        # shellcheck disable=SC2053  # a pattern is meant to match as one
        [[ ${test%(instance)} == $pattern ]] && wanted=yes
    done
    if [ "$wanted" = no ]; then
        skipped=$((skipped + 1))
    elif [ "${results[$test]:-}" = PASS ]; then
        passed=$((passed + 1))
    else
        printf 'must pass, but did not: %s: %s\n' "$test" "${results[$test]:-did not run}"
        show_log "$test"
        failed=$((failed + 1))
    fi
done
printf 'conformance: %d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ] && [ "${#totals[@]}" -gt 0 ]

#!/bin/sh
# check.sh FOLDER JOBS 'NAME: COMMAND'... — runs suites of tests, JOBS at a time and in the order given,
# each to its end whatever becomes of the others.  What NAME says goes to FOLDER/NAME.log.  At the end
# come the suites that failed, each with its command and what it complains of, what was not tested,
# and a closing line "N passed, M failed" over all.  Exits with 1 if anything failed.
# Checks are counted from the lines that Check and the shell suites end with.
set -u

# Adds up the counts of a log: "passed failed".
counts() {
    awk '/^[0-9]+%: Checks: [0-9]/ {
             gsub(/[^0-9 ]/, "")
             passed += $2 - $3 - $4; failed += $3 + $4
         }
         /^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3 }
         END { print passed + 0, failed + 0 }' "$1"
}

# suite FOLDER 'NAME: COMMAND' — runs one and tells how it went.
suite() {
    name=${2%%: *} log=$1/${2%%: *}.log started=$(date +%s)
    echo "0 1 1" >"$1/$name.counts" # until it has ended
    sh -c "${2#*: }" >"$log" 2>&1 </dev/null
    code=$?
    # shellcheck disable=SC2046
    set -- "$1" $(counts "$log")
    passed=$2 failed=$3
    [ $code -eq 0 ] || [ "$failed" -gt 0 ] || failed=1
    [ $((passed + failed)) -gt 0 ] || passed=1 # it counts nothing
    echo "$passed $failed $code" >"$1/$name.counts"
    [ "$failed" -eq 0 ] && word=ok || word=FAIL
    times >"$1/$name.times" # its last line is that of children
    cpu=$(awk 'END { gsub(/[ms]/, " "); printf "%d", ($1 + $3) * 60 + $2 + $4 }' "$1/$name.times")
    printf '%-4s %-20s %6d checks %4d s %4d s of processors\n' "$word" "$name" $((passed + failed)) \
        $(($(date +%s) - started)) "$cpu"
}

# complaints FOLDER 'NAME: COMMAND'... — of the suites that failed.
complaints() {
    folder=$1
    shift
    for line; do
        log=$folder/${line%%: *}.log
        read -r _ failed code <"$folder/${line%%: *}.counts"
        [ "$failed" -gt 0 ] || continue
        printf '\n%s: %d failed (exit %d); all of it is in %s\n' "${line%%: *}" "$failed" "$code" "$log"
        echo "    ${line#*: }"
        grep -A 4 '^FAIL\|^[^ ]*:[0-9]*:[FE]:' "$log" | tail -n 40 | grep . || tail -n 15 "$log"
    done
}

if [ "$1" = suite ]; then
    suite "$2" "$3"
    exit 0
fi
folder=$1 jobs=$2
shift 2
for line; do
    case ${line%%: *} in
    *[!a-zA-Z0-9_-]* | '') echo "check.sh: not NAME: COMMAND: $line" && exit 2 ;;
    esac
done
rm -rf "$folder"
mkdir -p "$folder" || exit 1
# Suites share the cores: threads that wait must not spin (test_train beside others: 80 s of processors
# for 355). Nothing but a hang may run into a limit
# of time, however busy the machine is.
export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0
export CK_TIMEOUT_MULTIPLIER="${CK_TIMEOUT_MULTIPLIER:-10}"
printf '%s\n' "$@" | xargs -d '\n' -n 1 -P "$jobs" "$0" suite "$folder"
complaints "$folder" "$@"
grep -h 'NOT TESTED' "$folder"/*.log
cat "$folder"/*.log | awk '/^golden: / { ran += $2; missing += $4 }
    END { printf "golden cases: %d ran, %d need a larger folder (MX_GOLDEN)\n", ran, missing }'
cat "$folder"/*.counts | awk '{ passed += $1; failed += $2 }
    END { printf "%d passed, %d failed\n", passed, failed; exit failed > 0 || passed == 0 }'

#!/bin/sh
# run.sh BINARY — broken configs and data, and their exact messages.  Each tests/cli/*.yml holds, as
# comments:
#   # expect: a line of stderr      # args: more words for the command line      # env: NAME=value
#   # exit: the code, if not 2
# The run must write exactly the expected lines to stderr, nothing to stdout, and exit with the code.
# A line that is no note (indented, or a hint) begins an error: "mxtrain: error: " stands before it.
# Last, what make install puts somewhere (install.sh). Run from the top folder.
set -uf
binary=$1
actual=$(mktemp -d) || exit 1
trap 'rm -r "$actual"' EXIT
passed=0 failed=0
set +f
set -- tests/cli/*.yml
set -f
for file; do
    sed -n 's/^# expect: //p' "$file" | sed '/^ \|^hint: /!s/^/mxtrain: error: /' >"$actual/want"
    args=$(sed -n 's/^# args: //p' "$file")
    vars=$(sed -n 's/^# env: //p' "$file")
    want=$(sed -n 's/^# exit: //p' "$file")
    want=${want:-2}
    # shellcheck disable=SC2086
    env M_BASE_OUTPUT_DIRECTORY="$actual/runs" $vars "$binary" "$file" $args >"$actual/out" 2>"$actual/err" </dev/null
    code=$?
    if [ $code -eq "$want" ] && [ ! -s "$actual/out" ] && [ -s "$actual/want" ] &&
        cmp -s "$actual/want" "$actual/err"; then
        passed=$((passed + 1))
        continue
    fi
    failed=$((failed + 1))
    echo "FAIL $file (exit $code, wanted $want)"
    [ ! -s "$actual/out" ] || sed 's/^/  stdout: /' "$actual/out"
    diff -u --label expected --label actual "$actual/want" "$actual/err"
done
if tests/cli/install.sh "$binary"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]

# suite.sh — what suites of shell share, which run from the top folder and source this: a folder that
# goes with the suite, and counts of what passed and failed.
# shellcheck shell=sh
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# is NAME GOT WANTED
is() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL %s\n  wanted %s\n  got    %s\n' "$1" "$3" "$2"
    fi
}

# finish — the last line, which tests/check.sh reads; false if anything failed.
finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
}

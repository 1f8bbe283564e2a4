#!/bin/sh
# hardened.sh BINARY... — that the tools were built to end at an error in memory: full RELRO, stack
# canaries, checked calls, landing pads for CET, no search path for libraries.
set -u
passed=0 failed=0

# has BINARY PATTERN COMMAND... — the command's output has a line like that.
has() {
    binary=$1 pattern=$2
    shift 2
    "$@" "$binary" 2>/dev/null | grep -Eq "$pattern"
}

# wants WHAT BINARY PATTERN COMMAND... — it must be there.
wants() {
    what=$1
    shift
    if has "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $1: no $what"
    fi
}

for tool; do
    wants "RELRO" "$tool" GNU_RELRO readelf -lW
    wants "binding at the start" "$tool" "BIND_NOW|NOW" readelf -dW
    wants "stack canaries" "$tool" __stack_chk_fail readelf --dyn-syms -W
    wants "checked calls" "$tool" "__[a-z]+_chk" readelf --dyn-syms -W
    wants "position independence" "$tool" "Type: +DYN" readelf -hW
    [ "$(uname -m)" != x86_64 ] ||
        wants "landing pads (CET)" "$tool" endbr64 objdump -d --disassemble=main
    if has "$tool" "RUNPATH|RPATH" readelf -dW; then
        failed=$((failed + 1))
        echo "FAIL $tool: a search path for libraries, and all are in the system's"
    else
        passed=$((passed + 1))
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]

#!/bin/sh
# hardened.sh BINARY... — that the tools were built to end at an error in memory: full RELRO, stack
# canaries, checked calls, landing pads for CET; and that a search path for libraries is in mxtrain alone.
set -u
failed=0

# wants WHAT BINARY PATTERN COMMAND... — the command's output has a line like that.
wants() {
    what=$1 binary=$2 pattern=$3
    shift 3
    "$@" "$binary" 2>/dev/null | grep -Eq "$pattern" && return
    failed=$((failed + 1))
    echo "FAIL $binary: no $what"
}

for tool; do
    wants "RELRO" "$tool" GNU_RELRO readelf -lW
    wants "binding at the start" "$tool" "BIND_NOW|NOW" readelf -dW
    wants "stack canaries" "$tool" __stack_chk_fail readelf --dyn-syms -W
    wants "checked calls" "$tool" "__[a-z]+_chk" readelf --dyn-syms -W
    wants "position independence" "$tool" "Type: +DYN" readelf -hW
    [ "$(uname -m)" != x86_64 ] ||
        wants "landing pads (CET)" "$tool" endbr64 objdump -d --disassemble=main
    case $tool in
    *mxtrain) ;;
    *)
        if readelf -dW "$tool" | grep -Eq "RUNPATH|RPATH"; then
            failed=$((failed + 1))
            echo "FAIL $tool: a search path for libraries that it does not need"
        fi
        ;;
    esac
done
[ $failed -eq 0 ] && echo "hardened: $# tools"

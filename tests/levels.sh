#!/bin/sh
# levels.sh BUILD JOBS — the tests of kernels and of programs, the goldens and resuming, at every level of processors below the machine's own, at which `make check` runs everything; and the products of AMX, emulated.
set -eu
build=$1 jobs=$2
here=$(dirname "$0")
# The message of a level that there is none of lists those of the machine, the highest last.
levels=$(MX_CPU='?' "$build/mxtrain" --plan 2>&1 | grep -o '"[a-z0-9_]*"' | tr -d '"' | sed '$d')
set --
for level in $levels; do
    for room in device run; do
        set -- "$@" "$level-$room: MX_CPU=$level $build/test_$room"
    done
    for suite in golden quantized "hugging face" checkpoints signals; do
        set -- "$@" "$level-${suite% *}: MX_CPU=$level CK_RUN_SUITE='$suite' MX_BIN=$build/mxtrain $build/test_train"
    done
done
# What AMX runs, with its instructions in C, for which the processor needs pairs of bfloat16.
if grep -q avx512_bf16 /proc/cpuinfo; then
    set -- "$@" "amx-device: MX_TILES_IN_C=1 CK_INCLUDE_TAGS=tiles $build/test_device"
fi
[ $# -gt 0 ] || { echo "0 passed, 0 failed"; exit 0; }
exec "$here/check.sh" "$build/check-levels" "$jobs" "$@"

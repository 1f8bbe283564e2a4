#!/bin/sh
# noise.sh BINARY... — how far results of the tests against golden trajectories move by themselves:
# runs these tests (BINARY is build/test_train) once as they are, then with every start moved by one
# bit up or down, on other numbers of threads, and with kernels of other processors, and writes the
# largest distance of each kind of figure from the first run to tests/golden/noise.tsv, which the
# tests read (tests/train/close.h).  MX_GOLDEN names the folder of all golden files: rows for those
# that are not in the repository come from there.  Takes a few minutes.  Run from the top folder.
set -u
binary=${1:-build/test_train}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export MX_NOISE="$work/first" MX_BIN="${MX_BIN:-build/mxtrain}"
mkdir "$MX_NOISE"

# run NAME VARIABLES... — all suites with golden trajectories; distances go to $work/all with the name.
# Tests that compare bits of a start fail when it has moved; figures are taken before that.
run() {
    name=$1
    shift
    for what in SUITE=golden "SUITE=hugging face" SUITE=post-training SUITE=preference SUITE=lora SUITE=quantized \
        "CASE=golden by command line"; do
        env "$@" "CK_RUN_$what" "$binary" >"$work/log" 2>&1
        grep -q '^[0-9]*%: Checks: [1-9]' "$work/log" || { echo "$name: $what did not run" >&2 && exit 1; }
    done
    [ ! -f "$MX_NOISE/distances" ] || awk -F '\t' -v OFS='\t' -v name="$name" '{ print $1, $2, $3, name, $4 }' \
        "$MX_NOISE/distances" >>"$work/all"
    rm -f "$MX_NOISE/distances"
    echo "$name: $(find "$MX_NOISE" -type f | wc -l) figures"
}

run first X=
for seed in 1 2 3 4 5 6 7 8; do run "start $seed" MX_NOISE_SEED=$seed; done
for threads in 1 2 3; do run "threads $threads" OMP_NUM_THREADS=$threads; done
for core in Nehalem Haswell SkylakeX; do run "OpenBLAS $core" OPENBLAS_CORETYPE=$core; done
for isa in SSE41 AVX2 AVX512_CORE; do run "oneDNN $isa" DNNL_MAX_CPU_ISA=$isa; done
run "AVX2" OPENBLAS_CORETYPE=Haswell DNNL_MAX_CPU_ISA=AVX2
for level in baseline avx2 avx512; do run "level $level" MX_CPU=$level; done
for provider in openblas onednn; do run "$provider" M_MATMUL_PROVIDER=$provider; done

{
    printf 'golden\tkind\tnoise\tmost of it by\tfigure\n'
    sort -t '	' -k 1,1 -k 2,2 -k 3,3gr "$work/all" |
        awk -F '\t' -v OFS='\t' '$1 FS $2 != last { last = $1 FS $2; $3 = sprintf("%.1e", $3); if ($3 > 0) print }'
} >tests/golden/noise.tsv
wc -l tests/golden/noise.tsv

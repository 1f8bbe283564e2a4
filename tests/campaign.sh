#!/bin/sh
# campaign.sh FOLDER [PERCENT] — what docs/RELIABILITY.md tells: crashes, power losses and damage to
# checkpoints, and damaged files for every reader, as a table with counts, the commit and the time.  FOLDER is where everything was built.  PERCENT of the inputs of readers, 100 unless said.
# Exits with 1 if anything failed.  Run from the top folder.
set -u
built=$(cd "$1" && pwd) percent=${2:-100}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

# row NAME WHAT LOG CODE SECONDS
row() {
    result=passed
    [ "$4" -eq 0 ] || { result="**failed**" && failed=1 && tail -n 20 "$3" >&2; }
    printf '| %s | %s | %s | %d s |\n' "$1" "$2" "$result" "$5"
}

# fault TEST NAME — a test of tests/fault/run.sh in its long form; what it tells of itself is the count.
fault() {
    started=$(date +%s)
    tests/fault/run.sh "$built" long "$1" >"$work/log" 2>&1
    code=$?
    row "$2" "$(grep -v '^FAIL\|^  \|passed, ' "$work/log" | sed 's/^[^:]*: //' | paste -sd ';' | sed 's/;/; /g')" \
        "$work/log" $code $(($(date +%s) - started))
}

# reader NAME TARGET FILES... — mutants of files that a fuzz target reads.
reader() {
    name=$1 target=$2 n=$((10000 * percent / 100)) started=$(date +%s)
    shift 2
    "$built/fuzz_$target" --mutants "$n" "$@" >"$work/log" 2>&1
    row "$name" "$n files" "$work/log" $? $(($(date +%s) - started))
}

# hdf5 — the tools and HDF5 files that nobody vouches for.
hdf5() {
    started=$(date +%s) n=$((5000 * percent / 100))
    MX_MUTANTS=$n CK_RUN_SUITE=ckpt/hostile CK_RUN_CASE="files of others" "$built/test_ckpt" >"$work/log" 2>&1
    row "HDF5: mxconvert, mxcompare" "$((2 * n)) files, $((4 * n)) runs" "$work/log" $? $(($(date +%s) - started))
}

echo "$(date -u +%Y-%m-%d), commit $(git describe --always --abbrev=12 --exclude='*' --dirty=+changes):"
echo
echo '| what | how many | result | time |'
echo '|---|---|---|---|'
fault kills 'a run killed at any moment'
fault failpoints 'a run killed at named places of a save'
fault power 'power lost during saves'
fault damage 'bits of checkpoints flipped, files cut short'
fault soak 'a run killed about every minute, SOAK_SECONDS long'
c=tests/fuzz/corpus
reader safetensors tensors $c/tensors/safetensors*
reader "torch.save: zip and pickle" tensors $c/tensors/torch* $c/tensors/zip*
reader "pickles alone" tensors $c/tensors/pickle*
reader tokenizers tokenizer $c/tokenizer
reader "chat templates" template $c/template/*.jinja $c/template/features* $c/template/error*
reader PNG picture $c/picture/*.png
reader JPEG picture $c/picture/*.jpg
reader Sounds sound $c/sound
reader "JSON Lines" jsonl $c/jsonl
reader Parquet records $c/records/parquet*
reader Arrow records $c/records/arrow*
reader TFRecord records $c/records/tfrecord* $c/records/example*
reader "ArrayRecord" records $c/records/array_record $c/records/chunk*
reader JSON json $c/json
reader YAML config_yaml $c/config_yaml
reader "HTTP, as it comes" http $c/http
reader "bodies of requests" request $c/request
reader "JSON schemas" schema $c/schema
hdf5
exit $failed

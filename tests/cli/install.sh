#!/bin/sh
# install.sh BINARY — what make install puts below a prefix works from anywhere, also after the prefix
# was moved, as the sources do, and make uninstall takes away all of it and nothing else.  Run from the top folder.
set -u
build=$(dirname "$1")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

complain() {
    failed=$((failed + 1))
    echo "FAIL install: $1"
    sed 's/^/  /' "$work/log"
}

# works WORDS... — the trainer does it in a folder that has nothing.
works() {
    (cd "$work/empty" && "$trainer" "$@") >"$work/log" 2>&1 </dev/null || complain "$*: exit $?"
}

mkdir "$work/empty" "$work/elsewhere"
make -s install B="$build" DESTDIR="$work" PREFIX=/usr >"$work/log" 2>&1 || complain "make install: exit $?"
mv "$work/usr" "$work/elsewhere/prefix"
prefix=$work/elsewhere/prefix

trainer=$PWD/$1
works --check steps=1
works --check recipes/sft.yml
trainer=$prefix/bin/mxtrain
works --plan
grep -q 'model default' "$work/log" || complain "no plan of the default model"
works --plan model_name=qwen3-0.6b
for recipe in configs/recipes/*.yml; do
    without=load_parameters_path= # what other recipes make is not there
    case $recipe in */distill.yml) without=teacher_overrides.load_parameters_path=gs://elsewhere/teacher ;; esac
    works --plan "$recipe" "$without"
    works --plan "${recipe#configs/}" "$without"
done
works configs/recipes/sft.yml steps=1 eval_interval=-1 base_emb_dim=32 base_mlp_dim=32 base_num_decoder_layers=1
grep -q "training data: hf: $prefix/share/mxtrain/posttrain/" "$work/log" || complain "not the installed data"
works configs/recipes/lora.yml load_parameters_path=maxtext_output/sft steps=1 eval_interval=-1 \
    base_emb_dim=32 base_mlp_dim=32 base_num_decoder_layers=1
for file in LICENSE README.md docs/CONFIG.md; do
    [ -s "$prefix/share/doc/mxtrain/$file" ] || complain "no $file"
done

"$prefix/bin/mxrun" -n 2 --dry-run steps=1 >"$work/log" 2>&1 || complain "mxrun: exit $?"
grep -q "mpirun .* -n 2 .*$prefix/bin/mxtrain steps=1\$" "$work/log" || complain "mxrun does not start the program beside it"

for file in man/man1/mxconvert.1 man/man1/mxrun.1 man/man5/base.yml.5 bash-completion/completions/mxtrain bash-completion/completions/mxrun; do
    [ -s "$prefix/share/$file" ] || complain "no $file"
done

mkdir -p "$prefix/share/mxtrain/configs/models"
: >"$prefix/share/mxtrain/configs/models/mine.yml"
make -s uninstall PREFIX="$prefix" >"$work/log" 2>&1 || complain "make uninstall: exit $?"
find "$prefix" -type f >"$work/log"
[ "$(cat "$work/log")" = "$prefix/share/mxtrain/configs/models/mine.yml" ] || complain "what is left is not what make did not install"

[ $failed -eq 0 ]

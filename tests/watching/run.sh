#!/bin/sh
# run.sh MXTRAIN — what people look at: event files of TensorBoard, CSV files, the list of runs and the page about
# them. They are read by Python, which the trainer does not need: without it nothing here is tested, and that is said.
set -u
mxtrain=$1
here=$(dirname "$0")
passed=0 failed=0
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
python=${PYTHON:-python3}
"$python" -c '' 2>/dev/null || { echo "python3 is not here, NOT TESTED: event files, CSV files, reports" && exit 0; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

tiny="configs/base.yml base_emb_dim=16 base_num_query_heads=2 base_num_kv_heads=2 head_dim=8 base_mlp_dim=16
    base_num_decoder_layers=1 max_target_length=32 per_device_batch_size=2 learning_rate_schedule_steps=40
    eval_steps=1 checkpoint_period=5 log_config=false base_output_directory=$work"

pass() { passed=$((passed + 1)); }
complain() { # complain WHAT [FILE with more]
    failed=$((failed + 1))
    echo "FAILED: $1"
    [ $# -lt 2 ] || tail -n 20 "$2"
}

# train CODE WORDS... — a run that must end with this code.
train() {
    want=$1
    shift
    # shellcheck disable=SC2086
    "$mxtrain" $tiny "$@" >"$work/log" 2>&1
    code=$?
    [ $code -eq "$want" ] && return
    complain "mxtrain $*: exit $code, not $want" "$work/log"
    return 1
}

events() { # events RUN — they say what its metrics say
    if "$python" "$here/events.py" "$work/$1" >"$work/said" 2>&1; then
        pass
        sed "s/^/$1: /" "$work/said"
    else
        complain "event files of $1" "$work/said"
    fi
}

# ---- event files

one_run() {
    train 0 run_name=one steps=8 eval_interval=3 || return
    events one
    grep -q "To see full metrics 'tensorboard --logdir=$work/one/tensorboard'" "$work/log" || complain "no hint at TensorBoard"
}

# Killed after steps that were not saved: they are made again, and stand there once.
resumed() {
    # shellcheck disable=SC2086
    { MX_FAILPOINT=save.before_rename:3 "$mxtrain" $tiny run_name=again steps=18 log_period=1 >"$work/log" 2>&1; } 2>/dev/null
    code=$?
    [ $code -eq 137 ] || complain "no kill: exit $code" "$work/log"
    train 0 run_name=again steps=18 log_period=1 && train 0 run_name=again steps=22 log_period=1 || return
    [ "$(find "$work/again/tensorboard" -type f | wc -l)" -eq 3 ] && pass || complain "not a file for each start"
    events again
}

# A run anew in the same folder: what was there counts no more.
anew() {
    train 0 run_name=anew steps=4 enable_checkpointing=false && train 0 run_name=anew steps=3 enable_checkpointing=false || return
    events anew
}

switched_off() {
    train 0 run_name=off steps=2 enable_tensorboard=false || return
    [ -e "$work/off/tensorboard" ] && complain "event files though enable_tensorboard=false" || pass
}

# What cannot be written ends a run before its first step, as for metrics_file.
unwritable() {
    mkdir -p "$work/barred" && : >"$work/barred/tensorboard"
    train 73 run_name=barred steps=2 || return
    grep -q "barred/tensorboard" "$work/log" && ! grep -q "completed step" "$work/log" && pass || complain "a file for a folder" "$work/log"
}

# Of several ranks the first writes, alone.
ranks() {
    command -v mpirun >/dev/null || { echo "mpirun is not here, NOT TESTED: events of ranks" && return; }
    # shellcheck disable=SC2086
    ASAN_OPTIONS=detect_leaks=0 mpirun --allow-run-as-root --oversubscribe --bind-to none -mca mpi_yield_when_idle 1 -n 2 "$mxtrain" $tiny \
        run_name=ranks steps=4 eval_interval=2 ici_data_parallelism=2 >"$work/log" 2>&1 || complain "two ranks" "$work/log"
    [ "$(find "$work/ranks/tensorboard" -type f | wc -l)" -eq 1 ] && pass || complain "more than one rank writes events"
    events ranks
}

# ---- the profile

# Every op of a step, the dearest first, beside rates of the machine; shares are of all seconds.
profile() {
    train 0 run_name=profile steps=3 --profile || return
    sed -n '/^op  *seconds/,/^peak/p' "$work/log" >"$work/table"
    awk 'NR == 1 { next }
         /^peak, measured now: products [0-9.]+ GFLOP.s in float32, [0-9.]+ in bfloat16; memory [0-9.]+ GB.s$/ { peak++; next }
         $NF != "computing" && $NF != "memory" && $3 > 0 && $2 > 0 { bad = bad " " $1 }
         $2 > last && NR > 2 { bad = bad " order:" $1 }
         { last = $2; share += $4; n++; if ($1 == "dot" && NF == 8) dots++ }
         END { if (bad || !peak || n < 8 || !dots || share < 99 || share > 101) { print bad, peak, n, dots, share; exit 1 } }' \
        "$work/table" >"$work/said" && pass || { cat "$work/said" && complain "--profile" "$work/table"; }
    grep -q '^profile_ops: true' "$work/profile/config.yml" && pass || complain "--profile is no key"
}

# ---- metrics_file as CSV

rows() { # rows RUN — of its CSV file, beside its own lines
    if "$python" "$here/csv_file.py" "$work/$1.csv" "$work/$1/metrics.jsonl" >"$work/said" 2>&1; then
        pass
    else
        complain "CSV file of $1" "$work/said"
    fi
}

# refused CODE TEXT WORDS... — a run that ends before its first step, with this text.
refused() {
    want=$1 text=$2
    shift 2
    train "$want" "$@" || return
    grep -qF "$text" "$work/log" && ! grep -q "completed step" "$work/log" && pass || complain "no \"$text\"" "$work/log"
}

csv() {
    train 0 run_name='a "b", c' steps=7 eval_interval=3 "metrics_file=$work/a \"b\", c.csv" && rows 'a "b", c'
    # shellcheck disable=SC2086
    { MX_FAILPOINT=save.before_rename:3 "$mxtrain" $tiny run_name=cut steps=18 eval_interval=4 log_period=1 \
        "metrics_file=$work/cut.csv" >"$work/log" 2>&1; } 2>/dev/null
    printf '12,3.' >>"$work/cut.csv" # a line cut off
    train 0 run_name=cut steps=18 eval_interval=4 "metrics_file=$work/cut.csv" && rows cut
    train 0 --eval run_name=cut steps=18 eval_interval=4 "metrics_file=$work/cut.csv" &&
        [ "$(grep -c '^17,' "$work/cut.csv")" -eq 3 ] && pass || complain "evaluation adds no row"
    refused 2 "cut.csv\" has the metrics of run \"cut\"" run_name=other steps=2 "metrics_file=$work/cut.csv"
    sed -i '1s/learning.loss/loss/' "$work/cut.csv"
    refused 2 "has other columns than this run writes" run_name=cut steps=20 eval_interval=4 "metrics_file=$work/cut.csv"
    echo "name,age" >"$work/people.csv"
    refused 2 "exists and is no file of metrics" run_name=other steps=2 "metrics_file=$work/people.csv"
}

# ---- the list of runs

state() { # state RUN WORDS... — its line has them
    run=$1
    shift
    "$mxtrain" --runs "$work" >"$work/said" 2>&1 || complain "--runs" "$work/said"
    grep -E "^$run +$*" "$work/said" >/dev/null && pass || complain "not listed: $run $*" "$work/said"
}

runs() {
    # shellcheck disable=SC2086
    "$mxtrain" $tiny run_name=runs steps=1000000 log_period=1 >"$work/log" 2>&1 &
    pid=$!
    while ! grep -q 'step: 20,' "$work/log" && kill -0 $pid; do sleep 0.02; done
    state runs "running +[0-9]+ of 1000000 .* process $pid on "
    kill -TERM $pid && wait $pid
    state runs "stopped .* received SIGTERM"
    state one "finished +8 of 8 "
    state barred "failed .* could not create"
    { MX_FAILPOINT=save.before_rename:3 "$mxtrain" $tiny run_name=killed steps=18 >"$work/log" 2>&1; } 2>/dev/null
    state killed "broken off +[0-9]+ of 18 "
    "$mxtrain" --runs "$work" --json - >"$work/list.json" 2>"$work/said" &&
        "$python" -c 'import json, sys; assert {"one", "killed"} <= {r["run"] for r in json.load(sys.stdin)["runs"]}' <"$work/list.json" &&
        pass || complain "--runs --json" "$work/said"
    "$mxtrain" --runs "$work" steps=3 >"$work/said" 2>&1 && complain "--runs takes a config"
    "$mxtrain" --runs "$work/none" >"$work/said" 2>&1
    [ $? -eq 65 ] && pass || complain "--runs of nothing" "$work/said"
}

# ---- the report

page() { # page NAME RUN... — of runs below the folder
    name=$1
    shift
    n=$#
    while [ $n -gt 0 ]; do # each RUN becomes a path
        set -- "$@" "$work/$1"
        shift
        n=$((n - 1))
    done
    "$mxtrain" --report "$@" -o "$work/$name.html" >"$work/said" 2>&1 || complain "--report of $name" "$work/said"
    if "$python" "$here/page.py" --browser "$work/$name.html" "$@" >"$work/said" 2>&1; then
        pass
        sed "s/^/page of $name: /" "$work/said"
    else
        complain "page of $name" "$work/said"
    fi
}

report() {
    hostile=$("$python" "$here/make_runs.py" "$work") || complain "no runs made"
    page one one
    page several one again "a \"b\", c" off
    page long long
    grep -q '99\.5[,0-9]' "$work/long.html" && pass || complain "the peak of one step is lost"
    grep -q 'learning/loss is not finite at 1 of 100000 steps' "$work/long.html" && pass || complain "a NaN is not told"
    page hostile "$hostile" one
    # shellcheck disable=SC2086
    "$mxtrain" $tiny run_name=going steps=1000000 log_period=1 >"$work/log" 2>&1 &
    pid=$!
    while ! grep -q 'step: 20,' "$work/log" && kill -0 $pid; do sleep 0.02; done
    "$mxtrain" --report "$work/going" -o "$work/going.html" && grep -q '<td>running</td>' "$work/going.html" && pass || complain "a running run"
    kill -TERM $pid && wait $pid
    "$mxtrain" --report "$work" "$work/none" -o "$work/x.html" >"$work/said" 2>&1
    [ $? -eq 65 ] && [ "$(grep -c 'is no folder of a run' "$work/said")" -eq 2 ] && [ ! -e "$work/x.html" ] && pass || complain "no runs" "$work/said"
    train 0 run_name=shown steps=3 report=true
    "$python" "$here/page.py" "$work/shown/report.html" "$work/shown" >"$work/said" 2>&1 &&
        grep -q '<td>finished</td>' "$work/shown/report.html" && pass || complain "report=true" "$work/said"
    printf '"Once <b>"\n"Twice"\n' >"$work/prompts"
    train 0 run_name=sampled steps=9 sample_prompts="$work/prompts" sample_interval=1 sample_max_tokens=4 report=true
    grep -c 'sample [01] after step' "$work/log" >"$work/said"
    [ "$(cat "$work/said")" -eq 18 ] && [ "$(grep -c '<tr><td class="number">[01]</td><td class="number">[04-8]</td><td>.*-&#62;' "$work/sampled/report.html")" -eq 12 ] &&
        grep -q '<td class="number">0</td><td>&#34;Once &#60;b&#62;&#34; -&#62; &#34;' "$work/sampled/report.html" &&
        pass || complain "samples in a report" "$work/said"
    [ -e "$work/one/report.html" ] && complain "a report that nobody wants" || pass
    "$mxtrain" --report "$work/one" >"$work/said" 2>&1
    [ $? -eq 2 ] && pass || complain "--report without -o" "$work/said"
}

# A picture of the memory, one of the mesh, and one of every parameter.
plan_page() {
    # shellcheck disable=SC2086
    "$mxtrain" $tiny base_num_decoder_layers=3 scan_layers=false num_devices=8 ici_fsdp_parallelism=4 ici_tensor_parallelism=2 \
        --html "$work/plan.html" --dump-sharding "$work/cuts" >"$work/said" 2>&1 || complain "--html of a plan" "$work/said"
    wanted=$(sed 1d "$work/cuts" | cut -f 1 | sed 's/layers_[0-9]*/layers/' | sort -u | wc -l)
    "$python" "$here/page.py" --still "$work/plan.html" >"$work/said" 2>&1 && tail -n 1 "$work/said" | grep -q "^$((wanted + 2)) pictures" &&
        pass || complain "the page of a plan: wanted $wanted parameters" "$work/said"
    grep -q 'dim 0 vocab: 2 parts over tensor; dim 1 embed_vocab: 4 parts over fsdp</td><td class="shape">258x16</td><td class="shape">129x4</td><td class="number">1</td>' \
        "$work/plan.html" && pass || complain "the cut of the embedding" "$work/said"
    "$mxtrain" $tiny --plan --search --device cpu --html "$work/no.html" >"$work/said" 2>&1
    [ $? -eq 2 ] && [ ! -e "$work/no.html" ] && pass || complain "--search --html" "$work/said"
}

# Of two runs whose loss differs: a row of every array that does.
compared() {
    train 0 run_name=other steps=8 eval_interval=3 learning_rate=0.5 || return
    mxcompare=$(dirname "$mxtrain")/mxcompare
    "$mxcompare" "$work/one" "$work/other" --top 0 --html "$work/c.html" >"$work/said" 2>&1
    [ $? -eq 1 ] && [ "$(grep -c '^value: ' "$work/said")" -gt 5 ] &&
        [ "$(grep -c '<td><svg' "$work/c.html")" -eq "$(grep -c '^value: ' "$work/said")" ] && pass || complain "mxcompare --html" "$work/said"
    "$python" "$here/page.py" --still "$work/c.html" >"$work/said" 2>&1 && pass || complain "the page of a comparison" "$work/said"
    "$mxcompare" --logits "$work/one" "$work/other" --html "$work/no.html" >"$work/said" 2>&1
    [ $? -eq 2 ] && [ ! -e "$work/no.html" ] && pass || complain "--logits --html" "$work/said"
}

one_run
resumed
anew
switched_off
unwritable
ranks
profile
csv
runs
plan_page
compared
report
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]

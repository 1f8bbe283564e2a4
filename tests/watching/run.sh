#!/bin/sh
# run.sh MXTRAIN — what people look at: event files of TensorBoard. They are read by Python, which the
# trainer does not need: without it nothing here is tested, and that is said.
set -u
mxtrain=$1
here=$(dirname "$0")
passed=0 failed=0
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
python=${PYTHON:-python3}
"$python" -c '' 2>/dev/null || { echo "python3 is not here, NOT TESTED: event files" && exit 0; }
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

one_run
resumed
anew
switched_off
unwritable
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]

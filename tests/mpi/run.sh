#!/bin/sh
# run.sh BINARY COMPARE [long] — runs of several ranks seen from outside: ranks that are killed or
# hang, signals, logs of every rank, log-probabilities made by one mesh for another.  COMPARE is
# mxcompare.  The short form is for make check; the long one kills at 20 moments.  Run from the top
# folder.
set -u
binary=$1 compare=$2 form=${3:-short}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
checks=0 failed=0
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 ASAN_OPTIONS=detect_leaks=0
n_ranks=4
mesh="ici_data_parallelism=2 ici_fsdp_parallelism=2"
model="base_emb_dim=32 base_num_decoder_layers=2 base_num_query_heads=2 base_num_kv_heads=2
head_dim=16 base_mlp_dim=64 max_target_length=32 eval_interval=-1 log_config=false"

complain() {
    failed=$((failed + 1))
    echo "FAIL $1"
    [ -z "${2:-}" ] || grep -v '^completed' "$2/log" | tail -n 12 | sed 's/^/  /'
}

# passed N TEXT — tells of a test that is over and made N checks.
passed() {
    checks=$((checks + $1))
    echo "$2"
}

# finish_suite — the closing line; as exit code whether all is well.
finish_suite() {
    [ $failed -le $checks ] || checks=$failed
    echo "$((checks - failed)) passed, $failed failed"
    [ $failed -eq 0 ] && [ "$checks" -gt 0 ]
}

# Seconds that the launcher gives ranks that it has told to stop; a second if there is nothing. It
# waits that long itself, even if they are gone before.
patience=

# launch N DIR KEYS... — the run of a test; output to DIR/log.
launch() {
    n=$1 dir=$2
    shift 2
    mkdir -p "$dir"
    # shellcheck disable=SC2086
    exec mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 \
        ${patience:+--mca odls_base_sigkill_timeout $patience} -n "$n" "$binary" $model base_output_directory="$dir" \
        run_name=x "$@" >>"$dir/log" 2>&1 </dev/null
}

# ranks N DIR KEYS... — the same to its end.
ranks() { (launch "$@"); }

# pid_of MPIRUN RANK — the process of a rank; nothing if it is not there.
pid_of() {
    for status in /proc/[0-9]*/status; do
        p=${status#/proc/} p=${p%/status}
        grep -qs "^PPid:[[:space:]]*$1\$" "$status" &&
            tr '\0' '\n' 2>/dev/null <"/proc/$p/environ" | grep -qx "OMPI_COMM_WORLD_RANK=$2" && echo "$p"
    done
}

# await MPIRUN LOG TEXT — until the log says so or the run has ended.
await() {
    while ! grep -q "$3" "$2" 2>/dev/null && kill -0 "$1" 2>/dev/null; do sleep 0.02; done
}

# random N — 0 ... N-1.
random() { od -An -N4 -tu4 /dev/urandom | awk -v n="$1" '{ print $1 % n }'; }

# is_alive PROCESS — it is there and has not ended.
is_alive() { grep -qs '^State:[[:space:]]*[A-Y]' "/proc/$1/status"; }

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# same NAME DIR — DIR ends as the undisturbed run does.
same() {
    "$compare" "$work/reference/x" "$2/x" >"$work/difference" 2>&1 ||
        complain "$1: the final state differs from that of the undisturbed run: $(tail -n 3 "$work/difference")" "$2"
}

# ---- kill -9 of one rank

# kill_at WHEN RANK — starts the run of $work/kill and kills a rank when the log says WHEN, or after
# so many milliseconds. Says what became of it: "killed" or "ended".
kill_at() {
    mkdir -p "$work/kill"
    : >"$work/kill/log"
    case $1 in *patiently) patience=20 limit=15 ;; *) patience= limit=60 ;; esac
    # shellcheck disable=SC2086
    launch $n_ranks "$work/kill" $keys &
    run=$!
    while [ -z "$(pid_of $run $((n_ranks - 1)))" ] && kill -0 $run 2>/dev/null; do sleep 0.02; done
    all=$(for r in $(seq 0 $((n_ranks - 1))); do pid_of $run "$r"; done)
    case $1 in
    *[!0-9]*) await $run "$work/kill/log" "${1%patiently}" ;;
    *) sleep "$(awk -v ms="$1" 'BEGIN { print ms / 1000 }')" ;;
    esac
    victim=$(pid_of $run "$2")
    started=$(now_ms)
    [ -z "$victim" ] || kill -9 "$victim" 2>/dev/null
    for p in $all; do
        while is_alive "$p" && [ $(($(now_ms) - started)) -lt 90000 ]; do sleep 0.02; done
    done
    took=$(($(now_ms) - started))
    wait $run 2>/dev/null
    code=$?
    [ -n "$patience" ] || took=$(($(now_ms) - started))
    if [ "$code" = 0 ]; then
        echo ended
        return
    fi
    [ $took -le ${limit}000 ] || complain "kill at \"$1\": the ranks were gone after $took ms" "$work/kill"
    grep -q "rank $2 .*signal 9\|signal 9" "$work/kill/log" ||
        complain "kill at \"$1\": nobody says that rank $2 was killed" "$work/kill"
    echo "killed $took"
}

# note KILLED — what kill_at said: complaints, and how long it took.
note() {
    case $1 in
    *FAIL*)
        failed=$((failed + 1))
        echo "$1" | grep -v '^killed'
        ;;
    esac
    case $1 in
    *killed*)
        n=$((n + 1)) ms=${1##*killed }
        [ "$ms" -le $slowest ] || slowest=$ms
        ;;
    esac
}

# kills MOMENTS — every run goes on where the killed one was; one that ends first is made again.
kills() {
    keys="$mesh per_device_batch_size=1 steps=120 checkpoint_period=5 learning_rate_schedule_steps=120"
    # shellcheck disable=SC2086
    ranks $n_ranks "$work/reference" $keys || complain "undisturbed run" "$work/reference"
    slowest=0 n=0
    while read -r rank when; do
        for try in 1 2 3 4 5 6 7 8 9 10; do
            result=$(kill_at "$when" "$rank" 2>/dev/null)
            note "$result"
            [ "$result" = ended ] || break
            same "kill" "$work/kill"
            rm -rf "$work/kill"
            case $when in restoring*) kill_at "Saved a checkpoint" 0 >/dev/null 2>&1 ;; esac
            [ $try -lt 10 ] || complain "kill at \"$when\": the run always ends first"
        done
    done <"$1"
    # shellcheck disable=SC2086
    ranks $n_ranks "$work/kill" $keys || complain "the run does not go on after the kills" "$work/kill"
    same "after the kills" "$work/kill"
    passed "$n" "kill -9 of a rank: $n kills, all ranks gone after at most $slowest ms, the final state is the same"
}

# moments — a rank and when, a line each.
moments() {
    cat <<END
0 0
2 number parameters
1 No existing checkpoints
0 completed step: 1,
3 asynchronous checkpoint save
2 Saved a checkpoint
1 restoring from
1 completed step: 4, patiently
END
    [ "$form" = long ] || return
    cat <<END
1 0
3 training data
0 memory:
1 Saved a checkpoint
2 restoring from
2 completed step
0 asynchronous checkpoint save
END
    for i in 1 2 3 4 5 6 7; do echo "$((i % n_ranks)) $(random 3000)"; done
}

# ---- SIGTERM to the launcher

terms() {
    d=$work/term patience=15
    keys="$mesh per_device_batch_size=1 learning_rate_schedule_steps=100000 checkpoint_period=1000"
    # shellcheck disable=SC2086
    (launch $n_ranks "$d" $keys steps=100000) &
    run=$!
    await $run "$d/log" "completed step: 4,"
    kill -TERM $run
    wait $run
    code=$? patience=
    log=$d/x/run.log # what ranks say after a signal, the launcher may lose
    [ $code != 0 ] || complain "SIGTERM: exit 0" "$d"
    grep -q "Training stopped: received SIGTERM" "$log" || complain "SIGTERM: not told" "$d"
    last=$(grep -o 'completed step: [0-9]*' "$log" | tail -n 1 | grep -o '[0-9]*$')
    grep -q "Saved a checkpoint at step $last\.$" "$log" || complain "SIGTERM: step $last was not saved" "$d"
    # shellcheck disable=SC2086
    ranks $n_ranks "$d" $keys steps=$((last + 3)) || complain "SIGTERM: the run does not go on" "$d"
    grep -q "restoring from this run's directory step $last\$" "$log" ||
        complain "SIGTERM: the run does not go on from step $last" "$d"
    passed 1 "SIGTERM to the launcher: saved step $last, exit $code, the run went on from there"
}

# ---- a rank that hangs, and logs of every rank

hangs() {
    d=$work/hang
    # shellcheck disable=SC2086
    (launch 3 "$d" ici_data_parallelism=3 ici_fsdp_parallelism=1 per_device_batch_size=1 steps=1000000 \
        enable_checkpointing=false rank_logs=true watchdog_seconds=8) &
    run=$!
    await $run "$d/log" "completed step: 4,"
    kill -STOP "$(pid_of $run 1)"
    wait $run
    [ $? != 0 ] || complain "a rank that is stopped: exit 0" "$d"
    grep -q "rank [02] has waited .* for the other ranks in .*: ending the run;.* rank 1 hangs: it has not run for" \
        "$d/log" || complain "a rank that is stopped is not named" "$d"
    grep -q "^20..-..-..T..:..:..\....Z completed step: 3, " "$d/x/run.log" ||
        complain "run.log lacks steps" "$d"
    for r in 1 2; do
        grep -q "^20..-..-..T..:..:..\....Z rank $r: completed step: 3, " "$d/x/logs/rank_$r.log" ||
            complain "logs/rank_$r.log lacks its steps" "$d"
    done
    grep -q "hangs" "$d/x/run.log" "$d/x/logs/rank_2.log" || complain "the logs of ranks do not tell of the hanging one" "$d"

    d=$work/busy # the first rank opens a pipe that nobody reads
    mkdir -p "$d"
    mkfifo "$d/pipe"
    # shellcheck disable=SC2086
    ranks 2 "$d" ici_data_parallelism=2 ici_fsdp_parallelism=1 per_device_batch_size=1 steps=9 \
        enable_checkpointing=false watchdog_seconds=8 metrics_file="$d/pipe" && complain "a rank that waits elsewhere: exit 0" "$d"
    grep -q "rank 1 has waited .*; rank 0 hangs: it has " "$d/log" ||
        complain "a rank that waits elsewhere is not named" "$d"
    passed 2 "ranks that hang are named"

    # All are stopped longer than the watchdog's time, as by a scheduler that suspends a job: they go
    # on. Each once took the others' stop for one.
    d=$work/suspended
    (launch 3 "$d" ici_data_parallelism=3 ici_fsdp_parallelism=1 per_device_batch_size=1 steps=1000000 \
        enable_checkpointing=false watchdog_seconds=8) &
    run=$!
    await $run "$d/log" "completed step: 4,"
    all=$(for r in 0 1 2; do pid_of $run $r; done)
    # shellcheck disable=SC2086
    kill -STOP $all && sleep 10 && kill -CONT $all
    last=$(grep -c "completed step" "$d/x/run.log")
    await $run "$d/x/run.log" "completed step: $((last + 50)),"
    grep -q "ending the run" "$d/log" && complain "suspended ranks: ended" "$d"
    kill -0 $run 2>/dev/null || complain "suspended ranks: they do not go on" "$d"
    kill -TERM $run
    wait $run
    passed 1 "ranks go on after all were stopped"
}

# ---- log-probabilities of a reference made ahead

# refer NAME N KEYS... — losses of a run on preferences to $work/NAME.losses.
refer() {
    name=$1 n=$2 d=$work/$1
    shift 2
    ranks "$n" "$d" --config configs/recipes/dpo.yml $model "$@" metrics_file="$d/m.jsonl" steps=4 \
        max_target_length=96 learning_rate=0.001 eval_interval=2 eval_steps=2 gradient_accumulation_steps=2 ||
        { [ "$name" = stale ] || complain "reference, $name: exit $?" "$d"; }
    grep -o '"[a-z]*/[a-z_]*loss": *[-+.e0-9]*' "$d/m.jsonl" 2>/dev/null | grep 'learning/loss\|avg_loss' |
        grep -o '[-+.e0-9]*$' >"$work/$name.losses"
}

# close NAME — its losses are those of the run with two models, but for the order of sums.
close() {
    paste "$work/copy.losses" "$work/$1.losses" |
        awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-12 { bad = 1 } END { exit bad || NR < 6 }' ||
        complain "reference, $1: other losses: $(paste -s -d ' ' "$work/$1.losses")" "$work/$1"
}

references() {
    refer copy 1 per_device_batch_size=8 dpo.reference=copy
    refer ahead 4 per_device_batch_size=2 dpo.reference=precomputed ici_fsdp_parallelism=2 ici_context_parallelism=2
    close ahead
    made=$work/ahead/x/reference
    refer one 1 per_device_batch_size=8 dpo.reference=precomputed dpo.reference_logps="$made"
    refer two 2 per_device_batch_size=4 dpo.reference=precomputed dpo.reference_logps="$made" \
        ici_fsdp_parallelism=1 ici_tensor_parallelism=2
    for name in one two; do
        close $name
        [ ! -d "$work/$name/x/reference" ] || complain "reference, $name: made again" "$work/$name"
    done
    refer stale 2 per_device_batch_size=4 dpo.reference=precomputed dpo.reference_logps="$made" init_weights_seed=1
    [ "$(grep -c "are of another policy: fingerprint " "$work/stale/log")" = 1 ] ||
        complain "reference: stale: not told once" "$work/stale"
    passed 4 "log-probabilities that one mesh made serve others"
}

# learn NAME N KEYS... — losses of a student to $work/NAME.losses.
learn() {
    name=$1 n=$2 d=$work/$1
    shift 2
    ranks "$n" "$d" --config configs/base.yml base_num_decoder_layers=1 distill_temperature=2 steps=4 \
        "$@" metrics_file="$d/m.jsonl" || complain "a teacher's logits, $name: exit $?" "$d"
    grep -o '"learning/loss": *[-+.e0-9]*' "$d/m.jsonl" 2>/dev/null | grep -o '[-+.e0-9]*$' >"$work/$name.losses"
}

# The logits that one mesh made teach the same on another.
offline() {
    made=$work/offline_logits
    ranks 1 "$work/master" --config configs/base.yml steps=2 || complain "a teacher: exit $?" "$work/master"
    of_teacher=$(printf 'teacher_overrides.%s ' $(echo $model | tr ' ' '\n' | grep '^base\|^head') \
        load_parameters_path="$work/master/x")
    learn beside 1 per_device_batch_size=8 distill.top_k=40 $of_teacher offline_data_dir="$work/other_logits"
    learn made 4 per_device_batch_size=2 distill.top_k=40 $of_teacher offline_data_dir="$made" \
        ici_fsdp_parallelism=2 ici_context_parallelism=2 gradient_accumulation_steps=1
    learn taught 2 per_device_batch_size=4 distill.top_k=40 offline_data_dir="$made" ici_fsdp_parallelism=1 \
        ici_tensor_parallelism=2
    for name in made taught; do
        paste "$work/beside.losses" "$work/$name.losses" |
            awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-12 { bad = 1 } END { exit bad || NR != 4 }' ||
            complain "a teacher's logits, $name: other losses: $(paste -s -d ' ' "$work/$name.losses")" "$work/$name"
    done
    passed 3 "a teacher's logits that one mesh made teach on others"
}

# ---- replies and tasks while ranks train

# ask NAME N KEYS... — what a run says and how it does on tasks, to $work/NAME.said: numbers to three digits.
ask() {
    name=$1 n=$2 d=$work/$1
    shift 2
    ranks "$n" "$d" --config configs/base.yml $model "$@" steps=3 eval_interval=2 eval_steps=1 max_target_length=64 \
        sample_prompts="$work/prompts" sample_max_tokens=6 eval_tasks="[$work/choices.jsonl,$work/texts.jsonl]" ||
        complain "questions, $name: exit $?" "$d"
    grep -o 'sample [01] after.*\|task .*' "$d/log" | sed 's/\([0-9]\.[0-9][0-9]\)[0-9]*/\1/g' >"$work/$name.said"
}

questions() {
    printf '"To be"\n"or not"\n' >"$work/prompts"
    printf '{"query":"To be or not to","choices":["be","see"],"gold":0}\n' >"$work/choices.jsonl"
    printf '{"text":"Whether tis nobler in the mind to suffer the slings and arrows of outrageous fortune, or to take arms"}\n' >"$work/texts.jsonl"
    ask asked_by_one 1 per_device_batch_size=4
    ask asked_fsdp 2 per_device_batch_size=2 ici_fsdp_parallelism=2
    ask asked_tensor 2 per_device_batch_size=2 ici_fsdp_parallelism=1 ici_tensor_parallelism=2
    [ "$(wc -l <"$work/asked_by_one.said")" = 6 ] || complain "questions: not as many as are due" "$work/asked_by_one"
    for name in asked_fsdp asked_tensor; do
        cmp -s "$work/asked_by_one.said" "$work/$name.said" ||
            complain "questions, $name: $(diff "$work/asked_by_one.said" "$work/$name.said" | head -4)" "$work/$name"
    done
    passed 4 "replies and tasks of ranks are those of one"
}

# ---- tokens are made by one rank, for all

keeps() {
    for name in made kept; do
        d=$work/$name
        ranks 2 "$d" per_device_batch_size=2 steps=2 ici_data_parallelism=2 enable_checkpointing=false rank_logs=true profile_ops=true \
            token_cache="$([ $name = made ] || echo "$work/tokens")" metrics_file="$d/m.jsonl" || complain "tokens, $name: exit $?" "$d"
        grep -o '"learning/loss": *[-+.e0-9]*' "$d/m.jsonl" >"$d/losses"
    done
    [ -s "$work/kept/losses" ] && cmp -s "$work/made/losses" "$work/kept/losses" || complain "tokens that are kept: other losses" "$work/kept"
    grep -q 'tokens of 0 files were kept in .*, those of 1 are now' "$work/kept/x/run.log" || complain "rank 0 did not make tokens" "$work/kept"
    grep -q 'tokens of 1 file were kept in ' "$work/kept/x/logs/rank_1.log" || complain "rank 1 did not find tokens" "$work/kept"
    grep -q '^20.*[1-9][0-9]* exchanges, [0-9.]* MiB sent to other ranks\|^[1-9][0-9]* exchanges, [0-9.]* MiB sent to other ranks' \
        "$work/kept/x/run.log" || complain "profile_ops tells no exchanges" "$work/kept"
    passed 2 "tokens are made by one rank for all; a profile tells what ranks exchange"
}

# ---- ranks that were not started for the same

# differ NAME CODE TEXT WORDS0 WORDS1 — two ranks, each with words of its own (WORDS1 may begin with
# a launcher's option): the run ends with that code and says the text. Different configs trained on
# in silence; --help on one rank left the others waiting.
differ() {
    mkdir -p "$work/differ"
    rm -rf "$work/differ/out"
    # shellcheck disable=SC2086
    timeout 120 mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 \
        -n 1 "$top/$binary" $4 : -n 1 $6 "$top/$binary" $5 >"$work/differ/log" 2>&1 </dev/null
    code=$?
    [ $code -eq "$2" ] || complain "differ, $1: exit $code, wanted $2" "$work/differ"
    grep -qF -- "$3" "$work/differ/log" || complain "differ, $1: does not say: $3" "$work/differ"
    grep -q '^completed step' "$work/differ/log" && complain "differ, $1: trained" "$work/differ"
}

differences() {
    top=$(pwd)
    mkdir -p "$work/there"
    head -c 300000 share/mxtrain/corpus/shakespeare_train.txt >"$work/there/text.txt"
    head -c 300000 share/mxtrain/corpus/shakespeare_train.txt | tr a-m n-z >"$work/text.txt"
    alike="--config $top/configs/base.yml $(echo $model) base_output_directory=$work/differ/out run_name=x
    per_device_batch_size=2 steps=2 ici_data_parallelism=2 text_train_files=$top/share/mxtrain/corpus/shakespeare_train.txt"
    differ rate 2 "rank 1: <command line>: learning_rate: 0.01 here, rank 0 has 0.001" \
        "$alike learning_rate=1e-3" "$alike learning_rate=1e-2" ""
    differ length 2 "max_target_length: 64 here, rank 0 has 32" "$alike" "$alike max_target_length=64" ""
    differ seed 2 "data_shuffle_seed: 7 here, rank 0 has 0" "$alike" "$alike data_shuffle_seed=7" ""
    differ help 2 "rank 1 was started for --help or the like, rank 0 for training" "$alike" --help ""
    differ helped 2 "rank 1 was started for training, rank 0 for --help or the like" --help "$alike" ""
    differ plan 2 "rank 1 was started for a plan, rank 0 for training" "$alike" "$alike --plan" ""
    cp "$work/text.txt" "$work/differ/text.txt"
    cd "$work/differ" || exit 1 # where the launcher starts the first rank
    local_text="$alike text_train_files=text.txt"
    differ eval 2 "rank 1 was started for --eval, rank 0 for training" "$alike" "$alike --eval" ""
    differ data 65 'rank 1: training data: {"train": [{"path": "text.txt", "bytes": 300000,' "$local_text" "$local_text" "-wdir $work/there"
    # The same content is the same data, wherever each rank has it (bundled data of two prefixes).
    mkdir -p "$work/differ/a" "$work/there/b"
    cp "$work/text.txt" "$work/differ/a/one.txt"
    cp "$work/text.txt" "$work/there/b/one.txt"
    # shellcheck disable=SC2086
    timeout 120 mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 \
        -n 1 "$top/$binary" $alike text_train_files='?/one.txt' base_output_directory="$work/differ/alike" : \
        -n 1 -wdir "$work/there" "$top/$binary" $alike text_train_files='?/one.txt' \
        base_output_directory="$work/differ/alike" >"$work/differ/log" 2>&1 </dev/null ||
        complain "the same data in other places: exit $?" "$work/differ"
    cd "$top" || exit 1
    passed 9 "ranks that were not started for the same are told apart"
}

# A pipeline goes on with its own checkpoint to the same bits, and one process with it too, where
# layers are stacked again.
stages() {
    keys="base_num_decoder_layers=4 dataset_type=synthetic dtype=float32 checkpoint_period=2 learning_rate_schedule_steps=6"
    pipeline="$keys ici_pipeline_parallelism=2 ici_fsdp_parallelism=2 per_device_batch_size=2"
    # shellcheck disable=SC2086
    {
        ranks 4 "$work/whole" $pipeline steps=6 || complain "stages: exit $?" "$work/whole"
        ranks 4 "$work/parted" $pipeline steps=3 || complain "stages, first part: exit $?" "$work/parted"
        cp -r "$work/parted" "$work/alone"
        ranks 4 "$work/parted" $pipeline steps=6 || complain "stages, resumed: exit $?" "$work/parted"
        ranks 1 "$work/alone" $keys per_device_batch_size=8 steps=6 || complain "stages, alone: exit $?" "$work/alone"
    }
    "$compare" "$work/whole/x/checkpoints/5" "$work/parted/x/checkpoints/5" >"$work/difference" 2>&1 ||
        complain "stages: other bits after a resume"
    "$compare" --atol 1e-5 "$work/whole/x/checkpoints/5" "$work/alone/x/checkpoints/5" >"$work/difference" 2>&1 ||
        complain "stages: one process goes on otherwise: $(tail -n 2 "$work/difference")"
    passed 6 "a pipeline's checkpoints go on, in stages and without"
}

# Replicas go on to the same bits between two outer steps; after one of them was killed fewer of them
# go on, from the last outer step.
apart="enable_diloco=true diloco_sync_period=3 ici_fsdp_parallelism=1 dataset_type=synthetic per_device_batch_size=2
checkpoint_period=1 learning_rate_schedule_steps=8 skip_step_on_spikes=true skip_step_interval=4"
# Of three fragments one has taken its outer step and waits at the end of each step.
fragments="enable_streaming_diloco=true num_diloco_fragments=3 num_communication_overlapping_steps=2 communication_overlapping_alpha=0.5"

replicas() {
    adapters="lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8 pure_nnx=false"
    for kind in "" "$adapters" "$fragments" "$adapters $fragments"; do
        rm -rf "$work/straight" "$work/resumed"
        # shellcheck disable=SC2086
        {
            ranks 2 "$work/straight" $apart $kind ici_diloco_parallelism=2 steps=8 || complain "replicas: exit $?" "$work/straight"
            ranks 2 "$work/resumed" $apart $kind ici_diloco_parallelism=2 steps=5 || complain "replicas, first part: exit $?" "$work/resumed"
            ranks 2 "$work/resumed" $apart $kind ici_diloco_parallelism=2 steps=8 || complain "replicas, resumed: exit $?" "$work/resumed"
        }
        "$compare" "$work/straight/x/checkpoints/7" "$work/resumed/x/checkpoints/7" >"$work/difference" 2>&1 ||
            complain "replicas: other bits after a resume: $(tail -n 2 "$work/difference")"
    done
    d=$work/fewer
    # shellcheck disable=SC2086
    (launch 4 "$d" $apart ici_diloco_parallelism=4 steps=100000) &
    run=$!
    await $run "$d/log" "Saved a checkpoint at step 4\."
    kill -9 "$(pid_of $run 3)"
    wait $run && complain "replicas: one is killed, exit 0" "$d"
    grep -q "rank 3 .*signal 9\|signal 9\|rank 3 has died" "$d/log" || complain "replicas: nobody says that one was killed" "$d"
    last=$(find "$d/x/checkpoints" -maxdepth 1 -name '[0-9]*' | sed 's/.*\///' | sort -n | tail -n 1)
    # shellcheck disable=SC2086
    ranks 2 "$d" $apart per_device_batch_size=4 ici_diloco_parallelism=2 steps=$((last + 4)) || complain "fewer replicas: exit $?" "$d"
    grep -q "^4 replicas wrote the checkpoint, here are 2: all go on from the outer parameters" "$d/log" ||
        complain "fewer replicas: not told" "$d"
    # shellcheck disable=SC2086
    ranks 2 "$work/unnamed" ici_diloco_parallelism=2 ici_fsdp_parallelism=1 per_device_batch_size=2 steps=1 && complain "replicas that nobody asked for: exit 0"
    grep -q 'ici_diloco_parallelism: mesh axis "diloco" has size 2, which wants enable_diloco=true' "$work/unnamed/log" ||
        complain "replicas that nobody asked for: not told" "$work/unnamed"
    # shellcheck disable=SC2086
    ranks 2 "$work/cut" $apart ici_diloco_parallelism=2 steps=1 "logical_axis_rules=[[activation_batch,[diloco,data]]]" &&
        complain "a batch cut along replicas: exit 0"
    grep -q 'logical_axis_rules: "activation_batch" cannot be cut along "diloco", whose replicas differ' "$work/cut/log" ||
        complain "a batch cut along replicas: not told" "$work/cut"
    passed 12 "replicas go on to the same bits, and fewer of them from the last outer step"
}

# One trace has all ranks, each with as many exchanges.
traces() {
    d=$work/traces
    ranks 2 "$d" ici_fsdp_parallelism=2 dataset_type=synthetic per_device_batch_size=1 enable_checkpointing=false steps=4 profiler=trace profiler_steps=2 ||
        complain "traces: exit $?" "$d"
    file=$d/x/traces/steps_1_2.json
    of_rank() { grep '"cat": "exchange"' "$file" | grep -c "\"pid\": $1,"; }
    first=$(of_rank 0) second=$(of_rank 1)
    [ "$first" -gt 0 ] && [ "$first" = "$second" ] || complain "traces: $first exchanges of rank 0, $second of rank 1"
    [ "$(ls "$d/x/traces")" = steps_1_2.json ] || complain "traces: more than one file"
    passed 2 "a trace of two ranks: $first exchanges of each"
}

# ---- a policy that writes what it learns from

# write NAME N KEYS... — what a run of four steps told of its rewards, to $work/NAME.told. Its reward
# program notes each completion that it is asked about.
write() {
    name=$1 n=$2 d=$work/$1
    shift 2
    ranks "$n" "$d" --config configs/recipes/rollouts.yml $model max_target_length=40 max_prefill_predict_length=32 \
        learning_rate_schedule_steps=6 rl.num_generations=4 rl.recorded_logprobs=true rl.reward=command \
        rl.reward_command="$work/reward.sh $d/asked" eval_interval=2 eval_steps=1 checkpoint_period=1 metrics_file="$d/m.jsonl" "$@" ||
        return
    grep -o '"learning/\(avg_reward\|completion_length\|loss\|avg_kl\)": *[-+.e0-9]*\|"eval/avg_reward": *[-+.e0-9]*' "$d/m.jsonl" |
        sed 's/.*: *//' >"$work/$name.told"
}

# alike NAME OTHER — two runs report the same figures, up to the order of sums.
alike() {
    paste "$work/$1.told" "$work/$2.told" |
        awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-12 { bad = 1 } END { exit bad || NR < 18 }' ||
        complain "rollouts, $2: other figures than $1: $(paste -s -d ' ' "$work/$2.told")" "$work/$2"
}

# ---- saves and restores without training

tries() {
    keys="--checkpoint-test dataset_type=synthetic steps=5 checkpoint_period=2 max_num_checkpoints_to_keep=2"
    for how in "1 per_device_batch_size=1" "2 per_device_batch_size=1 optimizer_state_dtype=int8" \
        "4 $mesh per_device_batch_size=1 pure_nnx=false" "4 $mesh per_device_batch_size=1 lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8"; do
        d=$work/tried
        rm -rf "$d"
        # shellcheck disable=SC2086
        ranks "${how%% *}" "$d" $keys ${how#* } || complain "checkpoint test, $how: exit $?" "$d"
        [ "$(grep -c 'step [024]: saved in [0-9.]* seconds ([0-9.]* GB/s), restored in [0-9.]* seconds ([0-9.]* GB/s)$' "$d/log")" = 3 ] ||
            complain "checkpoint test, $how: not each save is told" "$d"
        grep -q '^checkpoint test: 3 saves of [0-9.]* GB, each came back as it was$' "$d/log" || complain "checkpoint test, $how: no end" "$d"
        [ "$(ls "$d/x/checkpoints" | paste -s -d ' ')" = "2 4" ] || complain "checkpoint test, $how: kept $(ls "$d/x/checkpoints")" "$d"
    done
    # shellcheck disable=SC2086
    ranks "${how%% *}" "$d" $keys ${how#* } && complain "checkpoint test over checkpoints: exit 0"
    grep -q 'run_name: "x" has checkpoints; --checkpoint-test wants a run of its own' "$d/log" || complain "checkpoint test over checkpoints: not told" "$d"
    passed 13 "states without training are saved and come back"
}

# ---- what every micro-batch tells of the whole batch

# of_batch NAME N RECIPE METRIC KEYS... — a metric of a run's steps and evaluations, to $work/NAME.told.
of_batch() {
    name=$1 n=$2 recipe=$3 metric=$4 d=$work/$1
    shift 4
    rm -rf "$d"
    ranks "$n" "$d" --config "configs/recipes/$recipe.yml" $model base_num_decoder_layers=4 max_target_length=48 dtype=float32 steps=3 \
        learning_rate=0.001 learning_rate_schedule_steps=3 enable_checkpointing=false eval_interval=2 eval_steps=1 metrics_file="$d/m.jsonl" "$@" ||
        complain "of a batch, $name: exit $?" "$d"
    grep -o "\"[a-z]*/$metric\": *[-+.e0-9]*" "$d/m.jsonl" | sed 's/.*: *//' >"$work/$name.told"
}

# Micro-batches of a pipeline, and evaluations beside accumulation, told less than there is.
of_batches() {
    for what in "grpo avg_reward" "kto avg_kl"; do
        # shellcheck disable=SC2086
        {
            of_batch batch_alone 1 $what per_device_batch_size=8
            of_batch batch_parts 1 $what per_device_batch_size=4 gradient_accumulation_steps=2 eval_per_device_batch_size=8
            of_batch batch_stages 2 $what per_device_batch_size=4 ici_pipeline_parallelism=2 ici_fsdp_parallelism=1
        }
        for name in batch_parts batch_stages; do
            paste "$work/batch_alone.told" "$work/$name.told" |
                awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-10 { bad = 1 } END { exit bad || NR < 5 }' ||
                complain "$what, $name: $(paste -s -d ' ' "$work/$name.told") instead of $(paste -s -d ' ' "$work/batch_alone.told")" "$work/$name"
        done
    done
    passed 10 "micro-batches tell of the whole batch what one of its size tells"
}

rollouts() {
    cat >"$work/reward.sh" <<'END'
#!/bin/sh
while read -r line; do
    printf '%s\n' "$line" >>"$1"
    case $line in *'"turns_left":0'*) turn=0 ;; *) turn=$((${#line} % 3)) ;; esac
    [ $turn = 0 ] && echo $((${#line} % 5)) || echo "{\"observation\": \"<$turn>\"}"
done
END
    chmod +x "$work/reward.sh"
    # Steps of SGD differ among meshes by as little as gradients do, 1e-7. AdamW's differ by much more where a gradient is nearly
    # 0, and then a draw close to the border between two tokens falls on the other side: one completion in 112 was another one.
    sgd="opt_type=sgd learning_rate=0.5" adamw="learning_rate=0.01"
    turns="rl.max_turns=3 rl.max_turn_length=6 max_target_length=56" # of which a third ends with each turn
    for greedy in "$turns" "" "decode_sampling_top_k=1 rl.loss_algo=reinforce_pp"; do
        rm -rf "$work"/written_*
        # shellcheck disable=SC2086
        {
            write written_one 1 per_device_batch_size=4 steps=4 $sgd $greedy || complain "rollouts: exit $?" "$work/written_one"
            [ "$greedy" != "$turns" ] || [ "$(grep -c '"history":\[{' "$work/written_one/asked")" -ge 50 ] || complain "rollouts: hardly a second turn"
            for mesh_of in "2 ici_data_parallelism=2 ici_fsdp_parallelism=1" "2 ici_fsdp_parallelism=2" \
                "4 ici_data_parallelism=2 ici_fsdp_parallelism=1 ici_tensor_parallelism=2" "4 ici_data_parallelism=2 ici_context_parallelism=2"; do
                rm -rf "$work/written_many"
                write written_many $mesh_of per_device_batch_size=$((4 / ${mesh_of%% *})) steps=4 $sgd $greedy ||
                    complain "rollouts, $mesh_of: exit $?" "$work/written_many"
                alike written_one written_many
                cmp -s "$work/written_one/asked" "$work/written_many/asked" ||
                    complain "rollouts, $mesh_of: $(wc -l <"$work/written_many/asked") completions were rewarded, or others" "$work/written_many"
            done
        }
    done
    [ "$(wc -l <"$work/written_one/asked")" = 112 ] || complain "rollouts: not as many completions as steps and evaluations want"
    # Two steps on each batch, of which a run that stops has made the first alone.
    some="$adamw ici_data_parallelism=2 ici_fsdp_parallelism=2 per_device_batch_size=1 rl.num_iterations=2 $turns"
    # shellcheck disable=SC2086
    {
        write whole_rl 4 $some steps=6 || complain "rollouts, two steps: exit $?" "$work/whole_rl"
        write parted_rl 4 $some steps=3 || complain "rollouts, first part: exit $?" "$work/parted_rl"
        write parted_rl 4 $some steps=6 || complain "rollouts, resumed: exit $?" "$work/parted_rl"
    }
    "$compare" "$work/whole_rl/x/checkpoints/5" "$work/parted_rl/x/checkpoints/5" >"$work/difference" 2>&1 ||
        complain "rollouts: other bits after a resume: $(tail -n 2 "$work/difference")"
    # A program that takes its time does not make rank 0, which asks it for all, a slow one: it had 24 times the other's seconds.
    printf '#!/bin/sh\nwhile read -r line; do sleep 0.05 && echo 1; done\n' >"$work/reward.sh"
    write patient 2 $adamw ici_fsdp_parallelism=2 per_device_batch_size=2 steps=3 eval_interval=-1 || complain "rollouts, a slow program: exit $?" "$work/patient"
    slowdown=$(grep -o '"perf/slowest_rank_slowdown": *[.0-9]*' "$work/patient/m.jsonl" | grep -o '[.0-9]*$' | tail -n 1)
    awk -v x="${slowdown:-99}" 'BEGIN { exit x >= 8 }' || complain "rollouts, a slow program: a rank is called $slowdown times as slow as the other" "$work/patient"
    # A program that says nonsense ends all ranks; what it said is told once.
    printf '#!/bin/sh\nread -r line\necho nonsense\n' >"$work/reward.sh"
    write nonsense 4 $mesh $adamw per_device_batch_size=1 steps=4 && complain "rollouts: a reward that is none: exit 0"
    [ "$(grep -c 'the program wrote "nonsense", wanted a line with a number' "$work/nonsense/log")" = 1 ] ||
        complain "rollouts: a reward that is none: not told once" "$work/nonsense"
    passed 32 "ranks write what one would, and it is rewarded once"
}

moments >"$work/moments"
kills "$work/moments"
terms
hangs
references
offline
questions
keeps
differences
stages
replicas
traces
tries
of_batches
rollouts
finish_suite

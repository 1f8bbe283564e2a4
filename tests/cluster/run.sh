#!/bin/sh
# run.sh BUILD [long] — mxrun seen from outside: what it starts, what it starts again and what it does not, on this machine
# and on four hosts made of network namespaces (hosts.sh), whose cables are pulled. After every kill the run
# must go on by itself, lose no more than the steps since the last checkpoint, and end with the losses, to the bit, of runs that
# were resumed by hand. The long form kills hosts 20 times. Run from the top folder.
set -u
build=$(realpath "$1") form=${2:-short} top=$PWD
. tests/common/suite.sh
hosts=$top/tests/cluster/hosts.sh
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 ASAN_OPTIONS=detect_leaks=0 MX_HOSTS="mxt$$"
trap '"$hosts" down 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

model="base_emb_dim=48 base_num_decoder_layers=2 base_num_query_heads=3 base_num_kv_heads=3 head_dim=16 base_mlp_dim=96
max_target_length=64 per_device_batch_size=3 eval_interval=-1 log_config=false learning_rate_schedule_steps=400"
# What one machine needs, where ranks share cores.
here='--oversubscribe -mca mpi_yield_when_idle 1'

# started DIR WORDS... — mxrun with the run of a test; output to DIR/log.
started() {
    dir=$1
    shift
    mkdir -p "$dir"
    # shellcheck disable=SC2086
    exec "$build/mxrun" --launcher-args "$here" "$@" $model base_output_directory="$dir" run_name=x >>"$dir/log" 2>&1 </dev/null
}

# exit_of WORDS... — of started, which ends by itself.
exit_of() {
    (started "$@")
    echo $?
}

# await PROCESS LOG TEXT — until the log says so or the run has ended.
await() { while ! grep -q "$3" "$2" 2>/dev/null && kill -0 "$1" 2>/dev/null; do sleep 0.05; done; }
said() { grep -c "$2" "$1/log"; }

# rank_of RANK DIR — the process of a rank of that run.
rank_of() {
    for environ in /proc/[0-9]*/environ; do
        p=${environ%/environ}
        tr '\0' '\n' 2>/dev/null <"$environ" | grep -qx "OMPI_COMM_WORLD_RANK=$1" &&
            tr '\0' ' ' 2>/dev/null <"$p/cmdline" | grep -q "mxtrain .*base_output_directory=$2 " && echo "${p#/proc/}"
    done | head -n 1
}

# ---- words

words() {
    command=$("$build/mxrun" -n 3 --dry-run --launcher-args '--mca btl self,tcp' my.yml --quiet steps=3)
    is 'the command of mpirun' "$(echo "$command" | grep -c "mpirun .*-n 3 --mca btl self,tcp .*-x OMP_NUM_THREADS .*/mxtrain my.yml --quiet steps=3\$")" 1
    printf '# all\none slots=2\ntwo\none slots=1 # again\n' >"$work/hosts"
    is 'ranks of a host file' "$("$build/mxrun" --hosts "$work/hosts" --agent 'rsh -x' --dry-run | grep -c -e ' -n 4 .*-mca plm_rsh_agent rsh -x')" 1
    is 'the command of srun' "$(SLURM_JOB_ID=1 SLURM_NTASKS=5 SLURM_JOB_NUM_NODES=2 "$build/mxrun" --dry-run steps=3)" \
        "srun --kill-on-bad-exit=1 -n 5 -- $build/mxtrain steps=3"
    for wrong in '-n none' '-n' '--restart -1' '--hosts nowhere' '--launcher rsh' '--program nowhere' '-n 1 --dry-run=x' 'steps=3'; do
        # shellcheck disable=SC2086
        is "wrong words: $wrong" "$("$build/mxrun" $wrong --dry-run >"$work/log" 2>&1 || echo $?) $(grep -c '^mxrun: error: ' "$work/log")" '2 1'
    done
    is 'a version' "$("$build/mxrun" --version)" "mxrun $("$build/mxtrain" --version | cut -d ' ' -f 2)"
    is 'completion of its options' "$("$build/mxrun" --complete '' --ho)" --hosts
    is "completion of mxtrain's" "$("$build/mxrun" --complete '' learning_rate_s | grep -v :files)" learning_rate_schedule_steps=
    for shell in bash zsh fish; do "$build/mxrun" --completion $shell >"$work/mxrun.$shell" || is "completion for $shell" failed made; done
    is 'bash reads its completion' "$(bash -n "$work/mxrun.bash" 2>&1)" ''
    "$build/mxrun" --man >"$work/mxrun.1"
    is 'the page has every row of --help' "$("$build/mxrun" --help | grep -c '^  -')" "$(grep -c '^\.B \\-' "$work/mxrun.1")"
    if command -v mandoc >/dev/null; then is 'mandoc of mxrun.1' "$(mandoc -T lint -W warning "$work/mxrun.1" 2>&1)" ''; fi
}

# ---- what others see of it

# pretended WORDS... — mxrun with an mpirun that ends soon, with $mpirun_ends, and a trainer that has no plan.
pretended() {
    mkdir -p "$work/bin"
    printf '#!/bin/sh\nsleep 0.5\nexit %s\n' "$mpirun_ends" >"$work/bin/mpirun"
    cat >"$work/bin/mxtrain" <<END
#!/bin/sh
case "\$*" in *--plan*) echo x >>"$work/plans" && sleep 0.3 && exit 2 ;; esac
printf 'base_output_directory: "$work/pretended"\nrun_name: x\nper_device_batch_size: 4\neval_per_device_batch_size: 4\ngradient_accumulation_steps: 1\n'
END
    chmod +x "$work/bin/mpirun" "$work/bin/mxtrain"
    PATH=$work/bin:$PATH exec "$build/mxrun" --program "$work/bin/mxtrain" --restart 3 --agent false "$@"
}

outside() {
    printf 'localhost slots=2\n' >"$work/here"
    printf 'localhost slots=2\nnowhere slots=2\n' >"$work/half"
    began=$(date +%s) mpirun_ends=0
    (pretended --hosts "$work/here") | cat # it once came to its end with a process that had the pipe for ten seconds more
    took=$(($(date +%s) - began))
    is 'nothing holds its output when it has ended' "$([ $took -lt 8 ] || echo $took s)" ''
    mpirun_ends=9
    : >"$work/plans"
    (pretended --hosts "$work/half" >"$work/log" 2>&1) &
    run=$!
    while [ ! -s "$work/plans" ] && kill -0 $run; do sleep 0.05; done
    kill -TERM $run
    wait $run
    is 'a signal while it looks for a mesh' "$? $(wc -l <"$work/plans")" '143 1'
}

# ---- on this machine

# losses DIR — of every step, in order.
losses() { grep -o '"learning/loss": *[-+.e0-9]*\|"step": *[0-9]*' "$1/x/metrics.jsonl"; }

local_runs() {
    keys="ici_data_parallelism=2 steps=160 checkpoint_period=8"
    # shellcheck disable=SC2086
    {
        is 'a run that nobody disturbs' "$(exit_of "$work/whole" -n 2 --restart 2 $keys)" 0
        is 'and is not started again' "$(said "$work/whole" '^mxrun: ')" 0
        (started "$work/killed" -n 2 --restart 2 $keys) &
    }
    run=$!
    await $run "$work/killed/log" 'completed step: 1,'
    victim=$(rank_of 1 "$work/killed")
    await $run "$work/killed/log" 'Saved a checkpoint at step 8'
    kill -9 "$victim" || tail -n 5 "$work/killed/log"
    wait $run
    is 'a rank that was killed' "$?" 0
    is 'is told' "$(said "$work/killed" '^mxrun: exit code [0-9]*; starting again from the checkpoint of step [0-9]* on 2 of 2 ranks$')" 1
    is 'and changes no loss' "$(losses "$work/killed")" "$(losses "$work/whole")"

    is 'a key that there is not' "$(exit_of "$work/bad" -n 2 --restart 2 no_such_key=1)" 2
    is 'is told once' "$(said "$work/bad" 'unrecognized key') $(said "$work/bad" '^mxrun: ')" '1 0'
    # shellcheck disable=SC2086
    is 'a loss that is no number' "$(exit_of "$work/nan" -n 2 --restart 2 $keys learning_rate=1e38 gradient_clipping_threshold=0)" 1
    is 'is trained once' "$(said "$work/nan" '^mxrun: ') $(said "$work/nan" 'Aborting training due to')" '0 1'
    export MX_FAILPOINT=save.in_array:1
    # shellcheck disable=SC2086
    is 'a run that dies before each checkpoint' "$(exit_of "$work/vain" -n 2 --restart 2 $keys)" 137
    unset MX_FAILPOINT
    is 'is given up' "$(said "$work/vain" '^mxrun: .*starting again from the start') $(said "$work/vain" '2 starts in a row brought no new checkpoint: giving up')" '2 1'

    # shellcheck disable=SC2086
    (started "$work/term" -n 2 --restart 2 $keys steps=100000) &
    run=$!
    await $run "$work/term/log" 'completed step: 9,'
    kill -TERM $run
    wait $run
    is 'SIGTERM' "$?" 143
    last=$(grep -o 'completed step: [0-9]*' "$work/term/x/run.log" | tail -n 1 | grep -o '[0-9]*$')
    is 'saves, and starts nothing' "$(grep -c "Saved a checkpoint at step $last\.\$" "$work/term/x/run.log") $(said "$work/term" '^mxrun: ')" '1 0'
}

# ---- a rank that is slow

# It shares a core with 24 other processes, and all other ranks have the others: however busy the machine is, it is slow in
# every step.
slow_rank() {
    first=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/') last=$(taskset -cp $$ | sed 's/.*[^0-9]//')
    [ "$first" != "$last" ] || { echo 'a slow rank: there is one core, NOT TESTED' && return; }
    # shellcheck disable=SC2086
    (started "$work/slow" -n 2 ici_data_parallelism=2 steps=2000 num_epoch=20 enable_checkpointing=false gradient_accumulation_steps=24) &
    run=$!
    await $run "$work/slow/log" 'completed step: 4,'
    taskset -acp "$first" "$(rank_of 0 "$work/slow")" >/dev/null
    taskset -acp "$last" "$(rank_of 1 "$work/slow")" >/dev/null
    others=
    for _ in $(seq 24); do
        taskset -c "$last" sh -c 'while :; do :; done' &
        others="$others $!"
    done
    await $run "$work/slow/log" 'is slow'
    # shellcheck disable=SC2086
    kill $others
    kill -TERM $run
    wait $run
    is 'a slow rank is named' "$(said "$work/slow" "warning: rank 1 on $(hostname) is slow: it computes")" 1
    is 'and no other' "$(said "$work/slow" 'rank 0 on .* is slow')" 0
    is 'metrics tell it' "$(grep -o '"perf/slowest_rank": *1\.0,' "$work/slow/x/metrics.jsonl" | sort -u | wc -l)" 1
    is 'but not before the first step' "$(head -n 1 "$work/slow/x/metrics.jsonl" | grep -c '"perf/slowest_rank": *null.*"perf/slowest_rank_slowdown": *null')" 1
}

# ---- four hosts

# on_hosts DIR WORDS... — mxrun on the head.
on_hosts() {
    dir=$1
    shift
    mkdir -p "$dir"
    # shellcheck disable=SC2086
    "$hosts" at head cd "$top" '&&' exec "$build/mxrun" --hosts "$work/four" --agent "'$hosts at'" "$@" $model \
        base_output_directory="$dir" run_name=x >>"$dir/log" 2>&1 </dev/null
}

# segments DIR — of what mxrun said: the step of the checkpoint, ranks, and keys of each start after the first.
segments() {
    sed -n 's/^mxrun: .*; starting again from the checkpoint of step \([0-9]*\) on \([0-9]*\) of 4 ranks:* */\1 \2 /p;
            s/^mxrun: .*; starting again from the start on \([0-9]*\) of 4 ranks:* */-1 \1 /p' "$1/log"
}

# by_hand DIR FROM KEYS... — the same starts without mxrun: each to the checkpoint that the next one took.
by_hand() {
    dir=$1 from=$2 n=4 extra=''
    shift 2
    mkdir -p "$dir"
    { segments "$from" && echo "end"; } | while read -r step ranks next; do
        until=''
        [ "$step" = end ] || until=steps=$((step + 1))
        # shellcheck disable=SC2086
        [ "$until" = steps=0 ] ||
            mpirun --allow-run-as-root --bind-to none $here -n "$n" "$build/mxtrain" $model "$@" $extra $until \
                base_output_directory="$dir" run_name=x >>"$dir/log" 2>&1 </dev/null || echo "by hand: exit $?"
        n=$ranks extra=$next
    done
}

# lost_no_more DIR — whether every start took the last checkpoint that was told before.
lost_no_more() {
    awk '/^Saved a checkpoint at step/ { saved = $6 + 0 }
         /^mxrun: .*starting again from the start/ && saved { bad = 1 }
         /^mxrun: .*starting again from the checkpoint/ { match($0, /step [0-9]+/); if (substr($0, RSTART + 5, RLENGTH - 5) + 0 < saved) bad = 1 }
         END { print bad + 0 }' "$1/log"
}

ranks_left() { for i in 1 2 3 4; do ip netns pids "$MX_HOSTS-host$i"; done; }

# kills NAME N HOWS KEYS... — a run during which hosts die N times, in one of these ways.
kills() {
    d=$work/$1 n_kills=$2 hows=$3
    shift 3
    : >"$work/slowest"
    mkdir "$d" && : >"$d/log"
    on_hosts "$d" --restart 3 "$@" &
    run=$!
    for kill in $(seq 1 "$n_kills"); do
        starts=$(said "$d" 'starting again') saves=$(said "$d" '^Saved a checkpoint')
        while [ "$(said "$d" '^Saved a checkpoint')" -le "$saves" ] && kill -0 $run 2>/dev/null; do sleep 0.1; done
        victim=host$((kill % 4 + 1))
        # shellcheck disable=SC2086
        how=$(set -- $hows && shift $((kill % $#)) && echo "$1")
        began=$(date +%s)
        "$hosts" "$how" $victim
        while [ "$(said "$d" 'starting again')" -le "$starts" ] && kill -0 $run 2>/dev/null; do sleep 0.2; done
        echo "$(($(date +%s) - began)) $how" >>"$work/slowest"
        "$hosts" mend $victim
        said "$d" "no answer from $victim; starting again" | grep -qx 0 && is "$d: kill $kill is told" "$(tail -n 3 "$d/log")" "$victim"
    done
    wait $run
    is "$n_kills kills ($hows): the run ends" "$?" 0
    is 'starts again as often' "$(segments "$d" | wc -l)" "$n_kills"
    is 'from the last checkpoint' "$(lost_no_more "$d")" 0
    for _ in $(seq 1 120); do # a host that was cut off notices it by and by
        [ -n "$(ranks_left)" ] || break
        sleep 0.5
    done
    is 'no rank is left' "$(ranks_left)" ''
    by_hand "$d.hand" "$d" "$@"
    is 'losses are those of runs resumed by hand' "$(losses "$d" | sha256sum)" "$(losses "$d.hand" | sha256sum)"
    is 'of every step' "$(losses "$d" | grep -c '"step"')" "$(echo "$@" | sed 's/.*steps=\([0-9]*\).*/\1/')"
    echo "hosts: $n_kills kills, started again after at most $(sort -n "$work/slowest" | tail -n 1 | cut -d ' ' -f 1) s: $(segments "$d" | cut -d ' ' -f 2 | sort | uniq -c | awk '{ print $1 " times on " $2 " ranks" }' | paste -s -d ,)"
}

four_hosts() {
    if ! "$hosts" up 4 2>"$work/why"; then
        echo "hosts: NOT TESTED, no network namespaces ($(tail -n 1 "$work/why")); root may make them"
        return
    fi
    for i in 1 2 3 4; do echo "host$i slots=1"; done >"$work/four"
    if [ "$form" = long ]; then
        kills any 8 'die cut' steps=400 checkpoint_period=8 ici_fsdp_parallelism=-1
        kills fixed 6 'cut die' steps=240 checkpoint_period=6 ici_data_parallelism=2 ici_fsdp_parallelism=2
        kills data 6 'die cut' steps=240 checkpoint_period=6 ici_data_parallelism=4 ici_fsdp_parallelism=1
    else
        kills any 2 'die cut' steps=120 checkpoint_period=8 ici_fsdp_parallelism=-1
    fi
    "$hosts" down
}

words
outside
local_runs
slow_rank
four_hosts
finish

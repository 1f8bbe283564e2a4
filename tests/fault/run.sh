#!/bin/sh
# run.sh FOLDER [short|long [TEST...]] — what crashes, power losses, full disks, failing calls and
# damage do to the checkpoints of a run, seen from outside.  After each, the same command must end with
# the state of an undisturbed run, bit by bit, or say what is damaged (exit 65).  The short form is for
# make check; the long one takes about an hour and a half.  TEST chooses: kills, failpoints, power, calls,
# storage, full_disk, memory, unreadable, damage, soak (of SOAK_SECONDS), ranks.  FOLDER is where everything was built; its path is
# absolute.  Run from the top folder.
set -u
built=$1 form=${2:-short}
binary=$built/mxtrain faults=$built/faults.so
work=$(mktemp -d) || exit 1
mounted=
trap '[ -z "$mounted" ] || umount "$work/fs"; rm -rf "$work"' EXIT
checks=0 failed=0
export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0
echo leak:libhdf5 >"$work/leaks" # after a failed call libhdf5 loses memory of its own
export LSAN_OPTIONS="suppressions=$work/leaks:print_suppressions=0"
without_leaks=${ASAN_OPTIONS:-}:detect_leaks=0

# choose SHORT LONG — the count of this form.
choose() { [ "$form" = long ] && echo "$2" || echo "$1"; }

model="base_emb_dim=32 base_num_decoder_layers=2 base_num_query_heads=2 base_num_kv_heads=2
head_dim=16 base_mlp_dim=64 max_target_length=32 per_device_batch_size=4 eval_steps=1
learning_rate_schedule_steps=48 log_config=false"

# train DIR KEYS... — the run of a test; output to DIR/log.
train() {
    dir=$1
    shift
    mkdir -p "$dir"
    # shellcheck disable=SC2086
    "$binary" --config configs/base.yml $model base_output_directory="$dir" run_name=x "$@" \
        >>"$dir/log" 2>&1 </dev/null
}

# preloaded LIBRARY COMMAND... — with a library of this folder's between it and the system.
preloaded() {
    library=$1
    shift
    LD_PRELOAD=$library ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0 "$@"
}

complain() {
    failed=$((failed + 1))
    echo "FAIL $1"
    [ -z "${2:-}" ] || tail -n 5 "$2/log" | sed 's/^/  /'
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

# same NAME DIR — DIR holds the final state of the undisturbed run and nothing half made.
same() {
    last=$(basename "$(dirname "$reference")")
    cmp -s "$2/x/checkpoints/$last/state.h5" "$reference" ||
        complain "$1: the final state differs from that of the undisturbed run" "$2"
    [ -z "$(find "$2/x/checkpoints" -name '.tmp.*')" ] || complain "$1: leftovers" "$2"
}

# random N — 0 ... N-1.
random() { od -An -N4 -tu4 /dev/urandom | awk -v n="$1" '{ print $1 % n }'; }

# undisturbed KEYS... — makes the reference; its keys stay in $keys, its milliseconds in $took.
undisturbed() {
    keys="$*"
    rm -rf "$work/reference"
    started=$(date +%s%N)
    # shellcheck disable=SC2086
    train "$work/reference" $keys || complain "undisturbed run: exit $?" "$work/reference"
    took=$((($(date +%s%N) - started) / 1000000))
    # shellcheck disable=SC2012
    reference=$work/reference/x/checkpoints/$(ls "$work/reference/x/checkpoints" | sort -n | tail -1)/state.h5
}

# finish NAME DIR — the same command again, to the end.
finish() {
    # shellcheck disable=SC2086
    train "$2" $keys || complain "$1: the run does not go on: exit $?" "$2"
    same "$1" "$2"
}

# ---- kill -9 at any moment

kills() {
    wanted=$1 n=0 runs=0
    undisturbed steps=48 eval_interval=10 checkpoint_period=5
    while [ "$n" -lt "$wanted" ]; do
        # In a subshell of its own, so that the shell does not tell of every kill.
        # shellcheck disable=SC2086
        code=$(
            mkdir -p "$work/kill"
            "$binary" --config configs/base.yml $model base_output_directory="$work/kill" run_name=x \
                $keys >>"$work/kill/log" 2>&1 </dev/null &
            sleep "$(awk -v ms="$(random "$((took + took / 4))")" 'BEGIN { print ms / 1000 }')"
            kill -9 $! 2>/dev/null
            wait $! 2>/dev/null
            echo $?
        )
        case $code in
        137) n=$((n + 1)) ;;
        0)
            same "kill" "$work/kill"
            rm -rf "$work/kill"
            runs=$((runs + 1))
            ;;
        *)
            complain "kill: exit $code" "$work/kill"
            return
            ;;
        esac
    done
    finish "kill" "$work/kill"
    rm -rf "$work/kill"
    passed "$n" "kill -9: $n kills, $((runs + 1)) runs ended with the same state"
}

# ---- kill -9 at named places

failpoints() {
    times=$1 n=0
    # As many saves, and removals of older ones, as there are turns.
    undisturbed steps=$((times > 20 ? 2 * times + 12 : 48)) eval_interval=-1 checkpoint_period=2 max_num_checkpoints_to_keep=2
    for name in save.folder_made save.in_array save.before_close save.before_sync \
        save.before_manifest save.after_manifest save.before_rename save.after_rename save.done \
        remove.before remove.renamed remove.after; do
        for turn in $(seq 1 "$times"); do
            [ "$times" -gt 1 ] || turn=$(($(random 20) + 1))
            d=$work/$name.$turn
            # shellcheck disable=SC2086
            code=$(MX_FAILPOINT=$name:$turn train "$d" $keys 2>/dev/null || echo $?)
            [ "$code" = 137 ] || complain "failpoint $name:$turn was not reached: exit ${code:-0}" "$d"
            finish "failpoint $name:$turn" "$d"
            rm -rf "$d"
            n=$((n + 1))
        done
    done
    passed "$n" "failpoints: $n kills at 12 places"
}

# ---- power losses

# The calls of a run that change files are recorded; of the record come folders as a disk may have them
# when the power goes at one of these calls (power.c).  Training must go on from no older checkpoint than
# the newest one that the run had told of.
power() {
    wanted=$1 n=0 first=$(random 1000000000)
    undisturbed steps=13 eval_interval=-1 checkpoint_period=3 max_num_checkpoints_to_keep=2
    # shellcheck disable=SC2086
    MX_RECORD_UNDER=/power MX_RECORD_LOG=$work/record preloaded "$built/record.so" train "$work/power" $keys || complain "recorded run: exit $?" "$work/power"
    "$built/power" "$work/record" "$work/all" all >/dev/null
    diff -r "$work/power/x/checkpoints" "$work/all/x/checkpoints" >/dev/null ||
        complain "the record does not make the checkpoints of the run that it is of"
    while [ "$n" -lt "$wanted" ]; do
        d=$work/lost
        rm -rf "$d"
        at=$("$built/power" "$work/record" "$d" $((first + n))) || { complain "no state is made of the record" && return; }
        what="power lost at call ${at% *} (seed $((first + n)))"
        finish "$what" "$d"
        began=$(sed -n 's/^.*completed step: \([0-9]*\),.*/\1/p' "$d/log" | head -1)
        [ "${began:-13}" -gt "${at#* }" ] ||
            complain "$what: began with step $began, but checkpoint ${at#* } had been saved" "$d"
        n=$((n + 1))
    done
    passed "$n" "power losses: $n states of a disk, cut from $("$built/power" "$work/record") calls"
}

# ---- calls that fail

# The undisturbed run's first checkpoint stands; call number N of those that change files below it
# fails.  The run says so, or the call did not matter; the first checkpoint is as it was.
calls() {
    step=$1 n=0
    undisturbed steps=13 eval_interval=-1 checkpoint_period=5 max_num_checkpoints_to_keep=2
    train "$work/first" steps=1 eval_interval=-1 checkpoint_period=5
    for code in 5 28; do # EIO, ENOSPC
        call=$(($(random "$step") + 1))
        while :; do
            d=$work/call
            cp -r "$work/first" "$d"
            : >"$work/told"
            # shellcheck disable=SC2086
            exit=$(MX_FAULT_UNDER=call/x/checkpoints MX_FAULT_CALL=$call MX_FAULT_ERRNO=$code \
                MX_FAULT_LOG=$work/told preloaded "$faults" train "$d" $keys || echo $?)
            [ -s "$work/told" ] || { rm -rf "$d" && break; } # there are no more
            what="call $call ($(cat "$work/told")) fails with $code"
            case ${exit:-0} in
            0) ;;
            73 | 74)
                grep -q "$d/x/checkpoints" "$d/log" || complain "$what: no path is told" "$d"
                ;;
            *) complain "$what: exit $exit" "$d" ;;
            esac
            [ "${exit:-0}" = 0 ] || [ ! -d "$d/x/checkpoints/0" ] ||
                cmp -s "$d/x/checkpoints/0/state.h5" "$work/first/x/checkpoints/0/state.h5" ||
                complain "$what: the old checkpoint has changed" "$d"
            finish "$what" "$d"
            rm -rf "$d"
            n=$((n + 1))
            call=$((call + step))
        done
    done
    passed "$n" "failing calls: $n"
}

# ---- storage that does not rename folders in one step

# stored NAME WANTED — the run of $d, on that storage; wants that exit code.
stored() {
    # shellcheck disable=SC2086
    code=$(MX_FAULT_UNDER=/x/checkpoints preloaded "$faults" train "$d" $keys || echo $?)
    [ "${code:-0}" = "$2" ] || complain "$1: exit ${code:-0}, wanted $2" "$d"
}

# A folder that was filled in its own place counts as soon as its manifest does, and is nothing before:
# wherever a run is killed it goes on, from the step whose manifest was complete.
in_place() {
    undisturbed steps=13 eval_interval=-1 checkpoint_period=2 max_num_checkpoints_to_keep=2
    for how in MX_FAULT_RENAME=18 MX_FAULT_RENAME=95 MX_FAULT_FUSE=1; do # EXDEV, ENOTSUP
        export "${how?}"
        for at in save.folder_made:1 save.before_close:2 save.before_manifest:1 save.before_manifest:3 save.after_manifest:3 \
            save.before_rename:4 save.after_rename:4 save.done:3 remove.before:1 remove.renamed:2 remove.after:1; do
            case $form:$how:$at in long:* | *:MX_FAULT_RENAME=18:* | *:save.before_manifest:1 | *:remove.renamed:2) ;; *) continue ;; esac
            d=$work/stored
            export MX_FAILPOINT=$at
            stored "$how, $at" 137
            unset MX_FAILPOINT
            case $at in save.after_manifest:3 | save.before_rename:4) # steps 0, 2, 4, 6
                complete=$((2 * ${at#*:} - 2))
                : >"$d/log"
                stored "$how, after $at" 0
                grep -q "^restoring from this run's directory step $complete\$" "$d/log" ||
                    complain "$how, $at: the manifest was complete, but the run does not go on from step $complete" "$d"
                ;;
            save.before_manifest:1)
                [ -f "$d/x/checkpoints/0/state.h5" ] || complain "$how, $at: nothing was left in place" "$d"
                ;;
            esac
            stored "$how, after $at" 0
            same "$how, $at" "$d"
            rm -rf "$d"
            n=$((n + 1))
        done
        unset "${how%%=*}"
    done
}

# Renames that copy, of which nobody knows: what half of it is there never counts, and is told.
by_copies() {
    undisturbed steps=13 eval_interval=-1 checkpoint_period=4
    export MX_FAULT_RENAME=copy
    for files in 3 4; do # of the second save the manifest, then the state
        d=$work/stored
        export MX_FAULT_COPIED=$files
        stored "rename that copies $files files" 137
        unset MX_FAULT_COPIED
        [ -f "$d/x/checkpoints/4/MANIFEST.json" ] || complain "rename that copies $files files: not where it was wanted" "$d"
        : >"$d/log"
        stored "after a rename that copied $files files" 0
        grep -q "skipped checkpoint .*/4\", which does not verify" "$d/log" || complain "half a checkpoint is not told" "$d"
        grep -q "^restoring from this run's directory step 0\$" "$d/log" || complain "not from the whole one" "$d"
        same "rename that copies $files files" "$d"
        rm -rf "$d"
        n=$((n + 1))
    done
    unset MX_FAULT_RENAME
}

# What is published outside the folder of checkpoints, of which no sweep knew: the next start met half of
# it and said that it exists.
elsewhere() {
    export MX_FAULT_UNDER=$work/stored MX_FAULT_FUSE=1
    d=$work/stored
    keys="use_dpo=true hf_train_files=posttrain/preference_train.jsonl dataset_type=hf hf_path=json dpo.max_prompt_length=16
packing=false dpo.reference=precomputed steps=1 eval_interval=-1 enable_checkpointing=false"
    # shellcheck disable=SC2086
    code=$(MX_FAILPOINT=save.before_manifest preloaded "$faults" train "$d" $keys 2>/dev/null || echo $?)
    [ "$code" = 137 ] && [ -f "$d/x/reference/logps.h5" ] || complain "reference: nothing was left in place: exit ${code:-0}" "$d"
    # shellcheck disable=SC2086
    preloaded "$faults" train "$d" $keys || complain "reference: exit $?" "$d"
    [ -f "$d/x/reference/MANIFEST.json" ] && [ ! -f "$d/x/reference/.tmp.unfinished" ] || complain "reference: it is not whole" "$d"
    convert() { preloaded "$faults" "$built/mxconvert" "$work/reference/x" "$d/converted" "$@" >>"$d/log" 2>&1; }
    mkdir "$d/converted"
    : >"$d/converted/.tmp.unfinished"
    convert || complain "mxconvert: exit $?" "$d"
    MX_FAULT_RENAME=copy convert --force || complain "mxconvert --force, where renames copy: exit $?" "$d"
    [ "$(echo "$d"/converted*)" = "$d/converted" ] || complain "mxconvert --force: leftovers" "$d"
    sum=$(md5sum "$d"/converted/*)
    code=$(MX_FAULT_RENAME=18 convert --force --scan-layers false || echo $?)
    [ "$code" = 74 ] && grep -q 'converted" is not replaced: could not rename the result, ".*/converted.new.[0-9]*": ' "$d/log" ||
        complain "mxconvert --force, where renames fail: exit ${code:-0}, wanted 74" "$d"
    [ "$sum" = "$(md5sum "$d"/converted/*)" ] || complain "mxconvert --force: what was there has changed" "$d"
    [ -f "$(echo "$d"/converted.new.*)/MANIFEST.json" ] || complain "mxconvert --force: the result is gone" "$d"
    unset MX_FAULT_UNDER MX_FAULT_FUSE
    rm -rf "$d"
    n=$((n + 4))
}

storage() {
    n=0
    in_place
    elsewhere
    by_copies
    passed "$n" "storage without renames of folders: $n kills"
}

# ---- a disk that is full

full_disk() {
    step_kb=$1 n=0 refused=0
    mkdir "$work/fs"
    if ! mount -t tmpfs -o size=8m tmpfs "$work/fs" 2>/dev/null; then
        echo "full disk: NOT TESTED, could not mount a tmpfs (root may)"
        return
    fi
    mounted=1
    undisturbed steps=9 eval_interval=-1 checkpoint_period=8 base_emb_dim=64 base_mlp_dim=256
    train "$work/template" steps=1 eval_interval=-1 checkpoint_period=8 base_emb_dim=64 base_mlp_dim=256
    needed=$(($(wc -c <"$reference") / 1024)) # and some for the manifest and config.yml
    for room in $(seq 0 "$step_kb" $((needed + 64 + step_kb))); do
        d=$work/fs/run
        cp -r "$work/template" "$d"
        rm "$d/log"
        ln -s "$work/full.log" "$d/log"
        : >"$work/full.log"
        free=$(df -k --output=avail "$work/fs" | tail -1)
        [ "$free" -le "$room" ] || head -c $(((free - room) * 1024)) /dev/zero >"$work/fs/filler"
        # shellcheck disable=SC2086
        code=$(train "$d" $keys || echo $?)
        if [ "${code:-0}" != 0 ]; then
            refused=$((refused + 1))
            [ "$code" = 74 ] || complain "full disk, $room KiB left: exit $code" "$d"
            grep -q "$d/x/" "$work/full.log" || complain "full disk, $room KiB left: no path" "$d"
            grep -Eq "config.yml|needs [0-9]+ bytes; .* has [0-9]+ free|needs [0-9]+ bytes, .* has [0-9]+ free" \
                "$work/full.log" || complain "full disk, $room KiB left: no bytes" "$d"
            cmp -s "$d/x/checkpoints/0/state.h5" "$work/template/x/checkpoints/0/state.h5" ||
                complain "full disk, $room KiB left: the old checkpoint has changed" "$d"
        fi
        rm -f "$work/fs/filler"
        finish "full disk, $room KiB left" "$d"
        rm -rf "$d"
        n=$((n + 1))
    done
    umount "$work/fs"
    mounted=
    [ "$refused" -gt 0 ] && [ "$refused" -lt "$n" ] || complain "full disk: $refused of $n refused"
    passed "$n" "full disk: $n amounts of room, $refused refused"
}

# ---- memory that is limited

# limited KEYS... — the run ends well or is refused before anything is made; the exit code to $code.
limited() {
    d=$work/limited
    rm -rf "$d"
    mkdir "$d"
    code=0
    "$@" "$binary" --config configs/base.yml base_output_directory="$d" run_name=x steps=2 \
        eval_interval=-1 log_config=false $keys >"$d/log" 2>&1 </dev/null || code=$?
    n=$((n + 1))
    case $code in
    0) ;;
    71)
        refused=$((refused + 1))
        grep -q "$limit" "$d/log" || complain "$what: the limit is not named" "$d"
        [ ! -e "$d/x" ] || complain "$what: refused, but something was made" "$d"
        ;;
    *) complain "$what: exit $code" "$d" ;;
    esac
}

# both WHAT — of the n limits or runs some were refused and some were not.
both() {
    [ "$refused" -gt 0 ] && [ "$refused" -lt "$n" ] || complain "$1: $refused of $n refused"
    passed "$n" "$1: $n runs, $refused refused"
}

in_group() { sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"; }
in_shell() { (ulimit "$option" "$kb" && exec "$@"); }

# A control group of 700 MB and batches that need less and more.
memory_of_group() {
    step=$1 n=0 refused=0 limit=cgroup
    group=/sys/fs/cgroup/memory/mxtrain.$$ file=memory.limit_in_bytes
    [ -d /sys/fs/cgroup/memory ] || group=/sys/fs/cgroup/mxtrain.$$ file=memory.max
    if ! mkdir "$group" 2>/dev/null || ! echo 700M 2>/dev/null >"$group/$file"; then
        rmdir "$group" 2>/dev/null
        echo "cgroup: NOT TESTED, could not make one (root may)"
        return
    fi
    for rows in $(seq 8 "$step" 64); do
        keys="per_device_batch_size=$rows" what="700 MB, $rows rows"
        limited in_group
    done
    both "cgroup of 700 MB"
    memory_of_ranks
    rmdir "$group"
}

# Two ranks share it: what one of them has room for, both do not.
memory_of_ranks() {
    n=0 refused=0
    for rows in 8 16; do
        keys="per_device_batch_size=$rows ici_data_parallelism=2 ici_fsdp_parallelism=1"
        what="700 MB, two ranks, $rows rows each"
        OMP_NUM_THREADS=1 limited in_group mpirun --allow-run-as-root --oversubscribe --bind-to none \
            -mca mpi_yield_when_idle 1 -n 2
    done
    grep -q "needs .* GiB for 2 ranks here; the cgroup" "$d/log" || complain "two ranks: not said for both" "$d"
    both "cgroup of 700 MB, two ranks"
}

memory_of_shell() {
    step=$1
    for option in -v -d; do
        n=0 refused=0 limit="ulimit $option"
        for kb in $(seq 150000 "$step" 1000000); do
            keys="per_device_batch_size=4" what="ulimit $option $kb"
            limited in_shell
        done
        both "ulimit $option"
    done
}

# A model with room for its moments on the disk alone.
memory_of_disk() {
    option=-d kb=950000 n=0 refused=0 limit="ulimit -d"
    large="vocab_size=65536 base_emb_dim=256 per_device_batch_size=1 enable_checkpointing=false num_threads=2"
    for keys in "$large" "$large optimizer_memory_disk=$work"; do
        what="ulimit -d $kb $keys"
        limited in_shell
    done
    both "moments that have room on the disk alone"
}

memory() {
    if ldd "$binary" | grep -q asan; then
        echo "memory: NOT TESTED, the sanitizer's own is beyond any limit"
        return
    fi
    memory_of_group "$1"
    memory_of_shell "$2"
    memory_of_disk
}

# ---- damage

# refused WHAT — the run with one checkpoint stops with 65 and does not begin anew.
refused() {
    # shellcheck disable=SC2086
    code=$(train "$d" $keys || echo $?)
    [ "${code:-0}" = 65 ] || complain "$1: exit ${code:-0}, wanted 65" "$d"
}

damage() {
    flips=$1 cut_every=$2 n=0
    keys="steps=9 eval_interval=-1 checkpoint_period=8"
    d=$work/damage
    train "$d" steps=1 eval_interval=-1 checkpoint_period=8
    c=$d/x/checkpoints/0
    cp -r "$c" "$work/whole"
    for i in $(seq 1 "$flips"); do
        file=state.h5
        [ $((i % 4)) -gt 0 ] || file=MANIFEST.json
        at=$(random "$(wc -c <"$c/$file")") bit=$(random 8)
        byte=$(od -An -tu1 -j "$at" -N1 "$c/$file")
        # shellcheck disable=SC2059
        printf "\\$(printf %03o $((byte ^ (1 << bit))))" |
            dd of="$c/$file" bs=1 seek="$at" conv=notrunc status=none
        refused "bit $bit of byte $at of $file flipped"
        cp "$work/whole/$file" "$c/$file"
        n=$((n + 1))
    done
    for file in state.h5 MANIFEST.json; do
        for at in $(seq 0 "$cut_every" $(($(wc -c <"$c/$file") - 1))); do
            truncate -s "$at" "$c/$file"
            refused "$file cut to $at bytes"
            cp "$work/whole/$file" "$c/$file"
            n=$((n + 1))
        done
    done
    # shellcheck disable=SC2086
    train "$d" $keys || complain "the restored checkpoint: exit $?" "$d"
    passed "$n" "damage: $n flipped bits and cuts refused"
}

# A checkpoint that cannot be read now may be good: the run stops and names it. It once went on from
# an older one, and steps were lost.
unreadable() {
    n=0 d=$work/unreadable newest=$work/unreadable/x/checkpoints/8
    undisturbed steps=13 eval_interval=-1 checkpoint_period=4
    # shellcheck disable=SC2086
    train "$d" $keys steps=9
    while read -r wanted errno file; do
        : >"$d/log"
        # shellcheck disable=SC2086
        code=$(MX_FAULT_UNREAD=$file MX_FAULT_ERRNO=$errno preloaded "$faults" train "$d" $keys || echo $?)
        [ "${code:-0}" = "$wanted" ] || complain "$file fails with $errno: exit ${code:-0}, wanted $wanted" "$d"
        grep -q "could not read the newest checkpoint \"$newest\"" "$d/log" ||
            complain "$file fails with $errno: the checkpoint is not named" "$d"
        grep -q "completed step" "$d/log" && complain "$file fails with $errno: trained" "$d"
        n=$((n + 1))
    done <<END
77 13 8/state.h5
74 5 8/state.h5
74 5 read:8/state.h5
77 13 8/MANIFEST.json
END
    finish "checkpoints that can be read again" "$d"
    d=$work/best # the best one is not removed because nobody can read now that it is
    keys="eval_interval=2 checkpoint_period=2 max_num_checkpoints_to_keep=1 keep_best_checkpoint=true learning_rate=1.5"
    # shellcheck disable=SC2086
    train "$d" $keys steps=3
    # shellcheck disable=SC2086
    MX_FAULT_UNREAD=0/MANIFEST.json MX_FAULT_ERRNO=5 preloaded "$faults" train "$d" $keys steps=7 || complain "an unreadable best checkpoint: exit $?" "$d"
    [ -d "$d/x/checkpoints/0" ] || complain "an unreadable best checkpoint was removed" "$d"
    grep -q "warning: no older checkpoint is removed: could not open .*0/MANIFEST.json" "$d/log" ||
        complain "an unreadable best checkpoint is not told" "$d"
    passed $((n + 1)) "checkpoints that cannot be read: $n refused, the best kept"
}

# ---- a long time

# soak SECONDS EVERY — a run that is killed about every so many seconds and started again, until the time
# is over; then SIGTERM ends it.  Every step is in its metrics once; the last starts take no more memory
# than the first; nothing is left but what belongs to a run.  None is killed before there is a checkpoint:
# the next would begin anew, and rightly keep the metrics of the one before it.
soak() {
    seconds=$1 every=$2 n=0 d=$work/soak code=137 over=$(($(date +%s) + $1))
    keys="steps=1000000000 num_epoch=1000000000 eval_interval=200 checkpoint_period=40 max_num_checkpoints_to_keep=3
per_device_batch_size=16 max_target_length=128"
    mkdir -p "$d" "$work/tmp"
    : >"$work/memory"
    while [ $code = 137 ]; do
        # In a subshell of its own, so that the shell does not tell of every kill.
        # shellcheck disable=SC2086
        code=$(
            TMPDIR=$work/tmp "$binary" --config configs/base.yml $model base_output_directory="$d" run_name=x \
                $keys >"$d/log" 2>&1 </dev/null &
            until ls "$d/x/checkpoints" 2>/dev/null | grep -qxE '[0-9]+'; do
                kill -0 $! 2>/dev/null && sleep 0.1 || break
            done
            sleep $((every / 2 + 1 + $(random "$every")))
            awk '$1 == "VmHWM:" { print $2 }' "/proc/$!/status" >>"$work/memory" 2>/dev/null
            [ "$(date +%s)" -lt "$over" ] && kill -9 $! 2>/dev/null || kill -TERM $! 2>/dev/null
            wait $! 2>/dev/null
            echo $?
        )
        n=$((n + 1))
    done
    [ "$code" = 143 ] || complain "soak: exit $code at the end, wanted 143" "$d"
    # shellcheck disable=SC2046
    set -- $(awk '{ kb[NR] = $1 } END { t = int((NR + 2) / 3); for (i = 1; i <= t; i++) {
        if (kb[i] > a) a = kb[i]; if (kb[NR + 1 - i] > b) b = kb[NR + 1 - i] } print a, b }' "$work/memory")
    [ "$2" -le $(($1 * 11 / 10)) ] || complain "soak: $1 kB of memory at first, $2 kB at last" "$d"
    steps=$(grep '"learning/loss"' "$d/x/metrics.jsonl" | grep -o '"step": *[0-9]*' | awk '{ if ($NF != NR - 1 && !bad) bad = NR } END { print bad ? "line " bad : NR }')
    case $steps in line*) complain "soak: $steps of the metrics is not that step" "$d" ;; esac
    # shellcheck disable=SC2012
    left=$(ls -A "$work/tmp"; ls -A "$d/x" | grep -vxE 'LOCK|checkpoints|config.yml|metrics.jsonl|run.log|tensorboard'; ls -A "$d/x/checkpoints" | grep -vxE '[0-9]+')
    [ -z "$left" ] || complain "soak: left behind: $left" "$d"
    # shellcheck disable=SC2012
    saves=$(ls "$d/x/checkpoints" | wc -l)
    [ "$saves" -eq 3 ] || { [ "$saves" -lt 3 ] && [ "$steps" -le 80 ]; } || complain "soak: other checkpoints than the last three" "$d"
    passed 5 "soak: $seconds s, $n starts, $steps steps, $(($2 / 1024)) MiB"
    rm -rf "$d"
}

# ---- several ranks

# with_ranks DIR ENV... — the run of a test on two ranks; what is in ENV is in the environment of the
# second one alone.  Each leaves its pid in DIR.  MPI itself leaks.
with_ranks() {
    dir=$1
    shift
    mkdir -p "$dir"
    # shellcheck disable=SC2016
    rank='echo $$ >"$0/pid.$OMPI_COMM_WORLD_RANK"; exec env "$@"'
    # shellcheck disable=SC2086
    set -- sh -c "$rank" "$dir" "$@" "$binary" --config configs/base.yml $model \
        base_output_directory="$dir" run_name=x $keys
    # shellcheck disable=SC2086
    ASAN_OPTIONS=$without_leaks OMP_NUM_THREADS=1 mpirun --allow-run-as-root --oversubscribe --bind-to none -mca mpi_yield_when_idle 1 \
        -n 1 sh -c "$rank" "$dir" "$binary" --config configs/base.yml $model \
        base_output_directory="$dir" run_name=x $keys : -n 1 "$@" >>"$dir/log" 2>&1 </dev/null
}

# finish_ranks NAME DIR — the same command again ends with the files of the undisturbed run.
finish_ranks() {
    with_ranks "$2" || complain "$1: the run does not go on: exit $?" "$2"
    for file in "$ranks_reference"/*.h5; do
        cmp -s "$file" "$2/x/checkpoints/$(basename "$ranks_reference")/$(basename "$file")" ||
            complain "$1: $(basename "$file") differs from that of the undisturbed run" "$2"
    done
    [ -z "$(find "$2/x/checkpoints" -name '.tmp.*')" ] || complain "$1: leftovers" "$2"
}

# The second rank is killed at named places, and either at any moment.
rank_kills() {
    times=$1 n=0
    for name in save.in_array save.before_close save.before_sync; do
        for turn in $(seq 1 "$times"); do
            d=$work/ranks.kill
            at=$name:$(((turn - 1) % 4 + 1)) # the run saves four times
            with_ranks "$d" MX_FAILPOINT="$at" && complain "rank killed at $at: exit 0" "$d"
            finish_ranks "rank killed at $at" "$d"
            rm -rf "$d"
            n=$((n + 1))
        done
    done
    for turn in $(seq 1 "$((2 * times))"); do
        d=$work/ranks.kill
        (
            sleep "$(awk -v ms="$(random 1500)" 'BEGIN { print 0.5 + ms / 1000 }')"
            kill -9 "$(cat "$d/pid.$((turn % 2))")" 2>/dev/null
        ) &
        with_ranks "$d"
        wait $!
        finish_ranks "a rank killed at any moment" "$d"
        rm -rf "$d"
        n=$((n + 1))
    done
    passed "$n" "ranks: $n kills"
}

# A call of the second rank fails while both save: the run ends, says who could not do what, and the
# first checkpoint is as it was.
rank_calls() {
    step=$1 n=0
    call=$(($(random "$step") + 1))
    while :; do
        d=$work/ranks.call
        mkdir -p "$d"
        cp -r "$ranks_first/x" "$d"
        : >"$work/told"
        code=0
        with_ranks "$d" LD_PRELOAD="$faults" ASAN_OPTIONS="$without_leaks:verify_asan_link_order=0" \
            MX_FAULT_UNDER=ranks.call/x/checkpoints MX_FAULT_CALL=$call MX_FAULT_ERRNO=28 \
            MX_FAULT_LOG="$work/told" || code=$?
        [ -s "$work/told" ] || { rm -rf "$d" && break; }
        what="rank 1, call $call ($(cat "$work/told")) fails"
        [ "$code" = 0 ] || grep -q "rank 1: .*$d/x/checkpoints" "$d/log" || complain "$what: exit $code, not told" "$d"
        for file in "$ranks_first"/x/checkpoints/0/*.h5; do
            [ "$code" = 0 ] || cmp -s "$file" "$d/x/checkpoints/0/$(basename "$file")" ||
                complain "$what: the old checkpoint has changed" "$d"
        done
        finish_ranks "$what" "$d"
        rm -rf "$d"
        n=$((n + 1))
        call=$((call + step))
    done
    passed "$n" "ranks: $n failing calls"
}

rank_damage() {
    n=0
    d=$work/ranks.damage
    mkdir -p "$d"
    cp -r "$ranks_first/x" "$d"
    for file in "$d"/x/checkpoints/0/*; do
        for turn in $(seq 1 "$1"); do
            at=$(random "$(wc -c <"$file")")
            cp "$file" "$work/whole.file"
            byte=$(od -An -tu1 -j "$at" -N1 "$file")
            # shellcheck disable=SC2059
            printf "\\$(printf %03o $((byte ^ (1 << $(random 8)))))" |
                dd of="$file" bs=1 seek="$at" conv=notrunc status=none
            : >"$d/log"
            code=0
            with_ranks "$d" || code=$?
            [ "$code" = 65 ] || complain "byte $at of $(basename "$file") damaged: exit $code, wanted 65" "$d"
            grep -q "$(basename "$file")" "$d/log" || complain "byte $at of $file damaged: no name" "$d"
            cp "$work/whole.file" "$file"
            n=$((n + 1))
        done
    done
    finish_ranks "the restored checkpoint" "$d"
    passed "$n" "ranks: $n flipped bits refused"
}

# h5py sees whole arrays, wherever the folder is.
rank_view() {
    mv "$work/ranks" "$work/ranks.moved"
    python3 -c 'import h5py' 2>/dev/null || { echo "ranks: h5py is not here, NOT TESTED" && return; }
    python3 - "$work/ranks.moved/x/checkpoints/12/state.h5" <<'END' || complain "h5py: no whole arrays"
import sys
import h5py
import numpy
holes = []
with h5py.File(sys.argv[1]) as file:
    file.visititems(lambda name, x: holes.append(name) if isinstance(x, h5py.Dataset) and
                    not numpy.isfinite(x[()]).all() else None)
    whole = file["model/token_embedder/embedding"].shape
sys.exit(f"{holes} {whole}" if holes or whole[1] != 32 else 0)
END
    mv "$work/ranks.moved" "$work/ranks"
    passed 1 "ranks: h5py sees whole arrays"
}

ranks() {
    keys="steps=13 eval_interval=-1 checkpoint_period=4 per_device_batch_size=2"
    with_ranks "$work/ranks" || complain "two ranks: exit $?" "$work/ranks"
    ranks_reference=$work/ranks/x/checkpoints/12 ranks_first=$work/ranks.first
    all=$keys keys="$keys steps=1"
    with_ranks "$ranks_first" || complain "two ranks, one step: exit $?" "$ranks_first"
    keys=$all
    rank_kills "$(choose 1 20)"
    rank_calls "$(choose 37 1)"
    rank_damage "$(choose 1 100)"
    rank_view
}

# The counts of the two forms.
test_kills() { kills "$(choose 10 200)"; }
test_failpoints() { failpoints "$(choose 1 42)"; }
test_power() { power "$(choose 30 1000)"; }
test_calls() { calls "$(choose 29 1)"; }
test_full_disk() { full_disk "$(choose 320 64)"; }
test_memory() { memory "$(choose 8 1)" "$(choose 125000 10000)"; }
test_storage() { storage; }
test_unreadable() { unreadable; }
test_soak() { soak "$(choose 12 "${SOAK_SECONDS:-600}")" "$(choose 3 "${SOAK_KILL_SECONDS:-60}")"; }
test_damage() { damage "$(choose 24 10000)" "$(choose 65536 4096)"; }
test_ranks() { ranks; }

[ $# -gt 2 ] || set -- "$built" "$form" kills failpoints power calls storage full_disk memory unreadable damage soak ranks
shift 2
for test; do "test_$test" || complain "there is no test \"$test\""; done
finish_suite

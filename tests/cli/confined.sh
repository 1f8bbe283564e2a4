#!/bin/sh
# confined.sh BIN — files of unknown origin are first read by a child process behind seccomp, whatever reads
# them: weights, configs, tokenizers, templates, records, pictures.  strace sees who opens what.  BIN is the
# folder of the programs.  Run from the top folder.
set -u
bin=$(realpath "$1")
. tests/common/suite.sh
export OMP_NUM_THREADS=1
if ! strace -f -o "$work/trace" true 2>/dev/null; then
    echo 'confined: strace is not here or may not trace, NOT TESTED: who reads files first'
    finish
    exit
fi

# bounded WHAT COMMAND... — a process that seccomp confines has a limit of processor time when it reads a tokenizer; to
# see whether there is one, others may open it.
bounded() {
    what=$1
    shift
    strace -f -qq -e trace=openat,prctl,setrlimit,prlimit64 -o "$work/trace" "$@" >"$work/log" 2>&1 </dev/null || tail -n 3 "$work/log"
    is "$what" "$(awk '
        /prctl\(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, \{/ { confined[$1] = 1 }
        /RLIMIT_CPU, \{rlim_cur=[0-9]/ { limited[$1] = 1 }
        /openat\(.*tokenizer.json"/ && confined[$1] && limited[$1] { is = 1 }
        END { print is ? "bounded" : "not bounded" }' "$work/trace")" bounded
}

# first WHAT FILES COMMAND... — of each of the files (a pattern of names, "|" between two) that the command opens, the first
# process to do so is one that seccomp confines; and so many of them are opened.
first() {
    what=$1 count=$2 files=$3
    shift 3
    if ! strace -f -qq -e trace=openat,prctl -o "$work/trace" "$@" >"$work/log" 2>&1 </dev/null; then grep -q DIFFERENT "$work/log" || tail -n 3 "$work/log"; fi
    is "$what" "$(awk -v files="($files)\"" '
        /prctl\(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, \{/ { confined[$1] = 1 }
        /openat\(/ && $0 ~ files && !/ENOENT/ {
            split($0, part, "\""); name = part[2]
            if (!(name in seen)) { seen[name] = 1; n++; if (!confined[$1]) bad = bad " " name }
        }
        END { print n + 0 bad }' "$work/trace")" "$count"
}

model="vocab_size=512 base_emb_dim=16 base_num_query_heads=2 base_num_kv_heads=2 head_dim=8 base_mlp_dim=16 base_num_decoder_layers=1
    max_target_length=64 per_device_batch_size=2 eval_interval=-1 log_config=false base_output_directory=$work steps=1"
"$bin/mxtrain" --train-tokenizer "$work/tok" vocab_size=512 text_train_files=corpus/shakespeare_val.txt >"$work/log" 2>&1
# shellcheck disable=SC2086
"$bin/mxtrain" $model run_name=made tokenizer_type=huggingface tokenizer_path="$work/tok" >"$work/log" 2>&1 &&
    "$bin/mxconvert" "$work/made" "$work/hf" --to-hf >"$work/log" 2>&1 || cat "$work/log"
records=share/mxtrain/posttrain/chat_train.jsonl
first 'a model of Hugging Face and its data' 5 'hf/(model.safetensors|config.json|tokenizer.json|tokenizer_config.json)|chat_train.jsonl' \
    "$bin/mxtrain" model="$work/hf" data=$records chat_template_path=chatml run_name=tuned steps=1 eval_interval=-1 log_config=false base_output_directory="$work"
# shellcheck disable=SC2086
first 'Parquet' 1 'long.parquet' "$bin/mxtrain" $model run_name=rows dataset_type=hf hf_path=parquet hf_train_files=tests/golden/rows/long.parquet
# shellcheck disable=SC2086
first 'TFRecord' 1 'long.tfrecord' "$bin/mxtrain" $model run_name=grain dataset_type=grain grain_file_type=tfrecord grain_train_files=tests/golden/rows/long.tfrecord
# shellcheck disable=SC2086
"$bin/mxconvert" "$work/made" "$work/weights.h5" --params-only >"$work/log" 2>&1 || cat "$work/log"
# shellcheck disable=SC2086
first 'weights in HDF5' 1 'weights.h5' "$bin/mxtrain" $model run_name=on load_parameters_path="$work/weights.h5" tokenizer_type=huggingface tokenizer_path="$work/tok"
first 'replies' 4 'hf/(model.safetensors|config.json|tokenizer.json|tokenizer_config.json)' \
    "$bin/mxdecode" "$work/hf" --chat --chat-template chatml --max-tokens 2
bounded 'the time of a tokenizer, replies' "$bin/mxdecode" "$work/hf" --tokenize
# shellcheck disable=SC2086
bounded 'the time of a tokenizer, training' "$bin/mxtrain" $model run_name=bounded tokenizer_type=huggingface tokenizer_path="$work/tok"
first 'a comparison' 2 'state.h5' "$bin/mxcompare" "$work/made" "$work/rows"
first 'a conversion of HDF5' 1 'weights.h5' "$bin/mxconvert" "$work/weights.h5" "$work/again.h5"
first 'a conversion' 2 'hf/(model.safetensors|config.json)' "$bin/mxconvert" "$work/hf" "$work/back.h5"
finish

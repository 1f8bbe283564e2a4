#!/bin/sh
# finetune.sh BIN — fine-tuning as users do it: the demo of a chat from nothing, with few steps, and what
# model=DIR and data=FILE find out.  Run from the top folder.
set -u
bin=$1
. tests/common/suite.sh

if ! scripts/demo_chat.sh "$bin" "$work" 8 16 >"$work/log" 2>&1; then
    tail "$work/log"
    echo 'FAIL the demo'
    exit 1
fi

# ---- what came of the demo

is 'the tokenizer comes through' "$(cmp "$work/tiny-tokenizer/tokenizer.json" "$work/chat-hf/tokenizer.json" && echo same)" same
is 'the template comes through' "$(cmp "$work/tiny-tokenizer/chat_template.jinja" "$work/chat-hf/chat_template.jinja" && echo same)" same
first=$(sed -n 's/^Completed eval after train step 0, loss=\([0-9]*\).*/\1/p' "$work/log" | tail -1)
last=$(sed -n 's/^Completed eval after train step 15, loss=\([0-9]*\).*/\1/p' "$work/log" | tail -1)
is "adapters learn: the loss of other talks goes from $first.x to $last.x" "$([ "$last" -lt "$first" ] && echo less)" less
printf '%s\n' '{"messages":[{"role":"user","content":"Hello."}]}' '{"messages":[{"role":"user","content":"Who has the pillow?"}]}' >"$work/said"
reply() { "$bin/mxdecode" "$1" --prompts "$work/said" --max-tokens 6 --json | sed 's/,"logprobs.*//'; }
is 'merged weights reply as adapters over weights do' "$(reply "$work/chat-hf")" "$(reply "$work/chat")"
is 'two replies' "$(reply "$work/chat-hf" | grep -c '"text":"')" 2
is 'a second time nothing is left to do' "$(scripts/demo_chat.sh "$bin" "$work" 8 16 2>&1 | grep -c '^nothing to do: step [0-9]* of')" 2

# ---- what is found

found() { # found KEY WORD... — the value of a key
    key=$1
    shift
    "$bin/mxtrain" --dump-config - model="$work/tiny-hf" base_output_directory="$work" "$@" 2>&1 | sed -n "s/^$key: *\([^ #]*\).*/\1/p;s/^.*error: .*/&/p" | head -1
}
talks=data=posttrain/chat_train.jsonl
"$bin/mxtrain" --dump-config "$work/found.yml" model="$work/tiny-hf" base_output_directory="$work" $talks
for pair in decoder_block=llama2 base_emb_dim=128 base_num_kv_heads=2 vocab_size=1024 tokenizer_type=huggingface \
    load_parameters_path="$work/tiny-hf" dataset_type=hf use_sft=true use_dpo=false sft_train_on_completion_only=true \
    max_target_length=128 learning_rate=2e-05 run_name=tiny-hf-chat_train hf_train_files=posttrain/chat_train.jsonl; do
    is "found ${pair%%=*}" "$(sed -n "s/^${pair%%=*}: *\([^ #]*\).*/\1/p" "$work/found.yml")" "${pair#*=}"
done
is 'pairs are for preferences' "$(found use_dpo data=posttrain/preference_train.jsonl)" true
is 'and are learned slowly' "$(found learning_rate data=posttrain/preference_train.jsonl)" 1e-06
pairs=data=$work/pairs.jsonl
printf '{"prompt":"%s","chosen":"so","rejected":"no"}\n' "$(yes abc | head -20 | tr -d '\n')" 'short' >"$work/pairs.jsonl"
cut_of() { "$bin/mxtrain" --check model="$work/tiny-hf" base_output_directory="$work" "$pairs" steps=1 per_device_batch_size=1 eval_interval=-1 "$@" 2>&1 | grep -o '[0-9]* prompts cut .*first [0-9]*'; }
is 'of pairs whose prompts are longer than half a row none is cut' "$(cut_of | grep -c '^0 prompts cut .*, 0 responses')" 1
length=$(found max_target_length "$pairs") prompt=$(found dpo.max_prompt_length "$pairs" | head -1)
is 'rows are no longer than that' "$((length - 64 < prompt)) $((prompt > length / 2))" '1 1'
is 'prompts are cut to what is said' "$(cut_of dpo.max_prompt_length=9 | sed 's/, .*//')" '1 prompts cut to their last 9 tokens'
is 'responses that are short are not, where rows are' "$(cut_of max_target_length=24 | sed 's/.*, //')" "0 responses to their first $(cut_of max_target_length=24 | sed 's/.* //')"
is 'data that is not what was said' "$("$bin/mxtrain" data=posttrain/rewards_train.jsonl use_dpo=true 2>&1 | grep -o ': found.*wanted "chosen"')$("$bin/mxtrain" data=posttrain/preference_train.jsonl use_sft=true 2>&1 | grep -o ': found.*wanted "messages"')" \
    ': found "prompt", "completion", "reward"; wanted "chosen": found "prompt", "chosen", "rejected"; wanted "messages"'
is 'what is said about the data counts' "$(found use_sft data=posttrain/rewards_train.jsonl use_grpo=true) $(found use_sft data=posttrain/rewards_train.jsonl)" 'false true'
is 'labels want a row each' "$(found packing data=posttrain/labels_train.jsonl use_kto=true) $(found packing data=posttrain/labels_train.jsonl use_kto=true packing=true | cut -d: -f3-4)" \
    'false  <command line>: use_kto'
# Prompts to be answered, whatever else their records have.
printf '{"question":"%s","answer":"4"}\n' 'What is 2 + 2?' 'Two and two?' >"$work/asked.jsonl"
asked="data=$work/asked.jsonl use_grpo=true rl.reward=exact"
# shellcheck disable=SC2086
is 'prompts have room, and answers the rest of the longest rows of the model' "$(found max_prefill_predict_length $asked) $(found max_target_length $asked) $(found learning_rate $asked) $(found use_sft $asked)" '64 128 1e-06 false'
echo 'use_grpo: true' >"$work/purpose.yml"
mkdir "$work/saved" && cp tests/data/fixtures/texts.arrow "$work/saved/data-00000-of-00001.arrow" && echo '{}' >"$work/saved/dataset_info.json"
is 'data beside its description' "$(found hf_path data="$work/saved")" arrow
labels=data=posttrain/labels_train.jsonl
is 'completions that are good or bad' "$(found use_kto $labels) $(found use_sft $labels)" 'true false'
is 'unless they are all to be learned' "$(found use_kto $labels use_sft=true)" false
is 'rows are shown although it is quiet' "$("$bin/mxtrain" --quiet --show-data 1 $labels | sed -n '1s/ (.*//p')" 'batch 0, row 0 of 8'
is 'in a file too' "$(found use_sft --config configs/base.yml --config "$work/purpose.yml" data=posttrain/rewards_train.jsonl)" false
is 'adapters faster' "$(found learning_rate $talks lora.enable_lora=true lora.lora_rank=4 lora.lora_alpha=8)" 0.0002
is 'rows are as long as prompts want' "$(found max_target_length data=posttrain/sft_train.jsonl)" 64
is 'text is text' "$(found dataset_type data=corpus/shakespeare_val.txt)" text
is 'a run has a name without data' "$(found run_name)" tiny-hf-tuned
printf 'base_config: base.yml\nmax_target_length: 32\n' >"$work/mine.yml"
is 'a file is stronger than what is found' "$(found max_target_length $talks "$work/mine.yml")" 32
printf 'max_target_length: 32\nsteps: 7\n' >"$work/only.yml"
is 'so is a file without a parent' "$(found max_target_length $talks "$work/only.yml")" 32
is 'base.yml is not' "$(found max_target_length $talks --config configs/base.yml)" 128
is 'the command line is' "$(found learning_rate $talks learning_rate=0.5)" 0.5
# ends WORD... — after how many batches the data ends, as a run that wants more of them says
ends() {
    "$bin/mxtrain" --check model="$work/tiny-hf" base_output_directory="$work" steps=5000 "$@" 2>&1 |
        sed -n 's/.*but the data ends after \([0-9]*\) batches.*/\1/p'
}
for words in "data=corpus/shakespeare_val.txt max_target_length=64 per_device_batch_size=2" "$talks num_epoch=3 per_device_batch_size=1" \
    "data=posttrain/preference_train.jsonl per_device_batch_size=2" "data=posttrain/sft_train.jsonl packing=false eval_interval=-1"; do
    # shellcheck disable=SC2086
    is "steps are as many as the data has batches: $words" "$(found steps $words)" "$(ends $words)"
done
is 'what is found is told' "$("$bin/mxtrain" --plan model="$work/tiny-hf" $talks base_output_directory="$work" 2>&1 | sed -n 's/^found in model and data: //p')" \
    'max_target_length=128 learning_rate=2e-05'

# ---- configs to start from

# starts KIND WORD... — the config of a kind is written, and runs as it is
starts() {
    kind=$1 file=$work/start_$1.yml
    "$bin/mxtrain" --init "$@" base_output_directory="$work" -o "$file" >"$work/log" 2>&1 || cat "$work/log"
    "$bin/mxtrain" --config "$file" run_name="start-$kind" steps=1 eval_interval=-1 >"$work/log" 2>&1
    is "--init $*: a step" "$? $(grep -c '^completed step: 0,' "$work/log")" '0 1'
}
values() { "$bin/mxtrain" --dump-config - "$@" | sed 's/ *#.*//' | grep -v '^base_output\|^$'; }

starts pretrain data=corpus/shakespeare_val.txt base_emb_dim=32 base_num_decoder_layers=1
starts sft model="$work/tiny-hf" $talks
starts lora model="$work/tiny-hf"
starts dpo model="$work/tiny-hf"
is 'it says what model and data tell' "$(values --config "$work/start_sft.yml")" "$(values model="$work/tiny-hf" $talks)"
is 'adapters are trained' "$(values --config "$work/start_lora.yml" | grep '^lora.enable_lora\|^use_sft\|^learning_rate:' | tr '\n' ' ')" \
    'use_sft: true learning_rate: 0.0002 lora.enable_lora: true '
is 'preferences are learned slowly' "$(values --config "$work/start_dpo.yml" | grep '^use_dpo\|^use_sft\|^learning_rate:' | tr '\n' ' ')" \
    'use_sft: false use_dpo: true learning_rate: 1e-06 '
is 'every key has what it does' "$(sed -n '/^ *[a-z_]*:/p' "$work/start_lora.yml" | grep -vc ' # \|^base_config\|^lora:$')" 0
is 'and the words of the command line' "$(sed -n 's/^base_emb_dim: *\([0-9]*\) .*/\1/p' "$work/start_pretrain.yml")" 32
is 'to stdout' "$("$bin/mxtrain" --init sft steps=7 | sed -n 's/^steps: *\([0-9]*\) .*/\1/p')" 7
sum=$(cksum <"$work/start_sft.yml")
is 'no file is replaced' "$("$bin/mxtrain" --init sft -o "$work/start_sft.yml" 2>&1 || echo $?)" \
    "mxtrain: error: \"$work/start_sft.yml\" exists already; --init replaces no file
73"
is 'and it is as it was' "$(cksum <"$work/start_sft.yml")" "$sum"
"$bin/mxtrain" --init pretrain model_name=llama3.1-8b override_model_config=true base_num_decoder_layers=2 >"$work/preset.yml"
is 'a preset comes with its name' "$(grep -c '^vocab_size\|^base_emb_dim\|^rope_type' "$work/preset.yml") $("$bin/mxtrain" --dump-config - "$work/preset.yml" 2>"$work/log" | sed -n 's/^\(base_emb_dim\|base_num_decoder_layers\): *\([0-9]*\) .*/\2/p' | tr '\n' ' ')" \
    '0 4096 2 '
is 'and no warning of what does not count' "$(grep -c . "$work/log")" 0
is 'a kind that is none' "$("$bin/mxtrain" --init grop 2>&1)" 'mxtrain: error: --init: "grop" is no kind of training; wants one of pretrain|sft|lora|dpo'
"$bin/mxtrain" --init dpo data=posttrain/sft_train.jsonl -o "$work/none.yml" 2>"$work/log"
is 'data of another kind' "$? $(grep -c '"chosen"' "$work/log") $([ -e "$work/none.yml" ] && echo written)" '65 1 '

# ---- what cannot be found

# fails WANTED WORD... — the first line
fails() {
    wanted=$1
    shift
    is "mxtrain $*" "$("$bin/mxtrain" --dump-config - "$@" 2>&1 | head -1)" "mxtrain: error: $wanted"
}
fails 'model: "nowhere" is no folder of Hugging Face'"'"'s here (there is no config.json of a model in it), and nothing is fetched from a hub' model=nowhere
is 'data that is not there' "$("$bin/mxtrain" --dump-config - data=nowhere 2>&1 | head -1 | cut -d, -f1-2 | sed 's/ or a pattern.*/ or a pattern/')" \
    'mxtrain: error: data: no files at "nowhere": wanted a file, a folder of *.jsonl or a pattern'
printf '{"body":"a"}\n' >"$work/odd.jsonl"
fails "data: $work/odd.jsonl:1: found \"body\"; wanted \"messages\", \"prompt\" and \"completion\", or \"text\"" data="$work/odd.jsonl"
printf 'PAR1xxxx' >"$work/a.parquet"
fails "data: $work/a.parquet: is Parquet that does not end as such files do, with \"PAR1\"" data="$work/a.parquet"
printf '{"text":"a"\n' >"$work/broken.jsonl"
fails "data: $work/broken.jsonl:1:11: not valid JSON: '}' expected near end of file" data="$work/broken.jsonl"

finish

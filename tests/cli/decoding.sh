#!/bin/sh
# decoding.sh MXTRAIN MXDECODE — mxdecode with a config in place of a folder, as MaxText's decode is called: replies to
# the key prompt equal those of the folder, and every key that it reads shows. Run from the top folder.
set -u
train=$1 tool=$2
. tests/common/suite.sh

i=0
while [ $i -lt 200 ]; do
    printf 'the cat sat on the mat. the dog sat on the log. the cow sat on the row. '
    i=$((i + 1))
done >"$work/text"
model="base_emb_dim=64 base_num_decoder_layers=2 base_num_query_heads=4 base_num_kv_heads=2 head_dim=16 base_mlp_dim=128 vocab_size=260"
learn() { # learn NAME WORD...
    name=$1
    shift
    # shellcheck disable=SC2086
    "$train" --config configs/base.yml run_name="$name" base_output_directory="$work" text_train_files="$work/text" $model max_target_length=64 \
        per_device_batch_size=4 eval_interval=-1 log_config=false "$@" >"$work/log" 2>&1 || { tail "$work/log" && exit 1; }
}
learn r steps=56 learning_rate=0.01
run=$work/r
printf 'base_config: base.yml\n' >"$work/model.yml"
for key in $model; do echo "$key" | sed 's/=/: /'; done >>"$work/model.yml"

# decode WORD... — with the model's config; what it tells, and its exit code if that is not 0.
decode() {
    "$tool" --config "$work/model.yml" "$@" 2>&1 </dev/null || echo "exit $?"
}
asked() { decode load_parameters_path="$run" prompt='the cat sat' max_prefill_predict_length=11 max_target_length=24 "$@"; }
# said WORD... — the folder's reply.
said() { printf 'the cat sat\n' | "$tool" "$run" --max-tokens 14 "$@"; }

is 'greedy, as of the folder' "$(asked)" "\"the cat sat\" -> \"$(said)\""
is 'what it learnt' "$(said)" ' on the mat. t'
# shellcheck disable=SC2086
is 'keys without a file' "$("$tool" $model load_parameters_path="$run" prompt='the cat sat' max_prefill_predict_length=11 max_target_length=24 2>&1)" "$(asked)"
is 'a file without --config' "$("$tool" "$work/model.yml" load_parameters_path="$run" prompt='the cat sat' --max-tokens 14 2>&1)" "$(asked)"
is 'a file of weights' "$(asked load_parameters_path="$run/checkpoints/55/state.h5")" "$(asked)"
is 'lines of JSON' "$(asked --json | sed 's/.*"text":\("[^"]*"\).*/\1/')" '" on the mat. t"'
is 'fewer tokens' "$(asked max_prefill_predict_length=20)" '"the cat sat" -> " on t"'
is 'no room but for the first' "$(asked max_prefill_predict_length=24)" '"the cat sat" -> " "'
is 'caches in few bits' "$(asked quantize_kvcache=true kv_quant_axis=dkv)" "$(asked)"
is 'other probabilities by codes of 4 bits' "$([ "$(asked quantize_kvcache=true kv_quant_dtype=int4 --json)" = "$(asked --json)" ] && echo same)" ''
is 'a folder of many adapters' "$(asked lora_input_adapters_path=x | head -n 1)" \
    'warning: <command line>: lora_input_adapters_path: no effect on replies: lora.lora_restore_path reads one adapter, of a run or in a folder of peft'
is 'an option takes precedence' "$(asked --max-tokens 4)" '"the cat sat" -> " on "'
is 'prompts of a file' "$(printf '"the dog sat"\n' >"$work/prompts" && asked --prompts "$work/prompts" --max-tokens 12)" ' on the log.'
is 'logits' "$(asked --logits "$work/l.h5")" 'mxdecode: error: --logits goes with --prompts
exit 2'
is 'text that no model is asked for' "$(echo '"ab"' | "$tool" --config "$work/model.yml" decode_sampling_strategy=topk --tokenize 2>&1)" '[97,98]'
is 'tasks' "$(printf '{"query":"the cat sat on the ","choices":["mat","fog"],"gold":0}\n' >"$work/task" && asked --evaluate "$work/task" | head -n 2 | tr -s ' \n' ' ')" \
    "$("$tool" "$run" --evaluate "$work/task" | head -n 2 | tr -s ' \n' ' ')"
is 'ids of a text' "$(echo '"ab"' | "$tool" --config "$work/model.yml" --tokenize 2>&1)" '[97,98]'

# What a run was for does not matter to a reply.
for what in grpo:rewards kto:labels; do
    learn "${what%:*}" steps=1 "use_${what%:*}=true" dataset_type=hf hf_path=json hf_train_files="posttrain/${what#*:}_train.jsonl" packing=false
    is "a run with use_${what%:*}" "$(printf 'the cat\n' | "$tool" "$work/${what%:*}" --max-tokens 1 >"$work/out" 2>&1 || head -n 1 "$work/out")" ''
done

# Every strategy is the options that mean the same, with a seed; temperatures come last, which only 1 does not show.
draws() { # draws STRATEGY KEYS OPTIONS
    # shellcheck disable=SC2086
    is "decode_sampling_strategy=$1" "$(asked decode_sampling_strategy="$1" $2 --seed 3 --json)" "$("$tool" "$run" --prompts "$work/prompts" --max-tokens 14 $3 --seed 3 --json)"
}
# A model that has learnt little: one that is sure draws what is likeliest.
printf '"the cat sat"\n' >"$work/prompts"
learn little steps=2 learning_rate=0.001
run=$work/little
draws weighted decode_sampling_temperature=0.5 '--temperature 0.5'
draws topk 'decode_sampling_temperature=0.7 decode_sampling_top_k=4' '--temperature 0.7 --top-k 4'
draws nucleus 'decode_sampling_nucleus_p=0.3' '--temperature 1 --top-p 0.3'
draws composite 'decode_sampling_nucleus_p=0.5 decode_sampling_top_k=9' '--temperature 1 --top-p 0.5 --top-k 9'
draws greedy '' ''
is 'another seed' "$([ "$(asked decode_sampling_strategy=weighted)" = "$(asked decode_sampling_strategy=weighted --seed 4)" ] && echo same)" ''
is 'keys that the strategy does not read' "$(asked decode_sampling_top_k=4 | head -n 1)" \
    'warning: decode_sampling_top_k: 4 has no effect: decode_sampling_strategy=greedy does not read it'
run=$work/r
hot() { asked decode_sampling_strategy=nucleus decode_sampling_nucleus_p=0.1 decode_sampling_temperature=100; }
is 'a nucleus is found before the temperature' "$(hot)" "$(asked)"

# What the reply must begin with.
is 'as it should' "$(asked autoregressive_decode_assert='on the mat')" "$(asked)"
is 'other than it should' "$(asked autoregressive_decode_assert='on the dog')" '"the cat sat" -> " on the mat. t"
mxdecode: error: <command line>: autoregressive_decode_assert: the reply " on the mat. t" does not begin with "on the dog"
exit 1'
is 'longer than the reply' "$(asked --max-tokens 4 autoregressive_decode_assert='on the mat' | tail -n 1)" 'exit 1'

# Templates: the prompt as a message, and the message before it.
first() { decode load_parameters_path="$run" max_prefill_predict_length=99 --max-tokens 9 "$@" | sed 's/.* -> //'; }
chat=chat_template_path=chatml
is 'a template' "$(first prompt='the cat sat' use_chat_template=true $chat)" \
    "\"$(printf 'the cat sat\n' | "$tool" "$run" --chat --chat-template chatml --max-tokens 9)\""
printf '{"messages":[{"role":"system","content":"the dog"},{"role":"user","content":"the cat sat"}]}\n' >"$work/talk"
is 'a message of the system' "$(first prompt='the cat sat' use_chat_template=true system_prompt='the dog' $chat --json)" \
    "$("$tool" "$run" --prompts "$work/talk" --chat-template chatml --max-tokens 9 --json)"
is 'the text of a template' "$(first prompt='the cat sat' use_chat_template=true chat_template='"{{messages[0].content}}"')" "$(first prompt='the cat sat')"
is 'no template' "$(first prompt=x use_chat_template=true | tail -n 3)" 'mxdecode: error: the tokenizer has no chat template
hint: name one by chat_template_path (mxdecode: --chat-template): "chatml", "llama3", "gemma", "mistral", or a file of Jinja
exit 2'

# A tokenizer of others: add_bos decides whether its bos stands before the prompt.
learn bos steps=9 learning_rate=0.01 tokenizer_type=huggingface tokenizer_path=tests/golden/hf/tokenizers/llama2 vocab_size=900
ids() { decode load_parameters_path="$work/bos" vocab_size=900 prompt='"First Citizen:"' --max-tokens 6 --json "$@" | sed 's/,"text.*//'; }
printf '[1,689,337,752,830]\n[689,337,752,830]\n' >"$work/ids"
"$tool" "$work/bos" --prompts "$work/ids" --max-tokens 6 --json | sed 's/,"text.*//' >"$work/wanted"
named="tokenizer_type=huggingface tokenizer_path=tests/golden/hf/tokenizers/llama2"
# shellcheck disable=SC2086
is 'with bos' "$(ids $named max_prefill_predict_length=5)" "$(sed -n 1p "$work/wanted")"
# shellcheck disable=SC2086
is 'without bos' "$(ids $named add_bos=false max_prefill_predict_length=4)" "$(sed -n 2p "$work/wanted")"
is 'the tokenizer of the weights' "$(ids tokenizer_type=huggingface)" "$(sed -n 1p "$work/wanted")"

# Adapters over the weights that they were trained with.
learn adapters steps=3 learning_rate=0.1 load_parameters_path="$work/r" lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4
is 'adapters' "$(asked lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=4 lora.lora_restore_path="$work/adapters" --json)" \
    "$("$tool" "$work/adapters" --prompts "$work/prompts" --max-tokens 14 --json)"
is 'adapters change replies' "$([ "$(asked --json)" = "$("$tool" "$work/adapters" --prompts "$work/prompts" --max-tokens 14 --json)" ] && echo same)" ''
is 'another alpha' "$(asked lora.enable_lora=true lora.lora_rank=2 lora.lora_alpha=8 lora.lora_restore_path="$work/adapters" | head -n 1)" \
    "mxdecode: error: <command line>: lora.lora_alpha: 8 is not the lora_alpha of the adapters in $work/adapters, which is 4.0"

# A folder of Hugging Face's under the config that mxconvert makes of it.
hf=tests/golden/hf/models/llama
"$(dirname "$tool")/mxconvert" $hf "$work/converted" >"$work/log" 2>&1 || cat "$work/log"
printf '[3,65,140,61,140,49,88]\n' >"$work/ids"
ids_of() { "$tool" "$@" --prompts "$work/ids" --max-tokens 5 --json 2>&1 | sed 's/"text":[^[]*//'; }
is 'a folder of Hugging Face' "$(ids_of "$work/converted/model.yml" load_parameters_path=$hf)" "$(ids_of $hf)"
is 'in few bits' "$(ids_of "$work/converted/model.yml" load_parameters_path=$hf --weights nf4)" "$(ids_of $hf --weights nf4)"
is 'in another dtype' "$(ids_of "$work/converted/model.yml" load_parameters_path=$hf --dtype bfloat16)" "$(ids_of $hf --dtype bfloat16)"
is 'which counts' "$([ "$(ids_of $hf)" = "$(ids_of $hf --dtype bfloat16)" ] && echo same)" ''

# A conversation on stdin, of a config too.
is 'a conversation' "$(printf 'the cat sat\nthe dog\n' | "$tool" "$work/model.yml" load_parameters_path="$run" $chat --chat --max-tokens 9 2>&1)" \
    "$(printf 'the cat sat\nthe dog\n' | "$tool" "$run" --chat --chat-template chatml --max-tokens 9)"

# Weights from the seed, as a run starts with.
learn start steps=1 learning_rate=0
is 'no weights' "$(decode prompt='the cat sat' max_prefill_predict_length=11 --max-tokens 6 --json)" \
    "warning: load_parameters_path is empty: the weights are initialised with init_weights_seed=0
$("$tool" "$work/start" --prompts "$work/prompts" --max-tokens 6 --json)"

# What is wrong is told as by mxtrain.
fails() { # fails NAME WANTED WORD...
    name=$1 wanted=$2
    shift 2
    is "$name" "$("$tool" "$@" 2>&1 </dev/null || echo "exit $?")" "$wanted"
}
fails 'a key of a folder' "mxdecode: error: \"prompt=x\" does not go with the folder \"$run\", which has a config of its own
hint: mxdecode --config FILE.yml load_parameters_path=$run KEY=VALUE ...
exit 2" "$run" prompt=x
fails 'neither' 'mxdecode: error: wanted one folder or a config; mxdecode --help tells more
exit 2' --max-tokens 3
fails 'a key that is none' "mxdecode: error: <command line>: unrecognized key \"promt\"
  promt=x
  ^
hint: did you mean \"prompt\"?
exit 2" "$work/model.yml" promt=x
fails 'a line of a file' "mxdecode: error: $work/bad.yml:2:27: decode_sampling_strategy: unrecognized value \"top\", wants one of greedy, weighted, nucleus, topk, composite
  2 | decode_sampling_strategy: top
    |                           ^
hint: did you mean \"topk\"?
exit 2" --config "$(printf 'base_config: base.yml\ndecode_sampling_strategy: top\n' >"$work/bad.yml" && echo "$work/bad.yml")"
fails 'what is not built' 'mxdecode: error: <command line>: quantize_logits_proj: not available yet (got true; only false works now)
  quantize_logits_proj=true
                       ^
exit 2' "$work/model.yml" quantize_logits_proj=true
fails 'a strategy without its number' 'mxdecode: error: <command line>: decode_sampling_top_k: 0; decode_sampling_strategy=topk wants a number above 0
  decode_sampling_top_k=0
                        ^
exit 2' "$work/model.yml" decode_sampling_strategy=topk decode_sampling_top_k=0
is 'a prompt that is too long' "$(asked max_prefill_predict_length=10 | sed -n '1p;$p')" \
    'mxdecode: error: <command line>: max_prefill_predict_length: 10, but the prompt has 11 tokens
exit 2'
fails 'a whole state' 'mxdecode: error: <command line>: load_full_state_path: replies need no whole state; load_parameters_path reads the parameters alone
  load_full_state_path=x
                       ^
exit 2' "$work/model.yml" load_full_state_path=x
is 'weights in a bucket' "$(asked load_parameters_path=gs://b/x | sed -n '1p;$p')" \
    'mxdecode: error: <command line>: load_parameters_path: "gs://b/x" is elsewhere, wants a path of this machine
exit 2'
is 'no such weights' "$(asked load_parameters_path="$work/nothing")" "mxdecode: error: <command line>: load_parameters_path: there is no \"$work/nothing\" here
exit 65"
is 'weights of another model' "$(asked base_mlp_dim=64 | tail -n 1)" 'exit 65'
is 'a preset' "$(decode model_name=no-such | head -n 1)" 'mxdecode: error: <command line>: model_name: unrecognized model "no-such"'
is 'a mesh' "$(asked ici_tensor_parallelism=4 ici_fsdp_parallelism=1 | head -n 1)" 'warning: the mesh of 4 devices has no effect: replies come from one process'
is 'keys of training' "$(asked steps=10 dataset_type=hf per_device_batch_size=9 warmup_steps_fraction=0.3 use_dpo=true)" "$(asked)"
is 'keys of decoding in a run' "$("$train" --config "$work/model.yml" steps=1 prompt=x --dump-config /dev/null 2>&1)" \
    'warning: <command line>: prompt: no effect on training: mxdecode --config reads it'
finish

#!/bin/sh
# reply.sh MXTRAIN MXDECODE MXCOMPARE MXCONVERT — replies of models as users get them: of a folder of Hugging
# Face's, and of a run that the script trains on text of bytes.  Run from the top folder.
set -u
train=$1 tool=$2 compare=$3 convert=$4
hf=tests/golden/hf/models
. tests/common/suite.sh

# says CODE WANTED WORD... — what the tool tells, and its exit code.
says() {
    code=$1 wanted=$2
    shift 2
    got=$("$tool" "$@" 2>&1 </dev/null)
    is "mxdecode $*" "$? $got" "$code $wanted"
}

# A folder without a tokenizer; that its ids are those of transformers is tested in tests/generate.
printf '[3,5,40]\n' >"$work/few"
printf '%s\n' '{"prompt":[3,65,140,61,140,49,88]}' '[1,2,3]' >"$work/ids"
"$tool" $hf/llama --prompts "$work/ids" --max-tokens 5 --temperature 0 --json >"$work/out" || failed=$((failed + 1))
is 'keys of a line' "$(sed -n 's/^{"ids":\[[0-9,]*\],"text":null,"logprobs":\[[-0-9.,e]*\]}$/ok/p' "$work/out" | tr -d '\n')" okok
is 'as many ids as were asked for' "$(sed -n '1s/.*"ids":\([^]]*\]\).*/\1/p' "$work/out" | tr -cd , | wc -c | tr -d ' ')" 4
# Trained on ids, from a folder without a tokenizer: there is none to ask for.
"$convert" $hf/llama_linear "$work/plain" >"$work/log" 2>&1 || cat "$work/log"
"$train" --config "$work/plain/model.yml" run_name=on_ids base_output_directory="$work" load_parameters_path=$hf/llama_linear dataset_type=synthetic steps=1 \
    max_target_length=16 per_device_batch_size=1 eval_interval=-1 log_config=false >"$work/log" 2>&1 || cat "$work/log"
is 'a run that knows ids alone' "$("$tool" "$work/on_ids" --prompts "$work/few" --max-tokens 2 --json 2>&1 | sed 's/.*"text":null.*/ok/')" ok
says 65 "mxdecode: error: \"tests/golden/train/peft_qv_rslora\" holds adapters of peft, wanted the model that they belong to
hint: name its config: mxdecode FILE.yml load_parameters_path=MODEL lora.enable_lora=true lora.lora_restore_path=tests/golden/train/peft_qv_rslora …" \
    tests/golden/train/peft_qv_rslora --prompts "$work/few"

i=0
: >"$work/text"
while [ $i -lt 200 ]; do
    printf 'the cat sat on the mat. the dog sat on the log. the cow sat on the row. '
    i=$((i + 1))
done >"$work/text"
printf '%s\n' '"the cat sat"' '' '{"prompt":"the cow sat on","other":1}' '[116,104,101,32,100,111,103]' >"$work/prompts"
train() { # train NAME WORD...
    name=$1
    shift
    "$train" --config configs/base.yml run_name="$name" base_output_directory="$work" steps=56 text_train_files="$work/text" \
    base_emb_dim=64 base_num_decoder_layers=2 base_num_query_heads=4 base_num_kv_heads=2 head_dim=16 base_mlp_dim=128 \
    vocab_size=260 max_target_length=64 per_device_batch_size=4 learning_rate=0.01 log_config=false text_eval_files="$work/text" eval_interval=28 eval_steps=1 "$@" 2>&1
}
printf '%s\n' '{"query":"the cat sat on","choices":["the mat.","the fog."],"gold":0}' '{"query":"the cow sat on","choices":["a row.","the row."],"gold":0}' >"$work/choices.jsonl"
printf '%s\n' '{"question":"the dog sat on the log. the cow sat on the ","answer":"row."}' '{"question":"the cat sat on the ","answer":"dog"}' >"$work/answers.jsonl"
printf '{"text":"the cat sat on the mat. the dog sat on the log. the cow sat on the row. the cat sat on the mat. the dog"}\n' >"$work/texts.jsonl"
tasks="eval_tasks=[$work/choices.jsonl,$work/answers.jsonl,$work/texts.jsonl] eval_tasks_max_tokens=4"
# shellcheck disable=SC2086
if ! train r sample_prompts="$work/prompts" sample_interval=28 sample_max_tokens=9 $tasks >"$work/log" || ! train s >"$work/log2"; then
    tail "$work/log"
    exit 1
fi
run=$work/r

# What a run says while it trains changes nothing else.
is 'samples of a run' "$(sed -n 's/^.*\(sample 0 after step 55: .*\)/\1/p' "$work/r/run.log")" 'sample 0 after step 55: "the cat sat" -> " on the m"'
is 'as many as are due' "$(grep -c 'sample [012] after step \(27\|55\): "' "$work/log")" 6
is 'texts for TensorBoard' "$(grep -a -o 'sample_2/text_summary' "$work"/r/tensorboard/* | wc -l)" 2
is 'the same weights' "$("$compare" "$work/r" "$work/s" >"$work/compared" 2>&1; echo $?)" 0
is 'prompts that are too long' "$(train t sample_prompts="$work/prompts" max_target_length=10 | grep -o 'sample_prompts: prompt 0 has 11 tokens.*')" \
    'sample_prompts: prompt 0 has 11 tokens, wanted at most 10 and room for sample_max_tokens=64'
train v steps=1 decoder_block=gpt3 base_num_kv_heads=4 trainable_position_size=64 >"$work/log3" || tail "$work/log3"
says 65 'mxdecode: error: prompt 1 has 14 tokens; with 51 more that is above 64' "$work/v" --prompts "$work/prompts" --max-tokens 51 --json
printf '{"query":"%070d","choices":["a","bb"],"gold":0}\n' 0 >"$work/long.jsonl"
says 65 "mxdecode: error: $work/long.jsonl:1: the question has 72 tokens with its answer, and the model 64 positions" "$work/v" --evaluate "$work/long.jsonl"
echo '{"messages":[{"role":"user","content":"the"}]}' >"$work/talk"
is 'a sample of a conversation' "$(train w steps=1 sample_prompts="$work/talk" sample_max_tokens=2 chat_template_path=chatml | grep -o 'sample 0 after .*assistant.n"')" \
    'sample 0 after step 0: "<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n"'
is 'no template for it' "$(train t sample_prompts="$work/talk" | grep -o 'sample_prompts: .*')" \
    "sample_prompts: $work/talk:1: found a conversation, but there is no chat template for it"
is 'no such file' "$(train t sample_prompts="$work/nothing" | grep -o 'sample_prompts: could not open')" 'sample_prompts: could not open'

# Tasks: as mxdecode examines the weights that the run ends with, in every evaluation, in one alone, and when a run goes on.
figure() { # figure FILE NAME — of the last line of metrics that has it
    sed -n "s#.*\"$2\": \([-0-9.e+]*\).*#\1#p" "$1" | tail -n 1 | awk '{ printf "%.5g", $1 }'
}
for task in choices answers texts; do
    "$tool" "$run" --evaluate "$work/$task.jsonl" --max-tokens 4 --json | tail -n 1 >"$work/figures"
    for name in $(grep -o '"[a-z_]*":' "$work/figures" | tr -d '":' | grep -v '^questions$\|^texts$'); do
        is "$task $name while the run trains" "$(figure "$run/metrics.jsonl" "eval/$task/$name")" "$(figure "$work/figures" "$name")"
    done
done
is 'figures of every evaluation' "$(grep -c '"eval/choices/acc":.*"eval/answers/exact_match":.*"eval/texts/perplexity":' "$run/metrics.jsonl")" 3
is 'a line for each task' "$(sed -n 's/^.*\(task [a-z]* after step 55: [a-z]*=[0-9]*, [a-z_]*=0.5,\).*/\1/p' "$work/log" | tr '\n' '|')" \
    'task choices after step 55: questions=2, acc=0.5,|task answers after step 55: questions=2, exact_match=0.5,|'
# shellcheck disable=SC2086
train r --eval $tasks metrics_file="$work/alone.jsonl" >"$work/alone" || failed=$((failed + 1))
is 'tasks of an evaluation alone' "$(sed -n 's/.*\(task texts .*\)/\1/p' "$work/alone")" "$(sed -n 's/.*\(task texts after step 55.*\)/\1/p' "$work/log")"
is 'and their metrics' "$(figure "$work/alone.jsonl" eval/texts/perplexity)" "$(figure "$run/metrics.jsonl" eval/texts/perplexity)"
# shellcheck disable=SC2086
train u $tasks steps=30 learning_rate_schedule_steps=56 >"$work/log3" && train u $tasks >>"$work/log3" || failed=$((failed + 1))
is 'a run that goes on has the same figures' "$(grep '"eval/' "$work/u/metrics.jsonl" | tail -n 1 | sed 's/"perf[^,]*, //; s/"run_name.*//')" \
    "$(grep '"eval/' "$run/metrics.jsonl" | tail -n 1 | sed 's/"perf[^,]*, //; s/"run_name.*//')"
is 'a question that is too long' "$(train t eval_tasks="[$work/long.jsonl]" | grep -o 'eval_tasks: .*')" \
    "eval_tasks: $work/long.jsonl:1: the question has 72 tokens with its answer, more than max_target_length=64"
is 'files of one name' "$(train t eval_tasks="[$work/texts.jsonl,$work/../$(basename "$work")/texts.jsonl]" | grep -o 'has the name of another one.*')" \
    'has the name of another one; metrics would be the same'
is 'no tokenizer' "$(train t eval_tasks="[$work/texts.jsonl]" dataset_type=synthetic | grep -o 'eval_tasks: dataset_type.*')" \
    'eval_tasks: dataset_type=synthetic has no tokenizer, which questions want'
is 'a pipeline' "$(train t eval_tasks="[$work/texts.jsonl]" ici_pipeline_parallelism=2 --plan | grep -o 'eval_tasks: not available.*')" \
    'eval_tasks: not available yet in a pipeline (stage=2)'
is 'no such task' "$(train t eval_tasks="[$work/nothing]" | grep -o 'eval_tasks: could not open')" 'eval_tasks: could not open'

is 'a line of stdin is a prompt' "$(printf 'the cat sat\n' | "$tool" "$run" --max-tokens 13)" ' on the mat. '
is 'more lines, more replies' "$(printf 'the cat sat\nthe dog sat' | "$tool" "$run" --max-tokens 12 | tr '\n' '|')" ' on the mat.| on the log.|'
is 'a stop ends a reply' "$(printf 'the cat sat\n' | "$tool" "$run" --max-tokens 50 --stop mat --stop nothing)" ' on the '
is 'prompts of a file' "$("$tool" "$run" --prompts "$work/prompts" --max-tokens 9 | tr '\n' '|')" ' on the m| the row.| sat on t|'
"$tool" "$run" --prompts "$work/prompts" --max-tokens 9 --json >"$work/json"
is 'text of JSON' "$(sed 's/.*"text":"\([^"]*\)".*/\1/' "$work/json" | tr '\n' '|')" ' on the m| the row.| sat on t|'
draw() { "$tool" "$run" --prompts "$work/prompts" --max-tokens 40 --temperature 2 --top-k 20 --json "$@" | sed 's/,"logprobs.*//'; }
draw --seed 4 >"$work/a"
draw --seed 4 --batch 1 >"$work/b"
draw --seed 5 >"$work/c"
is 'a batch draws what prompts draw alone' "$(cat "$work/a")" "$(cat "$work/b")"
is 'another seed draws other tokens' "$(cmp -s "$work/a" "$work/c" && echo same)" ''

# N-gram memories want the run's tokenizer, wherever the program is started: the path in the run's config is relative
# to the folder that it was trained in.
"$train" --config configs/base.yml run_name=grams base_output_directory="$work" steps=1 text_train_files="$work/text" eval_interval=-1 log_config=false \
    decoder_block=deepseek attention_type=mla base_emb_dim=32 base_num_decoder_layers=2 base_num_query_heads=2 base_num_kv_heads=2 head_dim=16 \
    base_mlp_dim=32 base_moe_mlp_dim=16 first_num_dense_layers=1 kv_lora_rank=16 qk_nope_head_dim=8 qk_rope_head_dim=8 v_head_dim=8 num_experts=4 num_experts_per_tok=2 \
    mhc_expansion_rate=2 sinkhorn_iterations=3 'engram_layers=[1]' engram_num_heads=2 engram_head_dim=16 'engram_vocab_bases=[13, 43]' \
    tokenizer_type=huggingface tokenizer_path=tests/golden/hf/tokenizers/qwen vocab_size=1152 max_target_length=32 per_device_batch_size=2 >"$work/log4" 2>&1 ||
    { failed=$((failed + 1)) && tail -n 5 "$work/log4"; }
printf '[1,2,3]\n' >"$work/grams_ids"
absolute=$(readlink -f "$tool")
there=$(cd / && "$absolute" "$work/grams" --prompts "$work/grams_ids" --max-tokens 4 --temperature 0 --json 2>&1)
is 'n-gram memories, in another folder' "$there" "$("$tool" "$work/grams" --prompts "$work/grams_ids" --max-tokens 4 --temperature 0 --json)"

# Conversations: the template's text is the prompt, and a reply stands before the next message.
printf '{"messages":[{"role":"user","content":"the cat sat"}]}\n' >"$work/chat"
printf '"<|im_start|>user\\nthe cat sat<|im_end|>\\n<|im_start|>assistant\\n"\n' >"$work/same"
said() { "$tool" "$run" --max-tokens 9 --json --prompts "$@" | sed 's/.*"text":"\([^"]*\)".*/\1/'; }
is 'a conversation as a prompt' "$(said "$work/chat" --chat-template chatml)" "$(said "$work/same")"
first=$(printf 'the cat sat\n' | "$tool" "$run" --chat --chat-template chatml --max-tokens 9)
printf '{"messages":[{"role":"user","content":"the cat sat"},{"role":"assistant","content":"%s"},{"role":"user","content":"the dog"}]}\n' "$first" >"$work/chat"
is 'messages of one conversation' "$(printf 'the cat sat\nthe dog\n' | "$tool" "$run" --chat --chat-template chatml --max-tokens 9)" \
    "$(printf '%s\n%s' "$first" "$(said "$work/chat" --chat-template chatml)")"
says 2 "mxdecode: error: the tokenizer has no chat template
hint: name one by chat_template_path (mxdecode: --chat-template): \"chatml\", \"llama3\", \"gemma\", \"mistral\", or a file of Jinja" "$run" --chat
says 65 "mxdecode: error: $work/chat:1: found a conversation, but there is no chat template for it" "$run" --prompts "$work/chat"
says 2 'mxdecode: error: --stop: found an empty text, wanted one that ends a reply' "$run" --stop ''

echo '{"type": "object", "properties": {"on": {"enum": ["mat", "log"]}, "n": {"type": "integer", "minimum": 3, "maximum": 5}}, "required": ["on", "n"]}' >"$work/fits"
is 'replies that fit a schema' "$("$tool" "$run" --prompts "$work/prompts" --json-schema "$work/fits" --temperature 1 --batch 2 --max-tokens 400 | tr -d ' \n\t' | sed 's/}/}\n/g' |
    grep -c '^{"on":"\(mat\|log\)","n":[345]}$')" 3
# A model that reasons does so first; what it is cut off in is no answer.
printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}{%% if add_generation_prompt %%}<think>{%% endif %%}' >"$work/reasons.jinja"
is 'reasoning before a schema' "$("$tool" "$run" --prompts "$work/chat" --chat-template "$work/reasons.jinja" --json-schema "$work/fits" --max-tokens 5 --json |
    grep -c '"reasoning":"..*","text":"","logprobs"')" 1
is 'reasoning is not printed' "$("$tool" "$run" --prompts "$work/chat" --chat-template "$work/reasons.jinja" --json-schema "$work/fits" --max-tokens 5)" ''
echo '{"items": {"not": {"format": "date"}}}' >"$work/misfits"
says 65 "mxdecode: error: $work/misfits: at #/items/not: the opposite of \"format\" is not available" "$run" --prompts "$work/prompts" --json-schema "$work/misfits"
says 2 "mxdecode: error: --json-schema: \"$hf/llama\" has no tokenizer" $hf/llama --prompts "$work/ids" --json-schema "$work/fits"
says 2 'mxdecode: error: --json-schema does not go with --serve' "$run" --serve 0 --json-schema "$work/fits"
# It was divided by the tokens of an image, 0.
says 65 'mxdecode: error: --image: the model has no encoder of images that is used here' "$run" --image share/mxtrain/images/eval_blue_circle_0.png
says 2 'mxdecode: error: --chat does not go with --tokenize' "$run" --tokenize --chat

# Logits: of the same model in pieces of other lengths, of its weights in bf16, of other prompts.
"$tool" $hf/llama --prompts "$work/ids" --logits "$work/a.h5"
"$tool" $hf/llama_bf16 --prompts "$work/ids" --logits "$work/b.h5"
printf '[4,5]\n[1,2,3]\n' >"$work/others"
"$tool" $hf/llama --prompts "$work/others" --logits "$work/c.h5"
compared() { # compared CODE LAST-LINE WORD...
    code=$1 wanted=$2
    shift 2
    got=$("$compare" --logits "$@" 2>&1)
    is "mxcompare --logits $*" "$? $(printf '%s\n' "$got" | tail -n 1)" "$code $wanted"
}
compared 0 equal "$work/a.h5" "$work/a.h5"
compared 1 different "$work/a.h5" "$work/b.h5"
compared 0 equal "$work/a.h5" "$work/b.h5" --max-kl 0.001
compared 1 different "$work/a.h5" "$work/b.h5" --max-kl 1e-7 --top-k 3
compared 65 'mxcompare: error: prompt 0: logits [7, 160], and [2, 160] in the second file' "$work/a.h5" "$work/c.h5"
compared 2 'mxcompare: error: --rtol does not go with --logits' "$work/a.h5" "$work/a.h5" --rtol 1
is 'a report as JSON' "$("$compare" --logits "$work/a.h5" "$work/b.h5" --max-kl 0.001 --json - | sed -n 's/.*"equal": //p')" true

printf '%s\n' '"a"' '{"text":"a"}' >"$work/bad"
says 65 "mxdecode: error: $work/bad:2: found an object without \"prompt\", wanted {\"prompt\": \"...\"} or {\"messages\": [...]}" "$run" --prompts "$work/bad"
printf '7\n' >"$work/bad"
says 65 "mxdecode: error: $work/bad:1: found a number, wanted a text, a list of ids, or {\"prompt\": one of these}" "$run" --prompts "$work/bad"
printf '[1,-2]\n' >"$work/bad"
says 65 "mxdecode: error: $work/bad:1: item 1 is no token id" "$run" --prompts "$work/bad"

# A model of Hugging Face's that cannot be run as it is: its member is named, and weights converted from it remember that.
mkdir "$work/theta"
cp tests/golden/hf/models/llama_linear/model.safetensors "$work/theta"
sed 's/"rope_theta": 100.0/"rope_theta": 100.5/' tests/golden/hf/models/llama_linear/config.json >"$work/theta/config.json"
says 65 "mxdecode: error: $work/theta/config.json: not available in mxtrain: rope_theta: found 100.5" "$work/theta" --prompts "$work/bad"
"$convert" "$work/theta" "$work/theta_ours" >"$work/log" 2>&1 || cat "$work/log"
says 65 "mxdecode: error: $work/theta_ours/config.json: not available in mxtrain: rope_theta: found 100.5" "$work/theta_ours" --prompts "$work/bad"
printf '[1,300]\n' >"$work/bad"
says 65 'mxdecode: error: prompt 0: token 1 is 300, and the model has ids from 0 to 259' "$run" --prompts "$work/bad"
printf '""\n' >"$work/bad"
says 65 'mxdecode: error: prompt 0 has no tokens' $run --prompts "$work/bad"
printf '"a"\n' >"$work/bad"
says 65 "mxdecode: error: $work/bad:1: found a text, but the model has no tokenizer; wanted a list of ids" $hf/llama --prompts "$work/bad"
: >"$work/bad"
says 65 "mxdecode: error: $work/bad: holds no prompts" "$run" --prompts "$work/bad"
says 65 "mxdecode: error: \"$hf/llama\" has no tokenizer; --prompts takes ids" $hf/llama
says 2 "mxdecode: error: --stop: \"$hf/llama\" has no tokenizer" $hf/llama --prompts "$work/ids" --stop a
says 2 'mxdecode: error: top-p: found 2, wanted a number above 0, up to 1' "$run" --prompts "$work/ids" --top-p 2
says 2 'mxdecode: error: --presence-penalty: found "-3", wanted a number from -2 to 2' "$run" --prompts "$work/ids" --presence-penalty -3
"$tool" "$run" --prompts "$work/ids" --max-tokens 9 --temperature 0 --presence-penalty -2 --frequency-penalty -2 --json >"$work/out"
is 'what was said draws with penalties below 0' "$?" 0
says 2 'mxdecode: error: --logits goes with --prompts' "$run" --logits "$work/l.h5"
finish

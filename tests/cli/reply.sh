#!/bin/sh
# reply.sh MXTRAIN MXDECODE MXCOMPARE — replies of models as users get them: of a folder of Hugging
# Face's, and of a run that the script trains on text of bytes.  Run from the top folder.
set -u
train=$1 tool=$2 compare=$3
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
printf '%s\n' '{"prompt":[3,65,140,61,140,49,88]}' '[1,2,3]' >"$work/ids"
"$tool" $hf/llama --prompts "$work/ids" --max-tokens 5 --temperature 0 --json >"$work/out" || failed=$((failed + 1))
is 'keys of a line' "$(sed -n 's/^{"ids":\[[0-9,]*\],"text":null,"logprobs":\[[-0-9.,e]*\]}$/ok/p' "$work/out" | tr -d '\n')" okok
is 'as many ids as were asked for' "$(sed -n '1s/.*"ids":\([^]]*\]\).*/\1/p' "$work/out" | tr -cd , | wc -c | tr -d ' ')" 4

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
    vocab_size=260 max_target_length=64 per_device_batch_size=4 learning_rate=0.01 log_config=false eval_interval=-1 "$@" 2>&1
}
if ! train r sample_prompts="$work/prompts" sample_interval=28 sample_max_tokens=9 >"$work/log" || ! train s >"$work/log2"; then
    tail "$work/log"
    exit 1
fi
run=$work/r

# What a run says while it trains changes nothing else.
is 'samples of a run' "$(sed -n 's/^.*\(sample 0 after step 55: .*\)/\1/p' "$work/r/run.log")" 'sample 0 after step 55: "the cat sat" -> " on the m"'
is 'as many as are due' "$(grep -c 'sample [012] after step \(27\|55\): "' "$work/log")" 6
is 'texts for TensorBoard' "$(grep -a -o 'sample_2/text_summary' "$work"/r/tensorboard/* | wc -l)" 2
is 'the same weights' "$("$compare" "$work/r" "$work/s" >"$work/compared" 2>&1; echo $?)" 0
is 'prompts that are too long' "$(train t sample_prompts="$work/prompts" sample_max_tokens=60 | grep -o 'sample_prompts: prompt 0 has 11 tokens.*')" \
    'sample_prompts: prompt 0 has 11 tokens; with sample_max_tokens=60 that is more than max_target_length=64'
is 'no such file' "$(train t sample_prompts="$work/nothing" | grep -o 'sample_prompts: could not open')" 'sample_prompts: could not open'
is 'several devices' "$(train t sample_prompts="$work/prompts" ici_data_parallelism=2 --plan | grep -o 'sample_prompts: not available yet on a mesh.*')" \
    'sample_prompts: not available yet on a mesh of several devices (2)'

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
says 2 'mxdecode: error: --logits goes with --prompts' "$run" --logits "$work/l.h5"
finish

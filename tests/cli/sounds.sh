#!/bin/sh
# sounds.sh BIN — training on sounds and asking about them as users do it: meshes and accumulation give what one
# run on one rank gives, replies are the same whoever names the sound, and what is wrong with files is told with the line of
# their record.  Run from the top folder.
set -u
bin=$1
. tests/common/suite.sh
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive ASAN_OPTIONS=detect_leaks=0

# The bundled tokenizer, with what Qwen 3-Omni calls a token of an image and of a sound.
mkdir "$work/tokenizer"
for file in tokenizer.json tokenizer_config.json; do
    sed 's/<image_soft_token>/<|image_pad|>/g; s/<end_of_image>/<|audio_pad|>/g' "share/mxtrain/images/tokenizer/$file" >"$work/tokenizer/$file"
done
cp share/mxtrain/images/train_green_square_0.png "$work/green.png"
cat >"$work/chat.jinja" <<'JINJA'
{%- for message in messages %}{{ message['role'] }}:{% if message['content'] is string %}{{ message['content'] }}{% else %}
{%- for item in message['content'] %}{% if item['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% elif item['type'] == 'audio' %}<|audio_start|><|audio_pad|><|audio_end|>{% else %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}
{%- endfor %}
JINJA

# wav FILE WORD SAMPLES — 8 bits at 16 kHz, below 65536 samples: a word again and again.
wav() {
    low=$(printf '%03o' $(($3 % 256))) high=$(printf '%03o' $(($3 / 256)))
    { printf 'RIFF\377\377\0\0WAVEfmt \020\0\0\0\001\0\001\0\200\076\0\0\200\076\0\0\001\0\010\0data'
      printf "\\$low\\$high\\0\\0"
      yes "$2" | tr -d '\n' | head -c "$3"; } >"$work/$1"
}
wav low.wav aaaaaaaaAAAAAAAA 9600
wav high.wav aA 25600
wav short.wav a 200
wav long.wav a 48000
echo 'no sound' >"$work/text.wav"

sound() { echo '{"type": "audio", "audio": "'"$1"'"}'; }
user() { echo '{"messages": [{"role": "user", "content": ['"$1"'{"type": "text", "text": "?"}]}, {"role": "assistant", "content": "'"$2"'"}]}'; }
for i in 1 2 3 4; do
    user "$(sound low.wav)," low
    user "$(sound high.wav),{\"type\": \"image\", \"path\": \"green.png\"},$(sound low.wav)," both
    user '' none
    user '{"type": "image", "path": "green.png"},' green
done >"$work/train.jsonl"

keys="decoder_block=qwen3_moe base_num_decoder_layers=2 num_experts=2 num_experts_per_tok=1 base_moe_mlp_dim=16 base_emb_dim=16
    base_num_query_heads=2 base_num_kv_heads=2 head_dim=8 base_mlp_dim=16 vocab_size=264 use_qk_norm=true use_multimodal=true
    vision_encoder_block=qwen3_omni image_size_for_vit=28 patch_size_for_vit=7 hidden_size_for_vit=16 num_hidden_layers_for_vit=1
    num_attention_heads_for_vit=2 intermediate_size_for_vit=32 out_hidden_size_for_vit=16 num_position_embeddings_for_vit=9
    deepstack_visual_indexes_for_vit=[0] use_mrope=true mrope_section=[2,1,1] max_num_images_per_example=1 load_balance_loss_weight=0
    use_audio=true freeze_audio_encoder_params=false d_model_for_audio=8 encoder_layers_for_audio=1 encoder_attention_heads_for_audio=2
    encoder_ffn_dim_for_audio=16 num_mel_bins_for_audio=16 downsample_hidden_size_for_audio=4 output_dim_for_audio=16
    n_window_infer_for_audio=100 max_sample_len_for_audio=300 max_target_length=160 packing=false use_sft=true dataset_type=hf
    hf_path=json tokenizer_type=huggingface chat_template_path=$work/chat.jinja eval_interval=-1 learning_rate=0.01 log_config=false
    warmup_steps_fraction=0 learning_rate_schedule_steps=4 sft_train_on_completion_only=true"
# run NAME RANKS KEYS... — a run of a batch of four.
run() {
    name=$1 n=$2
    shift 2
    launch=
    [ "$n" -eq 1 ] || launch="mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n $n"
    # shellcheck disable=SC2086
    $launch "$bin/mxtrain" $keys tokenizer_path="$work/tokenizer" hf_train_files="$work/train.jsonl" \
        base_output_directory="$work/out" run_name="$name" "$@" >"$work/$name.log" 2>"$work/$name.err" </dev/null
}
losses() { sed -n 's/.*"learning\/loss": \([0-9.]*\),.*"step": *\([0-9]*\).*/\2 \1/p' "$work/out/$1/metrics.jsonl"; }
# near A B — whether all losses of two runs are alike, and there are four.
near() {
    losses "$1" >"$work/a"
    losses "$2" >"$work/b"
    paste "$work/a" "$work/b" | awk '{ d = $2 - $4; if (d < 0) d = -d; bad += $1 != $3 || d > 0.00005 } END { print NR == 4 && !bad ? "alike" : "other losses, " NR }'
}

# sees RUN — whether a policy that wrote replies saw then what it sees when it learns from them: every ratio is 1, and a group's
# advantages have the sum 0. Some must have been rewarded.
sees() {
    sed -n 's/.*"learning\/loss": \([-0-9.e]*\),.*"learning\/raw_grad_norm": \([0-9.e-]*\),.*/\1 \2/p' "$work/out/$1/metrics.jsonl" |
        awk '{ bad += $1 > 1e-6 || $1 < -1e-6; norm += $2 } END { print (NR == 4 && norm > 0.01 ? bad + 0 " other" : "no replies, " NR " " norm) }'
}
policy="steps=4 per_device_batch_size=4 use_sft=false use_grpo=true rl.num_generations=4 rl.reward=regex rl.reward_pattern='[a-m]'
    rl.grpo_beta=0 rl.recorded_logprobs=true enable_checkpointing=false"

run one 1 steps=4 per_device_batch_size=4
first=$(losses one | sed -n '1s/.* //p')
last=$(losses one | sed -n '4s/.* //p')
is "it learns: $first to $last" "$(awk "BEGIN { print ($last < $first) }")" 1
while read -r name n more; do
    # shellcheck disable=SC2086
    run "$name" "$n" steps=4 $more
    is "$name" "$(near one "$name")" alike
done <<FORMS
full 1 per_device_batch_size=4 remat_policy=full
accumulation 1 per_device_batch_size=2 gradient_accumulation_steps=2
data 2 per_device_batch_size=2 ici_data_parallelism=2
fsdp 2 per_device_batch_size=2 ici_fsdp_parallelism=2
tensor 2 per_device_batch_size=2 ici_tensor_parallelism=2
FORMS
sed 's/, {"role": "assistant".*}]}/]}/' "$work/train.jsonl" >"$work/ask.jsonl"
# shellcheck disable=SC2086
run replies 1 $policy max_prefill_predict_length=144 hf_train_files="$work/ask.jsonl"
is 'replies of a policy that hears' "$(sees replies)" '0 other'
wav low.wav aA 9600
run other 1 steps=4 per_device_batch_size=4
is 'what is heard counts' "$(near one other)" 'other losses, 4'
wav low.wav aaaaaaaaAAAAAAAA 9600

# ---- replies

said() { "$bin/mxdecode" "$work/out/one" --chat-template "$work/chat.jinja" --max-tokens 8 "$@" 2>&1; }
reply() { said --json "$@"; }
ask() { echo '{"messages": [{"role": "user", "content": ['"$1"'{"type": "text", "text": "Which?"}]}]}'; }
data=$(base64 <"$work/high.wav" | tr -d '\n')
ask "$(sound high.wav)," >"$work/ask.jsonl"
ask '{"type": "input_audio", "input_audio": {"data": "'"$data"'", "format": "wav"}},' >"$work/ask_data.jsonl"
ask '' >"$work/ask_nothing.jsonl"
ask "$(sound none.wav)," >"$work/ask_none.jsonl"
ask "$(sound long.wav)$(printf ',')$(sound low.wav)," >"$work/ask_long.jsonl"
reply --prompts "$work/ask.jsonl" >"$work/reply"
is 'a reply' "$(grep -c '^{"ids":\[[0-9,]*\],"text":"' "$work/reply")" 1
is 'a sound of a request' "$(reply --prompts "$work/ask_data.jsonl")" "$(cat "$work/reply")"
is 'a sound of the command line' "$(echo 'Which?' | said --chat --audio "$work/high.wav")" "$(said --prompts "$work/ask.jsonl")"
# asked WORD... — the same by a config: its sound has a place where the prompt says so, or comes first.
asked() {
    # shellcheck disable=SC2086
    "$bin/mxdecode" $keys load_parameters_path="$work/out/one" tokenizer_path="$work/tokenizer" max_prefill_predict_length=99 \
        audio_path="$work/high.wav" --max-tokens 8 --json "$@" 2>&1
}
is 'a sound of a config' "$(asked prompt='Which?')" "$(cat "$work/reply")"
is 'its mark' "$(asked prompt='<|audio_start|><|audio_pad|><|audio_end|>Which?')" "$(cat "$work/reply")"
is 'its placeholder' "$(asked prompt='"[x]Which?"' audio_placeholder='"[x]"')" "$(cat "$work/reply")"
is 'another place, another reply' "$(asked prompt='Which?<|audio|>' | cmp -s - "$work/reply" && echo same)" ''
is 'two sounds' "$(asked prompt='<|audio|>Which?' audio_path="$work/low.wav,$work/high.wav" | cmp -s - "$work/reply" && echo same)" ''
is 'no such sound' "$(reply --prompts "$work/ask_none.jsonl" | sed "s,$work/,,g" | head -1)" \
    'mxdecode: error: ask_none.jsonl:1: sound "none.wav": no such file: "none.wav"'
is 'sounds too long together' "$(reply --prompts "$work/ask_long.jsonl" | sed "s,$work/,,g")" \
    'mxdecode: error: ask_long.jsonl:1: its sounds have 4 chunks of 100 frames, wanted at most 3 of them, as max_sample_len_for_audio (300) says'
is 'a model that hears none' "$("$bin/mxdecode" $keys use_audio=false tokenizer_path="$work/tokenizer" --prompts "$work/ask.jsonl" 2>&1 | sed "s,$work/,,g" | tail -1)" \
    'mxdecode: error: ask.jsonl:1: found a sound, but no encoder of sounds is at work here (use_audio)'

# ---- what is wrong with files

# told NAME RECORD — the message of a run whose second record is wrong.
told() {
    user '' none >"$work/train.jsonl"
    printf '%s\n' "$2" >>"$work/train.jsonl"
    run "$1" 1 steps=1 per_device_batch_size=1 enable_checkpointing=false
    sed -n "s,.*$work/train.jsonl:2: \(.*\),\1,p" "$work/$1.err" | sed "s,$work/,,g" | head -1
}
is 'a missing file' "$(told missing "$(user "$(sound none.wav)," x)")" 'sound "none.wav": no such file: "none.wav"'
is 'no sound' "$(told text "$(user "$(sound text.wav)," x)" | sed 's/: [^:]*$//')" 'sound "text.wav": is no sound of WAV, FLAC, Ogg or MP3'
is 'too short' "$(told short "$(user "$(sound short.wav)," x)")" \
    'sound "short.wav": has 200 samples at 16000 Hz, wanted at least 201, which is a frame'
is 'too long' "$(told long "$(user "$(sound long.wav),$(sound low.wav)," x)")" \
    'its sounds have 4 chunks of 100 frames, wanted at most 3 of them, as max_sample_len_for_audio (300) says'
wav longer.wav a 64000
is 'longer than all may be' "$(told longer "$(user "$(sound longer.wav)," x)" | sed 's,/[^"]*/,,')" \
    'sound "longer.wav" has 400 frames of 10 milliseconds, wanted at most 300, as max_sample_len_for_audio says'
is 'a name that is none' "$(told name "$(user '{"type": "audio"},' x)")" 'a sound is an object that names no file, wanted its name ("audio")'
is 'more places than sounds' "$(told places "$(user '{"type": "text", "text": "<|audio_start|><|audio_pad|><|audio_end|>"},' x)")" \
    '0 sounds, but its text has 1 places for one ("<|audio_start|><|audio_pad|><|audio_end|>"); does the chat template tell sounds?'
is 'a token of its own' "$(told token "$(user '{"type": "text", "text": "<|audio_pad|>"},' x)")" \
    'its text has "<|image_pad|>" or "<|audio_pad|>" itself, which only images and sounds become'
finish

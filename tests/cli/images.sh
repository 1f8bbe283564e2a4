#!/bin/sh
# images.sh BIN — training on images as users do it, of every encoder that is built: meshes, accumulation,
# what is made again and a run that goes on give what one run on one rank gives; what is wrong with files is
# told with the line of their record.  Run from the top folder.
set -u
bin=$1
. tests/common/suite.sh
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive ASAN_OPTIONS=detect_leaks=0
pictures=$PWD/share/mxtrain/images

# The bundled tokenizer, with what Llama 4, Gemma 4 and Qwen 3-VL call a token of an image.
mkdir "$work/gemma3" "$work/llama4" "$work/gemma4" "$work/qwen3_vl" "$work/qwen3_vl_moe"
for file in tokenizer.json tokenizer_config.json; do
    cp "$pictures/tokenizer/$file" "$work/gemma3"
    sed 's/<image_soft_token>/<|patch|>/g' "$pictures/tokenizer/$file" >"$work/llama4/$file"
    sed 's/<image_soft_token>/<|image|>/g' "$pictures/tokenizer/$file" >"$work/gemma4/$file"
    sed 's/<image_soft_token>/<|image_pad|>/g' "$pictures/tokenizer/$file" >"$work/qwen3_vl/$file"
    cp "$work/qwen3_vl/$file" "$work/qwen3_vl_moe"
done
cp "$pictures"/*.png "$pictures"/*.jpg "$work"
awk -F'"type": "image"' 'NF == 2 && ++n <= 16' "$pictures/train.jsonl" >"$work/train.jsonl"
sed 's/, {"role": "assistant".*}]}/]}/' "$work/train.jsonl" >"$work/ask.jsonl"
cat >"$work/chat.jinja" <<'JINJA'
{%- for message in messages %}{{ message['role'] }}:{% if message['content'] is string %}{{ message['content'] }}{% else %}
{%- for item in message['content'] %}{% if item['type'] == 'image' %}<|image|>{% else %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}
{%- endfor %}
JINJA
sed 's/<|image|>/<|vision_start|><|image_pad|><|vision_end|>/' "$work/chat.jinja" >"$work/qwen.jinja"

size="base_emb_dim=16 base_num_query_heads=2 base_num_kv_heads=2 head_dim=8 base_mlp_dim=32 vocab_size=264
    patch_size_for_vit=7 conv_stride_for_vit=7 hidden_size_for_vit=16 num_hidden_layers_for_vit=2
    num_attention_heads_for_vit=2 use_multimodal=true freeze_vision_encoder_params=false max_num_images_per_example=1 log_config=false
    max_target_length=224 packing=false use_sft=true dataset_type=hf hf_path=json tokenizer_type=huggingface
    eval_interval=-1 learning_rate=0.01 warmup_steps_fraction=0 learning_rate_schedule_steps=4 checkpoint_period=2"
gemma3="decoder_block=gemma3 base_num_decoder_layers=2 mlp_activations=[gelu,linear] logits_via_embedding=true use_post_attn_norm=true
    use_post_ffw_norm=true sliding_window_size=16 local_rope_max_timescale=10000 vision_encoder_block=gemma3 image_size_for_vit=28
    intermediate_size_for_vit=32 vision_output_length=4 chat_template_path=gemma"
llama4="decoder_block=llama4 base_num_decoder_layers=2 num_experts=2 num_experts_per_tok=1 shared_experts=1 base_moe_mlp_dim=16
    interleave_moe_layer_step=2 nope_layer_interval=2 inhomogeneous_layer_cycle_interval=2 chunk_attn_window_size=64
    vision_encoder_block=llama4 image_size_for_vit=14 tile_size_for_vit=14 intermediate_size_for_vit=64 max_num_tiles_for_vit=4
    projector_input_dim_for_vit=16 projector_output_dim_for_vit=16 vision_output_dim_for_vit=16 chat_template_path=$work/chat.jinja"

gemma4="decoder_block=gemma4 base_num_decoder_layers=6 mlp_activations=[gelu,linear] logits_via_embedding=true use_post_attn_norm=true
    use_post_ffw_norm=true sliding_window_size=16 local_rope_max_timescale=10000 global_rope_max_timescale=1000000 global_head_dim=8
    global_num_kv_heads=2 v_norm_with_scale=false vision_encoder_block=gemma4 image_size_for_vit=[14,28] intermediate_size_for_vit=32
    vision_output_length=2 rope_theta_for_vit=100 num_position_embeddings_for_vit=8 chat_template_path=$work/chat.jinja"

qwen="logits_via_embedding=true use_qk_norm=true vision_encoder_block=qwen3_vl image_size_for_vit=28 intermediate_size_for_vit=32
    out_hidden_size_for_vit=16 num_position_embeddings_for_vit=9 deepstack_visual_indexes_for_vit=[0,1] use_mrope=true mrope_section=[2,1,1]
    chat_template_path=$work/qwen.jinja"
qwen3_vl="decoder_block=qwen3 base_num_decoder_layers=2 $qwen"
qwen3_vl_moe="decoder_block=qwen3_moe base_num_decoder_layers=2 num_experts=4 num_experts_per_tok=2 base_moe_mlp_dim=32 $qwen"

# run ENCODER NAME RANKS KEYS... — a run of a batch of four; its log.
run() {
    encoder=$1 name=$2 n=$3
    shift 3
    keys=$(eval echo "\$$encoder")
    launch=
    [ "$n" -eq 1 ] || launch="mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -n $n"
    # shellcheck disable=SC2086
    $launch "$bin/mxtrain" $size $keys tokenizer_path="$work/$encoder" hf_train_files="$work/train.jsonl" \
        base_output_directory="$work/out" run_name="$encoder-$name" "$@" >"$work/$encoder-$name.log" 2>"$work/$encoder-$name.err" </dev/null
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

for encoder in gemma3 llama4 gemma4 qwen3_vl qwen3_vl_moe; do
    run $encoder one 1 steps=4 per_device_batch_size=4
    first=$(losses $encoder-one | sed -n '1s/.* //p')
    last=$(losses $encoder-one | sed -n '4s/.* //p')
    is "$encoder learns: $first to $last" "$(awk "BEGIN { print ($last < $first) }")" 1
    while read -r name n keys; do
        # shellcheck disable=SC2086
        run $encoder "$name" "$n" steps=4 $keys
        is "$encoder, $name" "$(near $encoder-one "$encoder-$name")" alike
    done <<FORMS
full 1 per_device_batch_size=4 remat_policy=full
minimal 1 per_device_batch_size=4 remat_policy=minimal
accumulation 1 per_device_batch_size=2 gradient_accumulation_steps=2
data 2 per_device_batch_size=2 ici_data_parallelism=2
fsdp 2 per_device_batch_size=2 ici_fsdp_parallelism=2
tensor 2 per_device_batch_size=2 ici_tensor_parallelism=2
FORMS
    run $encoder again 1 steps=2 per_device_batch_size=4
    run $encoder again 1 steps=4 per_device_batch_size=4
    # shellcheck disable=SC2086
    run $encoder replies 1 $policy max_prefill_predict_length=208 hf_train_files="$work/ask.jsonl"
    is "$encoder replies" "$(sees $encoder-replies)" '0 other'
    is "$encoder goes on" "$("$bin/mxcompare" "$work/out/$encoder-one" "$work/out/$encoder-again" 2>&1 | tail -1)" EQUAL
done

# ---- records without a prompt

# shown NAME RECORD WORD... — the rows of a file with that record, without its name.
shown() {
    cp "$pictures/train_green_square_0.png" "$work"
    echo "$2" >"$work/$1.jsonl"
    name=$1
    shift 2
    # shellcheck disable=SC2086
    "$bin/mxtrain" $size $gemma3 tokenizer_path="$work/gemma3" hf_train_files="$work/$name.jsonl" train_data_columns=[prompt,captions] \
        default_prompt=Tell per_device_batch_size=1 num_epoch=4 steps=1 --show-data 1 "$@" 2>"$work/$name.err" | sed 1d
}
is 'a default prompt' "$(shown lacks '{"image": "train_green_square_0.png", "captions": "a square"}')" \
    "$(shown has '{"image": "train_green_square_0.png", "captions": "a square", "prompt": "Tell"}')"
is 'a default prompt is told' "$(grep -c 'no column "prompt"; in its place default_prompt: "Tell"' "$work/lacks.err" "$work/has.err" | sed 's/.*://' | tr '\n' ' ')" '1 0 '
is 'a default prompt is there' "$(shown lacks '{"image": "train_green_square_0.png", "captions": "a square"}' | grep -c Tell)" 1

# ---- turns of a prompt and its completion

asked_of() { echo '{"image": "train_green_square_0.png", "captions": '"$1"', "prompt": "'"$2"'"}'; }
is 'turns' "$(shown turns "$(asked_of '"a square"' 'Which?')" sft_train_on_completion_only=true | sed -n 's/.*count: "\(.*\)"$/\1/p')" \
    '<start_of_turn>user\n\n\n<start_of_image><image_soft_token><image_soft_token><image_soft_token><image_soft_token><end_of_image>\n\nWhich?<end_of_turn>\n<start_of_turn>model\n
a square<end_of_turn>'
is 'a placeholder, and the first of several completions' \
    "$(shown choices "$(asked_of '["a square", "green"]' 'See [x]')" image_placeholder='"[x]"')" \
    "$(shown marks "$(asked_of '"a square"' 'See <start_of_image>')")"
is 'a placeholder without images' "$("$bin/mxtrain" steps=1 image_placeholder=x --dump-config /dev/null 2>&1 | grep placeholder)" \
    'warning: <command line>: image_placeholder: "x" has no effect: it acts where use_multimodal is true, here it is false'

# ---- replies: images of records, of the command line and of data: URLs are the same ones

reply() { "$bin/mxdecode" "$work/out/gemma3-one" --chat-template gemma --max-tokens 8 "$@" 2>&1; }
picture=$(cd "$work" && ls -- *.png | head -1)
ask() { printf '{"messages":[{"role":"user","content":[%s{"type":"text","text":"Which shape?"}]}]}\n' "$1"; }
ask '{"type":"image","path":"'"$picture"'"},' >"$work/ask.jsonl"
ask '{"type":"image_url","image_url":{"url":"data:image/png;base64,'"$(base64 <"$work/$picture" | tr -d '\n')"'"}},' >"$work/ask_url.jsonl"
ask '' >"$work/ask_nothing.jsonl"
ask '{"type":"image","path":"none.png"},' >"$work/ask_none.jsonl"
reply --json --prompts "$work/ask.jsonl" >"$work/reply"
is 'a reply' "$(grep -c '^{"ids":\[[0-9,]*\],"text":"' "$work/reply")" 1
is 'a data: URL' "$(reply --json --prompts "$work/ask_url.jsonl")" "$(cat "$work/reply")"
is 'an image of the command line' "$(echo 'Which shape?' | reply --chat --image "$work/$picture")" "$(reply --prompts "$work/ask.jsonl")"
is 'what is seen counts' "$(reply --json --prompts "$work/ask_nothing.jsonl" | cmp -s - "$work/reply" && echo same)" ''
is 'no such image' "$(reply --prompts "$work/ask_none.jsonl" | sed "s,$work/,,g")" \
    'mxdecode: error: ask_none.jsonl:1: image "none.png": no such file: "none.png"'
# asked WORD... — the same by a config: its picture has a place where the prompt says so, or comes first.
asked() {
    # shellcheck disable=SC2086
    "$bin/mxdecode" $size $gemma3 max_target_length=224 load_parameters_path="$work/out/gemma3-one" tokenizer_path="$work/gemma3" \
        max_prefill_predict_length=99 image_path="$work/$picture" --max-tokens 8 --json "$@" 2>&1
}
is 'a picture of a config' "$(asked prompt='Which shape?')" "$(cat "$work/reply")"
is 'its mark' "$(asked prompt='<start_of_image>Which shape?')" "$(cat "$work/reply")"
is 'its placeholder' "$(asked prompt='"[x]Which shape?"' image_placeholder='"[x]"')" "$(cat "$work/reply")"
sed 's/\({"type":"image"[^}]*}\),\({[^}]*}\)/\2,\1/' "$work/ask.jsonl" >"$work/ask_behind.jsonl"
is 'a mark behind the text' "$(asked prompt='Which shape?<start_of_image>')" "$(reply --json --prompts "$work/ask_behind.jsonl")"
is 'another place, another reply' "$(asked prompt='Which shape?<start_of_image>' | cmp -s - "$work/reply" && echo same)" ''
is 'two pictures' "$(asked prompt='<|image|>Which shape?' image_path="$work/$picture,$work/$picture" | cmp -s - "$work/reply" && echo same)" ''
is 'more places than pictures' "$(asked prompt='<|image|><|image|>Which shape?')" \
    'mxdecode: error: prompt: 1 images, but its text has 2 places for one ("<start_of_image>"); does the chat template tell images?'
is 'a model without an encoder' "$(asked prompt='Which shape?' use_multimodal=false | tail -n 1)" \
    'mxdecode: error: prompt: found an image, wanted text alone: no encoder of images is at work here'
# served FILE — what a server answers to a request, or its error.
if command -v python3 >/dev/null; then
    : >"$work/served"
    "$bin/mxdecode" "$work/out/gemma3-one" --chat-template gemma --max-tokens 8 --serve 0 >"$work/served" 2>&1 &
    server=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        grep -q '^serving' "$work/served" && break
        sleep 0.5
    done
    port=$(sed -n 's,^serving .*:\([0-9]*\)/v1.*,\1,p' "$work/served")
    served() {
        python3 - "$port" "$1" <<'PYTHON'
import http.client, json, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=120)
connection.request("POST", "/v1/chat/completions", json.dumps({**json.loads(open(sys.argv[2]).read()), "max_tokens": 8}))
made = json.loads(connection.getresponse().read())
print(made["error"]["message"] if "error" in made else made["choices"][0]["message"]["content"])
PYTHON
    }
    is 'an image of a request' "$(served "$work/ask_url.jsonl")" "$(reply --prompts "$work/ask.jsonl")"
    is 'a file of a request' "$(served "$work/ask.jsonl")" "an image is \"$picture\", wanted a data: URL; no others are read"
    is 'text of a request' "$(served "$work/ask_nothing.jsonl")" "$(reply --prompts "$work/ask_nothing.jsonl")"
    kill $server
    wait $server
    is 'the server ends' $? 0
fi
is 'a model that sees none' "$(echo a | "$bin/mxdecode" tests/golden/hf/models/llama --image "$work/$picture" 2>&1 | sed 's/.*: error: .*" //')" 'has no tokenizer; --prompts takes ids'

# ---- what is wrong with files

# told NAME RECORD — the message of a run whose second record is wrong.
told() {
    sed -n 1p "$pictures/train.jsonl" >"$work/train.jsonl"
    printf '%s\n' "$2" >>"$work/train.jsonl"
    run gemma3 "$1" 1 steps=1 per_device_batch_size=1 enable_checkpointing=false
    sed -n "s,.*$work/train.jsonl:2: \(.*\),\1,p" "$work/gemma3-$1.err" | sed "s,$work/,,g" | head -1
}
user() { echo '{"messages": [{"role": "user", "content": ['"$1"'{"type": "text", "text": "?"}]}, {"role": "assistant", "content": "ok"}]}'; }
image() { echo '{"type": "image", "path": "'"$1"'"}, '; }
echo 'no picture' >"$work/text.png"
head -c 200 "$work/$(cd "$work" && ls -- *.jpg | head -1)" >"$work/cut.jpg"
printf '\211PNG\r\n\032\n\0\0\0\rIHDR\000\000\200\000\000\000\200\000\010\002\000\000\000\113\036\064\050\0\0\0\012IDAT' >"$work/giga.png"
is 'a missing file' "$(told missing "$(user "$(image none.png)")")" 'image "none.png": no such file: "none.png"'
is 'no picture' "$(told text "$(user "$(image text.png)")")" 'image "text.png": is no picture of PNG or JPEG'
is 'a gigapixel' "$(told giga "$(user "$(image giga.png)")" | sed 's/: .*pixels/: pixels/')" 'image "giga.png": pixels, wanted at most 134217728 in all'
is 'a file without pixels' "$(told cut "$(user "$(image cut.jpg)")" | sed 's/: .*/: told/')" 'image "cut.jpg": told'
places=$(user '{"type": "text", "text": "<start_of_image>"}, ')
is 'more places than images' "$(told places "$places")" \
    '0 images, but its text has 1 places for one ("<start_of_image>"); does the chat template tell images?'
is 'more images than there is room for' "$(told many "$(user "$(image text.png)$(image text.png)")")" \
    'more images than 1, as max_num_images_per_example says'
finish

#!/bin/sh
# meta.sh DIR — folders of Meta's Llama as users meet them, DIR with the tools: logits of tiny ones are those of Meta's code,
# they convert, and hostile files are refused.  Run from the top folder.
set -u
bin=$1
golden=tests/golden/hf/meta
. tests/common/suite.sh

for shards in 1 2; do
    dir=$golden/shards_$shards
    "$bin/mxdecode" $dir --prompts $golden/prompts.jsonl --dtype float32 --logits "$work/$shards.h5" 2>"$work/log" || cat "$work/log"
    "$bin/mxcompare" --logits "$work/$shards.h5" $golden/expected.h5 --max-kl 1e-9 >"$work/compared" 2>&1
    is "logits of $shards files" "$? $(sed -n 's/^top_1_same *//p' "$work/compared") $(tail -1 "$work/compared")" '0 1 equal'
    "$bin/mxconvert" $dir "$work/converted_$shards" >"$work/log" 2>&1 || cat "$work/log"
    "$bin/mxconvert" "$work/converted_$shards" "$work/hf_$shards" --to-hf >"$work/log" 2>&1 || cat "$work/log"
    "$bin/mxdecode" "$work/hf_$shards" --prompts $golden/prompts.jsonl --dtype float32 --logits "$work/c.h5" 2>"$work/log" || cat "$work/log"
    "$bin/mxcompare" --logits "$work/c.h5" "$work/$shards.h5" >"$work/compared" 2>&1
    is "logits of $shards files that were converted" "$? $(tail -1 "$work/compared")" '0 equal'
done
is 'two files are one' "$("$bin/mxcompare" "$work/converted_1" "$work/converted_2" >/dev/null 2>&1; echo $?)" 0
is 'the folder is compared as it is' "$("$bin/mxcompare" $golden/shards_2 "$work/converted_1" >/dev/null 2>&1; echo $?)" 0
"$bin/mxconvert" $golden/shards_2 "$work/hf" --to-hf >"$work/log" 2>&1 || cat "$work/log"
is 'a config.json of Hugging Face' "$(sed -n 's/.*"\(model_type\|intermediate_size\|vocab_size\|torch_dtype\)": *"*\([a-z0-9]*\).*/\1=\2/p' "$work/hf/config.json" | sort | tr '\n' ' ')" \
    'intermediate_size=56 model_type=llama torch_dtype=bfloat16 vocab_size=64 '
"$bin/mxdecode" "$work/hf" --prompts $golden/prompts.jsonl --dtype float32 --logits "$work/h.h5"
"$bin/mxcompare" --logits "$work/h.h5" "$work/1.h5" >"$work/compared" 2>&1
is 'logits of the folder of Hugging Face' "$? $(tail -1 "$work/compared")" '0 equal'
"$bin/mxtrain" --config "$work/converted_1/model.yml" run_name=x base_output_directory="$work" load_parameters_path=$golden/shards_2 dataset_type=synthetic steps=2 \
    max_target_length=16 per_device_batch_size=1 eval_interval=-1 log_config=false >"$work/log" 2>&1
is 'a run starts from it' "$? $(grep -c '^completed step' "$work/log")" '0 2'

# fails WANTED — what the converter says of $work/bad.
fails() {
    got=$("$bin/mxconvert" "$work/bad" "$work/never" 2>&1)
    is "$1" "$? $(printf '%s\n' "$got" | head -1 | sed "s#$work/bad/##g; s/byte [0-9]*/byte N/")" "65 mxconvert: error: $1"
}
fresh() {
    rm -rf "$work/bad"
    cp -r $golden/shards_"$1" "$work/bad"
    chmod -R u+w "$work/bad"
}
patch() { # patch FROM TO — as long, in the first file
    LC_ALL=C sed -i "s/$1/$2/" "$work/bad/consolidated.00.pth"
}
fresh 2
rm "$work/bad/consolidated.01.pth"
fails 'consolidated.00.pth: "tok_embeddings.weight" has shape [64, 8]; the model wants [32, 16]'
fresh 1
head -c 6000 $golden/shards_1/consolidated.00.pth >"$work/bad/consolidated.00.pth"
fails 'consolidated.00.pth: no archive of torch.save: it has no end; is it cut short?'
fresh 1
patch 'ctorch._utils' 'cposix.xutils'
fails 'consolidated.00.pth: data.pkl: byte N: names "posix.xutils._rebuild_tensor_v2"; only dictionaries of tensors are read, and nothing is run'
fresh 1
patch 'BFloat16Storage' 'QFloat16Storage'
fails 'consolidated.00.pth: data.pkl: byte N: names "torch.QFloat16Storage"; only dictionaries of tensors are read, and nothing is run'
fresh 1
patch 'q.\(.*\)storageq' 'i\x01\1storageq'
fails 'consolidated.00.pth: data.pkl: byte N: the instruction INST (0x69), which no dictionary of tensors needs'
fresh 1
printf 'tensors' >"$work/bad/consolidated.00.pth"
fails 'consolidated.00.pth: no file of tensors, or cut short'
fresh 1
printf '{"dim":16,"n_layers":1,"n_heads":4,"moe":{"num_experts":8}}' >"$work/bad/params.json"
fails 'params.json: moe: unrecognized; wanted params.json of a Llama 1, 2 or 3'
fresh 1
printf '{"dim":16,"n_layers":1,"n_heads":4,"n_kv_heads":2,"vocab_size":64,"multiple_of":8}' >"$work/bad/params.json"
fails 'consolidated.00.pth: "layers.0.feed_forward.w1.weight" has shape [56, 16]; the model wants [48, 16]'
fresh 1
printf '{"n_layers":1,"n_heads":4}' >"$work/bad/params.json"
fails 'params.json: dim: found nothing, wanted a whole number from 1 to 16777216'
finish

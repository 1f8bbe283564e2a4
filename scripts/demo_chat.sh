#!/bin/sh
# demo_chat.sh BIN FOLDER [STEPS [STEPS]] — a chat from nothing, about a minute: a tokenizer and a small
# model of the bundled text, as a folder of Hugging Face's; adapters on conversations; their evaluation;
# the same weights merged, as such a folder again; a conversation. What is there already is kept, so
# the script goes on where it was stopped.
#   BIN     where mxtrain, mxconvert and mxdecode are
#   FOLDER  gets all of it
#   STEPS   of the model, of the adapters; those of configs/recipes/tiny.yml and chat.yml if left out
set -e
bin=$1 out=$2
base=${3:+steps=$3} adapters=${4:+steps=$4}

step() { printf '\n== %s\n' "$*"; }

step a tokenizer of the bundled text
"$bin/mxtrain" --train-tokenizer "$out/tiny-tokenizer" configs/recipes/tiny.yml
step a small model
"$bin/mxtrain" configs/recipes/tiny.yml base_output_directory="$out" tokenizer_type=huggingface tokenizer_path="$out/tiny-tokenizer" log_config=false $base
step "the model as others know it: $out/tiny-hf"
[ -d "$out/tiny-hf" ] || "$bin/mxconvert" "$out/tiny" "$out/tiny-hf" --to-hf
step adapters that talk
tune() { # tune OPTION...
    "$bin/mxtrain" "$@" configs/recipes/chat.yml model="$out/tiny-hf" data=posttrain/chat_train.jsonl hf_eval_files=posttrain/chat_eval.jsonl \
        base_output_directory="$out" log_config=false $adapters
}
tune
step how well they do on other talks
tune --eval
step "adapters and weights as one model, as others know it: $out/chat-hf"
[ -d "$out/chat-hf" ] || "$bin/mxconvert" "$out/chat" "$out/chat-hf" --merge-lora --to-hf
step a conversation: mxdecode "$out/chat-hf" --chat
printf 'Hello.\nWhere is the lantern?\nThank you.\n' | tee "$out/said.txt"
echo --
"$bin/mxdecode" "$out/chat-hf" --chat <"$out/said.txt"

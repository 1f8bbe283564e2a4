#!/bin/sh
# decode.sh MXDECODE — lines of JSON in and out, as programs use it, and its messages.  The ids are
# those of tests/golden/hf/tokenizers.  Run from the top folder.
set -u
tool=$1
golden=tests/golden/hf/tokenizers
. tests/common/suite.sh

# says CODE INPUT WANTED WORD... — what the tool writes to stdout and stderr, and its exit code.
says() {
    want=$1 input=$2 wanted=$3
    shift 3
    got=$(printf '%b' "$input" | "$tool" "$@" 2>&1)
    code=$?
    if [ $code -eq "$want" ] && [ "$got" = "$(printf '%b' "$wanted")" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL mxdecode %s (exit %s, wanted %s)\n  wanted %s\n  got    %s\n' "$*" $code "$want" "$wanted" "$got"
    fi
}

# Each line of a golden file, as text or ids, and what was wanted of it.
golden_lines() { # golden_lines TOKENIZER FILE COUNT
    grep -c '^{"text":"[ -~]*","ids":\[[0-9,]*\]' "$golden/$1/$2" >/dev/null || exit 1
    sed -n 's/^{"text":\("[^"\\]*"\),"ids":\(\[[0-9,]*\]\).*/\1/p' "$golden/$1/$2" >"$work/text"
    sed -n 's/^{"text":\("[^"\\]*"\),"ids":\(\[[0-9,]*\]\).*/\2/p' "$golden/$1/$2" >"$work/ids"
    if [ "$(wc -l <"$work/text")" -ge "$3" ] && "$tool" "$golden/$1" --tokenize <"$work/text" | cmp -s - "$work/ids"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL mxdecode $golden/$1 --tokenize"
    fi
}

for t in gpt2 llama3 qwen llama2 t5; do golden_lines $t expected.jsonl 100; done
says 0 '"First Citizen:"\n' '[689,337,752,830]\n' $golden/llama2 --tokenize
says 0 '"First Citizen:"\n' '[1,689,337,752,830]\n' $golden/llama2 --tokenize --special
says 0 '[1,689,337,752,830]\n[]\n' '"<s> First Citizen:"\n""\n' $golden/llama2 --detokenize
says 0 '[1,689,337,752,830]' '"First Citizen:"\n' $golden/llama2 --detokenize --skip-special
says 0 '' '' $golden/llama2 --tokenize
says 65 '"a"\n7\n' '[264]\nmxdecode: error: stdin:2: found a number, wanted a text\n' $golden/llama2 --tokenize
says 65 '"a","b"\n' "mxdecode: error: stdin:1:4: not valid JSON: end of file expected near ','\n" $golden/llama2 --tokenize
says 65 '[1,900]\n' 'mxdecode: error: stdin:1: item 1 is no id from 0 to 899\n' $golden/llama2 --detokenize
says 65 '[1.5]\n' 'mxdecode: error: stdin:1: item 0 is no id from 0 to 899\n' $golden/llama2 --detokenize
says 65 '' "mxdecode: error: $golden/llama2/MANIFEST.json: is missing: the folder was not completed\nhint: a tokenizer alone does --tokenize and --detokenize\n" $golden/llama2
says 2 '' 'mxdecode: error: --detokenize does not go with --tokenize\n' $golden/llama2 --tokenize --detokenize
says 2 '' 'mxdecode: error: --max-tokens does not go with --tokenize\n' $golden/llama2 --tokenize --max-tokens 5
says 2 '' 'mxdecode: error: --special goes with --tokenize\n' $golden/llama2 --detokenize --special
says 2 '' 'mxdecode: error: wanted one folder or a config; mxdecode --help tells more\n' --tokenize
hi='{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]}'
says 0 "$hi\n" '{"text": "<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\nHo<|im_end|>\\n", "ids": [1001,523,260,198,39,72,1002,198,1001,954,967,698,198,39,78,1002,198], "mask": [0,0,0,0,0,0,0,0,0,0,0,0,0,1,1,1,0]}\n' $golden/qwen --render-chat --chat-template chatml
says 65 '{"messages": []}\n' 'mxdecode: error: stdin:1: "messages" is empty; wanted a list of messages\n' $golden/qwen --render-chat --chat-template chatml
says 2 '' "mxdecode: error: \"$golden/qwen\" has no chat template\nhint: name one by chat_template_path (mxdecode: --chat-template): \"chatml\", \"llama3\", \"gemma\", \"mistral\", or a file of Jinja\n" $golden/qwen --render-chat
says 2 '' "mxdecode: error: no chat template \"chatm\": neither a file nor one of \"chatml\", \"llama3\", \"gemma\", \"mistral\"\nhint: did you mean \"chatml\"\n" $golden/qwen --render-chat --chat-template chatm
says 2 '' 'mxdecode: error: --chat-template goes with --render-chat\n' $golden/qwen --tokenize --chat-template chatml
# A template beside the tokenizer, and what it raises.
cp $golden/qwen/tokenizer.json $golden/qwen/tokenizer_config.json "$work"
printf '{{ eos_token }}{%% if tools %%}\n{{ raise_exception("no tools here") }}{%% endif %%}' >"$work/chat_template.jinja"
says 0 '{"messages": [{"role": "user"}]}' '{"text": "<|im_end|>", "ids": [1002], "mask": [0]}\n' "$work" --render-chat
says 65 '{"messages": [{"role": "user"}], "tools": [1]}' "mxdecode: error: stdin:1: $work/chat_template.jinja:2: no tools here\n" "$work" --render-chat
rm "$work/tokenizer_config.json" "$work/chat_template.jinja"
printf '{"model": {"type": "BPF"}}' >"$work/tokenizer.json"
says 65 '' "mxdecode: error: $work/tokenizer.json: model.type: unrecognized model \"BPF\"\nhint: did you mean \"BPE\"?\n" "$work" --tokenize
finish

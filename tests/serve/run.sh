#!/bin/sh
# run.sh MXTRAIN MXDECODE — a server as its clients know it (clients.py, tools.py, reasoning.py and gemma.py, where there is
# python3), over models of bytes that the script trains.  Run from the top folder.
set -u
train=$1 tool=$2
here=$(dirname "$0")
. tests/common/suite.sh

# says CODE WANTED WORD... — what the tool tells, and its exit code.
says() {
    wanted="$1 $2"
    shift 2
    got="$("$tool" "$@" 2>&1 </dev/null)"
    is "mxdecode $*" "$? $got" "$wanted"
}

repeat() { # repeat TEXT — 200 times
    i=0
    while [ $i -lt 200 ]; do
        printf '%b' "$1"
        i=$((i + 1))
    done
}
repeat 'the cat sat on the mat. the dog sat on the log. the cow sat on the row. ' >"$work/text"
repeat '1 Weather? <tool_call>\n{"name": "look", "arguments": {"city": "Rome"}}\n</tool_call>=warm It is warm. ' >"$work/calls"
repeat '1 Weather? <think>\nlet us see\n</think>\n\n<tool_call>\n{"name": "look", "arguments": {"city": "Rome"}}\n</tool_call>=warm. ' >"$work/reasons"
train() { # train NAME TEXT WORD...
    name=$1 text=$2
    shift 2
    if ! "$train" --config configs/base.yml run_name="$name" base_output_directory="$work" text_train_files="$text" \
        base_emb_dim=32 base_num_decoder_layers=2 base_num_query_heads=4 base_num_kv_heads=2 head_dim=8 base_mlp_dim=64 \
        vocab_size=260 per_device_batch_size=4 learning_rate=0.02 log_config=false eval_interval=-1 "$@" \
        >"$work/log" 2>&1; then
        tail "$work/log"
        exit 1
    fi
}
train r "$work/text" steps=40 max_target_length=64
train tools "$work/calls" steps=80 max_target_length=128
train reason "$work/reasons" steps=100 max_target_length=160

says 2 'mxdecode: error: --serve: found "here", wanted HOST:PORT or PORT, such as 127.0.0.1:8080' "$work/r" --serve here
says 2 'mxdecode: error: --serve: found "127.0.0.1:70000", wanted HOST:PORT or PORT, such as 127.0.0.1:8080' "$work/r" --serve 127.0.0.1:70000
says 2 'mxdecode: error: --json does not go with --serve' "$work/r" --serve 0 --json
says 2 'mxdecode: error: --queue goes with --serve' "$work/r" --queue 3
says 2 'mxdecode: error: --serve does not go with --tokenize' "$work/r" --serve 0 --tokenize

# start MODEL WORD... — a server: $server and $port; what it prints is in $work/MODEL.out.
start() {
    model=$1 output=$work/$1.out
    shift
    rm -f "$output"
    # What was given back may not wait in a sanitizer's queue where memory is looked at.
    ASAN_OPTIONS=${ASAN_OPTIONS:-}:quarantine_size_mb=1 env $without "$tool" "$work/$model" --serve 0 "$@" >"$output" 2>&1 &
    server=$!
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        grep -q '^answers' "$output" 2>/dev/null && break
        sleep 0.5
    done
    port=$(sed -n "s,^serving $model at http://127\\.0\\.0\\.1:\\([0-9]*\\)/v1\\, [0-9]* at a time\$,\\1,p" "$output")
}

# serve SCRIPT — what its clients find, and how the server ends.
serve() {
    if [ -z "$port" ]; then
        failed=$((failed + 1))
        echo 'FAIL the server does not say where it listens'
        cat "$output"
    elif ! command -v python3 >/dev/null; then
        echo 'no python3: the server was started and stopped alone'
    else
        python3 "$here/$1" "$port" $server >"$work/clients" 2>&1 || [ -s "$work/clients" ] || echo '0 passed, 1 failed' >"$work/clients"
        grep -v '^[0-9]* passed, [0-9]* failed$' "$work/clients"
        counts=$(grep -x '[0-9]* passed, [0-9]* failed' "$work/clients") || counts='0 passed, 1 failed'
        passed=$((passed + ${counts%% *})) counts=${counts#*, }
        failed=$((failed + ${counts%% *}))
    fi
    kill $server 2>/dev/null
    wait $server
    is 'the end of the server' "$? $(grep -v '^\(serving\|answers\|calls\|reasoning\|the chat\|no chat\)' "$output")" '0 '
}

without="-u OMP_WAIT_POLICY -u GOMP_SPINCOUNT"
start r --batch 2
is 'without a chat template' "$(sed 1d "$output")" "answers /v1/completions with up to 1024 tokens (--max-tokens)
no chat template: /v1/chat/completions is refused; --chat-template FILE or a name such as chatml sets one"
says 74 "mxdecode: error: --serve: could not listen at 127.0.0.1:$port: Address already in use" "$work/r" --serve "127.0.0.1:$port"
is 'how long threads spin' "$(tr '\0' '\n' <"/proc/$server/environ" | grep -c '^GOMP_SPINCOUNT=[1-9]')" 1
kill $server
wait $server
without=

start r --max-tokens 100 --chat-template chatml
is 'with a chat template' "$(sed 1d "$output")" 'answers /v1/completions and /v1/chat/completions with up to 100 tokens (--max-tokens)
the chat template takes no tools: requests with "tools" are refused'
serve clients.py

start tools --chat-template "$here/tools.jinja"
is 'with tools' "$(sed 1,2d "$output")" 'calls of tools are read in the format hermes'
serve tools.py

start reason --chat-template "$here/reason.jinja"
is 'with reasoning' "$(sed 1,2d "$output")" 'calls of tools are read in the format hermes
reasoning is told apart, as marked in the format think'
serve reasoning.py

start tools --chat-template "$here/gemma.jinja"
is 'with calls that are no JSON' "$(sed 1,2d "$output")" 'calls of tools are read in the format gemma4'
serve gemma.py
finish

#!/bin/bash
# manual.sh TOOL... — manual pages without a complaint of mandoc, and completion as bash, zsh and fish
# run it.  The tools are asked for what they know, so every option, key and choice completes.  Run from
# the top folder.
set -u
tools=("$@")
. tests/common/suite.sh
for tool in "${tools[@]}"; do ln -s "$(realpath "$tool")" "$work/${tool##*/}"; done
PATH=$work:$PATH

holds() { # holds WHAT COMMAND...
    what=$1
    shift
    if "$@"; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAIL $what"
    fi
}
lints() { ! mandoc -T lint -W warning "$1" 2>&1 | sed 's/^/  /' | grep .; }

for tool in "${tools[@]##*/}"; do
    "$tool" --man >"$work/$tool.1"
    "$tool" --help >"$work/$tool.help"
    holds "$tool --help is a screen" test "$(wc -l <"$work/$tool.help")" -le 40 -a "$(wc -L <"$work/$tool.help")" -le 96
    holds "$tool(1) has every row of --help-all" \
        test "$("$tool" --help-all | grep -c '^  [^ ]')" -eq "$(grep -c '^\.TP' "$work/$tool.1")"
    "$tool" --version --verbose >"$work/$tool.libraries"
    holds "$tool tells its libraries, of releases" grep -Eq '^libjansson +2\.[0-9]+(\.[0-9]+)? +build [0-9a-f]{40}$' "$work/$tool.libraries"
    holds "$tool: every library has a version" test "$(sed '1d;/^seccomp /d' "$work/$tool.libraries" | grep -Evc '^[^ ]+ +[0-9]')" -eq 0
    holds "$tool tells whether readers are confined" grep -Eq '^seccomp +(confines|is not here)' "$work/$tool.libraries"
    for shell in bash zsh fish; do "$tool" --completion $shell >"$work/$tool.$shell"; done
    holds "$tool: bash reads its completion" bash -n "$work/$tool.bash"
done
mxtrain --help-config man >"$work/base.yml.5"
if command -v mandoc >/dev/null; then
    for page in "$work"/*.[15]; do holds "mandoc of ${page##*/}" lints "$page"; done
else
    echo "manual: mandoc is not here, NOT TESTED that pages are in order"
fi
# What zsh makes of a line when Tab is pressed behind it, on a terminal.
in_zsh() {
    cat >"$work/tab.zsh" <<'END'
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "stty -echo; PS1=; autoload -Uz compinit; compinit -u -D; source $1; echo re''ady"
zpty -r z line '*ready*'
zpty -w -n z "$2"$'\t'
zpty -r z line "*$3*" && print -r -- found
zpty -d z
END
    timeout 20 zsh -f "$work/tab.zsh" "$@" 2>/dev/null
}
if command -v zsh >/dev/null; then
    holds "zsh reads its completion" zsh -n "$work/mxtrain.zsh"
    holds "zsh completes a key" test "$(in_zsh "$work/mxtrain.zsh" 'mxtrain learning_rate_s' 'chedule_steps=')" = found
    holds "zsh completes a choice" test "$(in_zsh "$work/mxconvert.zsh" 'mxconvert --layout l' 'linen')" = found
fi
if command -v fish >/dev/null; then
    holds "fish reads its completion" fish -n "$work/mxtrain.fish"
    holds "fish completes a key" test "$(fish -c "source '$work/mxtrain.fish'; complete -C 'mxtrain learning_rate_s'")" = learning_rate_schedule_steps=
    holds "fish completes a choice" test "$(fish -c "source '$work/mxconvert.fish'; complete -C 'mxconvert --layout l'")" = linen
fi

# What bash would offer at the end of a line.
offers() { # offers LINE WANTED...
    COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=()
    shift
    "_${COMP_LINE%% *}" 2>/dev/null
    if [ "$(printf '%s\n' "${COMPREPLY[@]}" | sort)" = "$(printf '%s\n' "$@" | sort)" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAIL "%s" is offered: %s\n  wanted: %s\n' "$COMP_LINE" "${COMPREPLY[*]}" "$*"
    fi
}
for tool in "${tools[@]##*/}"; do . "$work/$tool.bash"; done
offers 'mxtrain --dump-g' --dump-graph
offers 'mxtrain learning_rate_s' learning_rate_schedule_steps=
offers 'mxtrain lora.lora_al' lora.lora_alpha=
offers 'mxtrain steps=3 dtype=b' bfloat16
offers 'mxtrain enable_checkpointing=' true false
offers 'mxtrain model_name=llama3.1-8' llama3.1-8b
offers 'mxtrain model_name=gemma2-' gemma2-2b gemma2-9b gemma2-27b
offers 'mxtrain ici_tensor_p' ici_tensor_parallelism=
offers 'mxtrain --config configs/recipes/lor' configs/recipes/lora.yml
offers 'mxtrain text_train_files=share/mxtrain/corpus/shake' "$(compgen -f share/mxtrain/corpus/shake)"
offers 'mxtrain no_such_key=x' ''
offers 'mxtrain recipes/lo' recipes/lora.yml
offers 'mxtrain model' model= model_name=
offers 'mxtrain data=share/mxtrain/corpus/shake' "$(compgen -f share/mxtrain/corpus/shake)"
offers 'mxconvert --layout l' linen
offers 'mxconvert --dtype ' float32 bfloat16
offers 'mxcompare --struct' --structure-only
offers 'mxdecode --deto' --detokenize
finish

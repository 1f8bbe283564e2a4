#!/bin/sh
# tasks.sh MXDECODE — figures of tasks: those of transformers, other columns and templates, and records
# that are none.  Run from the top folder.
set -u
tool=$1
golden=tests/golden/hf/tasks
. tests/common/suite.sh

# ---- as transformers has them

# numbers FILE — one a line; near A B — the same, to six digits
numbers() { tr -d '" ' <"$1" | tr '[{:,}]' '\n' | grep -v '^[a-z_]*$'; }
near() {
    numbers "$1" >"$work/a"
    numbers "$2" >"$work/b"
    paste "$work/a" "$work/b" | awk '{ d = $1 - $2; if (d < 0) d = -d; m = $1 < 0 ? -$1 : $1 } NF != 2 || d > 1e-6 * (m + 1) { bad = 1 }
        END { print bad || !NR ? "other" : NR " alike" }'
}
for task in choices texts; do
    "$tool" $golden --evaluate $golden/$task.jsonl --json >"$work/$task"
    is "$task" "$(near "$work/$task" $golden/${task}_expected.jsonl)" "$(numbers $golden/${task}_expected.jsonl | wc -l | tr -d ' ') alike"
done
"$tool" $golden --evaluate $golden/answers.jsonl --json --max-tokens 16 >"$work/answers"
is answers "$(cat "$work/answers")" "$(cat $golden/answers_expected.jsonl)"

# ---- for people, and other columns

is 'a table' "$("$tool" $golden --evaluate $golden/choices.jsonl | tr -s ' ' | tr '\n' ',')" \
    'questions 5,acc 0.4,acc_stderr 0.244949,acc_norm 0.4,acc_norm_stderr 0.244949,'
sums() { "$tool" $golden --evaluate "$@" --json 2>&1 | sed 's/, "gold".*//' | head -1; }
wanted=$(sums $golden/choices.jsonl)
puts() { printf '%s\n' "$1" >"$work/other.jsonl"; }
puts '{"ctx":"ka lo miren the","endings":["heran","aaa","мятья grün"],"label":"1"}'
is 'columns of HellaSwag' "$(sums "$work/other.jsonl")" "$wanted"
puts '{"question":"ka lo miren the","choices":{"text":["heran","aaa","мятья grün"],"label":["1","2","3"]},"answerKey":"2"}'
is 'columns of ARC' "$("$tool" $golden --evaluate "$work/other.jsonl" --json | sed -n '1s/.*"gold": \([0-9]\).*/\1/p')" 1
puts '{"a":"ka lo","b":"miren","c":"C"}'
is 'templates' "$(sums "$work/other.jsonl" --doc-to-text '{{a}} {{b}} the' --doc-to-choice '["heran", "aaa", "мятья grün"]' --doc-to-target c)" "$wanted"
puts '{"a":"ka lo miren the","b":["heran","aaa","мятья grün"],"c":"aaa"}'
is 'other columns' "$(sums "$work/other.jsonl" --doc-to-text a --doc-to-choice b --doc-to-target c)" "$wanted"

# ---- what is none

# fails CODE WANTED WORD...
fails() {
    wanted="$1 mxdecode: error: $2"
    shift 2
    got=$("$tool" "$@" 2>&1)
    is "mxdecode $*" "$? $(printf '%s\n' "$got" | head -1)" "$wanted"
}
f=$work/other.jsonl
puts '{"body":1}'
fails 65 "$f:1: wanted {\"query\": …, \"choices\": […], \"gold\": 0}, {\"question\": …, \"answer\": …} or {\"text\": …}" $golden --evaluate "$f"
puts '{"query":"a","choices":["b","c"],"gold":2}'
fails 65 "$f:1: \"2\" is none of its 2 choices" $golden --evaluate "$f"
puts '{"query":"a","choices":["b"],"gold":0}'
fails 65 "$f:1: found a shorter list of choices, wanted a list of two or more texts" $golden --evaluate "$f"
puts '{"query":"a","choices":["b",[]],"gold":0}'
fails 65 "$f:1: choice 1 is a list, wanted a text" $golden --evaluate "$f"
puts '{"text":"a"}
{"txt":"a"}'
fails 65 "$f:2: there is no column \"text\"" $golden --evaluate "$f"
puts ''
fails 65 "$f: holds no records" $golden --evaluate "$f"
puts '{"text":"a"}'
fails 65 "--doc-to-text:1: Encountered unknown tag 'oops'." $golden --evaluate "$f" --doc-to-text '{% oops %}'
fails 2 '--doc-to-choice wants --doc-to-target' $golden --evaluate "$f" --doc-to-text text --doc-to-choice '["a","b"]'
fails 2 '--temperature does not go with --evaluate' $golden --evaluate "$f" --temperature 1
fails 2 '--doc-to-text goes with --evaluate' $golden --doc-to-text text
fails 2 '--special goes with --tokenize' $golden --special --prompts "$f"

finish

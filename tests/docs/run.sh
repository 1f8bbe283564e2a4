#!/bin/sh
# run.sh BIN — the documents are true: every command of the tutorial runs, what pages quote is in the sources, links and
# anchors lead somewhere, the site is whole.  BIN is the folder of the programs.  Run from the top folder.
set -u
bin=$(realpath "$1") top=$PWD
. tests/common/suite.sh

# ---- the tutorial, with few steps: what its config says of steps is weaker than the environment

# commands PAGE — the lines of its blocks ```sh, and a line that tells of each block that is over
commands() {
    awk '/^```sh$/ { inside = 1; next }
         /^```$/ && inside { inside = 0; print "echo \"== block " ++n " of the tutorial is over\""; next }
         inside' "$1"
}

mkdir "$work/sources"
ln -s "$bin" "$work/sources/build"
ln -s "$top/share" "$work/sources/share"
commands docs/TUTORIAL.md >"$work/commands"
n_blocks=$(grep -c '^```sh$' docs/TUTORIAL.md)
(cd "$work/sources" && M_STEPS=12 M_EVAL_INTERVAL=6 sh -e "$work/commands") >"$work/log" 2>&1 || tail -n 20 "$work/log"
is 'blocks of the tutorial that ran' "$(grep -c '^== block' "$work/log")" "$n_blocks"
is 'runs that the tutorial trained' "$(grep -c '^completed step: 11,' "$work/log")" 2
is 'what it leaves' "$(cd "$work/sources/tutorial" 2>/dev/null && ls -d tok/tokenizer.json tale.yml report.html tale-hf/config.json talk-hf/chat_template.jinja 2>&1 | wc -l)" 5
is 'three replies at its end' "$(sed -n '/^wrote "talk-hf"/,/^== /p' "$work/log" | grep -vc '^wrote\|^==')" 3
is 'no warning on the way' "$(grep -c 'warning' "$work/log")" 0

# ---- what pages quote and list

# both NAME WANTED GOT — two lists, a word a line, that should be the same
both() { is "$1" "$(diff "$2" "$3")" ''; }
if command -v python3 >/dev/null; then
    for page in docs/ERRORS.md docs/RANKS.md; do
        counts=$(python3 tests/docs/messages.py $page | tee /dev/stderr | tail -n 1)
        is "messages of $page that no source has" "${counts##*, }" '0 failed'
    done
    printf '```message\nno files at "…": wanted a fish\n```\n' >"$work/page.md"
    is 'a message that is nowhere' "$(python3 tests/docs/messages.py "$work/page.md" | tail -n 1)" '0 passed, 1 failed'
fi
sed -n 's/^    MX_EXIT_[A-Z_]* = \([0-9]*\),.*/\1/p' include/mx/base.h | sort -n >"$work/codes"
echo 129 >>"$work/codes" # SIGHUP: 128 and the number of the signal
sort -n -o "$work/codes" "$work/codes"
sed -n 's/^| \([0-9]*\) | .*/\1/p' docs/ERRORS.md | sort -n >"$work/told"
both 'exit codes of docs/ERRORS.md' "$work/codes" "$work/told"
cat src/program/*.c src/program/*.h src/train/figures.c | grep -o '"\(learning\|perf\|eval\|optim\|distill\)/[a-zA-Z_0-9]*"' | tr -d '"' | sort -u >"$work/metrics"
sed -n 's/^| `\([a-z]*\/[a-zA-Z_0-9]*\)` | .*/\1/p' docs/METRICS.md | sort -u >"$work/told"
both 'metrics of docs/METRICS.md' "$work/metrics" "$work/told"

# ---- the site

if ! command -v python3 >/dev/null || ! command -v cmark-gfm >/dev/null; then
    echo 'docs: cmark-gfm or python3 is not here, NOT TESTED: links, anchors, the site (make deps-dev)'
    finish
    exit
fi
site=$work/site
is 'links and anchors' "$(scripts/site.py "$site" 2>&1 | sed 's/: [0-9].*//')" "$site"
is 'a page for each document' "$(find docs -name '*.md' | wc -l)" "$(find "$site/docs" -name '*.html' | wc -l)"
is 'nothing is loaded from elsewhere' "$(grep -rhoE '<(script|link|img)[^>]*(src|href)="[a-z]+:' "$site" | head -3)" ''
is 'every link of a page is a file' "$(cd "$site" && find . -name '*.html' | while read -r page; do
    grep -oE '(href|src)="[^"#:]+["#]' "$page" | sed 's/.*="//;s/.$//' | sort -u | while read -r link; do
        [ -f "$(dirname "$page")/$link" ] || echo "$page: $link"
    done
done)" ''
is 'the search has a section of a page' "$(grep -c '"docs/TUTORIAL.html", "Tutorial: from a text to a model that talks", "4-training", "4. Training", "' "$site/index.js")" 1
if command -v node >/dev/null; then is 'scripts are in order' "$(node --check "$site/index.js" && node --check "$site/site.js")" ''; fi

# broken NAME WORDS WANTED — a copy of the sources in which a page ends with these words: what is told
copy=$work/copy
mkdir "$copy"
cp -R --parents docs scripts/site.py configs include ./*.md bench/*.md tests/golden/README.md "$copy"
broken() {
    cp docs/CHAT.md "$copy/docs/CHAT.md"
    printf '\n%s\n' "$2" >>"$copy/docs/CHAT.md"
    is "$1" "$("$copy/scripts/site.py" 2>&1)" "$3"
}
broken 'a page that is not there' '[x](NOWHERE.md)' 'docs/CHAT.md: link to "NOWHERE.md": there is no docs/NOWHERE.md'
broken 'a page that is named, no link' 'See docs/NOWHERE.md.' 'docs/CHAT.md: link to "docs/NOWHERE.md": there is no docs/NOWHERE.md'
broken 'a heading that is not there' '[x](DATA.md#a-fish)' 'docs/CHAT.md: link to "DATA.md#a-fish": docs/DATA.md has no heading #a-fish'
broken 'one of the same page' '[x](#a-fish)' 'docs/CHAT.md: link to "#a-fish": docs/CHAT.md has no heading #a-fish'
broken 'raw HTML' 'from <br> to' 'docs/CHAT.md: raw HTML in section "Supported Jinja": a < that means itself is \<'
broken 'all is well' '[x](DATA.md#a-batch)' ''
echo '# Alone' >"$copy/docs/ALONE.md"
is 'a page that the navigation lacks' "$("$copy/scripts/site.py" 2>&1)" 'docs/README.md: docs/ALONE.md is listed 0 times, wanted once'

finish

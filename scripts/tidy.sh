#!/bin/sh
# Checks what the compiler does not: who includes whom, where outside libraries are, sizes of files,
# lines and functions, banned calls, leftovers, headers that stand alone, formatting.  Lists
# everything it finds and exits with 1 if there is anything; prints the line counts of the rooms.
set -u
cd "$(dirname "$0")/.." || exit 1
CC=${CC:-cc}
found=$(mktemp) || exit 1
trap 'rm -f "$found"' EXIT

say() { echo "$1" >>"$found"; }
code() { find "$@" \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.def' \) 2>/dev/null | LC_ALL=C sort; }
rooms=$(sed -n 's/^ROOMS *:= *//p' Makefile)
tools=$(sed -n 's/^TOOLS *:= *//p' Makefile)

# ---- who includes whom: a room its closure, a tool the closure of what it is linked with

# shellcheck disable=SC2046
closures=$(make -s $(printf 'rooms-of-%s ' $rooms $tools))

check_rooms() { # check_rooms <room or tool> <file>...
    name=$1
    shift
    [ $# -eq 0 ] || awk -v allowed="$(echo "$closures" | sed -n "s/^$name / /p") " -v name="$name" '
        match($0, /^#include <mx\/[a-z0-9]+/) {
            header = substr($0, 14, RLENGTH - 13)
            if (!index(allowed, " " header " "))
                print FILENAME ":" FNR ": \"" name "\" may not include <mx/" header ".h>"
        }' "$@" >>"$found"
}

for room in $rooms; do
    # shellcheck disable=SC2046
    check_rooms "$room" $(code "src/$room" "tests/$room") \
        $(for f in "include/mx/$room.h" "include/mx/$room.def" "include/mx/${room}"_*.h "include/mx/${room}"_*.def; do
            [ -f "$f" ] && echo "$f"
        done)
done
for tool in $tools; do
    # shellcheck disable=SC2046
    check_rooms "$tool" $(code src/tools | grep -E "/$tool(_[a-z]*)?\.[ch]$")
done
for f in include/mx/*.h; do
    room=$(basename "$f" .h)
    room=${room%%_*} # ops_loss.h is a part of ops.h
    case " $rooms " in *" $room "*) ;; *) say "$f:1: no room \"$room\" in the Makefile" ;; esac
done

# ---- outside libraries: each in its one file

while read -r header home; do
    for f in $(code src include | xargs grep -lE "^#include <(.*/)?$header(/.*)?>"); do
        [ "$f" = "$home" ] || say "$f: <$(echo "$header" | tr -d '\\')> belongs into $home alone"
    done
done <<END
yaml\.h src/config/yaml.c
sndfile\.h src/image/sound.c
soxr\.h src/image/sound.c
hdf5\.h src/store/library.h
cblas\.h src/device/cpu/openblas.c
dnnl\.h src/device/cpu/onednn.c
mpi\.h src/device/comm/mpi.c
cublasLt\.h src/device/cuda/nvidia/cublas.cu
cuda_runtime\.h src/device/cuda/gpu.cuh
jansson\.h src/base/json.c
xxhash\.h src/base/hash.c
pcre2\.h src/base/regex.c
zlib\.h src/data/codec_gzip.c
zstd\.h src/data/codec_zstd.c
lz4 src/data/codec_lz4.c
brotli src/data/codec_brotli.c
png\.h src/image/png.c
jpeglib\.h src/image/jpeg.c
snappy src/data/codec_snappy.c
utf8proc\.h src/text/unicode.c
END

# ---- what can be seen line by line

code src include tests | xargs env LC_ALL=C awk '
function say(text) { print FILENAME ":" FNR ": " text }
function end_of_file() {
    most = file ~ /^tests\/|^src\/device\/(cpu|cuda)\/kernels\// ? 600 : 400
    if (lines > most && file !~ table) print file ":" lines ": " lines " lines (limit " most ")"
    if (start) print file ":" start ": function never ends"
}
BEGIN { table = "/config_[a-z]*\\.def$" }
FNR == 1 {
    if (file) end_of_file()
    file = FILENAME; start = 0; by_hand = 0
    if (!/^\/\*/) say("no comment at the head of the file")
}
{ lines = FNR }
/clang-format off/ { by_hand = 1 }
/clang-format on/ { by_hand = 0 }
{
    text = $0
    gsub(/[\200-\277]/, "", text)             # one byte left of each character
    if (length(text) > 100 && !by_hand && FILENAME !~ table)
        say(length(text) " columns (limit 100)")
    if ($0 ~ /\t/) say("a tab")
    if ($0 ~ /[ \r]$/) say("space at the end of the line")
    if ($0 ~ /(^|[^A-Za-z])(TO[D]O|FIX[M]E|XX[X]|HAC[K])([^A-Za-z]|$)/) say("leftover: " $0)
    if ($0 ~ /#include "\.\.\//) say("includes a private header of another folder")
}
# A function runs from the line that opens its body to the } in the first column.
!start && /\) \{$/ { start = FNR }
start && /^}/ {
    if (FNR - start + 1 > 60) print FILENAME ":" start ": function of " FNR - start + 1 " lines (limit 60)"
    start = 0
}
{
    gsub(/"([^"\\]|\\.)*"/, "\"\"", text)     # calls, not words in strings and comments
    gsub(/\/\*.*\*\//, "", text)
    if (text ~ /^ *(\/?\*|\/\/)/) next
    banned = "(^|[^A-Za-z0-9_])(strcpy|strcat|sprintf|vsprintf|strtok|gets|atoi|atol|atof) *\\("
    memory = "(^|[^A-Za-z0-9_])(malloc|calloc|realloc|free|strdup|strndup) *\\("
    if (text ~ banned) say("banned call: " $0)
    if (text ~ memory && FILENAME ~ /^src\// && FILENAME != "src/base/arena.c")
        say("memory comes from arenas: " $0)
}
END { end_of_file() }' >>"$found"

# ---- what a header declares, the product calls: functions for tests alone stand here, with a reason

# what tests hold costs and results to, and the state of one rank
for_tests="mx_data_rows_made mx_host_alloc_count mx_train_gradient mx_train_sum mx_train_state_open"
code include src | xargs env LC_ALL=C awk -v listed_names="$for_tests" '
BEGIN { n = split(listed_names, name); for (i = 1; i <= n; i++) listed[name[i]] = 1 }
{
    text = $0
    gsub(/"([^"\\]|\\.)*"/, "", text)
    gsub(/\/\*.*\*\//, "", text)
    if (text ~ /^ *(\/\*|\*( |\/|$)|\/\/)/) next
    is_outside = text ~ /^[A-Za-z_]/ && FILENAME !~ /\.def$/ # of a body: a name before a ( is what it is about
    for (; match(text, /[a-z_][A-Za-z0-9_]*/); text = substr(text, RSTART + RLENGTH)) {
        name_here = substr(text, RSTART, RLENGTH)
        if (!is_outside || substr(text, RSTART + RLENGTH, 1) != "(") used[name_here] = 1
        else if (FILENAME ~ /\.(h|cuh)$/ && !(name_here in at)) at[name_here] = FILENAME ":" FNR
    }
}
END {
    for (f in at)
        if (!(f in used) && !(f in listed)) print at[f] ": nobody but tests calls " f
}' >>"$found"

# ---- headers stand alone

for f in include/mx/*.h; do
    echo "#include <mx/$(basename "$f")>" |
        $CC -std=c17 -D_GNU_SOURCE -Iinclude -Wall -Wextra -Werror -fsyntax-only -x c - 2>/dev/null ||
        say "$f:1: does not compile alone"
done

# ---- formatting

format=$(command -v clang-format-14 || command -v clang-format || echo none)
case $([ "$format" = none ] || "$format" --version) in
*"version 14."*)
    find src include tests \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
        xargs -0 -n 32 -P "$(nproc)" "$format" --dry-run -Werror 2>&1 |
        sed -n 's/^\([^:]*:[0-9]*\):[0-9]*: error: code should be clang-formatted.*/\1: not as clang-format has it/p' |
        uniq >>"$found"
    ;;
*) echo "formatting is not checked: clang-format 14 is not here" ;;
esac

# ---- sizes

printf '%-8s %7s %7s %7s\n' room src header tests
for room in $rooms tools; do
    set -- "$room"
    for part in "src/$room" "include/mx/$room.h include/mx/${room}_*.h" "tests/$room"; do
        # shellcheck disable=SC2086
        files=$(code $part)
        # shellcheck disable=SC2086
        set -- "$@" "$([ -n "$files" ] && cat $files | wc -l || echo 0)"
    done
    printf '%-8s %7d %7d %7d\n' "$@"
done
# shellcheck disable=SC2046
echo "src and include: $(cat $(code src include) | wc -l) lines"

LC_ALL=C sort -u "$found" >&2
[ ! -s "$found" ]

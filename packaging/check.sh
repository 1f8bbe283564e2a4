#!/bin/sh
# check.sh MAKE FOLDER — makes the package here and again from a copy of the sources elsewhere, with other modes, another time zone,
# another language and no cache of compiled files, and compares the two; asks lintian; unpacks it and runs the programs from there; installs it in a fresh system (fresh.sh).
# Run from the top folder.
set -u
make=$1 out=$2
. tests/common/suite.sh
unpacked=$work/unpacked copy=$work/elsewhere
here=$PWD

# built COMMAND... — or it is over
built() {
    "$@" >"$work/log" 2>&1 && return
    cat "$work/log"
    echo '0 passed, 1 failed'
    exit 1
}

built packaging/deb.sh "$make" "$out"
deb=$(echo "$out"/mxtrain_*.deb)
field() { dpkg-deb -f "$deb" "$1"; }

# ---- the same bytes

mkdir "$copy"
(umask 077 && git ls-files -z -co --exclude-standard | xargs -0 cp --parents -P -t "$copy")
cd "$copy" || exit 1
built env -u LANGUAGE TZ=Pacific/Kiritimati LC_ALL=C.UTF-8 CCACHE_DISABLE=1 DEB_VERSION="$(dpkg-deb -f "$here/$deb" Version)" \
    SOURCE_DATE_EPOCH="$(git -C "$here" log -1 --format=%ct)" packaging/deb.sh "$make" other
cd "$here" || exit 1
is 'the same bytes from another folder' "$(sha256sum <"$copy/other/$(basename "$deb")")" "$(sha256sum <"$deb")"

# ---- what is in it

release=$(sed -n 's/^#define MX_VERSION *"\(.*\)"/\1/p' include/mx/base.h)
dpkg-deb -x "$deb" "$unpacked"
dpkg-deb -e "$deb" "$work/control"
is 'the version begins as that of the sources' "$(field Version | cut -c "1-${#release}")" "$release"
is 'sums are those of the files' "$(cd "$unpacked" && md5sum --quiet -c "$work/control/md5sums" 2>&1)" ''
is 'every file has a sum' "$(wc -l <"$work/control/md5sums")" "$(find "$unpacked" -type f | wc -l)"
is 'the library that is loaded by its path is asked for' "$(field Depends | grep -c 'libopenblas0-openmp')" 1
is 'no path of the machine is in it' "$(grep -rlF "$here" "$unpacked")" ''
is 'examples are there' "$(ls "$unpacked/usr/share/doc/mxtrain/examples/sft.yml" 2>&1)" "$unpacked/usr/share/doc/mxtrain/examples/sft.yml"
if command -v lintian >/dev/null; then
    is 'lintian finds nothing' "$(lintian --fail-on error,warning "$deb" 2>&1 | grep -v 'root privileges')" ''
else
    echo 'lintian is not here: the package is not checked with it'
fi

# ---- what it does

cd "$work" || exit 1
for tool in mxtrain mxconvert mxcompare mxdecode mxrun; do
    is "$tool runs" "$("$unpacked/usr/bin/$tool" --version 2>&1)" "$tool $release"
    is "$tool has a manual page" "$(zcat "$unpacked/usr/share/man/man1/$tool.1.gz" | sed -n 's/^\(\.TH\) \([^ ]*\) .*/\1 \2/p')" ".TH $tool"
done
is 'configs are found' "$("$unpacked/usr/bin/mxtrain" --plan recipes/sft.yml 2>&1 | grep -c '^plan')" 1

# ---- a fresh system

cd "$here" || exit 1
packaging/fresh.sh "$deb"
is 'a fresh system: its exit code' "$?" 0

finish

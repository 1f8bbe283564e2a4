#!/bin/sh
# deb.sh MAKE FOLDER — a Debian package of what make install puts below /usr, as FOLDER/mxtrain_<version>_<arch>.deb. Same
# sources and compiler, same bytes: what could differ (folder, time, order, modes, time zone) does not get in. The environment may say
#   SOURCE_DATE_EPOCH   the time of everything; else that of the last commit
#   DEB_VERSION         the version, as of a release; else that of the sources, "~", date and name of the last
#                       commit, "+dirty" where files differ from it
#   DEBFULLNAME, DEBEMAIL   the maintainer
# Run from the top folder.
set -eu
umask 022
make=$1 out=$2
export LC_ALL=C TZ=UTC
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"

fail() {
    echo "packaging/deb.sh: $1" >&2
    exit 1
}

release=$(sed -n 's/^#define MX_VERSION *"\(.*\)"/\1/p' include/mx/base.h)
if [ "${DEB_VERSION:-}" ]; then
    version=$DEB_VERSION
else
    date=$(git log -1 --date=format-local:%Y%m%d.%H%M --format=%cd)
    version=$release~$date.g$(git describe --always --abbrev=12 --exclude='*' --dirty=+dirty)
fi
case $version in "$release" | "$release"[~+-]*) ;; *) fail "DEB_VERSION is \"$version\", the sources are $release" ;; esac
arch=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-Developers of mxtrain} <${DEBEMAIL:-mxtrain@example.org}>"
work=$(mktemp -d) # not below build, where make reads all *.d
tree=$work/tree
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
rm -f "$out"/mxtrain_*.deb

$make -s install B="$out/objects" DESTDIR="$tree" PREFIX=/usr CFLAGS="-O2 -ffile-prefix-map=$PWD=."

# ---- where Debian has things

share=$tree/usr/share doc=$tree/usr/share/doc/mxtrain
mv "$share/zsh/site-functions" "$share/zsh/vendor-completions"
rm "$doc/LICENSE" # copyright names it
ln -s ../../mxtrain/configs/recipes "$doc/examples"
cp packaging/copyright "$doc"
cat >"$doc/changelog" <<EOF
mxtrain ($version) unstable; urgency=medium

  * Built from the sources of $release. CHANGELOG.md tells what is new.

 -- $maintainer  $(date -R -d "@$SOURCE_DATE_EPOCH")
EOF
gzip -9n "$doc/changelog" "$share"/man/man?/*
compiled=$(cd "$tree/usr/bin" && grep -l "^.ELF" -- *)
(cd "$tree/usr/bin" && echo "$compiled" | xargs strip --strip-unneeded --remove-section=.comment)
find "$tree" -type d -exec chmod 755 {} +
find "$tree" -type f -exec chmod 644 {} +
chmod 755 "$tree"/usr/bin/*

# ---- what it needs: libraries that are linked, and the one that is loaded by its path

mkdir "$tree/DEBIAN" "$work/debian"
printf 'Source: mxtrain\n\nPackage: mxtrain\nArchitecture: any\n' >"$work/debian/control"
(cd "$work" && echo "$compiled" | sed "s|^|$tree/usr/bin/|" | xargs dpkg-shlibdeps -O >debian/linked)
linked=$(sed -n 's/^shlibs:Depends=//p' "$work/debian/linked")
openblas=$(strings "$tree/usr/bin/mxtrain" | grep '/libopenblas\.so\.0$')
loaded=$(dpkg -S "$openblas" | sed 's/[:,].*//')
upstream=$(dpkg-query -W -f '${Version}' "$loaded" | sed 's/^[0-9]*://;s/[-+].*//')
if [ -z "$linked" ] || [ -z "$upstream" ]; then fail 'libraries have no packages: are they those of Debian?'; fi
size=$(find "$tree" -type f -printf '%s\n' | awk '{ kb += int(($1 + 1023) / 1024) } END { print kb }')
cat >"$tree/DEBIAN/control" <<EOF
Package: mxtrain
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $size
Depends: $linked, $loaded (>= $upstream)
Recommends: openmpi-bin
Section: science
Priority: optional
Description: trainer of language models on CPUs, driven by YAML
 mxtrain does the work of MaxText's trainer without Python: the same config
 keys, parameter trees, losses and optimizers. It trains from text, fine-tunes
 models of Hugging Face's, whole or with low-rank adapters, on conversations,
 preferences and rewards, in one process or on the ranks of MPI.
 .
 mxdecode generates text and serves it over HTTP, mxconvert and mxcompare
 convert and compare checkpoints. A small corpus to try all of it comes along.
EOF
(cd "$tree" && find usr -type f | sort | xargs md5sum >DEBIAN/md5sums)

dpkg-deb --root-owner-group --uniform-compression -Zxz --threads-max=1 --build "$tree" "$out/mxtrain_${version}_$arch.deb"

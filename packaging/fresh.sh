#!/bin/sh
# fresh.sh PACKAGE — installs a package in a fresh Debian of this machine's release, in a folder, runs the demo there with few steps as
# a user who is not root, and removes the package again. It needs root, debootstrap and a network (DEBIAN_MIRROR chooses another mirror); if
# one is missing it prints NOT TESTED and does not fail. Run from the top folder.
set -u
. tests/common/suite.sh
deb=$1 root=$work/root
release=$(. /etc/os-release && echo "$VERSION_CODENAME")

skip() {
    echo "fresh system: NOT TESTED, $1"
    exit 0
}
[ "$(id -u)" = 0 ] || skip 'only root makes one'
command -v debootstrap >/dev/null || skip 'debootstrap is not here'
# debootstrap mounts there too, and may be stopped: what is mounted is not removed.
trap 'umount -l "$root/proc" "$root/sys" 2>/dev/null; rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
debootstrap --variant=minbase "$release" "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$work/log" 2>&1 ||
    skip "debootstrap of $release failed: $(tail -n 1 "$work/log")"
{ mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"; } || skip 'could not mount /proc there'

in_root() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@" >"$work/log" 2>&1; }
# holds NAME COMMAND... — with what it said, if it fails
holds() {
    name=$1
    shift
    if "$@"; then is "$name" yes yes; else is "$name" "$(tail -n 5 "$work/log")" yes; fi
}
as_user() { in_root su - user -c "$1"; }

cp "$deb" "$root/tmp/mxtrain.deb"
holds 'the package installs' in_root apt-get install -q -y --no-install-recommends /tmp/mxtrain.deb
holds 'there is a user' in_root useradd --create-home user
holds 'the demo runs as that user' as_user 'mxtrain run_name=demo steps=4 eval_interval=-1'
holds 'it leaves a checkpoint' as_user 'test -s maxtext_output/demo/checkpoints/3/MANIFEST.json'
holds 'it goes on' as_user 'mxtrain run_name=demo steps=6 eval_interval=-1 | grep "completed step: 5"'
holds 'mxconvert and mxcompare run' as_user 'mxconvert maxtext_output/demo demo.h5 && mxcompare maxtext_output/demo demo.h5 --params-only'
holds 'readers are confined' as_user 'mxdecode --version --verbose | grep "^seccomp  *confines "'
holds 'the package goes' in_root apt-get purge -q -y mxtrain
is 'nothing is left of it' "$(find "$root/usr" -path '*mxtrain*')" ''
finish

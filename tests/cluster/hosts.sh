#!/bin/sh
# hosts.sh — hosts on one machine: network namespaces that one switch joins, with links as slow as wanted. All
# traffic stays inside them. MX_HOSTS is the beginning of their names, so that several sets do not meet.
#   hosts.sh up N [GBIT]         makes host1 ... hostN and the head, from which runs are started; false where that cannot be done
#   hosts.sh at HOST WORDS...    runs a command there, its words joined as ssh joins them; 255 if the host is cut off
#   hosts.sh cut HOST            pulls its cable, then ends all that runs there: nobody hears of it
#   hosts.sh die HOST            the other way round: connections end first
#   hosts.sh mend HOST           puts the cable back
#   hosts.sh down                takes all of them away
set -u
prefix=${MX_HOSTS:?the beginning of the names of hosts}
space() { echo "$prefix-$1"; }

# slow NAMESPACE DEVICE GBIT — what leaves there leaves so fast.
slow() { tc -n "$1" qdisc add dev "$2" root tbf rate "$3gbit" burst 256k latency 50ms; }

# join HOST ADDRESS [GBIT] — a namespace and its cable to the switch, which is in the head's.
join() {
    ns=$(space "$1") head=$(space head)
    ip netns add "$ns" &&
        ip link add eth0 netns "$ns" type veth peer name "$1" netns "$head" &&
        ip -n "$ns" addr add "10.77.0.$2/24" dev eth0 &&
        ip -n "$ns" link set lo up && ip -n "$ns" link set eth0 up &&
        ip -n "$head" link set "$1" master switch up || return
    [ -z "${3:-}" ] || { slow "$ns" eth0 "$3" && slow "$head" "$1" "$3"; }
}

up() {
    ip netns add "$(space head)" && ip -n "$(space head)" link add switch type bridge &&
        ip -n "$(space head)" addr add 10.77.0.254/24 dev switch &&
        ip -n "$(space head)" link set lo up && ip -n "$(space head)" link set switch up || return
    for i in $(seq 1 "$1"); do join "host$i" "$i" "${2:-}" || return; done
}

is_cut() { [ "$1" != head ] && ! ip -n "$(space head)" -o link show "$1" 2>/dev/null | grep -q '[<,]UP[,>]'; }

# at HOST WORDS... — under the host's own name.
at() {
    host=$1
    shift
    ! is_cut "$host" || { sleep 1 && exit 255; }
    # shellcheck disable=SC2016
    exec ip netns exec "$(space "$host")" unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$host" "$*"
}

finish() { ip netns pids "$(space "$1")" 2>/dev/null | xargs -r kill -9 2>/dev/null; }

down() {
    for ns in $(ip netns list | awk -v begin="$prefix-" 'index($1, begin) == 1 { print $1 }'); do
        finish "${ns#"$prefix-"}"
        ip netns del "$ns"
    done
}

case $1 in
up | at | down) "$@" ;;
cut)
    ip -n "$(space head)" link set "$2" down
    finish "$2"
    ;;
die)
    finish "$2"
    ip -n "$(space head)" link set "$2" down
    ;;
mend) ip -n "$(space head)" link set "$2" up ;;
esac

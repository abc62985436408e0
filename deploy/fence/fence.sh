#!/bin/sh
# Closes this network namespace to everybody but the gateway: what leaves it has to be sent by the gateway's UID.
#
# It runs once, as root with CAP_NET_ADMIN alone, before the gateway and the app start: as an init container of their pod,
# or by hand in a namespace. Everything is set by the environment:
#
#   GATEWAY_UID  the gateway's UID. Default: 65532.
#   APP_DNS      name servers that everybody may ask (UDP and TCP, port 53): `none`, `resolv.conf` (those that this file
#                names), or a list of addresses. Default: none.
#   APP_TCP      what everybody may connect to besides, a list such as `10.20.0.0/16:5432 [fd00::/8]:5432`. Default: empty.
#
# Loopback stays open, and so do the answers to connections from outside, such as the kubelet's probes. All else is refused
# at once, with ICMP's "administratively prohibited", for IPv4 and IPv6. The rules replace those of an earlier run as a
# whole; where they cannot be set, nothing of them is, and the exit is 1.
set -eu
# Entries of lists are split at white space, and never matched with files.
set -f

say() {
  printf 'fence: %s\n' "$1" >&2
}

fail() {
  say "$1"
  exit 1
}

# Whether the text is decimal digits alone, few enough for the shell's arithmetic.
number() {
  case $1 in
    '' | *[!0-9]* | ??????????*) return 1 ;;
  esac
}

# The keyword of the address's family. The characters are checked here, so that no text becomes rules; nft checks the rest.
family() {
  case $1 in
    '' | *[!0-9a-fA-F:./]*) return 1 ;;
    *:*) echo ip6 ;;
    # Letters would be a name, which nft looks up.
    *[!0-9./]*) return 1 ;;
    *.*) echo ip ;;
    *) return 1 ;;
  esac
}

uid=${GATEWAY_UID:-65532}
number "$uid" || fail "GATEWAY_UID: $uid is not a UID"
[ "$uid" -ne 0 ] || fail 'GATEWAY_UID: 0 is root, which would open the fence to too many'

dns=${APP_DNS:-none}
case $dns in
  none) dns= ;;
  resolv.conf)
    # An address may have a zone (`fe80::1%eth0`), which a rule does not have.
    dns=$(sed -n 's/^[[:space:]]*nameserver[[:space:]]\{1,\}\([^[:space:]%]*\).*$/\1/p' /etc/resolv.conf)
    [ -n "$dns" ] || fail 'APP_DNS: /etc/resolv.conf names no server'
    ;;
esac

open=
for server in $dns; do
  case $server in */*) fail "APP_DNS: $server is a range, not an address" ;; esac
  kind=$(family "$server") || fail "APP_DNS: $server is not an address"
  open="$open
    $kind daddr $server udp dport 53 accept
    $kind daddr $server tcp dport 53 accept"
done

for target in ${APP_TCP:-}; do
  port=${target##*:}
  range=${target%:*}
  [ "$range" != "$target" ] || fail "APP_TCP: $target: not ADDRESS:PORT or RANGE:PORT"
  case $range in
    \[*\]) range=${range#\[} range=${range%\]} ;;
    *:*) fail "APP_TCP: $target: an IPv6 range stands in brackets, as in [fd00::/8]:5432" ;;
  esac
  kind=$(family "$range") || fail "APP_TCP: $target: not ADDRESS:PORT or RANGE:PORT"
  number "$port" && [ "$port" -ge 1 ] && [ "$port" -le 65535 ] || fail "APP_TCP: $target: the port is not 1 to 65535"
  open="$open
    $kind daddr $range tcp dport $port accept"
done

# The empty table comes first, so that there is always one to delete. All of it is one transaction.
rules="table inet sortie_fence {}
delete table inet sortie_fence
table inet sortie_fence {
  chain output {
    type filter hook output priority filter; policy drop;
    oif lo accept
    ct state established,related accept
    # The kernel's own: without neighbours there is no IPv6, for the gateway either.
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, mld-listener-report, mld2-listener-report } accept
    meta skuid $uid accept$open
    counter reject with icmpx admin-prohibited
  }
}"
printf '%s\n' "$rules" | nft -f - || fail 'the rules could not be set; this needs root, CAP_NET_ADMIN and a kernel with nftables'
# shellcheck disable=SC2086 # One line, however many there are.
set -- ${dns:+name servers $dns}
say "closed to all but UID $uid${1:+, $*}${APP_TCP:+, $APP_TCP}"

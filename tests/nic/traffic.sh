#!/bin/sh
# Real traffic through real adapters: network namespaces whose only link is
#
#   the kernel's stack - tap - firmware - packet MAC - veth - packet MAC - firmware - tap - the kernel's stack
#
# with ping, iperf3 and a download, in every partition, and through a third namespace that forwards. Afterwards the
# counters of both adapters must add up. Usage: traffic.sh VIADUCT-COMMAND. Exit code 77: skipped, and why.
set -eu
command=$1

skip() { echo "SKIPPED: $1"; exit 77; }
[ -x "${1:-}" ] || skip "the command ${1:-} was not built"
fail() { echo "FAILED: $1"; exit 1; }

# Everything happens in namespaces of our own, and ends with them.
if [ "${2:-}" != inside ]; then
  for tool in ip unshare ping; do command -v $tool >/dev/null || skip "$tool is not installed"; done
  [ -e /dev/net/tun ] || skip "/dev/net/tun is missing"
  user=""
  [ "$(id -u)" = 0 ] || user="-Ur"
  # shellcheck disable=SC2086
  unshare $user -n -m --pid --fork --kill-child --mount-proc true 2>/dev/null || skip "unshare is not permitted here"
  # shellcheck disable=SC2086
  exec unshare $user -n -m --pid --fork --kill-child --mount-proc sh "$0" "$command" inside
fi
mount -t tmpfs none /run && mkdir -p /run/netns || skip "no /run of our own"
trap "exit 1" TERM INT # the first process of its namespace ends by nothing else
work=$(mktemp -d /run/traffic.XXXXXX)

in_a() { ip netns exec a "$@"; }
in_b() { ip netns exec b "$@"; }

add_namespace() {
  ip netns add "$1" || skip "ip netns does not work here"
  ip netns exec "$1" sh -c 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
                            echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6' 2>/dev/null || true
  ip -n "$1" link set lo up
}
add_cable() { # namespace interface namespace interface
  ip link add name "$2" netns "$1" type veth peer name "$4" netns "$3" || skip "no veth here"
  ip -n "$1" link set "$2" arp off up # else the kernel answers there for the addresses of its taps
  ip -n "$3" link set "$4" arp off up
}

# Starts an adapter and waits until it runs: namespace tap interface address options...
start_adapter() {
  where=$1 tap=$2 interface=$3 address=$4
  shift 4
  ip netns exec "$where" "$command" nic run --host "$tap" --mac "packet:$interface" --name "$where-$tap" "$@" \
    >"$work/$where-$tap.out" 2>"$work/$where-$tap.err" &
  echo $! >"$work/$where-$tap.pid"
  tries=0
  until ip -n "$where" addr add "$address" dev "$tap" 2>/dev/null; do
    kill -0 "$(cat "$work/$where-$tap.pid")" 2>/dev/null || fail "the adapter $where-$tap: $(cat "$work/$where-$tap.err")"
    tries=$((tries + 1))
    [ $tries -lt 400 ] || fail "the adapter $where-$tap does not start"
    sleep 0.05
  done
}
stop_adapter() {
  pid=$(cat "$work/$1.pid")
  kill -INT "$pid"
  wait "$pid" || fail "the adapter $1 ended with an error: $(cat "$work/$1.err")"
  [ ! -s "$work/$1.err" ] || fail "the adapter $1 complained: $(cat "$work/$1.err")"
}

count() { # adapter field
  "$command" nic stat --once --json "$(cat "$work/$1.pid")" | sed -n 's/.*"'"$2"'":\([0-9]*\).*/\1/p'
}
# What left one adapter arrived at the other, or was counted as lost; each adapter passed on what it was given.
sums_agree() {
  [ "$(count "$1" packets_sent)" = "$(count "$1" mac.sent)" ] &&
    [ "$(count "$1" packets_sent)" = "$(count "$1" host.received)" ] &&
    [ "$(count "$1" mac.sent)" = $(($(count "$2" mac.received) + $(count "$2" mac.receive_drops))) ] &&
    [ "$(count "$2" packets_received)" = "$(count "$2" mac.received)" ] &&
    [ "$(count "$2" host.sent)" = "$(count "$2" packets_received)" ]
}
check_sums() {
  tries=0
  until sums_agree "$1" "$2" && sums_agree "$2" "$1"; do
    tries=$((tries + 1))
    if [ $tries = 60 ]; then
      "$command" nic stat --once
      fail "the counters of $1 and $2 do not add up"
    fi
    sleep 0.05
  done
  echo "  counters add up: $(count "$1" packets_sent) there, $(count "$2" packets_sent) back," \
    "$(count "$1" mac.receive_drops) + $(count "$2" mac.receive_drops) lost"
}

try_ping() { in_a ping -q -c 20 -i 0.01 -W 5 "$1" >"$work/ping" || fail "ping $1: $(cat "$work/ping")"; }
try_iperf() { # what, options
  what=$1
  shift
  in_a timeout 20 iperf3 -c 10.9.0.2 -t 1 "$@" >"$work/iperf" 2>&1 || fail "iperf3 $what: $(cat "$work/iperf")"
  echo "  iperf3 $what: $(grep -E 'receiver$' "$work/iperf" | tail -1 | sed 's/ receiver//; s/^\[ *[0-9]*\] *//')"
}
try_download() {
  rm -f "$work/got"
  in_a timeout 20 python3 -c 'import sys, urllib.request
open(sys.argv[2], "wb").write(urllib.request.urlopen(sys.argv[1]).read())' "http://$1:8080/file" "$work/got" ||
    fail "no download from $1"
  cmp "$work/file" "$work/got" || fail "the download from $1 is not what was served"
  echo "  download: $(wc -c <"$work/got") bytes, every one of them right"
}

serve() {
  head -c 8000000 /dev/urandom >"$work/file"
  if command -v nginx >/dev/null; then
    cat >"$work/nginx.conf" <<CONF
daemon off; master_process off; pid $work/nginx.pid; error_log $work/nginx.err;
events {}
http { access_log off; server { listen 8080; root $work; }
  client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3; uwsgi_temp_path $work/t4;
  scgi_temp_path $work/t5; }
CONF
    in_b nginx -e "$work/nginx.err" -p "$work" -c "$work/nginx.conf" 2>/dev/null &
    echo "downloads: from nginx"
  else
    (cd "$work" && exec ip netns exec b python3 -m http.server 8080 >/dev/null 2>&1) &
    echo "downloads: from python3 (nginx is not installed)"
  fi
}

add_namespace a
add_namespace b
add_namespace r
add_cable a va b vb
iperf=no download=no
if command -v iperf3 >/dev/null; then iperf=yes; in_b iperf3 -s >/dev/null 2>&1 & else echo "iperf3 is not installed: that part is left out"; fi
if command -v python3 >/dev/null; then download=yes; serve; else echo "python3 is not installed: downloads are left out"; fi

for partition in inline release parallel dynamic; do
  echo "$partition:"
  start_adapter a tap0 va 10.9.0.1/24 --partition $partition --pcap "$work/$partition.pcapng"
  start_adapter b tap0 vb 10.9.0.2/24 --partition $partition
  try_ping 10.9.0.2
  if [ $iperf = yes ]; then
    try_iperf "TCP there"
    try_iperf "TCP back" -R
    try_iperf "UDP there" -u -b 50M
    try_iperf "UDP back" -u -b 50M -R
  fi
  [ $download = no ] || try_download 10.9.0.2
  check_sums a-tap0 b-tap0
  stop_adapter a-tap0
  stop_adapter b-tap0
  if command -v tcpdump >/dev/null; then
    tcpdump -r "$work/$partition.pcapng" -n icmp 2>/dev/null >"$work/seen" || fail "tcpdump cannot read the capture"
    [ "$(grep -c 'ICMP echo' "$work/seen")" -ge 80 ] || fail "the capture lacks echoes: $(head -3 "$work/seen")"
  fi
  rm -f "$work/$partition.pcapng"
done

echo "through a router:"
add_cable a wa r ra
add_cable b wb r rb
start_adapter a tap1 wa 10.8.0.1/24
start_adapter r tap0 ra 10.8.0.254/24
start_adapter r tap1 rb 10.7.0.254/24
start_adapter b tap1 wb 10.7.0.1/24
ip netns exec r sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
ip -n a route add 10.7.0.0/24 via 10.8.0.254
ip -n b route add 10.8.0.0/24 via 10.7.0.254
try_ping 10.7.0.1
[ $download = no ] || try_download 10.7.0.1
check_sums a-tap1 r-tap0
check_sums b-tap1 r-tap1
for adapter in a-tap1 r-tap0 r-tap1 b-tap1; do stop_adapter $adapter; done
echo "all of it passed"

#!/bin/sh
# redis's own tests, natively and under libviaduct-sockets.so: the same tests must pass.
#
#   redis.sh LIBRARY SOURCE [TEST...]     SOURCE: redis's source tree, of the version that is installed; its tests only
#
# The server is the installed one. Exit code 0: the same; 1: different; 77: nothing could be run. What this machine lacks
# is said aloud.
set -u

library=${1:?usage: redis.sh LIBRARY SOURCE [TEST...]}
source=${2:-}
[ $# -ge 2 ] && shift 2 || shift
[ -r "$library" ] || { echo "redis.sh: no library $library" >&2; exit 2; }
library=$(cd "$(dirname "$library")" && pwd)/$(basename "$library")
limit=${VIADUCT_EXTERNAL_SECONDS:-900}
# At once, so that short connections reach the ring too; another number says otherwise.
export VIADUCT_SOCKETS_AFTER="${VIADUCT_SOCKETS_AFTER:-1}"
tests=${*:-"unit/protocol unit/keyspace unit/expire unit/quit unit/pubsub unit/multi unit/tracking unit/querybuf \
unit/obuf-limits unit/limits unit/wait unit/networking unit/client-eviction unit/type/string unit/type/list unit/type/stream \
integration/replication integration/replication-psync integration/block-repl integration/redis-cli \
integration/redis-benchmark"}

for program in redis-server redis-cli redis-benchmark tclsh; do
  command -v "$program" >/dev/null 2>&1 || { echo "SKIPPED: no $program here"; exit 77; }
done
[ -r "$source/tests/test_helper.tcl" ] || { echo "SKIPPED: '$source' holds no tests/test_helper.tcl of redis"; exit 77; }

work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM

run() { # name preload
  tree=$work/$1
  rm -rf "$tree"
  mkdir -p "$tree/src"
  cp -R "$source/tests" "$source/redis.conf" "$tree" && rm -rf "$tree/tests/tmp" && mkdir "$tree/tests/tmp"
  [ ! -d "$source/utils" ] || cp -R "$source/utils" "$tree"
  for program in redis-server redis-cli redis-benchmark redis-check-aof redis-check-rdb redis-sentinel; do
    ln -s "$(command -v $program || echo /usr/bin/$program)" "$tree/src/$program"
  done
  single=""
  for test in $tests; do single="$single --single $test"; done
  # shellcheck disable=SC2086
  (cd "$tree" && LD_PRELOAD=$2 timeout "$limit" tclsh tests/test_helper.tcl --clients 2 --durable $single \
    </dev/null >"$work/$1.out" 2>&1)
  echo "$1: exit code $?"
  # "[ok]: name (12 ms)": without the time and the colours.
  sed -nE 's/\x1b\[[0-9;]*m//g; s/^\[(ok|err|ignore|skip)\]: (.*)$/\1 \2/p' "$work/$1.out" |
    sed -E 's/ \([0-9]+ ms\)$//; s/ in tests\/.*$//' | sort >"$work/$1.verdicts"
}

# Some of its tests depend on how fast everybody is, and fail now and then natively too: that is no evidence, so once more.
for time in first second; do
  run native ""
  run viaduct "$library"
  count=$(grep -c '^ok' "$work/native.verdicts")
  [ "$count" -gt 0 ] || { tail -5 "$work/native.out"; echo "SKIPPED: no test ran natively"; exit 77; }
  if diff "$work/native.verdicts" "$work/viaduct.verdicts" >"$work/difference"; then
    echo "same: redis, $count tests passed"
    exit 0
  fi
  echo "DIFFERENT at the $time run (< natively, > accelerated); $count passed natively"
  cat "$work/difference"
done
exit 1

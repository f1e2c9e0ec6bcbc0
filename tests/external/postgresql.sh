#!/bin/sh
# PostgreSQL's own regression tests over TCP, natively and under libviaduct-sockets.so: the same tests must pass.
#
#   postgresql.sh LIBRARY SOURCE [TEST...]     SOURCE: PostgreSQL's source tree, of the version that is installed
#
# The server, the client and pg_regress are the installed ones. Exit code 0: the same; 1: different; 77: nothing could be
# run. What this machine lacks is said aloud.
set -u

library=${1:?usage: postgresql.sh LIBRARY SOURCE [TEST...]}
source=${2:-}
[ $# -ge 2 ] && shift 2 || shift
[ -r "$library" ] || { echo "postgresql.sh: no library $library" >&2; exit 2; }
library=$(cd "$(dirname "$library")" && pwd)/$(basename "$library")
limit=${VIADUCT_EXTERNAL_SECONDS:-900}
# At once, so that short connections reach the ring too; another number says otherwise.
export VIADUCT_SOCKETS_AFTER="${VIADUCT_SOCKETS_AFTER:-1}"
suite=$source/src/test/regress
[ -d "$suite/sql" ] || { echo "SKIPPED: '$source' holds no src/test/regress of PostgreSQL"; exit 77; }

programs=""
for folder in ${POSTGRESQL_BIN:-} /usr/lib/postgresql/*/bin; do [ ! -x "$folder/initdb" ] || programs=$folder; done
[ -n "$programs" ] || { echo "SKIPPED: no PostgreSQL server here (on Debian: postgresql)"; exit 77; }
regress=$(dirname "$programs")/lib/pgxs/src/test/regress/pg_regress
[ -x "$regress" ] || { echo "SKIPPED: no pg_regress at $regress (on Debian: postgresql-server-dev-all)"; exit 77; }

work=$(mktemp -d) || exit 2
chmod 755 "$work"
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 2' INT TERM

# PostgreSQL refuses to run as root.
if [ "$(id -u)" = 0 ]; then
  id postgres >/dev/null 2>&1 || { echo "SKIPPED: root, and no user postgres to run it as"; exit 77; }
  chown postgres "$work"
  as() { setpriv --reuid=postgres --regid=postgres --clear-groups env "$@"; }
else
  as() { env "$@"; }
fi
stop() { [ ! -s "$work/data/postmaster.pid" ] || as "$programs/pg_ctl" -D "$work/data" -m immediate stop >/dev/null 2>&1; }

run() { # name preload; the tests are in $tests
  port=$((20000 + $$ % 20000))
  cp -R "$suite" "$work/$1"
  mkdir -p "$work/$1/out"
  [ "$(id -u)" != 0 ] || chown -R postgres "$work/$1"
  rm -rf "$work/data"
  as "$programs/initdb" -D "$work/data" -A trust --no-sync -E UTF8 --locale=C >"$work/$1.log" 2>&1 || return 1
  as "LD_PRELOAD=$2" "$programs/pg_ctl" -D "$work/data" -l "$work/data/log" -w \
    -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off" start >>"$work/$1.log" 2>&1 || return 1
  # shellcheck disable=SC2086
  (cd "$work/$1" && as "LD_PRELOAD=$2" timeout "$limit" "$regress" --host=127.0.0.1 --port="$port" --inputdir=. \
    --outputdir=out --bindir="$programs" --dlpath=. --max-connections=4 $tests >"$work/$1.out" 2>&1)
  stop
  sed -nE 's/^(test|ok [0-9]+|not ok [0-9]+)? *([-+ ] )?([a-z_0-9]+) +\.\.\. (ok|FAILED|failed).*$/\3 \4/p; s/^ +([a-z_0-9]+) +\.\.\. (ok|FAILED|failed).*$/\1 \2/p' \
    "$work/$1.out" | sort -u >"$work/$1.verdicts"
}

tests=${*:-"test_setup boolean char name varchar text int2 int4 int8 oid float4 float8 bit numeric uuid enum strings \
date time timestamp interval inet create_table copy select select_into select_distinct select_having subselect union \
case join aggregates transactions arrays prepared_xacts portals limit plpgsql copy2 temp returning largeobject async"}
run native "" || { tail -3 "$work/native.log"; echo "SKIPPED: no server could be started"; exit 77; }
run viaduct "$library" || { tail -3 "$work/viaduct.log" "$work/data/log"; echo "DIFFERENT: the server does not start"; exit 1; }
count=$(grep -c ' ok$' "$work/native.verdicts")
[ "$count" -gt 0 ] || { tail -5 "$work/native.out"; echo "SKIPPED: no test passed natively"; exit 77; }
if diff "$work/native.verdicts" "$work/viaduct.verdicts" >"$work/difference"; then
  echo "same: PostgreSQL, $count of $(wc -l <"$work/native.verdicts") tests passed"
  exit 0
fi
echo "DIFFERENT (< natively, > accelerated); $count passed natively"
cat "$work/difference"
exit 1

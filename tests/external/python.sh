#!/bin/sh
# CPython's own tests of sockets, natively and under libviaduct-sockets.so: the same tests must pass, fail and be skipped.
#
#   python.sh LIBRARY [--quick]     --quick: test_epoll only
#
# Exit code 0: the same; 1: different; 77: nothing could be run. What this machine lacks is said aloud and left out.
# PYTHON names another interpreter than python3.
set -u

library=${1:?usage: python.sh LIBRARY [--quick]}
[ -r "$library" ] || { echo "python.sh: no library $library" >&2; exit 2; }
library=$(cd "$(dirname "$library")" && pwd)/$(basename "$library")
python=${PYTHON:-python3}
tests=test_epoll
[ "${2:-}" = --quick ] || tests="$tests test_selectors test_poll test_select test_socket test_ftplib test_asyncio"
limit=${VIADUCT_EXTERNAL_SECONDS:-300}
# At once, so that short connections reach the ring too; another number says otherwise.
export VIADUCT_SOCKETS_AFTER="${VIADUCT_SOCKETS_AFTER:-1}"

command -v "$python" >/dev/null 2>&1 || { echo "SKIPPED: no $python here"; exit 77; }
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM

# Verdicts only, one per test, in order of name: "test.test_select.SelectTestCase.test_select ok". From the report in XML
# and not from what the tests print, into which the children of some write.
cat >"$work/verdicts.py" <<'END'
import sys
import xml.etree.ElementTree
for case in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase"):
    wrong = sorted(child.tag for child in case if child.tag in ("error", "failure", "skipped"))
    print(case.get("name"), " ".join(wrong) or "ok")
END
run() { # name preload
  rm -f "$work/report.xml"
  # The VSOCK classes wait for ever on kernels that have the address family but nobody behind it.
  (cd "$work" && LD_PRELOAD=$2 timeout "$limit" "$python" -m test --junit-xml "$work/report.xml" --ignore '*VSOCK*' \
    --ignore '*Vsock*' "$1" </dev/null >"$work/out" 2>&1)
  echo "exit code $?"
  [ -s "$work/report.xml" ] || { echo "no report: it died, or needed more than $limit s (preload: ${2:-none})"; return; }
  "$python" "$work/verdicts.py" "$work/report.xml" | sort
}

ran=0
different=0
for test in $tests; do
  if ! "$python" -c "import test.$test" >/dev/null 2>&1; then
    echo "SKIPPED: $python has no test.$test (on Debian: libpython3-testsuite)"
    continue
  fi
  run "$test" "" >"$work/native.$test"
  run "$test" "$library" >"$work/viaduct.$test"
  ran=$((ran + 1))
  count=$(($(wc -l <"$work/native.$test") - 1))
  if diff "$work/native.$test" "$work/viaduct.$test" >"$work/difference"; then
    echo "same: $test, $count tests"
  else
    # A test that fails now and then natively is no evidence: once more, both.
    run "$test" "" >"$work/native.$test"
    run "$test" "$library" >"$work/viaduct.$test"
    if diff "$work/native.$test" "$work/viaduct.$test" >"$work/difference"; then
      echo "same at the second run: $test, $count tests"
    else
      echo "DIFFERENT: $test (< natively, > accelerated)"
      cat "$work/difference"
      different=1
    fi
  fi
done
[ "$ran" -gt 0 ] || exit 77
exit "$different"

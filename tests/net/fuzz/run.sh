#!/usr/bin/env bash
# Fuzzes what comes from the network, guided by coverage: tests/net/fuzz/run.sh [SECONDS], 60 if not said. Needs clang with
# libFuzzer (Debian: clang, libclang-rt-dev). What it finds stays in build/fuzz as crash-*; giving such a file instead of the seconds runs it.
set -euo pipefail
cd "$(dirname "$0")/../../.."
command -v clang++ >/dev/null || { echo "run.sh: there is no clang++ (Debian: apt-get install clang libclang-rt-dev)" >&2; exit 1; }
mkdir -p build/fuzz/corpus
clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -Isrc -Iinclude \
  tests/net/fuzz/frames.cpp src/net/wire.cpp src/net/session*.cpp src/net/station.cpp src/net/key.cpp src/net/seal.cpp src/base/fd.cpp src/base/crc32c.cpp -lfmt -lsodium -o build/fuzz/frames
if [ -f "${1:-}" ]; then
  build/fuzz/frames "$1"
else
  build/fuzz/frames -max_total_time="${1:-60}" -max_len=20000 -timeout=5 -artifact_prefix=build/fuzz/ build/fuzz/corpus
fi

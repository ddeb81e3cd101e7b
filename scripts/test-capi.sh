#!/usr/bin/env bash
# Builds the C example and the tests of the C API with the shared and the static library, as C and as C++, and runs them, under
# valgrind, too.
#
#   scripts/test-capi.sh
#
# Needs cc, c++ and valgrind (run as root on Debian, they are installed here). GRAPHMEND_BIN: the folder of graphmend-pack and
# the two libraries, default target/debug, which is built.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
esac

missing=
for tool in cc:gcc c++:g++ make:make valgrind:valgrind; do
    command -v "${tool%:*}" > /dev/null || missing="$missing ${tool#*:}"
done
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || { echo "test-capi.sh: missing:$missing" >&2; exit 1; }
    apt-get -q update
    # valgrind wants the symbols of the C library.
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $missing libc6-dbg
fi
if [ -z "${GRAPHMEND_BIN:-}" ]; then
    cargo build --workspace --bins --lib
    GRAPHMEND_BIN=$PWD/target/debug
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $(uname -m) in
    # valgrind knows no AVX-512.
    x86_64) target=x86-64-v3 other=aarch64 ;;
    *) target=native other=x86-64 ;;
esac
model=examples/quickstart/silero_vad.onnx
"$GRAPHMEND_BIN/graphmend-pack" "$model" --target "$target" -o "$work/silero_vad.gmc" --quiet
"$GRAPHMEND_BIN/graphmend-pack" "$model" --target "$other" -o "$work/foreign.gmc" --quiet

make -s -C examples/c LIBRARIES="$(realpath "$GRAPHMEND_BIN")" OUT="$work" CFLAGS="-O1 -g -Werror"
strict="-Wall -Wextra -Werror -pedantic -O1 -g -I capi capi/tests/c/contract.c"
shared="-L $GRAPHMEND_BIN -lgraphmend_c -lpthread -Wl,-rpath,$(realpath "$GRAPHMEND_BIN")"
static="$GRAPHMEND_BIN/libgraphmend_c.a -lpthread -ldl -lm"
# shellcheck disable=SC2086
{
    cc -std=c11 $strict -o "$work/contract-shared" $shared
    cc -std=c11 $strict -o "$work/contract-static" $static
    c++ -std=c++17 -x c++ $strict -x none -o "$work/contract-c++" $shared
}
grind="valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect,possible --errors-for-leak-kinds=definite,indirect,possible"

for kind in shared static; do
    "$work/vad-$kind" "$work/silero_vad.gmc" examples/quickstart/speech.wav > "$work/probabilities"
    python3 - examples/quickstart/reference.json "$work/probabilities" << 'PYTHON'
import json, sys
expected = json.load(open(sys.argv[1]))["probabilities"]
got = [float(line) for line in open(sys.argv[2])]
assert len(got) == len(expected), (len(got), len(expected))
worst = max(abs(a - b) for a, b in zip(got, expected))
assert worst < 1e-4, worst
print(f"{len(got)} windows, largest difference from onnxruntime {worst:.1e}")
PYTHON
    "$work/contract-$kind" "$work/silero_vad.gmc" "$work/foreign.gmc"
done
$grind "$work/vad-shared" "$work/silero_vad.gmc" examples/quickstart/speech.wav > "$work/under-valgrind"
cmp "$work/probabilities" "$work/under-valgrind"
$grind "$work/contract-static" "$work/silero_vad.gmc" "$work/foreign.gmc"
"$work/contract-c++" "$work/silero_vad.gmc" "$work/foreign.gmc"
if nm -D --defined-only "$GRAPHMEND_BIN/libgraphmend_c.so" | awk '{ print $3 }' | grep -v '^gm_'; then
    echo "test-capi.sh: the shared library shows more than its functions" >&2
    exit 1
fi
echo "C API: as it should be"

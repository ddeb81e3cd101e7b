#!/usr/bin/env bash
# Builds the firmware examples with models linked in, and runs them under QEMU: what they print must equal onnxruntime's results.
#
#   scripts/test-firmware.sh
#
# Needs arm-none-eabi-gcc and qemu-system-arm (scripts/install-cross.sh --firmware; run as root, it is installed here), and
# the Python environment of scripts/setup-python.sh. GRAPHMEND_BIN: the folder of graphmend-pack, default target/debug, which is
# built. PYTHON: an interpreter with onnx and onnxruntime, default target/venv/bin/python.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
esac

missing=
for tool in arm-none-eabi-gcc qemu-system-arm; do
    command -v "$tool" > /dev/null || missing="$missing $tool"
done
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || {
        echo "test-firmware.sh: missing:$missing. Run scripts/install-cross.sh --firmware as root" >&2
        exit 1
    }
    scripts/install-cross.sh --firmware
fi
python=${PYTHON:-target/venv/bin/python}
[ -x "$python" ] || { echo "test-firmware.sh: there is no $python: run scripts/setup-python.sh, or set PYTHON" >&2; exit 1; }
if [ -z "${GRAPHMEND_BIN:-}" ]; then
    cargo build --workspace --bins
    GRAPHMEND_BIN=$PWD/target/debug
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
example=examples/firmware-cortex-m-c
"$python" "$example/make_model.py" "$work"

bad=0
# TARGET MACHINE FLAGS...
check() {
    local target=$1 machine=$2 status=0
    shift 2
    local folder=$work/$target
    echo "== $target on $machine"
    "$GRAPHMEND_BIN/graphmend-pack" "$work/kws.onnx" --target "$target" --emit object -o "$folder/kws" |
        grep -E '^(flash|RAM)'
    # A program of the user's own compiles the source: the same, without a warning.
    "$GRAPHMEND_BIN/graphmend-pack" "$work/kws.onnx" --target "$target" --emit c -o "$folder/kws" --quiet
    arm-none-eabi-gcc "$@" -std=c99 -pedantic -Wall -Wextra -Werror -O2 -ffreestanding -fno-tree-loop-distribute-patterns \
        -ffunction-sections -fdata-sections -I "$folder" -I "$work" \
        "$example/main.c" "$example/startup.c" "$folder/kws.c" \
        -nostdlib -T "$example/link.ld" -Wl,--gc-sections -o "$folder/kws.elf" -lgcc
    timeout 120 qemu-system-arm -M "$machine" -nographic -monitor none -serial none \
        -semihosting-config enable=on,target=native -kernel "$folder/kws.elf" 2>&1 | tee "$folder/out" || status=$?
    if [ "$status" != 0 ] || ! grep -q "the scores equal onnxruntime's" "$folder/out"; then
        echo "$target on $machine: FAILED with status $status"
        bad=$((bad + 1))
    fi
}

check cortex-m3 mps2-an385 -mcpu=cortex-m3 -mthumb -mfloat-abi=soft
check cortex-m4f mps2-an386 -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16
check cortex-m7 mps2-an500 -mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16
check cortex-m55 mps3-an547 -mcpu=cortex-m55 -mthumb -mfloat-abi=hard
echo "4 boards, $bad not as expected"
[ "$bad" = 0 ]

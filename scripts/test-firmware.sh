#!/usr/bin/env bash
# Builds the firmware examples with models linked in, and runs them under QEMU: what they print must equal onnxruntime's results.
#
#   scripts/test-firmware.sh
#
# Each example runs with the model in floats and in bytes: in C on Cortex-M3 to M55, where what graphmend-pack says of sizes is
# compared with the image and with the stack that a run took; in Rust on Cortex-M4 and M7, and on 32-bit and 64-bit RISC-V;
# and by the runtime from a packed file in flash, on 64-bit RISC-V and Arm, and interpreted on 32-bit RISC-V.
#
# Needs arm-none-eabi-gcc, riscv64-unknown-elf-gcc and QEMU for boards (scripts/install-cross.sh --firmware; run as root, it is
# installed here), a Rust for the boards (see scripts/cargo-cross.sh), and the Python environment of
# scripts/setup-python.sh. GRAPHMEND_BIN: the folder of graphmend-pack, default target/debug, which is built. PYTHON: an
# interpreter with onnx and onnxruntime, default target/venv/bin/python.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
esac

missing=
for tool in arm-none-eabi-gcc riscv64-unknown-elf-gcc riscv64-linux-gnu-gcc qemu-system-arm qemu-system-riscv64; do
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

built=${CARGO_TARGET_DIR:-$PWD/target/cross}
pack=$GRAPHMEND_BIN/graphmend-pack
case $pack in /*) ;; *) pack=$PWD/$pack ;; esac
boards=0
bad=0
# NAME FOLDER COMMAND...: what the command prints must be that the scores are right.
run() {
    local name=$1 folder=$2 status=0
    shift 2
    boards=$((boards + 1))
    echo "== $name"
    timeout 120 "$@" -nographic -monitor none > "$folder/out" 2>&1 || status=$?
    tail -1 "$folder/out"
    if [ "$status" != 0 ] || ! grep -q "the scores equal onnxruntime's" "$folder/out"; then
        cat "$folder/out"
        echo "$name: FAILED with status $status"
        bad=$((bad + 1))
    fi
}
semihosting="-serial none -semihosting-config enable=on,target=native"

# KIND TARGET MACHINE FLAGS...
in_c() {
    local kind=$1 target=$2 machine=$3
    local folder=$work/$kind/$target
    shift 3
    "$pack" "$work/$kind/kws.onnx" --target "$target" --emit object -o "$folder/kws" --json > "$folder.json"
    # A program of the user's own compiles the source: without a warning.
    "$pack" "$work/$kind/kws.onnx" --target "$target" --emit c -o "$folder/kws" --quiet
    local strict="-std=c99 -pedantic -Wall -Wextra -Werror -O2 -ffreestanding -ffunction-sections -fdata-sections"
    # shellcheck disable=SC2086
    arm-none-eabi-gcc "$@" $strict -c "$folder/kws.c" -o "$folder/kws-strict.o"
    # shellcheck disable=SC2086
    arm-none-eabi-gcc "$@" $strict -fno-tree-loop-distribute-patterns -I "$folder" -I "$work/$kind" \
        "$example/main.c" "$example/startup.c" "$folder/kws.o" \
        -nostdlib -T "$example/link.ld" "-Wl,--gc-sections,-Map=$folder/kws.map" -o "$folder/kws.elf" -lgcc
    # shellcheck disable=SC2086
    run "C, $kind, $target on $machine" "$folder" qemu-system-arm -M "$machine" $semihosting -kernel "$folder/kws.elf"
    "$python" scripts/firmware_sizes.py "$folder.json" "$folder/kws.map" "$folder/out" || bad=$((bad + 1))
}

# EXAMPLE KIND TRIPLE ARGUMENTS...: builds an example in Rust, and gives its image. Not optimised, it shares the core library with
# other builds.
in_rust() {
    local example=$1 kind=$2 triple=$3
    shift 3
    (
        cd "examples/$example"
        export CARGO_TARGET_DIR=$built KWS_MODEL=$work/$kind GRAPHMEND_PACK=$pack
        ../../scripts/cargo-cross.sh "$triple" build --quiet "$@"
    ) >&2
    echo "$built/$triple/debug/$example"
}

for kind in float int8; do
    in_c $kind cortex-m3 mps2-an385 -mcpu=cortex-m3 -mthumb -mfloat-abi=soft
    in_c $kind cortex-m4f mps2-an386 -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16
    in_c $kind cortex-m7 mps2-an500 -mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16
    in_c $kind cortex-m55 mps3-an547 -mcpu=cortex-m55 -mthumb -mfloat-abi=hard

    for board in "cortex-m4f mps2-an386" "cortex-m7 mps2-an500"; do
        read -r target machine <<< "$board"
        image=$(KWS_TARGET=$target in_rust firmware-cortex-m $kind thumbv7em-none-eabihf)
        # shellcheck disable=SC2086
        run "Rust, $kind, $target on $machine" "$work" qemu-system-arm -M "$machine" $semihosting -kernel "$image"
    done
    for triple in riscv32imac-unknown-none-elf riscv64gc-unknown-none-elf; do
        image=$(in_rust firmware-riscv $kind $triple)
        run "Rust, $kind, $triple on virt" "$work" "qemu-system-${triple:0:7}" -M virt -bios none -kernel "$image"
    done

    # A packed file in flash: behind the program, which starts there; or in a device of its own.
    flash=$work/flash
    for board in "riscv64 riscv64gc-unknown-none-elf riscv64" "riscv32 riscv32imac-unknown-none-elf portable --features interp"; do
        read -r arch triple target arguments <<< "$board"
        # shellcheck disable=SC2086
        image=$(in_rust firmware-cache $kind "$triple" $arguments)
        "$pack" "$work/$kind/kws.onnx" --target "$target" --quiet -o "$work/kws.gmc"
        riscv64-unknown-elf-objcopy -O binary "$image" "$flash"
        truncate -s 1M "$flash"
        cat "$work/kws.gmc" >> "$flash"
        truncate -s 32M "$flash"
        run "file for $target in flash, $kind, $arch on virt" "$work" "qemu-system-$arch" -M virt -bios none \
            -drive "if=pflash,unit=0,format=raw,readonly=on,file=$flash"
    done
    image=$(in_rust firmware-cache $kind aarch64-unknown-none)
    "$pack" "$work/$kind/kws.onnx" --target cortex-a72 --quiet -o "$flash"
    truncate -s 64M "$flash"
    run "file for cortex-a72 in flash, $kind, aarch64 on virt" "$work" qemu-system-aarch64 -M virt -cpu cortex-a72 -net none \
        -semihosting-config enable=on,target=native -drive "if=pflash,unit=1,format=raw,readonly=on,file=$flash" -kernel "$image"
done
echo "$boards images, $bad not as expected"
[ "$bad" = 0 ]

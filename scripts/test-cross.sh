#!/usr/bin/env bash
# Runs the tests that need other processors, under QEMU: generated code against the interpreter, and files packed for
# Raspberry Pi, RISC-V and 32-bit Arm against reference outputs, with graphmend-run built for them.
#
#   scripts/test-cross.sh [ARGUMENTS OF cargo test]
#
# Needs what scripts/install-cross.sh installs (run as root, it is installed here), and reference outputs
# (scripts/test.sh makes them; GRAPHMEND_REFERENCE, default target/reference).
set -euo pipefail
cd "$(dirname "$0")/.."

missing=
for tool in aarch64-linux-gnu-gcc riscv64-linux-gnu-gcc arm-linux-gnueabihf-gcc arm-none-eabi-gcc qemu-aarch64 qemu-riscv64 qemu-arm; do
    command -v "$tool" > /dev/null || missing="$missing $tool"
done
if [ -n "$missing" ]; then
    [ "$(id -u)" = 0 ] || {
        echo "test-cross.sh: missing:$missing. Run scripts/install-cross.sh as root, or scripts/test.sh --native" >&2
        exit 1
    }
    scripts/install-cross.sh
fi

# Static, as the Raspberry Pi gets it (scripts/test-raspberry-pi.sh uses the same programs).
export CROSS_STATIC=1
for target in aarch64-unknown-linux-gnu riscv64gc-unknown-linux-gnu armv7-unknown-linux-gnueabihf; do
    scripts/cargo-cross.sh "$target" build -p graphmend --bin graphmend-run --no-default-features
done
built=${CARGO_TARGET_DIR:-$PWD/target/cross}
export GRAPHMEND_RUN_AARCH64=$built/aarch64-unknown-linux-gnu/debug/graphmend-run
export GRAPHMEND_RUN_RISCV64=$built/riscv64gc-unknown-linux-gnu/debug/graphmend-run
export GRAPHMEND_RUN_ARM=$built/armv7-unknown-linux-gnueabihf/debug/graphmend-run

# With all packages named, so that nothing is built anew with fewer features.
cargo test --workspace --features graphmend-tests/cross --test emulated "$@"
cargo test --workspace --test codegen "$@" -- --ignored

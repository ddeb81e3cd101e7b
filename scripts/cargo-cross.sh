#!/usr/bin/env bash
# Runs cargo for another target, with whichever Rust can build for it.
#
#   scripts/cargo-cross.sh TARGET SUBCOMMAND [cargo arguments...]
#   scripts/cargo-cross.sh aarch64-unknown-linux-gnu test -p graphmend-runtime
#   scripts/cargo-cross.sh thumbv7em-none-eabihf build -p graphmend-runtime --no-default-features
#
# If the rustc on PATH has the target (rustup target add TARGET), it is used.  Otherwise Debian's (scripts/
# install-cross.sh), which builds the standard library for the target from source first: about a minute, once.
# It says on standard error which it took.  CROSS_RUST=rustup or CROSS_RUST=debian insists on one.
#
# Output goes to target/cross of the workspace, so that the two do not disturb ordinary builds.  Linkers, and QEMU as
# the runner of Linux programs, are set unless the environment already sets them (CARGO_TARGET_..._LINKER, _RUNNER).
# CROSS_STATIC=1 links programs for Linux statically: one file, that depends on nothing on the device.
# Guest CPU: QEMU_CPU; for riscv64 the default here has the vector extension, 128 bits wide.
set -euo pipefail

known='aarch64-unknown-linux-gnu riscv64gc-unknown-linux-gnu armv7-unknown-linux-gnueabihf arm-unknown-linux-gnueabi thumbv7em-none-eabihf riscv32imac-unknown-none-elf riscv64gc-unknown-none-elf aarch64-unknown-none'
fail() { echo "cargo-cross.sh: $*" >&2; exit 1; }
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; echo "Targets tried: $known"; }

case ${1:-} in
    '' | -h | --help) usage; [ $# -gt 0 ] || exit 2; exit 0 ;;
esac
target=$1
[ $# -ge 2 ] || fail "which cargo subcommand? For example: cargo-cross.sh $target build"
subcommand=$2
shift 2

has_target() { command -v rustc > /dev/null && [ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; }
debian_sources=/usr/lib/rustlib/src/rust/library
has_debian() { [ -x /usr/bin/cargo ] && [ -x /usr/bin/rustc ] && [ -d "$debian_sources" ]; }

case ${CROSS_RUST:-} in
    rustup) has_target || fail "the rustc on PATH has no target $target: rustup target add $target"; use=rustup ;;
    debian) has_debian || fail "Debian's Rust or its sources are not installed: scripts/install-cross.sh"; use=debian ;;
    '') if has_target; then use=rustup; elif has_debian; then use=debian
        else fail "nothing here builds for $target: rustup target add $target, or scripts/install-cross.sh on Debian"; fi ;;
    *) fail "CROSS_RUST is $CROSS_RUST; rustup and debian are known" ;;
esac

key=$(echo "$target" | tr 'a-z.-' 'A-Z__')
default() { # NAME VALUE: sets CARGO_TARGET_<target>_NAME unless it is set
    local name=CARGO_TARGET_${key}_$1
    [ -n "${!name:-}" ] || export "$name=$2"
}
gnu_linux() { # GNU prefix and QEMU's name of a Linux target
    command -v "$1-gcc" > /dev/null || fail "$1-gcc is not installed: scripts/install-cross.sh"
    default LINKER "$1-gcc"
    # For crates that build C.
    export "CC_${target//-/_}=${!3:-$1-gcc}"
    default RUNNER "qemu-$2 -L /usr/$1"
    [ -z "${CROSS_STATIC:-}" ] || default RUSTFLAGS "-C target-feature=+crt-static"
}
case $target in
    aarch64-unknown-linux-gnu) gnu_linux aarch64-linux-gnu aarch64 CC_aarch64_unknown_linux_gnu ;;
    riscv64gc-unknown-linux-gnu)
        gnu_linux riscv64-linux-gnu riscv64 CC_riscv64gc_unknown_linux_gnu
        export QEMU_CPU=${QEMU_CPU:-rv64,v=true,vlen=128,vext_spec=v1.0} ;;
    armv7-unknown-linux-gnueabihf)
        gnu_linux arm-linux-gnueabihf arm CC_armv7_unknown_linux_gnueabihf
        export QEMU_CPU=${QEMU_CPU:-cortex-a7} ;;
    # Armv6. Debian's armhf library is for Armv7, its armel library for all: floats of the Rust code are computed in software,
    # those of kernels are not, since no float passes from one to the other.
    arm-unknown-linux-gnueabi)
        gnu_linux arm-linux-gnueabi arm CC_arm_unknown_linux_gnueabi
        export QEMU_CPU=${QEMU_CPU:-arm1176} ;;
    *-none | *-none-*)
        # rustup brings rust-lld, which these targets name; Debian's Rust has no linker of its own.
        if [ "$use" = debian ]; then
            lld=$(find /usr/bin -name 'ld.lld*' | sort -V | tail -1)
            [ -z "$lld" ] || default LINKER "$lld"
        fi ;;
esac

if [ -z "${CARGO_TARGET_DIR:-}" ]; then
    manifest=()
    for ((i = 1; i <= $#; i++)); do
        case ${!i} in
            --) break ;;
            --manifest-path) j=$((i + 1)); manifest=(--manifest-path "${!j:-}") ;;
            --manifest-path=*) manifest=("${!i}") ;;
        esac
    done
    root=$(cargo locate-project --workspace --message-format plain "${manifest[@]}") || exit 1
    export CARGO_TARGET_DIR=${root%/Cargo.toml}/target/cross
fi

if [ "$use" = rustup ]; then
    echo "cargo-cross.sh: $target with $(rustc --version | cut -d' ' -f1,2) and its installed target" >&2
    exec cargo "$subcommand" --target "$target" "$@"
fi
echo "cargo-cross.sh: $target with $(/usr/bin/rustc --version | cut -d' ' -f1,2) of Debian, standard library from source" >&2
case $target in
    *-none | *-none-*) std=core,alloc ;;
    *) std=std,panic_abort ;;
esac
# /usr/bin first: cargo must not find rustup's rustc.  RUSTC_BOOTSTRAP: -Zbuild-std is not stable yet.
unset RUSTC RUSTDOC RUSTUP_TOOLCHAIN CARGO
export PATH=/usr/bin:/bin RUSTC_BOOTSTRAP=1
exec cargo "$subcommand" -Zbuild-std="$std" --target "$target" "$@"

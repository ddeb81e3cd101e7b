#!/usr/bin/env bash
# Installs on Debian (or a relative of it) what building and testing for other CPUs needs.  Run as root or with sudo.
#
#   scripts/install-cross.sh [--rustup] [--firmware]
#
# C cross compilers and libraries for aarch64, riscv64 and 32-bit Arm (Armv7, Armv6, Cortex-M), QEMU for programs, a linker for firmware, and Rust for other
# targets: Debian's rustc, cargo and library sources, from which scripts/cargo-cross.sh builds the standard library
# itself; with --rustup the ready-made targets of the rustup that is there instead.
# --firmware adds QEMU for whole boards, and a C compiler for 32-bit RISC-V without an operating system.
# Run again, it does nothing if all is there.
set -euo pipefail

# The same list as in cargo-cross.sh.
targets='aarch64-unknown-linux-gnu riscv64gc-unknown-linux-gnu armv7-unknown-linux-gnueabihf arm-unknown-linux-gnueabi thumbv7em-none-eabihf riscv32imac-unknown-none-elf riscv64gc-unknown-none-elf aarch64-unknown-none'
packages='gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-riscv64-linux-gnu libc6-dev-riscv64-cross gcc-arm-linux-gnueabihf libc6-dev-armhf-cross gcc-arm-linux-gnueabi libc6-dev-armel-cross gcc-arm-none-eabi qemu-user'
boards=
rustup=no
for arg; do
    case $arg in
        --rustup) rustup=yes ;;
        --firmware)
            packages="$packages gcc-riscv64-unknown-elf"
            boards='qemu-system-arm qemu-system-misc' ;;
        -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
        *) echo "install-cross.sh: unknown argument $arg" >&2; exit 2 ;;
    esac
done
[ "$rustup" = yes ] || packages="$packages rustc-web cargo-web rust-web-src"

command -v apt-get > /dev/null || {
    echo "install-cross.sh: no apt-get here; install the equivalents of: $packages $boards lld" >&2
    exit 1
}
installed() { dpkg-query -W -f '${Status}\n' "$1" 2> /dev/null | grep -q '^install ok installed$'; }

missing=
for p in $packages; do installed "$p" || missing="$missing $p"; done
# The linker must be about as new as the LLVM inside rustc: take the newest that there is, whatever its number.
lld=$(dpkg-query -W -f '${Package} ${Status}\n' 'lld*' 2> /dev/null | grep -E '^lld-[0-9]+ install ok installed$' || true)

if [ -n "$missing" ] || [ -z "$lld" ]; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update
    [ -n "$lld" ] || missing="$missing $(apt-cache --names-only search '^lld-[0-9]+$' | cut -d' ' -f1 | sort -V | tail -1)"
    echo "install-cross.sh: installing$missing"
    # --no-remove: Debian's rustc-web replaces Debian's own rustc and rustup packages, which is not ours to decide.
    # shellcheck disable=SC2086
    apt-get -q -y --no-remove --no-install-recommends install $missing || {
        echo "install-cross.sh: failed. If Debian's packages rustc or rustup are in the way, remove them or use --rustup" >&2
        exit 1
    }
fi

# QEMU for boards. A newer qemu-utils may be in its way, which is not ours to replace: then it is unpacked beside the system.
command -v qemu-system-arm > /dev/null || [ -z "$boards" ] || {
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update
    # shellcheck disable=SC2086
    apt-get -q -y --no-remove --no-install-recommends install $boards || {
        place=/opt/graphmend-qemu
        work=$(mktemp -d)
        # shellcheck disable=SC2086
        list=$(apt-get -s --no-install-recommends install $boards | awk '$1 == "Inst" { print $2 }')
        # shellcheck disable=SC2086
        (cd "$work" && apt-get -q download $list)
        for p in "$work"/*.deb; do dpkg -x "$p" "$place"; done
        rm -rf "$work"
        triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2> /dev/null || gcc -dumpmachine)
        for program in "$place"/usr/bin/qemu-system-*; do
            printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s -L %s "$@"\n' \
                "$place/usr/lib/$triplet:$place/lib/$triplet" "$program" "$place/usr/share/qemu" \
                > "/usr/local/bin/$(basename "$program")"
            chmod +x "/usr/local/bin/$(basename "$program")"
        done
        echo "install-cross.sh: QEMU for boards is unpacked in $place"
    }
}

if [ "$rustup" = yes ]; then
    command -v rustup > /dev/null || { echo "install-cross.sh: --rustup, but no rustup here" >&2; exit 1; }
    # shellcheck disable=SC2086
    rustup target add $targets
    echo "install-cross.sh: ready, with rustup's targets"
else
    echo "install-cross.sh: ready, with $(/usr/bin/rustc --version | cut -d' ' -f1,2) from Debian's packages"
fi

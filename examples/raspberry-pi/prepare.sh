#!/usr/bin/env bash
# Packs a model for a Raspberry Pi and builds the program that runs it there: two files to copy.
#
#   examples/raspberry-pi/prepare.sh BOARD MODEL.onnx [FOLDER] [ARGUMENTS OF graphmend-pack...]
#   examples/raspberry-pi/prepare.sh rpi4 model.onnx /tmp/pi --dim batch=1
#
# BOARD      64-bit system: rpi3, rpi-zero2, rpi4, rpi5, aarch64 (any of them)
#            32-bit system: rpi2, armv7 (Pi 2 to 5), rpi1, armv6 (every Pi, also the first and the Zero)
# FOLDER     gets the packed model and graphmend-run; default: target/raspberry-pi/BOARD
#
# Needs what scripts/install-cross.sh installs. GRAPHMEND_PACK: the packing program, else it is built. PROFILE: cargo's profile
# for graphmend-run; default device, which is small.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
case ${1:-} in
    '' | -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; [ $# -gt 0 ] || exit 2; exit 0 ;;
esac
[ $# -ge 2 ] || { echo "prepare.sh: which model? prepare.sh BOARD MODEL.onnx" >&2; exit 2; }
board=$1 model=$2
folder=${3:-$root/target/raspberry-pi/$board}
shift $(($# < 3 ? $# : 3))
profile=${PROFILE:-device}

case $board in
    rpi3 | rpi-zero2 | rpi4 | rpi5 | aarch64) triple=aarch64-unknown-linux-gnu ;;
    rpi2 | armv7) triple=armv7-unknown-linux-gnueabihf ;;
    rpi1 | armv6) triple=arm-unknown-linux-gnueabi ;;
    *) echo "prepare.sh: no such board: $board (see --help)" >&2; exit 2 ;;
esac

mkdir -p "$folder"
pack=${GRAPHMEND_PACK:-}
if [ -z "$pack" ]; then
    (cd "$root" && cargo build --release --bin graphmend-pack)
    pack=$root/target/release/graphmend-pack
fi
packed=$folder/$(basename "${model%.onnx}").gmc
"$pack" "$model" --target "$board" -o "$packed" "$@"

(cd "$root" && CROSS_STATIC=1 scripts/cargo-cross.sh "$triple" build -p graphmend --bin graphmend-run \
    --no-default-features --profile "$profile")
# The folder of the profile dev is named debug.
[ "$profile" != dev ] || profile=debug
cp "${CARGO_TARGET_DIR:-$root/target/cross}/$triple/$profile/graphmend-run" "$folder/graphmend-run"
ls -l "$folder/graphmend-run" "$packed" | awk '{ print $5 " bytes  " $NF }'

#!/usr/bin/env bash
# Prepares models for every kind of Raspberry Pi (examples/raspberry-pi/prepare.sh) and runs them under QEMU with the boards' CPUs:
# results must be this machine's, to the bit where they are computed with integers.
#
#   scripts/test-raspberry-pi.sh
#
# Needs what scripts/install-cross.sh installs and reference models (scripts/test.sh makes them; GRAPHMEND_REFERENCE, default
# target/reference). GRAPHMEND_BIN: the folder of graphmend-pack and graphmend-run, default target/debug, which is built.
# PROFILE: cargo's profile for the devices' graphmend-run; default dev.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
esac
reference=${GRAPHMEND_REFERENCE:-target/reference}
[ -d "$reference/quantized" ] || { echo "test-raspberry-pi.sh: no models in $reference: scripts/test.sh makes them" >&2; exit 1; }
if [ -z "${GRAPHMEND_BIN:-}" ]; then
    cargo build --workspace --bins
    GRAPHMEND_BIN=$PWD/target/debug
fi
export GRAPHMEND_PACK=$GRAPHMEND_BIN/graphmend-pack PROFILE=${PROFILE:-dev}
quickstart=examples/quickstart
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
failed() { echo "$*: FAILED"; bad=$((bad + 1)); }

# This machine's results.
mkdir "$work/here"
for model in "$quickstart/silero_vad.onnx" "$reference/quantized/model.onnx"; do
    name=$(basename "$(dirname "$model")")
    "$GRAPHMEND_PACK" "$model" --quiet -o "$work/here/$name.gmc"
done
"$GRAPHMEND_BIN/graphmend-run" vad "$work/here/quickstart.gmc" "$quickstart/speech.wav" > "$work/here/speech"
for set in 0 1 2; do
    "$GRAPHMEND_BIN/graphmend-run" run "$work/here/quantized.gmc" -i "$reference/quantized/set_$set/input_0.npy" \
        -o "$work/here/set_$set" > /dev/null
done

# BOARD EMULATOR CPU...
board() {
    local board=$1 emulator=$2 cpu set folder=$work/$1
    shift 2
    examples/raspberry-pi/prepare.sh "$board" "$quickstart/silero_vad.onnx" "$folder" --quiet
    # The same program: only the packed file is new.
    "$GRAPHMEND_PACK" "$reference/quantized/model.onnx" --target "$board" --quiet -o "$folder/quantized.gmc"
    # Nothing on the device is needed but the kernel.
    ! readelf -d "$folder/graphmend-run" | grep NEEDED || failed "$board: graphmend-run is not static"
    for cpu; do
        "$emulator" -cpu "$cpu" "$folder/graphmend-run" vad "$folder/silero_vad.gmc" "$quickstart/speech.wav" > "$folder/speech" &&
            cmp "$work/here/speech" "$folder/speech" || failed "$board on $cpu: speech"
        for set in 0 1 2; do
            "$emulator" -cpu "$cpu" "$folder/graphmend-run" run "$folder/quantized.gmc" \
                -i "$reference/quantized/set_$set/input_0.npy" -o "$folder/set_$set" > /dev/null &&
                diff -r "$work/here/set_$set" "$folder/set_$set" || failed "$board on $cpu: integers, set $set"
        done
        echo "$board on $cpu: the results of this machine"
    done
}
# BOARD OF THE PROGRAM, EMULATOR, CPU, BOARD OF THE FILE, WORDS OF THE MESSAGE
refused() {
    local status=0
    "$2" -cpu "$3" "$work/$1/graphmend-run" vad "$work/$4/silero_vad.gmc" "$quickstart/speech.wav" > "$work/message" 2>&1 || status=$?
    if [ "$status" = 3 ] && grep -q "$5" "$work/message"; then
        echo "a file for $4 on $3: $(sed 's/.*: //' "$work/message")"
    else
        failed "a file for $4 on $3: status $status, $(cat "$work/message")"
    fi
}

board rpi3 qemu-aarch64 cortex-a53 max
board rpi4 qemu-aarch64 cortex-a72 max
board rpi5 qemu-aarch64 cortex-a76 max
board rpi2 qemu-arm cortex-a7 max
board rpi1 qemu-arm arm1176 cortex-a7 max
refused rpi3 qemu-aarch64 cortex-a53 rpi5 'built for .*dotprod'
refused rpi4 qemu-aarch64 cortex-a72 rpi2 'built for arm, this program runs on aarch64'
refused rpi2 qemu-arm cortex-a7 rpi4 'built for aarch64, this program runs on arm'
refused rpi1 qemu-arm arm1176 rpi2 'built for .*neon'
echo "Raspberry Pi: $bad not as expected"
[ "$bad" = 0 ]

#!/usr/bin/env bash
# The main job, from a checkout: installs the two programs, packs a voice activity model for this machine, and finds the
# speech in a recording.
#
#   examples/quickstart/run.sh [FOLDER]      FOLDER gets the packed model; default: target/quickstart
#
# GRAPHMEND_BIN names a folder with graphmend-pack and graphmend-run, which are then not built.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
out=${1:-$root/target/quickstart}
mkdir -p "$out"

if [ -z "${GRAPHMEND_BIN:-}" ]; then
    cargo install --locked --path "$root" --root "$out"
    GRAPHMEND_BIN=$out/bin
fi
"$GRAPHMEND_BIN/graphmend-pack" "$here/silero_vad.onnx" -o "$out/silero_vad.gmc"
"$GRAPHMEND_BIN/graphmend-run" vad "$out/silero_vad.gmc" "$here/speech.wav"

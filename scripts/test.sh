#!/usr/bin/env bash
# Runs all tests that need this machine only, then those for other processors.
#
#   scripts/test.sh [--native]
#
# Sets up Python in target/venv and makes the reference outputs in target/reference first (both once; with downloads of
# about 700 MB from PyPI).  --native leaves out the tests for other processors, which need what
# scripts/install-cross.sh installs (Debian, root); where it is missing and this is run by root, it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

native=no
for arg; do
    case $arg in
        --native) native=yes ;;
        -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
        *) echo "test.sh: unknown argument $arg" >&2; exit 2 ;;
    esac
done

# Its lines go into `cargo test`: where nobody has made the references, they are made here.
if [ -z "${GRAPHMEND_REFERENCE:-}" ]; then
    python=${PYTHON:-python3}
    if ! "$python" -c 'import venv, ensurepip' 2> /dev/null; then
        if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
            DEBIAN_FRONTEND=noninteractive apt-get -q update
            DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install python3 python3-venv
        else
            echo "test.sh: Python 3.11 or newer with venv is needed for reference outputs (Debian: apt-get install python3-venv)" >&2
            exit 1
        fi
    fi
    scripts/setup-python.sh
    export GRAPHMEND_REFERENCE=$PWD/target/reference
    target/venv/bin/python tests/reference/make.py "$GRAPHMEND_REFERENCE"
fi

cargo test --workspace
"${PYTHON:-python3}" -m unittest discover -s scripts/benchmark -t scripts
[ "$native" = yes ] || scripts/test-cross.sh

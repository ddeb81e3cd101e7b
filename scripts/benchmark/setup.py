"""What the benchmark needs: a virtual environment with the peers, programs of this repository, native peers."""
import glob
import hashlib
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
REFERENCE = os.path.join(ROOT, "tests", "reference")
VENV = os.path.join(ROOT, "target", "bench-venv")
# Cargo's folder for the native peers: they share nothing with the product.
PEERS = os.path.join(ROOT, "target", "peers")


def requirements(torch):
    files = [os.path.join(HERE, "requirements.txt")]
    return files + [os.path.join(REFERENCE, "requirements-torch.txt")] * torch


def enter_venv(torch):
    """Makes the environment if it is not there or other than wanted, and goes on with this script inside of it."""
    python = os.path.join(VENV, "bin", "python")
    stamp = os.path.join(VENV, "graphmend-stamp")
    text = b"".join(open(f, "rb").read() for f in requirements(torch))
    want = hashlib.sha256(text).hexdigest()
    have = open(stamp).read() if os.path.exists(stamp) else ""
    # One with torch serves a run without.
    all_of_it = hashlib.sha256(b"".join(open(f, "rb").read() for f in requirements(True))).hexdigest()
    if have not in (want, all_of_it):
        make_venv(python, torch)
        with open(stamp, "w") as f:
            f.write(want)
    if os.path.realpath(sys.prefix) != os.path.realpath(VENV):
        os.execv(python, [python, *sys.argv])


def make_venv(python, torch):
    print(f"installing the peers into {VENV}", flush=True)
    if not os.path.exists(python):
        made = subprocess.run([sys.executable, "-m", "venv", VENV])
        if made.returncode:
            sys.exit("bench.py: cannot make a virtual environment (Debian: apt-get install python3-venv)")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-deps", "--only-binary", ":all:"]
    for file in requirements(torch):
        subprocess.run([*pip, "-r", file], check=True)
    if torch:
        # PyPI's torch wants CUDA libraries even where nothing runs on a graphics card.
        subprocess.run([python, os.path.join(REFERENCE, "torch_cpu.py")], check=True)


def build(release):
    """Our programs (unless a folder was given) and the native peers."""
    cargo = ["cargo", "build", "--release", "--quiet"]
    if release:
        print("building graphmend-pack and graphmend-run", flush=True)
        subprocess.run([*cargo, "--bins"], cwd=ROOT, check=True)
        device = ["cargo", "build", "--profile", "device", "--quiet", "--no-default-features", "--bin", "graphmend-run"]
        subprocess.run(device, cwd=ROOT, check=True)
    print("building the native peers", flush=True)
    folder = os.path.join(ROOT, "tests", "peers")
    # One that does not build is a peer that fails on every model, and said to.
    subprocess.run([*cargo, "--locked", "--keep-going", "--target-dir", PEERS], cwd=folder)


def native(name):
    return os.path.join(PEERS, "release", name)


def onnxruntime_library():
    """The shared library that the Python package comes with."""
    import onnxruntime

    found = glob.glob(os.path.join(os.path.dirname(onnxruntime.__file__), "capi", "libonnxruntime.so.*"))
    found += glob.glob(os.path.join(os.path.dirname(onnxruntime.__file__), "capi", "libonnxruntime.*.dylib"))
    if not found:
        raise FileNotFoundError("the onnxruntime package has no shared library")
    return found[0]

#!/usr/bin/env python3
"""How large what runs on a device is: prints the tables of docs/footprint.md.

  scripts/footprint.py                  the core runtime for Cortex-M4; fails if it is larger than LIMITS says
  scripts/footprint.py --programs       also graphmend-run and the C library, built for each target with the profile `device`
  scripts/footprint.py --touched MODEL  only what is read of a packed file between opening it and the first result

Needs what scripts/install-cross.sh installs. --touched needs the C library of target/device (or --library FILE) and inputs whose
dimensions are known or are given with --dim NAME=N.
"""
import argparse
import ctypes
import mmap
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = "thumbv7em-none-eabihf"
# Bytes of code and constants, without the compiler's support routines.
LIMITS = {"trusted": 9472, "verified": 22 * 1024}
# What every firmware has: memcpy and its like, division of 64-bit numbers.
SUPPORT = re.compile(r"compiler_builtins|^mem(cpy|move|set|cmp)$|^__aeabi_|^__u?div|^__u?mod|^bcmp$")
LINUX = {
    "x86-64": None,
    "aarch64": "aarch64-unknown-linux-gnu",
    "armv7": "armv7-unknown-linux-gnueabihf",
    "armv6": "arm-unknown-linux-gnueabi",
}


def run(*command, **extra):
    environment = {**os.environ, **extra}
    environment.pop("CARGO_TARGET_DIR", None)
    return subprocess.run([str(c) for c in command], cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout


def core():
    """Bytes of the linked core runtime: those of the program and, of them, of support routines."""
    sizes = {}
    for name, features in [("trusted", []), ("verified", ["--features", "verify"])]:
        run("scripts/cargo-cross.sh", CORE, "build", "--quiet", "--release", "--manifest-path", "tests/footprint/Cargo.toml",
            *features, "--target-dir", "target/cross")
        program = ROOT / f"target/cross/{CORE}/release/graphmend-footprint"
        total = 0
        for line in run("readelf", "-SW", program).splitlines():
            section = re.match(r"\s*\[ *\d+\] \.(text|rodata|data|ARM\.exidx)\S*\s+\S+\s+\S+\s+\S+\s+([0-9a-f]+)", line)
            if section:
                total += int(section[2], 16)
        support = 0
        symbols = run("nm", "-SC", program)
        if "panicking" in symbols:
            sys.exit(f"footprint.py: {name}: something in it can panic")
        for line in symbols.splitlines():
            fields = line.split(maxsplit=3)
            if len(fields) == 4 and fields[2] in "tTwW" and SUPPORT.search(fields[3]):
                support += int(fields[1], 16)
        sizes[name] = (total, support)
    return sizes


def programs():
    for name, target in LINUX.items():
        arguments = ["build", "--quiet", "--profile", "device"]
        cargo = ["cargo"] if target is None else ["scripts/cargo-cross.sh", target]
        folder = ROOT / ("target/device" if target is None else f"target/cross/{target}/device")
        run(*cargo, *arguments, "-p", "graphmend", "--bin", "graphmend-run", "--no-default-features", CROSS_STATIC="1")
        linked = "dynamic" if target is None else "static"
        print(f"| graphmend-run | {name} | {linked} | {(folder / 'graphmend-run').stat().st_size} |")
        if target in (None, "aarch64-unknown-linux-gnu"):
            run(*cargo, *arguments, "-p", "graphmend-capi")
            print(f"| libgraphmend_c.so | {name} | dynamic | {(folder / 'libgraphmend_c.so').stat().st_size} |")


class Dim(ctypes.Structure):
    _fields_ = [("min", ctypes.c_int64), ("max", ctypes.c_int64), ("symbol", ctypes.c_char_p)]


class Info(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_uint32), ("rank", ctypes.c_size_t), ("dims", ctypes.POINTER(Dim))]


BYTES = [0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8]


def referenced(start):
    """Bytes of the pages of a mapping that were looked at since the marks were cleared."""
    found = False
    for line in open("/proc/self/smaps"):
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            low, high = (int(n, 16) for n in line.split()[0].split("-"))
            found = low <= start < high
        elif found and line.startswith("Referenced:"):
            return int(line.split()[1]) * 1024
    return 0


def touched(library, path, dims, values):
    gm = ctypes.CDLL(str(library))
    gm.gm_last_error.restype = ctypes.c_char_p

    def call(function, *arguments):
        if getattr(gm, function)(*arguments) != 0:
            sys.exit(f"{function}: {gm.gm_last_error().decode()}")

    # In memory of this process: for mapped files, the system looks at more pages than the program does.
    memory = mmap.mmap(-1, path.stat().st_size + 2 * mmap.PAGESIZE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    memory[: path.stat().st_size] = path.read_bytes()
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    Path("/proc/self/clear_refs").write_text("1")

    model, session, count, info = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t(), Info()
    call("gm_model_open_memory", ctypes.c_void_p(start), ctypes.c_size_t(path.stat().st_size), None, ctypes.byref(model))
    opened = referenced(start)
    call("gm_session_new", model, None, ctypes.byref(session))
    call("gm_model_inputs", model, ctypes.byref(count))
    kept = []
    for i in range(count.value):
        call("gm_model_input", model, ctypes.c_size_t(i), ctypes.byref(info))
        shape = []
        for dim in info.dims[: info.rank]:
            symbol = (dim.symbol or b"").decode()
            shape.append(dims.get(symbol, dim.min if dim.min == dim.max else 1))
        bytes_ = BYTES[info.dtype]
        for size in shape:
            bytes_ *= size
        shape = (ctypes.c_int64 * len(shape))(*shape)
        data = (ctypes.c_uint64 * (bytes_ // 8 + 1))()
        data[0] = values.get(info.name.decode(), 0)
        kept.append((shape, data))
        call("gm_session_set_input", session, ctypes.c_size_t(i), info.dtype, shape, ctypes.c_size_t(len(shape)), data,
             ctypes.c_size_t(bytes_))
    call("gm_session_run", session)
    print(f"| {path.name} | {path.stat().st_size} | {opened} | {referenced(start)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--touched", type=Path, nargs="+", default=[])
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--value", action="append", default=[], help="NAME=N: the first element of an integer input; else 0")
    parser.add_argument("--library", type=Path, default=ROOT / "target/device/libgraphmend_c.so")
    arguments = parser.parse_args()
    numbers = lambda given: {name: int(number) for name, number in (text.split("=") for text in given)}
    for path in arguments.touched:
        touched(arguments.library, path, numbers(arguments.dim), numbers(arguments.value))
    if arguments.touched:
        return
    bad = 0
    for name, (total, support) in core().items():
        own = total - support
        print(f"| core runtime, {name} | {own} | {support} |")
        if own > LIMITS[name]:
            print(f"footprint.py: {name}: {own} bytes, more than {LIMITS[name]}", file=sys.stderr)
            bad = 1
    if arguments.programs:
        programs()
    sys.exit(bad)


if __name__ == "__main__":
    main()

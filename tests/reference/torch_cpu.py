#!/usr/bin/env python3
"""Lets PyPI's torch for Linux be imported without the CUDA libraries (several GB) that it links to.

    python torch_cpu.py          run with the Python of the environment that holds torch

PyPI has no CPU-only wheel of torch for Linux: the libraries in the one it has name libcudart, libcublas, libcudnn and
others as needed, so torch does not even load when it was installed with --no-deps.  The references only ever compute
on the CPU.  So for every needed library that is missing, a stand-in is compiled with the C compiler and put beside
torch's own libraries (their search path ends there).  It has the symbols and symbol versions asked for; each function
returns 100, which the CUDA runtime calls "no CUDA-capable device", so torch.cuda.is_available() is False, as it is on
any machine without such a card.  Where nothing is missing, nothing is done.

Needs cc, readelf and nm (Debian: gcc, binutils).
"""
import collections
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

# Unversioned symbols do not say which library they are from; these prefixes do.
PREFIX = {"cuFile": "libcufile.", "nccl": "libnccl.", "cusparseLt": "libcusparseLt."}
CUDA = re.compile(r"^lib(cu(?!rl)|nv|nccl)[A-Za-z_]*\.so\.\d+$")

SOURCE_HEAD = """\
/* Returned where a caller prints what it got. */
static const char text[] = "no CUDA library is installed";
"""


def tool_lines(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def needed_by(library):
    return [m.group(1) for line in tool_lines("readelf", "-dW", library) if (m := re.search(r"\(NEEDED\).*\[(.+)\]", line))]


def undefined_in(library):
    """(symbol, version or None) of all that the library wants from others."""
    for line in tool_lines("nm", "-D", "--undefined-only", library):
        name, _, version = line.split()[-1].partition("@")
        yield name, version.lstrip("@") or None


def version_files(library):
    """version name -> library that it is asked of, as in the version-needs section."""
    found, file = {}, None
    for line in tool_lines("readelf", "-VW", library):
        if m := re.search(r"File: (\S+)", line):
            file = m.group(1)
        elif (m := re.search(r"Name: (\S+)\s+Flags:", line)) and file:
            found[m.group(1)] = file
    return found


def build(soname, symbols, folder):
    """Compiles folder/soname that defines `symbols`: {name: version or None}."""
    source, versions = [SOURCE_HEAD], collections.defaultdict(list)
    for name in sorted(symbols):
        if re.search(r"Get(Error|Status|Result)(String|Name)|GetErrorString|GetLastErrorString", name):
            source.append(f"const char *{name}(void) {{ return text; }}\n")
        else:
            source.append(f"long {name}(void) {{ return 100; }}\n")
        if symbols[name]:
            versions[symbols[name]].append(name)
    with tempfile.TemporaryDirectory() as work:
        c, script = os.path.join(work, "stub.c"), os.path.join(work, "stub.map")
        with open(c, "w") as f:
            f.writelines(source)
        with open(script, "w") as f:
            for version, names in sorted(versions.items()):
                f.write(f"{version} {{ global: {' '.join(n + ';' for n in names)} }};\n")
        command = ["cc", "-shared", "-fPIC", "-O1", "-w", "-fno-builtin", f"-Wl,-soname,{soname}", c, "-o", os.path.join(work, soname)]
        if versions:
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)
        shutil.copy(os.path.join(work, soname), os.path.join(folder, soname))


def main():
    if not sys.platform.startswith("linux"):
        return
    spec = importlib.util.find_spec("torch")
    if spec is None:
        sys.exit("torch_cpu.py: torch is not installed for this Python")
    folder = os.path.join(os.path.dirname(spec.origin), "lib")
    ours = [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if re.search(r"^lib(torch|c10|caffe2|shm).*\.so$", f)]
    site = os.path.dirname(os.path.dirname(spec.origin))
    real = {f for root, _, files in os.walk(os.path.join(site, "nvidia")) for f in files}
    missing = {n for lib in ours for n in needed_by(lib) if CUDA.match(n)} - real - set(os.listdir(folder))
    if not missing:
        return
    for tool in ("cc", "readelf", "nm"):
        if not shutil.which(tool):
            sys.exit(f"torch_cpu.py: needs {tool} (Debian: apt-get install gcc binutils)")
    symbols = {n: {} for n in missing}
    for lib in ours:
        files = version_files(lib)
        for name, version in undefined_in(lib):
            owner = files.get(version) if version else next(
                (n for n in missing for p, start in PREFIX.items() if name.startswith(p) and n.startswith(start)), None)
            if owner in symbols:
                symbols[owner][name] = version
    for soname in sorted(missing):
        build(soname, symbols[soname], folder)
    print(f"torch: {len(missing)} stand-ins for CUDA libraries that are not installed")


if __name__ == "__main__":
    main()

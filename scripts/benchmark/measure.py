"""Runs the engines by turns and collects their figures."""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from . import setup

# In the order of the columns.
PEERS = ["onnxruntime", "openvino", "iree", "rten", "tract", "torch.compile"]
OURS = "graphmend"
NATIVE = {"rten", "tract"}
# The peers whose figures make up the growth curves.
LEADING = ["onnxruntime", "openvino"]
RUNS_FOR_MEMORY = 10
TIMEOUT = 300


class Failed(Exception):
    """An engine could not do it; the text is the reason."""


def pinned(command, threads):
    """As many cores as threads, the last ones: interrupts go to the first."""
    count = os.cpu_count() or 1
    if sys.platform != "linux" or not shutil.which("taskset") or threads >= count:
        return command
    return ["taskset", "-c", f"{count - threads}-{count - 1}", *command]


def reason(text, code):
    """The line of an error output that tells most."""
    lines = [l.strip() for l in text.splitlines() if l.strip()]
    telling = [l for l in lines if re.search("error|exception|fail|unsupported|not (implemented|supported)", l, re.I)]
    line = (telling or lines or [f"exit status {code}"])[-1]
    if line.startswith("Error:") and len(lines) > 1 and lines[-1] != line:
        line += " " + lines[-1]
    return line[:200]


def run(command, timeout=TIMEOUT, env=None):
    try:
        p = subprocess.run(command, capture_output=True, text=True, timeout=timeout, errors="replace", env=env)
    except subprocess.TimeoutExpired:
        raise Failed(f"took longer than {timeout} s")
    except OSError as e:
        raise Failed(f"{os.path.basename(command[0])}: {e.strerror}")
    if p.returncode:
        raise Failed(reason(p.stderr, p.returncode))
    return p.stdout


class Bench:
    """Where programs and files are, and how long to measure."""

    def __init__(self, bin, device, out, seconds):
        self.bin, self.device, self.out, self.seconds = bin, device, out, seconds
        # By path of the model and shapes of its inputs.
        self.packed = {}
        self.work = tempfile.mkdtemp(prefix="graphmend-bench-")
        self.library = setup.onnxruntime_library()
        usage = run([self.program("graphmend-run"), "bench", "--help"])
        self.has_threads = "--threads" in usage

    def program(self, name):
        return os.path.join(self.bin, name)

    def job(self, model, threads, runs=None, path=None):
        """Writes a job file for a peer."""
        job = {"model": path or model.path, "inputs": model.inputs, "threads": threads, "seconds": self.seconds, "runs": runs,
               "torch": model.torch, "library": self.library}
        file = os.path.join(self.work, "job.json")
        with open(file, "w") as f:
            json.dump(job, f)
        return file

    def pack(self, model):
        """Packs a model for the shapes of its inputs; gives the path and what graphmend-pack says of it."""
        shapes = [f"{i['name']}={'x'.join(map(str, i['shape']))}" for i in model.inputs if i["shape"]]
        key = (model.path, *shapes)
        if key not in self.packed:
            path = os.path.join(self.out, "packed", f"{model.name}.gmc")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            given = [a for s in shapes for a in ("--shape", s)]
            pack = [self.program("graphmend-pack"), model.path, "-o", path, "--json"]
            try:
                text = run([*pack, *given], timeout=1800)
            except Failed:
                # A branch for inputs of another size may not be legal for these (Silero's for 8 kHz).
                text = run(pack, timeout=1800)
            self.packed[key] = path, json.loads(text)["summary"]
        return self.packed[key]

    def given(self, model):
        return [a for i in model.inputs for a in ("-i", f"{i['name']}={i['file']}")]

    def ours(self, model, packed, threads, runs=None, more=(), program=None):
        if threads > 1 and not self.has_threads:
            raise Failed("this build runs on one thread")
        command = [program or self.program("graphmend-run"), "bench", packed, "--json", *self.given(model), *more]
        command += ["--threads", str(threads)] if self.has_threads else []
        command += ["--loads", "1", "--runs", str(runs)] if runs else ["--loads", "5", "--seconds", str(self.seconds)]
        out = json.loads(run(pinned(command, threads)))
        figures = {k: out[k]["median_us"] / 1e6 for k in ("load", "first", "steady")}
        return {**figures, "least": out["steady"]["min_us"] / 1e6, "rss": out.get("peak_resident_bytes"), "raw": out}

    def iree(self, model):
        """Compiles for IREE, once for a model; not a part of load, as packing is not of ours."""
        folder = os.path.join(self.out, "iree")
        os.makedirs(folder, exist_ok=True)
        shapes = "-".join("x".join(map(str, i["shape"])) for i in model.inputs)
        base = os.path.join(folder, f"{model.name}-{shapes}-{os.path.getsize(model.path)}")
        if os.path.exists(base + ".failed"):
            raise Failed(open(base + ".failed").read())
        if not os.path.exists(base + ".vmfb"):
            bin = os.path.join(setup.VENV, "bin")
            try:
                # Its operators are those of a certain version: older models are brought to it.
                run([os.path.join(bin, "iree-import-onnx"), model.path, "-o", base + ".mlir", "--opset-version", "17"])
                flags = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu",
                         "--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"]
                run([os.path.join(bin, "iree-compile"), base + ".mlir", *flags, "-o", base + ".part"], timeout=600)
            except Failed as e:
                # It takes long to fail, too.
                with open(base + ".failed", "w") as f:
                    f.write(str(e))
                raise
            os.replace(base + ".part", base + ".vmfb")
        return base + ".vmfb"

    def peer(self, name, model, threads, runs=None):
        if name == "torch.compile" and not model.torch:
            raise Failed("takes no ONNX")
        path = self.iree(model) if name == "iree" else None
        job = self.job(model, threads, runs, path)
        if name in NATIVE:
            command = [setup.native(name), job]
        else:
            command = [sys.executable, os.path.join(setup.HERE, "engine.py"), name, job]
        env = {**os.environ, "RTEN_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        # Compiled kernels of torch are kept between rounds, but not among a person's own.
        env["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(self.out, "inductor")
        out = run(pinned(command, threads), env=env)
        figures = json.loads(out.splitlines()[-1])
        steady = figures.pop("steady")
        return {**figures, "steady": statistics.median(steady), "least": steady[0]}

    def rounds(self, model, packed, peers, threads, rounds):
        """{engine: {load, first, steady, least, version} or {failed}}: the median over rounds in which the engines take turns."""
        seen, failed = {}, {}
        for _ in range(rounds):
            for name in [OURS, *peers]:
                if name in failed:
                    continue
                try:
                    got = self.ours(model, packed, threads) if name == OURS else self.peer(name, model, threads)
                    seen.setdefault(name, []).append(got)
                except Failed as e:
                    failed[name] = str(e)
        out = {name: {"failed": text} for name, text in failed.items()}
        for name, all in seen.items():
            if name not in failed:
                middle = lambda key: None if all[0].get(key) is None else statistics.median(x[key] for x in all)
                out[name] = {k: middle(k) for k in ("load", "first", "steady")}
                out[name]["least"] = min(x["least"] for x in all)
                out[name]["version"] = all[0].get("version")
        return out

    def memory(self, model, packed, peers):
        """Peak resident bytes after ten runs, each engine in a process of its own, with one thread."""
        out = {}
        for name in [OURS, *peers]:
            try:
                got = (self.ours(model, packed, 1, RUNS_FOR_MEMORY, program=os.path.join(self.device, "graphmend-run")) if name == OURS
                       else self.peer(name, model, 1, RUNS_FOR_MEMORY))
                if got["rss"] is None:
                    raise Failed("not known on this system")
                out[name] = got["rss"]
            except Failed as e:
                out[name] = {"failed": str(e)}
        # Without Python, for a fair comparison with a native program.
        try:
            out["onnxruntime, native"] = json.loads(
                run([setup.native("onnxruntime"), self.job(model, 1, RUNS_FOR_MEMORY)]).splitlines()[-1])["rss"]
        except Failed as e:
            out["onnxruntime, native"] = {"failed": str(e)}
        return out

    def cold(self, model, packed, count):
        """Seconds from a new process to its first output: our program and a native one with onnxruntime, by turns."""
        ours = [os.path.join(self.device, "graphmend-run"), "run", packed, *self.given(model)]
        theirs = [setup.native("onnxruntime"), self.job(model, 1, 1)]
        try:
            out = run(pinned([setup.native("cold"), str(count), *ours, "--", *theirs], 1))
        except Failed as e:
            return {"failed": str(e)}
        a, b = json.loads(out)
        return {OURS: statistics.median(a), "onnxruntime": statistics.median(b)}

    def profile(self, model, packed):
        """Kinds of kernels with their rates, and the operations of a run where all are known."""
        p = self.ours(model, packed, 1, more=["--profile"])["raw"].get("profile")
        if not isinstance(p, dict):
            return None
        ops = sum((s["ops"] or 0) * s["calls_per_run"] for s in p["steps"])
        return {"classes": p["classes"], "ops": ops}

"""One peer in a process of its own: `engine.py ENGINE JOB.json`, the figures as JSON on the last line of its output.

The job: `model` (an ONNX file, or what `prepare` made of it), `inputs` (names and .npy files, in the order of the model),
`threads`, `seconds` (of steady runs), `runs` (exactly so many instead, if not null), `torch` (the name of an architecture in
tests/reference/torch_models.py, or null).

Figures: `load` (until a run can be asked for), `first`, `steady` (all times of it, sorted), `rss` (peak resident bytes),
`version`. Times are seconds. With `runs`, the peak is that after so many runs.
"""
import json
import os
import sys
import time

import numpy as np


def peak_resident():
    """The greatest resident set so far, in bytes."""
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("no VmHWM")


def timed(f):
    start = time.perf_counter()
    result = f()
    return time.perf_counter() - start, result


def measure(run, job):
    """First run and further ones."""
    first, _ = timed(run)
    times = []
    if job["runs"] is not None:
        times = [timed(run)[0] for _ in range(job["runs"] - 1)]
    else:
        end = time.perf_counter() + job["seconds"]
        while time.perf_counter() < end or len(times) < 3:
            times.append(timed(run)[0])
    return first, sorted(times)


def onnxruntime(job, arrays):
    import onnxruntime as ort

    o = ort.SessionOptions()
    o.intra_op_num_threads, o.inter_op_num_threads = job["threads"], 1
    o.log_severity_level = 3
    load, s = timed(lambda: ort.InferenceSession(job["model"], o, providers=["CPUExecutionProvider"]))
    feeds = dict(zip([i["name"] for i in job["inputs"]], arrays))
    return load, lambda: s.run(None, feeds), ort.__version__


def openvino(job, arrays):
    import openvino as ov

    # Single precision, as everywhere else: on some processors bfloat16 is its default.
    config = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": job["threads"], "NUM_STREAMS": 1,
              "PERFORMANCE_HINT": "LATENCY"}
    core = ov.Core()

    def compiled_model():
        model = core.read_model(job["model"])
        # Open sizes cost it time in each run: it is told those that it will meet.
        model.reshape({k: list(a.shape) for k, a in enumerate(arrays)})
        return core.compile_model(model, "CPU", config)

    load, compiled = timed(compiled_model)
    request = compiled.create_infer_request()
    # By position: some names are lost in the conversion.
    feeds = dict(enumerate(arrays))
    return load, lambda: request.infer(feeds, share_inputs=True, share_outputs=True), ov.__version__.split("-")[0]


def iree(job, arrays):
    import iree.runtime as rt
    from iree.runtime import version

    # The compiled file is the same for any number of threads.
    if job["threads"] == 1:
        device = rt.get_device("local-sync")
    else:
        rt.flags.parse_flags(f"--task_topology_max_group_count={job['threads']}")
        device = rt.get_device("local-task")

    def open_module():
        config = rt.Config(device=device)
        context = rt.SystemContext(config=config)
        module = rt.VmModule.mmap(config.vm_instance, job["model"])
        context.add_vm_module(module)
        return module, context.modules[module.name]

    load, (module, functions) = timed(open_module)
    (name,) = [f for f in module.function_names if not f.startswith("__") and not f.endswith("$async")]
    f = functions[name]
    given = [rt.asdevicearray(device, a) for a in arrays]

    def run():
        out = f(*given)
        return [o.to_host() for o in (out if isinstance(out, (tuple, list)) else (out,))]

    return load, run, getattr(version, "VERSION", "")


def torch_compile(job, arrays):
    import torch

    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tests", "reference"))
    import torch_models

    model = torch_models.make(job["torch"])
    torch.set_num_threads(job["threads"])
    given = [torch.from_numpy(a) for a in arrays]
    compiled = torch.compile(model)

    def run():
        with torch.inference_mode():
            return compiled(*given)

    # Compilation is at the first run, and belongs neither to load nor to first.
    run()
    return None, run, torch.__version__.split("+")[0]


ENGINES = {"onnxruntime": onnxruntime, "openvino": openvino, "iree": iree, "torch.compile": torch_compile}


def main():
    name, path = sys.argv[1:]
    with open(path) as f:
        job = json.load(f)
    arrays = [np.load(i["file"]) for i in job["inputs"]]
    load, run, version = ENGINES[name](job, arrays)
    first, steady = measure(run, job)
    print(json.dumps({"load": load, "first": first, "steady": steady, "rss": peak_resident(), "version": version}))


if __name__ == "__main__":
    main()

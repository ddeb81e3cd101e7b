#!/usr/bin/env python3
"""Voice activity reference: onnxruntime's speech probability of each window of a WAV file, as JSON.

    python vad.py [MODEL.onnx WAV OUT.json]     default: silero_vad.onnx speech.wav reference.json in examples/quickstart

The model takes one window at a time with the last samples of the window before it put in front (zeros at the start),
a state that goes in as it last came out (zeros at the start), and the sample rate.  Samples after the last whole
window are not used.
"""
import json
import os
import sys
import wave

import numpy as np
import onnxruntime

# rate: (samples a window, samples of the window before in front of it)
SHAPES = {16000: (512, 64), 8000: (256, 32)}


def read_wav(path):
    """(samples as float32 in -1..1, rate) of a mono 16-bit file."""
    with wave.open(path) as w:
        if (w.getnchannels(), w.getsampwidth()) != (1, 2):
            raise SystemExit(f"{path}: must be mono with 16 bits a sample")
        return np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32) / 32768, w.getframerate()


def windows(samples, rate):
    """The arrays [1, context + window] that the model gets."""
    size, context = SHAPES[rate]
    padded = np.concatenate([np.zeros(context, np.float32), samples])
    return [padded[None, k * size : k * size + context + size] for k in range(len(samples) // size)]


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(model, samples, rate):
    """Yields ([input, state, sr], [probability, next state]) of each window in turn."""
    state = np.zeros((2, 1, 128), np.float32)
    for x in windows(samples, rate):
        inputs = [np.ascontiguousarray(x), state, np.array(rate, np.int64)]
        outputs = model.run(["output", "stateN"], dict(zip(["input", "state", "sr"], inputs)))
        yield inputs, outputs
        state = outputs[1]


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    here = os.path.join(root, "examples", "quickstart")
    args = sys.argv[1:] or [os.path.join(here, f) for f in ("silero_vad.onnx", "speech.wav", "reference.json")]
    if len(args) != 3:
        sys.exit(__doc__)
    model, wav, out = args
    samples, rate = read_wav(wav)
    if rate not in SHAPES:
        sys.exit(f"{wav}: {rate} Hz; the model takes {' or '.join(map(str, SHAPES))}")
    found = [float(outputs[0][0, 0]) for _, outputs in run(session(model), samples, rate)]
    # One probability a line: a change shows as such in a diff.  Six digits: what single precision and another order
    # of additions leave equal.
    lines = ",\n".join(f"  {p:.6f}" for p in found)
    head = {"model": os.path.basename(model), "wav": os.path.basename(wav), "made_with": f"onnxruntime {onnxruntime.__version__}",
            "sample_rate": rate, "window": SHAPES[rate][0], "context": SHAPES[rate][1]}
    with open(out, "w") as f:
        f.write(json.dumps(head, indent=1)[:-2] + f',\n "probabilities": [\n{lines}\n ]\n}}\n')
    print(f"{out}: {len(found)} windows, {sum(p > 0.5 for p in found)} with speech")


if __name__ == "__main__":
    main()

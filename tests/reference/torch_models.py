"""torchvision architectures with made-up weights whose activations and outputs are of order 1, exported to ONNX.

torchvision's own random weights will not do: MobileNetV2's give outputs near 1e-15, so that any comparison with an
absolute tolerance passes, and its fresh batch norms (mean 0, variance 1, no shift) would hide mistakes in folding them.
Here every convolution gets He-scaled weights, every batch norm a scale and shift of its own, and the statistics (or,
where there is no batch norm, weights and biases) are set from a forward pass over a calibration batch, layer by layer,
so that each channel varies by about 1.  The random numbers are numpy's, which are the same on every machine, and what
is measured is rounded, so that another CPU's last bits do not show in the model.
"""
import copy
import io
import warnings

import numpy as np
import onnx
import torch
import torchvision
from torch import nn
from torchvision.models.mobilenetv2 import InvertedResidual
from torchvision.models.resnet import Bottleneck

ARCHITECTURES = {
    "squeezenet1_1": torchvision.models.squeezenet1_1,
    "mobilenet_v2": torchvision.models.mobilenet_v2,
    "resnet50": torchvision.models.resnet50,
}


def images(seed, count, size=224):
    """Made-up pictures, zero mean, order 1: waves of several lengths, each picture its own, and some noise.

    Plain noise will not do: after pooling, one noise picture is like another, and so are the outputs.
    """
    out = np.empty((count, 3, size, size), np.float32)
    y, x = np.meshgrid(np.arange(size) / size, np.arange(size) / size, indexing="ij")
    for k in range(count):
        # A generator for each: picture k is the same whatever the count.
        rng = np.random.Generator(np.random.PCG64([seed, k]))
        for c in range(3):
            plane = 0.3 * rng.standard_normal((size, size)) + 0.5 * rng.standard_normal()
            for _ in range(4):
                a, b = rng.uniform(-12, 12, 2)
                plane += 0.5 * np.sin(2 * np.pi * (a * x + b * y) + rng.uniform(0, 2 * np.pi))
            out[k, c] = plane
    return out


def rounded(t):
    """To 10 bits of mantissa."""
    m, e = np.frexp(t.detach().numpy().astype(np.float64))
    return torch.from_numpy(np.asarray(np.ldexp(np.round(m * 1024) / 1024, e), np.float32))


def set_random(model, seed):
    rng = np.random.Generator(np.random.PCG64(seed))
    normal = lambda t: torch.from_numpy(rng.standard_normal(tuple(t.shape)).astype(np.float32))
    with torch.no_grad():
        for m in model.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                fan_in = m.weight[0].numel()
                m.weight.copy_(normal(m.weight) * np.float32(np.sqrt(2 / fan_in)))
                if m.bias is not None:
                    m.bias.copy_(normal(m.bias) * 0.1)
            elif isinstance(m, nn.BatchNorm2d):
                m.weight.copy_(torch.from_numpy(rng.uniform(0.6, 1.4, tuple(m.weight.shape)).astype(np.float32)))
                # More above zero than below: a deep chain of batch norm and half-closed ReLUs makes rounding grow by a
                # fifth in each layer, until the outputs are mostly noise.
                m.bias.copy_(normal(m.bias) * 0.3 + 0.7)
        # For the same reason a block adds a part to its input rather than drowning it.
        for m in model.modules():
            if isinstance(m, Bottleneck):
                m.bn3.weight.mul_(0.4)
                m.bn3.bias.sub_(0.8)
            elif isinstance(m, InvertedResidual) and m.use_res_connect:
                m.conv[-1].weight.mul_(0.4)


def calibrate(model, x, seed):
    """Goes through the layers in the order of the forward pass; each sees inputs from layers already set."""
    rng = np.random.Generator(np.random.PCG64(seed))

    def stats(y):
        dims = [d for d in range(y.dim()) if d != 1]
        return y.mean(dims), y.std(dims, unbiased=False).clamp_min(1e-3)

    def set_norm(m, inputs):
        mean, std = stats(inputs[0])
        m.running_mean.copy_(rounded(mean))
        m.running_var.copy_(rounded(std * std))

    def set_layer(m, inputs, y):
        if isinstance(m, nn.Linear):
            # One scale for all: the few pictures' outputs differ little from each other beside what they share.
            scale = rounded(1 / y.std())
            m.weight.mul_(scale)
            m.bias.mul_(scale)
            return m.forward(*inputs)
        mean, std = stats(y)
        scale = rounded(1 / std)
        m.weight.mul_(scale.reshape(-1, *[1] * (m.weight.dim() - 1)))
        # Each channel gets its own mean, so that no two outputs are alike.
        own = torch.from_numpy((0.5 * rng.standard_normal(len(mean))).astype(np.float32))
        m.bias.copy_(rounded((m.bias - mean) * scale + own))
        return m.forward(*inputs)

    normed = any(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    hooks = []
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):
            hooks.append(m.register_forward_pre_hook(set_norm))
        elif isinstance(m, nn.Linear) or (isinstance(m, nn.Conv2d) and not normed):
            hooks.append(m.register_forward_hook(set_layer))
    with torch.no_grad():
        model(x)
    for h in hooks:
        h.remove()


def make(name):
    torch.set_num_threads(1)
    model = ARCHITECTURES[name](weights=None).eval()
    seed = list(ARCHITECTURES).index(name)
    set_random(model, seed)
    calibrate(model, torch.from_numpy(images(1000, 8)), seed)
    return model


def export(model, x, batch_symbol=None, keep_norms=False):
    """The ONNX model, by the TorchScript exporter at opset 17.

    With `batch_symbol` the first axis of input and output has that name.  The exporter folds each batch norm into the
    convolution before it unless `keep_norms`.
    """
    axes = {"x": {0: batch_symbol}, "y": {0: batch_symbol}} if batch_symbol else None
    training = torch.onnx.TrainingMode.PRESERVE if keep_norms else torch.onnx.TrainingMode.EVAL
    out = io.BytesIO()
    with warnings.catch_warnings():
        # It says each time that it is the older exporter: that is why it is used, most models in the field are its.
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (torch.from_numpy(x),), out, input_names=["x"], output_names=["y"], opset_version=17,
                          dynamic_axes=axes, training=training, dynamo=False)
    return onnx.load_from_string(out.getvalue())


def exact(model, x):
    """The output computed in double precision: what single precision is measured against."""
    with torch.no_grad():
        return copy.deepcopy(model).double()(torch.from_numpy(x).double()).numpy()

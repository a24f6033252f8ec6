"""Networks as exporters write them, made with onnx's own helpers: seeded weights, small sizes, the real structure."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper


class Network:
    """Collects the nodes of a model; each method adds a few and returns the name of the result."""

    def __init__(self, seed=0):
        self.rng, self.nodes, self.weights = np.random.default_rng(seed), [], []

    def add(self, op, *inputs, **attrs):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def weight(self, *shape, scale=None, data=None):
        fan = math.prod(shape[1:]) or 1
        array = self.rng.standard_normal(shape).astype(np.float32) * (scale or fan**-0.5) if data is None else data
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def number(self, value, dtype=np.float32):
        return self.weight(data=np.array(value, dtype))

    def ints(self, *values):
        return self.weight(data=np.array(values, np.int64))

    def conv(self, x, c, o, k=3, stride=1, groups=1, bias=False):
        inputs = [x, self.weight(o, c // groups, k, k)] + ([self.weight(o)] if bias else [])
        return self.add("Conv", *inputs, kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4, group=groups)

    def norm(self, x, c):
        gamma, variance = [self.weight(data=self.rng.random(c).astype(np.float32) + 0.5) for _ in range(2)]
        return self.add("BatchNormalization", x, gamma, self.weight(c, scale=0.1), self.weight(c, scale=0.1), variance)

    def linear(self, x, i, o):
        return self.add("Add", self.weight(o, scale=0.1), self.add("MatMul", x, self.weight(i, o, scale=i**-0.5)))

    def layer_norm(self, x, d):
        """As PyTorch exported it before opset 17."""
        apart = self.add("Sub", x, self.add("ReduceMean", x, axes=[-1]))
        variance = self.add("ReduceMean", self.add("Pow", apart, self.number(2.0)), axes=[-1])
        root = self.add("Sqrt", self.add("Add", variance, self.number(1e-5)))
        scaled = self.add("Mul", self.add("Div", apart, root), self.weight(d))
        return self.add("Add", scaled, self.weight(d, scale=0.1))

    def gelu(self, x):
        inner = self.add("Add", self.add("Erf", self.add("Div", x, self.number(math.sqrt(2.0)))), self.number(1.0))
        return self.add("Mul", self.add("Mul", x, inner), self.number(0.5))

    def model(self, out, **inputs):
        given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
        made = helper.make_tensor_value_info(out, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", given, [made], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=9)


def resnet(widths=(16, 32), blocks=2, size=16):
    """The structure of ResNet-18: a stem, residual blocks with batch norms, a pooled head."""
    n = Network(1)
    c = widths[0]
    x = n.add("Relu", n.norm(n.conv("x", 3, c, 7, 2), c))
    x = n.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for width in widths:
        for block in range(blocks):
            stride = 2 if block == 0 and width != widths[0] else 1
            y = n.add("Relu", n.norm(n.conv(x, c, width, 3, stride), width))
            y = n.norm(n.conv(y, width, width), width)
            short = x if stride == 1 else n.norm(n.conv(x, c, width, 1, stride), width)
            x, c = n.add("Relu", n.add("Add", y, short)), width
    flat = n.add("Flatten", n.add("GlobalAveragePool", x), axis=1)
    out = n.add("Gemm", flat, n.weight(10, c), n.weight(10), transB=1)
    return n.model(out, x=[1, 3, size, size])


def mobilenet(size=16):
    """The structure of MobileNetV2 and V3: inverted residuals with depthwise convolutions, relu6, hardswish, squeezing."""
    n = Network(2)
    x, c = n.norm(n.conv("x", 3, 16, 3, 2), 16), 16
    x = n.add("Mul", x, n.add("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    for o, stride in ((16, 1), (24, 2), (24, 1)):
        wide = 4 * c
        y = n.add("Clip", n.norm(n.conv(x, c, wide, 1), wide), n.number(0.0), n.number(6.0))
        y = n.add("Clip", n.norm(n.conv(y, wide, wide, 3, stride, wide), wide), n.number(0.0), n.number(6.0))
        s = n.add("Relu", n.conv(n.add("GlobalAveragePool", y), wide, 8, 1, bias=True))
        y = n.add("Mul", y, n.add("HardSigmoid", n.conv(s, 8, wide, 1, bias=True), alpha=1 / 6, beta=0.5))
        y = n.norm(n.conv(y, wide, o, 1), o)
        x, c = (n.add("Add", x, y) if stride == 1 and c == o else y), o
    flat = n.add("Reshape", n.add("ReduceMean", x, axes=[2, 3], keepdims=1), n.ints(0, -1))
    return n.model(n.add("Softmax", n.linear(flat, c, 10), axis=-1), x=[1, 3, size, size])


def transformer(tokens=8, width=32, heads=4, blocks=2):
    """Blocks of BERT as PyTorch exports them: heads by reshape and transpose, attention, layer norm and gelu written out."""
    n, d = Network(3), width // heads
    x = "x"

    def parted(v, axes):
        return n.add("Transpose", n.add("Reshape", v, n.ints(0, tokens, heads, d)), perm=axes)

    for _ in range(blocks):
        q, v = [parted(n.linear(x, width, width), [0, 2, 1, 3]) for _ in range(2)]
        k = parted(n.linear(x, width, width), [0, 2, 3, 1])
        scores = n.add("Div", n.add("MatMul", q, k), n.number(math.sqrt(d)))
        seen = n.add("MatMul", n.add("Softmax", n.add("Add", scores, "mask"), axis=-1), v)
        joined = n.add("Reshape", n.add("Transpose", seen, perm=[0, 2, 1, 3]), n.ints(0, tokens, width))
        x = n.layer_norm(n.add("Add", n.linear(joined, width, width), x), width)
        y = n.linear(n.gelu(n.linear(x, width, 4 * width)), 4 * width, width)
        x = n.layer_norm(n.add("Add", y, x), width)
    return n.model(x, x=[1, tokens, width], mask=[1, 1, 1, tokens])


def quantized(size=6):
    """Two convolutions and a product in QDQ form: data uint8 with a zero point, weights int8 by channel."""
    n = Network(4)

    def both_ways(v, scale, zero):
        given = n.number(scale), n.number(zero, np.uint8)
        return n.add("DequantizeLinear", n.add("QuantizeLinear", v, *given), *given)

    def weight(axis, *shape):
        data = n.weight(data=n.rng.integers(-127, 128, shape).astype(np.int8))
        scale = n.weight(data=(n.rng.random(shape[axis]) * 0.01 + 0.005).astype(np.float32))
        return n.add("DequantizeLinear", data, scale, n.weight(data=np.zeros(shape[axis], np.int8)), axis=axis)

    x, c = both_ways("x", 0.02, 128), 4
    for o in (8, 8):
        bias = n.add("DequantizeLinear", n.weight(data=n.rng.integers(-99, 99, o).astype(np.int32)), n.number(0.001))
        y = n.add("Conv", x, weight(0, o, c, 3, 3), bias, kernel_shape=[3, 3], pads=[1] * 4)
        x, c = both_ways(n.add("Relu", y), 0.05, 3), o
    flat = n.add("Flatten", x, axis=1)
    out = both_ways(n.add("MatMul", flat, weight(1, c * size * size, 5)), 0.3, 100)
    return n.model(out, x=[1, 4, size, size])


NETWORKS = {"quantized": quantized, "resnet": resnet, "mobilenet": mobilenet, "transformer": transformer}

"""Ready operators, written in :mod:`tilewright.te` and nothing else.

They take tensors and return tensors; nothing runs until the result is built. Names and argument orders follow TVM's
topi, NumPy and PyTorch, in this order where they differ. Sizes may be symbolic (``te.var``) where a formula allows it;
shapes that do not fit raise ValueError and show both.

>>> from tilewright import te
>>> x, w = te.placeholder((2, 8), name="x"), te.placeholder((4, 8), name="w")
>>> y = relu(dense(x, w))
>>> [int(d) for d in y.shape]
[2, 4]
"""

from .attention import attention
from .broadcast import (
    add,
    broadcast_to,
    divide,
    equal,
    floor_divide,
    floor_mod,
    greater,
    greater_equal,
    less,
    less_equal,
    maximum,
    minimum,
    multiply,
    not_equal,
    power,
    subtract,
)
from .conv import conv1d, conv2d, conv3d
from .conv_transpose import conv2d_transpose
from .depthwise import depthwise_conv2d
from .elementwise import (
    abs,
    ceil,
    clip,
    elu,
    erf,
    exp,
    floor,
    gelu,
    hardsigmoid,
    hardswish,
    identity,
    leaky_relu,
    log,
    mish,
    negative,
    prelu,
    relu,
    relu6,
    round,
    rsqrt,
    sigmoid,
    sign,
    silu,
    softplus,
    sqrt,
    square,
    tanh,
    trunc,
    where,
)
from .elementwise import cast_to as cast
from .layout import expand_dims, flatten, flip, repeat, reshape, squeeze, tile, transpose
from .matmul import batch_matmul, dense, matmul
from .norm import batch_norm, group_norm, layer_norm, rms_norm
from .pad import pad
from .pick import concatenate, full, one_hot, split, stack, strided_slice, take
from .pool import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    global_avg_pool,
    global_max_pool,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from .reduction import argmax, argmin, max, mean, min, prod, sum
from .softmax import log_softmax, softmax

concat = concatenate
div = divide
mul = multiply
sub = subtract

__all__ = [
    "abs", "add", "argmax", "argmin", "attention", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_matmul",
    "batch_norm", "broadcast_to", "cast", "ceil", "clip", "concat", "concatenate", "conv1d", "conv2d",
    "conv2d_transpose", "conv3d", "dense", "depthwise_conv2d", "div", "divide", "elu", "equal", "erf", "exp",
    "expand_dims", "flatten", "flip", "floor", "floor_divide", "floor_mod", "full", "gelu", "global_avg_pool",
    "global_max_pool", "greater", "greater_equal", "group_norm", "hardsigmoid", "hardswish", "identity", "layer_norm",
    "leaky_relu", "less", "less_equal", "log", "log_softmax", "matmul", "max", "max_pool1d", "max_pool2d",
    "max_pool3d", "maximum", "mean", "min", "minimum", "mish", "mul", "multiply", "negative", "not_equal", "one_hot",
    "pad", "power", "prelu", "prod", "relu", "relu6", "repeat", "reshape", "rms_norm", "round", "rsqrt", "sigmoid",
    "sign", "silu", "softmax", "softplus", "split", "sqrt", "square", "squeeze", "stack", "strided_slice", "sub",
    "subtract", "sum", "take", "tanh", "tile", "transpose", "trunc", "where",
]  # fmt: skip

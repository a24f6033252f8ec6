"""This package has ready operators, written with :mod:`tilewright.te` only.

They take tensors and return tensors; nothing runs until the result is built. Names and argument orders follow TVM's
topi, NumPy and PyTorch, in this order where they differ. Sizes may be symbolic (``te.var``) where a formula allows it;
shapes that do not match raise a ValueError that shows both.

>>> from tilewright import te
>>> x, w = te.placeholder((2, 8), name="x"), te.placeholder((4, 8), name="w")
>>> y = relu(dense(x, w))
>>> [int(d) for d in y.shape]
[2, 4]
"""

from .attention import attention, rotary
from .blocks.axis_reductions import argmax, argmin, max, mean, min, prod, sum
from .blocks.broadcast import (
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
from .blocks.reshape_transpose import expand_dims, flatten, flip, repeat, reshape, squeeze, tile, transpose
from .blocks.softmax import log_softmax, softmax
from .blocks.windows import pad
from .conv import conv1d, conv2d, conv2d_transpose, conv3d, depthwise_conv2d
from .elementwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    ceil,
    clip,
    cos,
    cosh,
    elu,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    gelu,
    hardsigmoid,
    hardswish,
    identity,
    leaky_relu,
    log,
    log1p,
    log2,
    log10,
    mish,
    negative,
    prelu,
    reinterpret,
    relu,
    relu6,
    round,
    rsqrt,
    sigmoid,
    sign,
    silu,
    sin,
    sinh,
    softplus,
    sqrt,
    square,
    swiglu,
    tan,
    tanh,
    trunc,
    where,
)
from .elementwise import cast_to as cast
from .image_layout import col2im, depth_to_space
from .indexing import (
    concatenate,
    cumprod,
    cumsum,
    full,
    gather_elements,
    gather_nd,
    one_hot,
    scatter_elements,
    scatter_nd,
    split,
    stack,
    strided_slice,
    take,
    triangle,
)
from .logic import (
    atan2,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    copysign,
    hypot,
    is_finite,
    is_inf,
    is_nan,
    left_shift,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    nextafter,
    remainder,
    right_shift,
    truncate_divide,
)
from .matmul import batch_matmul, dense, einsum, matmul
from .norm import batch_norm, group_norm, layer_norm, rms_norm
from .pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    global_avg_pool,
    global_max_pool,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_pool_positions,
)
from .resize import resample, resize1d, resize2d, resize3d
from .sampling import deformable_windows, grid_sample, roi_align
from .top_k import topk
from .winograd import winograd_conv2d, winograd_weights

concat = concatenate
div = divide
mul = multiply
sub = subtract

__all__ = [
    "abs", "acos", "acosh", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "add", "argmax", "argmin", "asin", "asinh", "atan", "atan2", "atanh",
    "attention", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_matmul", "batch_norm", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "broadcast_to", "cast", "ceil", "clip", "col2im", "concat", "concatenate", "conv1d",
    "conv2d", "conv2d_transpose", "conv3d", "copysign", "cos", "cosh", "cumprod", "cumsum", "deformable_windows", "dense",
    "depth_to_space", "depthwise_conv2d", "div", "divide", "einsum", "elu", "equal", "erf", "exp", "exp2", "expand_dims", "expm1",
    "flatten", "flip", "floor", "floor_divide", "floor_mod", "full", "gather_elements", "gather_nd", "gelu",
    "global_avg_pool", "global_max_pool", "greater", "greater_equal", "grid_sample", "group_norm", "hardsigmoid",
    "hardswish", "hypot", "identity", "is_finite", "is_inf", "is_nan", "layer_norm", "leaky_relu", "left_shift", "less", "less_equal", "log",
    "log10", "log1p", "log2", "log_softmax", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul",
    "max", "max_pool1d", "max_pool2d", "max_pool3d", "max_pool_positions", "maximum", "mean", "min", "minimum", "mish",
    "mul", "multiply", "negative", "nextafter", "not_equal", "one_hot", "pad", "power", "prelu", "prod", "reinterpret", "relu",
    "relu6", "remainder", "repeat", "resample", "reshape", "resize1d", "resize2d", "resize3d", "right_shift",
    "rms_norm", "roi_align", "rotary", "round", "rsqrt", "scatter_elements", "scatter_nd", "sigmoid", "sign", "silu",
    "sin", "sinh", "softmax", "softplus", "split", "sqrt", "square", "squeeze", "stack", "strided_slice", "sub",
    "subtract", "sum", "swiglu", "take", "tan", "tanh", "tile", "topk", "transpose", "triangle", "trunc",
    "truncate_divide", "where", "winograd_conv2d", "winograd_weights",
]  # fmt: skip

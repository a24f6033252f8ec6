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

from .arguments import broadcast_to
from .conv import conv1d, conv2d, conv2d_transpose, conv3d, depthwise_conv2d, winograd_conv2d, winograd_weights
from .conversions import cast, prelu, reinterpret
from .elements import *  # noqa: F403
from .elements import ELEMENTS, divide, multiply, subtract
from .images import deformable_windows, grid_sample, resample, resize1d, resize2d, resize3d, roi_align
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
from .products import attention, attention_cached, batch_matmul, dense, einsum, grouped_matmul, matmul, rotary
from .quantized import dense_nbits, dense_packed_nbits, pack_nbits, quantize_by_scale, quantize_groups
from .reductions import (
    argmax,
    argmin,
    batch_norm,
    extremes,
    group_norm,
    layer_norm,
    log_softmax,
    max,
    mean,
    min,
    prod,
    rms_norm,
    softmax,
    sum,
)
from .selection import topk
from .shapes import (
    concatenate,
    cumprod,
    cumsum,
    expand_dims,
    flatten,
    flip,
    full,
    gather_elements,
    gather_nd,
    one_hot,
    repeat,
    reshape,
    scatter_elements,
    scatter_nd,
    split,
    squeeze,
    stack,
    strided_slice,
    take,
    tile,
    transpose,
    triangle,
)
from .windows import col2im, depth_to_space, pad

concat = concatenate
div = divide
mul = multiply
sub = subtract

__all__ = [  # those of the table of element-wise operators, and
    *ELEMENTS,
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "argmax", "argmin", "attention", "attention_cached", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "batch_matmul", "batch_norm", "broadcast_to", "cast", "col2im", "concat", "concatenate", "conv1d",
    "conv2d", "conv2d_transpose", "conv3d", "cumprod", "cumsum", "deformable_windows", "dense", "dense_nbits",
    "dense_packed_nbits", "depth_to_space",
    "depthwise_conv2d", "div", "einsum", "expand_dims", "extremes", "flatten", "flip", "full", "gather_elements", "gather_nd",
    "global_avg_pool", "global_max_pool", "grid_sample", "group_norm", "grouped_matmul", "layer_norm", "log_softmax", "matmul", "max",
    "max_pool1d", "max_pool2d", "max_pool3d", "max_pool_positions", "mean", "min", "mul", "one_hot", "pack_nbits", "pad", "prelu",
    "prod", "quantize_by_scale", "quantize_groups", "reinterpret", "repeat", "resample", "reshape", "resize1d", "resize2d", "resize3d", "rms_norm",
    "roi_align", "rotary", "scatter_elements", "scatter_nd", "softmax", "split", "squeeze", "stack",
    "strided_slice", "sub", "sum", "take", "tile", "topk", "transpose", "triangle", "winograd_conv2d",
    "winograd_weights",
]  # fmt: skip

"""The names of ``tl.math``: functions of one and two numbers."""

from ..basic_rows import (
    abs,
    cdiv,
    ceil,
    clamp,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    maximum,
    minimum,
    rsqrt,
    sigmoid,
    sin,
    softmax,
    sqrt,
    sqrt_rn,
)
from ..random_rows import umulhi

__all__ = [
    "abs", "cdiv", "ceil", "clamp", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2", "maximum",
    "minimum", "rsqrt", "sigmoid", "sin", "softmax", "sqrt", "sqrt_rn", "umulhi",
]  # fmt: skip


def __getattr__(name: str) -> object:
    raise AttributeError(f"tl.math.{name} is not known; tl.math has {', '.join(__all__)}, and tl.extra.libdevice more")

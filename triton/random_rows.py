"""Random numbers for ``tl``: Philox-4x32-10 (Salmon and others, 2011) by a seed and an offset for each element, as kernels.

The same seed and offset give the same number everywhere, in every launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, no_type_check

from .basic_rows import cast, cos, log, sin, sqrt, where
from .basic_rows import maximum as larger
from .kernel_builder import KernelBuilder
from .kernel_source import KernelSource
from .rows import builtin, constexpr, int32, uint32, uint64


class LibraryKernel:
    """A function of ``tl`` that is itself written in blocks; other kernels call it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__doc__ = function.__doc__
        self.kernel_source = KernelSource(function)

    def __repr__(self) -> str:
        return f"tl.{self.kernel_source.name}"

    def __call__(self, *args: Any, **named: Any) -> NoReturn:
        raise RuntimeError(
            f"{self!r} is called in functions with @triton.jit, which are compiled; it computes nothing itself"
        )


KEY_A, KEY_B = constexpr(0x9E3779B9), constexpr(0xBB67AE85)
ROUND_A, ROUND_B = constexpr(0xD2511F53), constexpr(0xCD9E8D57)


@builtin
def umulhi(k: KernelBuilder, x: Any, y: Any) -> Any:
    """Return the upper half of the product of two integers of 32 bits, taken without sign."""
    a, b = (k.cast(cast.meaning(k, v, uint32), uint64) for v in (x, y))
    for v in (x, y):
        if k.value(v).dtype.is_float or k.value(v).dtype.bits > 32:
            raise TypeError(f"umulhi is for integers of 32 bits, not {k.value(v).type_text()}")
    return k.cast(k.binary(">>", k.binary("*", a, b), 32), uint32)


@LibraryKernel
@no_type_check
def philox(seed, c0, c1, c2, c3, n_rounds: constexpr = 10):
    """Return four blocks of random uint32 from a seed and a counter of four blocks."""
    wide = cast(seed, uint64)
    k0 = cast(wide & 0xFFFFFFFF, uint32)
    k1 = cast(wide >> 32, uint32)
    c0, c1, c2, c3 = cast(c0, uint32), cast(c1, uint32), cast(c2, uint32), cast(c3, uint32)
    for _ in range(n_rounds):
        high_b = umulhi(c2, ROUND_B)
        high_a = umulhi(c0, ROUND_A)
        low_b = c2 * ROUND_B
        low_a = c0 * ROUND_A
        c0 = high_b ^ c1 ^ k0
        c2 = high_a ^ c3 ^ k1
        c1 = low_b
        c3 = low_a
        k0 += KEY_A
        k1 += KEY_B
    return c0, c1, c2, c3


@LibraryKernel
@no_type_check
def randint4x(seed, offset, n_rounds: constexpr = 10):
    """Return four blocks of random integers of 32 bits."""
    low = cast(offset, uint32)
    high = low * 0
    if offset.dtype.primitive_bitwidth > 32:
        high = cast(cast(offset, uint64) >> 32, uint32)
    return philox(seed, low, high, low * 0, low * 0, n_rounds)


@LibraryKernel
@no_type_check
def randint(seed, offset, n_rounds: constexpr = 10):
    """Return a block of random integers of 32 bits."""
    first, _, _, _ = randint4x(seed, offset, n_rounds)
    return first


@LibraryKernel
@no_type_check
def uint_to_uniform_float(x):
    """Return random integers of 32 bits as floats from 0 to below 1."""
    signed = cast(x, int32, bitcast=True)
    return where(signed < 0, ~signed, signed) * 4.6566127342e-10


@LibraryKernel
@no_type_check
def rand(seed, offset, n_rounds: constexpr = 10):
    """Return a block of random float32, evenly distributed from 0 to below 1."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@LibraryKernel
@no_type_check
def rand4x(seed, offsets, n_rounds: constexpr = 10):
    """Return four blocks of random float32, evenly distributed from 0 to below 1."""
    a, b, c, d = randint4x(seed, offsets, n_rounds)
    return uint_to_uniform_float(a), uint_to_uniform_float(b), uint_to_uniform_float(c), uint_to_uniform_float(d)


@LibraryKernel
@no_type_check
def pair_uniform_to_normal(u1, u2):
    """Return two blocks of normal numbers from two evenly distributed ones (Box and Muller's transformation)."""
    radius = sqrt(-2.0 * log(larger(1.0e-7, u1)))
    angle = 6.283185307179586 * u2
    return radius * cos(angle), radius * sin(angle)


@LibraryKernel
@no_type_check
def randn(seed, offset, n_rounds: constexpr = 10):
    """Return a block of random float32, normally distributed with mean 0 and variance 1."""
    a, b, _, _ = randint4x(seed, offset, n_rounds)
    first, _ = pair_uniform_to_normal(uint_to_uniform_float(a), uint_to_uniform_float(b))
    return first


@LibraryKernel
@no_type_check
def randn4x(seed, offset, n_rounds: constexpr = 10):
    """Return four blocks of random float32, normally distributed with mean 0 and variance 1."""
    a, b, c, d = rand4x(seed, offset, n_rounds)
    n1, n2 = pair_uniform_to_normal(a, b)
    n3, n4 = pair_uniform_to_normal(c, d)
    return n1, n2, n3, n4

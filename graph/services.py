"""This module says what passes and fusion may ask of the layers above. These run a function, and predict its time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..pages.short_repr import short_repr
from .kernels import Kernel


@dataclass(frozen=True)
class Services:
    """Services are what the caller of the passes provides; each may be missing.

    ``run(func, *arrays)`` computes a function, outputs in place; without it only small constants are folded.
    ``seconds(kernel)`` predicts the time of a kernel when it is scheduled as well as possible; without it choices follow
    from counts of operations and bytes. ``winograd``: the largest tile of results that convolutions by Winograd's method may
    compute at a time, 0 where they are not allowed; ``accuracy``: the largest error that they may have by
    :func:`~.passes.choose_winograd.winograd_error`, None for any.
    """

    run: Callable[..., Any] | None = None
    seconds: Callable[[Kernel], float] | None = None
    winograd: int = 0
    accuracy: float | None = None

    __repr__ = short_repr()

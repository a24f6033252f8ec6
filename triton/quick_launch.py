"""Launches of a kind seen before, at the cost of a few comparisons.

For each form of arguments (which are arrays, integers, floats and constants) one Python function is written. It compares what a
kernel is compiled for, finds the compiled kernel in a table, and calls it by code that looks at the arrays itself: their type,
their shape, and that no written array shares memory with another one. Where anything is unusual it runs nothing and returns
None, and the launch goes the careful way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..codegen.runtime.native_glue import UNUSUAL
from .kernel_source import KernelSource

KINDS = ("array", "tensor", "int", "float", "constant")
"""What an argument is to a quick launch. An integer that is 1, and integers of more than 30 bits, go the careful way."""

Quick = Callable[..., Any]


class QuickForm:
    """The quick launches of one form of arguments.

    ``launch`` runs one and returns its kernel, or runs none and returns None.
    """

    def __init__(self, source: KernelSource, kinds: Mapping[str, str], narrow: int, options: frozenset[str]) -> None:
        self.kinds = dict(kinds)
        self.table: dict[Any, Any] = {}
        names: dict[str, Any] = {
            "tw_table": self.table, "tw_ndarray": np.ndarray, "tw_zeros": np.zeros, "tw_int64": np.dtype(np.int64),
            "tw_unusual": UNUSUAL, "tw_refused": _refused,
        }  # fmt: skip
        for name, default in source.defaults.items():
            names[f"tw_default_{name}"] = getattr(default, "value", default)
        if "tensor" in kinds.values():
            import torch

            names["tw_tensor"] = torch.Tensor
        text = _text(source, self.kinds, narrow, options - set(source.signature.parameters))
        exec(compile(text, f"<quick launch of {source.name}>", "exec"), names)
        self.launch: Quick = names["tw_launch"]


def _refused(kernel: Any, faults: np.ndarray[Any, Any], code: int) -> Any:
    if code:
        raise kernel.entry.failure(code)
    raise kernel.fault(faults[: len(kernel.sites)])


# Names of its own begin with tw_, which no parameter of a kernel does that is launched quickly.


def _text(source: KernelSource, kinds: Mapping[str, str], narrow: int, options: frozenset[str]) -> str:
    empty = source.signature.empty
    params = [f"{n}=tw_default_{n}" if source.defaults[n] is not empty else n for n in kinds]
    params += [f"{n}=None" for n in sorted(options)]
    tests, key, arrays, scalars, views = [], [], [], [], []
    for n, kind in kinds.items():
        if kind == "array":
            tests.append(f"type({n}) is tw_ndarray and {n}.size < {narrow}")
            key.append(f"{n}.dtype")
            arrays.append(n)
            views.append(
                f"    if {n}.ndim != 1:\n        if not {n}.flags.c_contiguous: return None\n        {n} = {n}.reshape(-1)"
            )
        elif kind == "tensor":
            tests.append(f"type({n}) is tw_tensor and {n}.is_cpu and not {n}.requires_grad and {n}.is_contiguous()")
            key.append(f"{n}.dtype")
            arrays.append(n)
            views.append(
                f"    {n} = {n}.numpy()\n    if {n}.size >= {narrow}: return None\n    if {n}.ndim != 1: {n} = {n}.reshape(-1)"
            )
        elif kind == "int":
            tests.append(f"type({n}) is int and {n} != 1 and {-narrow} < {n} < {narrow}")
            key.append(f"{n} >= 0")
            scalars.append(n)
        elif kind == "float":
            tests.append(f"type({n}) is float")
            scalars.append(n)
        else:
            key.append(f"type({n}), {n}")
    tests += [f"{n} is None or type({n}) is int and {n} > 0" for n in sorted(options)]
    given = ", ".join([f"{n!r}: {n}" for n in kinds])
    before = "".join([f"{n}, " for n in (*arrays, *scalars)])
    checks = "".join([f"    if not ({t}): return None\n" for t in tests])
    return f"""
def tw_launch(tw_grid, /, {", ".join(params)}):
{checks}    tw_sizes = tw_grid if type(tw_grid) is tuple else tw_grid({{{given}}}) if callable(tw_grid) else tw_grid
    if type(tw_sizes) is not tuple: return None
    while len(tw_sizes) > 1 and tw_sizes[-1] == 1: tw_sizes = tw_sizes[:-1]
    try:
        tw_found = tw_table.get((len(tw_sizes), {"".join([f"{k}, " for k in key])}))
    except TypeError:
        return None
    if tw_found is None: return None
    tw_call, tw_kernel, tw_count, tw_none = tw_found
    tw_programs = 1
    for tw_n in tw_sizes:
        if type(tw_n) is not int or tw_n < 1: return None
        tw_programs *= tw_n
    if tw_programs >= {narrow} or tw_kernel.uses and not tw_kernel.is_current(): return None
{chr(10).join(views)}
    tw_faults = tw_zeros(tw_count, tw_int64)
    tw_code = tw_call({before}*tw_sizes[:-1], tw_programs, tw_faults)
    if tw_code == tw_unusual: return None
    if tw_code or tw_faults.tobytes() != tw_none: tw_refused(tw_kernel, tw_faults, tw_code)
    return tw_kernel
"""


def exact(x: Any) -> Any:
    """Return a constant as part of a key, floats as text: 0.0 is not -0.0, and NaN is itself."""
    if isinstance(x, tuple):
        return tuple([exact(part) for part in x])
    return x.hex() if isinstance(x, float) else x


def form_of(
    source: KernelSource, bound: Mapping[str, Any], is_constant: Callable[[str, Any], bool]
) -> dict[str, str] | None:
    """Return the kind of each argument, None where one of them always goes the careful way."""
    kinds: dict[str, str] = {}
    for name, x in bound.items():
        kind = type(x)
        if name.startswith("tw_"):
            return None
        if is_constant(name, x):
            if isinstance(x, (float, tuple)):
                return None
            kinds[name] = "constant"
        elif kind is np.ndarray:
            kinds[name] = "array"
        elif kind is int and x != 1:
            kinds[name] = "int"
        elif kind is float:
            kinds[name] = "float"
        elif kind.__module__ == "torch" and kind.__name__ == "Tensor":
            kinds[name] = "tensor"
        else:
            return None
    return kinds


def quick_key(kinds: Mapping[str, str], bound: Mapping[str, Any], rank: int) -> tuple[Any, ...]:
    """Return under what the table of a form has the kernel of a launch."""
    parts: list[Any] = [rank]
    for name, kind in kinds.items():
        x = bound[name]
        if kind in ("array", "tensor"):
            parts.append(x.dtype)
        elif kind == "int":
            parts.append(x >= 0)
        elif kind == "constant":
            parts += [type(x), x]
    return tuple(parts)

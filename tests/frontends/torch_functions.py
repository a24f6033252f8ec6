"""Random functions of PyTorch through ``torch.compile(backend="tilewright")`` and ``torch.export``; the oracle is eager.

``python -m tests.frontends.torch_functions --n 2000 --rows rows.jsonl`` draws straight-line functions of 1 to 9 statements:
arithmetic, reductions, views, scatters, layers, operations in place, several results that share memory. Inputs have all
data types, are strided, transposed, expanded or offset, and hold NaN, infinities, -0.0 and the ends of integers now and then.
Each seed goes through one door: ``compile`` or ``export``, with static or dynamic sizes, which get 0 and 1 at the call.

A result may differ by ``16 * (1 + statements)`` machine epsilons of the narrowest float that occurs, relative to the largest
finite element of the result; integers and truth values are equal. Where it differs more, PyTorch is run again with each inexact
operation's result moved by up to one epsilon: a difference within eight times of what that changes is ``doubtful``.

Kernels are compiled as they are written, with little optimization, which takes a fraction of the time; ``--full`` schedules
them. The seeds that the file of rows has are left out, so a run goes on where it was cut off; a seed that took the process down
is a finding. A finding is shrunk, and printed as a program that reproduces it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import tilewright as tw
from tests.frontends.cheap_builds import cheap_builds
from tilewright.doors.compile_backend import forget
from tilewright.frontends.torch import to_array

F = torch.nn.functional

FLOATS, INTS = ("float32", "float64", "float16", "bfloat16"), ("int64", "int32", "int16", "int8", "uint8")
DOORS = ("compile", "export", "compile dynamic", "export dynamic")
FIRST = {"n": 5, "m": 3}
"""The values of the dynamic sizes with which a function is drawn and traced."""

SIZES = ({"n": 2, "m": 7}, {"n": 1, "m": 4}, {"n": 0, "m": 2}, {"n": 6, "m": 1}, {"n": 3, "m": 0})
"""Those of the further calls."""

_MOST_ELEMENTS = 1500


@dataclass(frozen=True)
class Input:
    """An input of a function.

    In its shape ``n`` and ``m`` are dynamic sizes. ``seed`` gives its elements, or ``data`` has them.
    """

    shape: tuple[int | str, ...]
    dtype: str
    layout: str
    seed: int
    special: bool
    data: torch.Tensor | None = None

    def tensor(self, sizes: dict[str, int]) -> torch.Tensor:
        """Returns the tensor for these values of the sizes."""
        if self.data is not None:
            return self.data.clone()
        shape = [sizes[e] if isinstance(e, str) else e for e in self.shape]
        return laid_out(drawn(shape, self.dtype, self.seed, self.special), self.layout)


def drawn(shape: Sequence[int], dtype: str, seed: int, special: bool) -> torch.Tensor:
    """Returns a tensor of small numbers, which has NaN, infinities, -0.0 or the ends of the type where ``special``."""
    rng = np.random.default_rng(seed)
    kind = getattr(torch, dtype)
    if dtype == "bool":
        return torch.from_numpy(rng.integers(0, 2, shape).astype(bool).reshape(shape))
    if not kind.is_floating_point:
        span = torch.iinfo(kind)
        data = rng.integers(0 if dtype == "uint8" else -8, 9, shape)
        if special:
            data = np.where(rng.random(shape) < 0.3, rng.choice([span.min, span.max], shape), data)
        return torch.from_numpy(np.asarray(data)).to(kind)
    data = rng.integers(-32, 33, shape) / 8 if rng.random() < 0.5 else rng.normal(size=shape)
    if special:
        data = np.where(rng.random(shape) < 0.3, rng.choice([math.nan, math.inf, -math.inf, -0.0, 0.0], shape), data)
    return torch.from_numpy(np.asarray(data, np.float64)).to(kind)


LAYOUTS = ("plain", "plain", "transposed", "strided", "offset", "expanded", "reversed dims")


def laid_out(t: torch.Tensor, layout: str) -> torch.Tensor:
    """Returns a tensor of the same elements that lies otherwise in memory; an expanded one repeats the first row."""
    if layout == "transposed" and t.ndim > 1:
        return t.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "reversed dims" and t.ndim > 1:
        order = list(range(t.ndim))[::-1]
        return t.permute(order).contiguous().permute(order)
    if layout == "strided" and t.ndim:
        wide = torch.zeros((*t.shape[:-1], 2 * t.shape[-1]), dtype=t.dtype)
        wide[..., ::2] = t
        return wide[..., ::2]
    if layout == "offset":
        wide = torch.zeros(t.numel() + 3, dtype=t.dtype)
        wide[3:] = t.flatten()
        return wide[3:].view(t.shape)
    if layout == "expanded" and t.ndim and t.shape[0]:
        return t[:1].clone().expand(t.shape)
    return t


@dataclass(frozen=True)
class Statement:
    """A line of a function, and the name that it gives a value, if it does."""

    text: str
    name: str = ""


@dataclass(frozen=True)
class Function:
    """A function: its inputs by name, statements, the names that it returns, and the door through which it goes."""

    inputs: tuple[tuple[str, Input], ...]
    statements: tuple[Statement, ...]
    results: tuple[str, ...]
    door: str

    @property
    def source(self) -> str:
        lines = [f"def f({', '.join(name for name, _ in self.inputs)}):", *[f"    {s.text}" for s in self.statements]]
        return "\n".join([*lines, f"    return {', '.join(self.results)}{',' if len(self.results) == 1 else ''}"])

    def made(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        """Returns the function. Its text is kept where tracebacks and torch.compile look for it."""
        scope: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(self.source, "<random function>", "exec"), scope)
        return scope["f"]

    def given(self, sizes: dict[str, int]) -> list[torch.Tensor]:
        return [one.tensor(sizes) for _, one in self.inputs]

    @property
    def is_dynamic(self) -> bool:
        return "dynamic" in self.door

    def script(self, sizes: dict[str, int]) -> str:
        """Returns a program that shows the results of eager and of the door; the tensors are those of the sizes."""
        made = [f"{name} = {_written(t)}" for (name, _), t in zip(self.inputs, self.given(sizes), strict=True)]
        traced = made if sizes == FIRST or not self.is_dynamic else [
            f"{name} = {_written(t)}" for (name, _), t in zip(self.inputs, self.given(FIRST), strict=True)
        ]  # fmt: skip
        names = ", ".join(name for name, _ in self.inputs) + ","
        lines = ["import torch", "from math import inf, nan", "import torch.nn.functional as F", "import tilewright as tw", "", self.source, ""]  # fmt: skip
        if "compile" in self.door:
            lines.append(
                f'fast = torch.compile(f, backend="tilewright", dynamic={self.is_dynamic}, options={{"strict": True}})'
            )
            if traced is not made:
                lines += [*traced, f"fast({names[:-1]})"]
        else:
            dims = [
                {d: "torch.export.Dim.AUTO" for d, e in enumerate(i.shape) if isinstance(e, str)}
                for _, i in self.inputs
            ]
            shown = "".join("{" + ", ".join(f"{d}: {e}" for d, e in one.items()) + "}, " for one in dims)
            lines += ["class M(torch.nn.Module):", f"    def forward(self, {names[:-1]}):", f"        return f({names[:-1]})", "", *traced,
                      f"program = torch.export.export(M(), ({names}), dynamic_shapes=(({shown}),), strict=False)" if self.is_dynamic else
                      f"program = torch.export.export(M(), ({names}), strict=False)",
                      'fast = tw.build(tw.from_torch(program), target="native -num-cores=1")']  # fmt: skip
        given = names[:-1] if "compile" in self.door else f"*[t.contiguous() for t in ({names})]"
        return "\n".join([*lines, *made, f"print(f({names[:-1]}))", *made, f"print(fast({given}))"])


def _written(t: torch.Tensor) -> str:
    """Returns an expression that makes a tensor with its strides."""
    plain = (
        f"torch.tensor({t.tolist()!r}, dtype={t.dtype})"
        if t.numel()
        else f"torch.empty({tuple(t.shape)}, dtype={t.dtype})"
    )
    if t.is_contiguous() and not t.storage_offset():
        return plain
    reach = (
        t.storage_offset() + 1 + sum((e - 1) * s for e, s in zip(t.shape, t.stride(), strict=True)) if t.numel() else 1
    )
    if 0 in t.stride():
        return f"torch.tensor({t.clone()[:1].tolist()!r}, dtype={t.dtype}).expand{tuple(t.shape)}"
    return f"torch.zeros({reach}, dtype={t.dtype}).as_strided({tuple(t.shape)}, {t.stride()}, {t.storage_offset()}).copy_({plain})"


@dataclass
class Draw:
    """A function while it is drawn. Each statement is run at once, and left out when PyTorch refuses it."""

    rng: random.Random
    dynamic: bool
    inputs: list[tuple[str, Input]] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    scope: dict[str, Any] = field(default_factory=dict)
    main: str = "float32"

    def pick(self, kind: str = "", rank: int = 0, most: int = 9) -> str | None:
        """Returns the name of a value: ``float``, ``int``, ``bool`` or, for an empty kind, any; younger ones more often."""
        fit = [k for k, t in self.scope.items() if rank <= t.ndim <= most and kind in ("", _kind(t))]
        return self.rng.choice(fit[-4:] if self.rng.random() < 0.6 else fit) if fit else None

    def shape(self, v: str) -> torch.Size:
        return self.scope[v].shape

    def other(self, v: str, same: bool = False) -> str | None:
        """Returns a value to which ``v`` broadcasts, or of the same shape and mostly the same data type."""
        shape = self.shape(v)
        fit = [k for k, t in self.scope.items() if (t.shape == shape if same else _broadcast(t.shape, shape))]
        alike = [k for k in fit if self.scope[k].dtype == self.scope[v].dtype]
        return self.rng.choice(alike if alike and self.rng.random() < 0.6 else fit)

    def axis(self, v: str) -> int:
        rank = len(self.shape(v))
        return self.rng.randrange(-rank, rank) if rank else self.rng.choice([0, -1])

    def size(self, v: str, d: int) -> str:
        """Returns a size as text: the size of the value, mostly, where sizes are dynamic."""
        return f"{v}.shape[{d}]" if self.dynamic and self.rng.random() < 0.9 else str(self.shape(v)[d])

    def number(self) -> str:
        return self.rng.choice(["0", "1", "2", "-1", "3", "0.5", "-1.5", "2.25", "True"])

    def index(self, v: str, d: int, count: int | None = None) -> str:
        """Returns a tensor of places along an axis as text."""
        extent = self.shape(v)[d] if self.shape(v) else 1
        low = 1 if self.dynamic else max(extent, 1)
        return str([self.rng.randrange(low) for _ in range(self.rng.randint(0, 4) if count is None else count)])

    def add(self, text: str, in_place: bool = False) -> bool:
        """Run a statement, and keep it when PyTorch takes it and the result is not too large."""
        name = "" if in_place else f"v{len(self.statements)}"
        scope = {"torch": torch, "F": F, **self.scope}
        line = text if in_place else f"{name} = {text}"
        try:
            exec(line, scope)
        except Exception:
            return False
        made = [] if in_place else scope[name] if isinstance(scope[name], (tuple, list)) else [scope[name]]
        if any(not isinstance(t, torch.Tensor) or t.numel() > _MOST_ELEMENTS or t.ndim > 5 or str(t.dtype)[6:] not in (*FLOATS, *INTS, "bool") for t in made):  # fmt: skip
            return False
        if in_place:
            self.statements.append(Statement(text))
            return True
        if isinstance(scope[name], (tuple, list)):
            if not made:
                return False
            self.statements.append(Statement(line, name))
            for n in sorted(self.rng.sample(range(len(made)), min(2, len(made)))):
                part = f"v{len(self.statements)}"
                self.scope[part] = made[n]
                self.statements.append(Statement(f"{part} = {name}[{n}]", part))
            return True
        self.scope[name] = scope[name]
        self.statements.append(Statement(line, name))
        return True


def _kind(t: torch.Tensor) -> str:
    return "bool" if t.dtype == torch.bool else "float" if t.dtype.is_floating_point else "int"


def _broadcast(a: torch.Size, b: torch.Size) -> bool:
    return len(a) <= len(b) and all(i in (1, j) for i, j in zip(a[::-1], b[::-1], strict=False))


# Templates: {v} is a value, {w} one that broadcasts with it, {s} one of its shape, {d} an axis, {k} a number.
# The word before the colon says which kind of value {v} is, and the least rank.
UNARY = """
torch.sigmoid torch.tanh torch.exp torch.log torch.sqrt torch.rsqrt torch.sin torch.cos torch.tan torch.atan torch.asin torch.acos
torch.sinh torch.cosh torch.asinh torch.acosh torch.atanh torch.erf torch.erfc torch.lgamma torch.digamma torch.erfinv torch.expm1
torch.log1p torch.log2 torch.log10 torch.exp2 torch.abs torch.neg torch.relu torch.floor torch.ceil torch.round torch.trunc
torch.frac torch.sign torch.sgn torch.signbit torch.isnan torch.isinf torch.isfinite torch.isposinf torch.reciprocal torch.square
torch.nan_to_num torch.positive torch.sinc torch.special.entr torch.special.log_ndtr torch.special.ndtr torch.special.i0 torch.logical_not
torch.deg2rad F.silu F.gelu F.mish F.hardswish F.hardsigmoid F.softplus F.elu F.selu F.celu F.leaky_relu F.softsign F.tanhshrink
F.hardshrink F.softshrink F.relu6 F.hardtanh F.logsigmoid torch.bitwise_not torch.zeros_like torch.ones_like torch.logit
""".split()
BINARY = """
torch.add torch.sub torch.mul torch.div torch.maximum torch.minimum torch.fmax torch.fmin torch.atan2 torch.hypot torch.copysign
torch.logaddexp torch.logaddexp2 torch.fmod torch.remainder torch.floor_divide torch.heaviside torch.xlogy torch.gcd torch.lcm
torch.bitwise_and torch.bitwise_or torch.bitwise_xor torch.logical_and torch.logical_or torch.logical_xor torch.eq torch.ne torch.lt
torch.le torch.gt torch.ge torch.isclose torch.float_power torch.pow torch.ldexp torch.nextafter torch.special.xlog1py torch.rsub
""".split()
TEMPLATES = """
any:{v} + {k}|any:{k} - {v}|any:{v} * {k}|any:{k} / {v}|any:{v} // {k}|any:{v} % {k}|any:{v} ** 2|any:abs({v}) ** 0.5|any:{k} < {v}
any:torch.add({v}, {w}, alpha=2)|any:torch.div({v}, {w}, rounding_mode="trunc")|any:torch.div({v}, {w}, rounding_mode="floor")
any:torch.clamp({v}, -1, 2)|any:torch.clamp({v}, max={k})|any:torch.where({v} > 0, {v}, {w})|any:torch.where({v} != 0, {k}, {s})
float:torch.round({v}, decimals=1)|float:torch.lerp({v}, {s}, 0.25)|float:torch.addcmul({v}, {s}, {s})|float:F.threshold({v}, 0.5, 2.0)
float:F.gelu({v}, approximate="tanh")|float:F.softplus({v}, 2.0, 1.0)|float:torch.addcdiv({v}, {s}, {s}, value=0.5)|any:{v}.clip({w}, None)
int:{v} << 2|int:{v} >> 1|int:{v} ** 3|int:torch.pow({v}, 0)|int:torch.bitwise_left_shift({v}, 1)|int:-{v}|bool:~{v}|any:torch.logical_xor({v}, {w})
1:{v}.sum({d})|any:{v}.sum()|1:{v}.sum({d}, keepdim=True)|2:{v}.sum((0, -1))|1:{v}.sum({d}, dtype=torch.float64)|1:{v}.prod({d})|float:{v}.mean()
float1:{v}.mean({d}, keepdim=True)|1:torch.amax({v}, {d})|1:torch.amin({v}, {d}, keepdim=True)|1:torch.max({v}, {d})|1:torch.min({v}, {d})|any:{v}.max()|any:{v}.min()
1:torch.argmax({v}, {d})|any:torch.argmin({v})|1:torch.argmin({v}, {d}, keepdim=True)|float1:torch.var({v}, {d})|float1:torch.std({v}, {d}, correction=0)
float1:torch.var_mean({v}, {d})|float1:torch.std_mean({v}, {d}, keepdim=True)|float1:torch.logsumexp({v}, {d})|1:torch.any({v}, {d})|any:torch.all({v})|any:torch.any({v})
1:torch.count_nonzero({v}, {d})|1:torch.cumsum({v}, {d})|1:torch.cumprod({v}, {d})|1:torch.cummax({v}, {d})|1:torch.cummin({v}, {d})|float1:torch.logcumsumexp({v}, {d})
1:torch.median({v}, {d})|any:torch.median({v})|float1:torch.nanmedian({v}, {d})|1:torch.nansum({v}, {d})|float1:torch.nanmean({v}, {d})|float1:torch.norm({v}, dim={d})
float1:torch.linalg.vector_norm({v}, 1)|float1:torch.linalg.vector_norm({v}, 3, {d})|float1:torch.linalg.vector_norm({v}, float("inf"), {d})
float1:torch.linalg.vector_norm({v}, 0)|float1:torch.linalg.vector_norm({v}, float("-inf"))|1:torch.aminmax({v}, dim={d})|1:torch.kthvalue({v}, 1, {d})[0]|1:torch.mode({v}, {d})[0]
float1:torch.softmax({v}, {d})|float1:torch.log_softmax({v}, {d})|float1:F.softmin({v}, {d})|1:torch.sort({v}, {d}, stable=True)|1:torch.argsort({v}, {d}, stable=True)
1:torch.topk({v}, 1, {d})[0]|1:torch.sort({v}, {d}, descending=True, stable=True)|1:torch.diff({v}, dim={d})|float1:torch.trapezoid({v}, dim={d})|float1:F.normalize({v}, dim={d})
float1:torch.quantile({v}, 0.5, {d})|float1:torch.cosine_similarity({v}, {s}, {d})|float1:F.layer_norm({v}, {v}.shape[-1:])|float:F.mse_loss({v}, {s})|float:F.l1_loss({v}, {s})
float:F.smooth_l1_loss({v}, {s})|float:F.huber_loss({v}, {s}, reduction="none")|float:torch.dist({v}, {s})|float1:F.glu(torch.cat([{v}, {v}], {d}), {d})
2:{v}.t()|2:{v}.transpose(0, -1)|2:{v}.mT|2:{v}.permute({p})|2:{v}.movedim(0, -1)|1:{v}.flip({d})|1:torch.roll({v}, {i}, {d})|any:torch.roll({v}, 2)|2:torch.rot90({v})|2:torch.fliplr({v})
any:{v}.unsqueeze({e})|any:{v}.squeeze()|1:{v}.squeeze({d})|any:{v}.flatten()|any:{v}.reshape(-1)|2:{v}.flatten(0, 1)|2:{v}.reshape({z}, -1)|1:{v}.view({v}.shape[::-1])
any:{v}.expand(2, *{v}.shape)|1:{v}.unflatten({d}, (-1, 1))|1:{v}.narrow({d}, 0, 1)|1:{v}.select({d}, 0)|1:{v}.select({d}, -1)|1:{v}[{i}:]|1:{v}[..., :{i}]|1:{v}[::2]|2:{v}[:, 1:]
1:{v}[..., None, {i}:{j}]|2:{v}[-1, ..., ::3]|2:{v}.diagonal()|2:{v}.diagonal({i}, 0, -1)|1:{v}.unfold({d}, 2, 1)|1:{v}.unfold({d}, 1, 2)|1:{v}.split(2, {d})|1:{v}.chunk(2, {d})
1:torch.tensor_split({v}, 2, {d})|1:torch.unbind({v}, {d})|any:{v}.contiguous()|any:{v}.clone()|any:{v}.detach()|1:torch.tile({v}, (2,))|1:{v}.repeat(2, *[1] * {v}.ndim)
1:torch.repeat_interleave({v}, 2, {d})|1:torch.cat([{v}, {v}], {d})|1:torch.cat([{v}, {s}], {d})|any:torch.stack([{v}, {s}], {e})|1:torch.hstack([{v}, {s}])|any:torch.vstack([{v}, {s}])
2:torch.tril({v}, {i})|2:torch.triu({v}, {i})|1:torch.diag_embed({v})|1:torch.diag({v}.flatten())|2:torch.tril({v})|any:torch.atleast_2d({v})|1:torch.meshgrid({v}.flatten()[:3], {v}.flatten()[:2], indexing="ij")
1:F.pad({v}, (1, 2), value=1)|1:F.pad({v}, (-1, 1))|2:F.pad({v}, (1, 0, 0, 2))|2:F.pad({v}, (1, 1), mode="reflect")|2:F.pad({v}, (2, 1), mode="replicate")|2:F.pad({v}, (1, 1), mode="circular")
1:{v}[torch.tensor({x}, dtype=torch.int64)]|2:{v}[:, {xl}]|2:{v}[{xl}, {xl}]|2:{v}[..., torch.tensor({xl})]|1:torch.index_select({v}, {d}, torch.tensor({xd}, dtype=torch.int64))|1:{v}[[-1]]|1:{v}[torch.tensor(-1)]
1:torch.gather({v}, {d}, torch.zeros_like({v}, dtype=torch.int64))|1:torch.gather({v}, {d}, torch.argsort({v}, {d}, stable=True))|1:torch.take({v}, torch.tensor([0, -1]))|1:torch.take_along_dim({v}, torch.argmax({v}, {d}, keepdim=True), {d})
any:torch.masked_fill({v}, {v} > 0, {k})|any:{v}.masked_fill({s} == 0, 2)|any:torch.full_like({v}, {k})|1:torch.scatter({v}, {d}, torch.zeros_like({v}, dtype=torch.int64), {s})|1:torch.scatter({v}, {d}, torch.zeros_like({v}, dtype=torch.int64), 2)
1:torch.scatter_add({v}, {d}, torch.zeros_like({v}, dtype=torch.int64), {s})|1:torch.scatter_reduce({v}, {d}, torch.zeros_like({v}, dtype=torch.int64), {s}, "amax")|1:torch.scatter_reduce({v}, {d}, torch.zeros_like({v}, dtype=torch.int64), {s}, "mean", include_self=False)
1:torch.index_add({v}, 0, torch.tensor([0, 0]), {v}[:1].expand(2, *{v}.shape[1:]))|1:torch.index_copy({v}, 0, torch.tensor([0]), {v}[-1:])|1:torch.index_fill({v}, {d}, torch.tensor([0]), 1)|1:torch.index_put({v}, (torch.tensor([0, -1]),), {v}[0])
1:torch.index_put({v}, (torch.tensor([0, 0]),), {v}[0], accumulate=True)|any:torch.masked_scatter({v}, {v} > 0, {s})|1:torch.select_scatter({v}, {v}.select({d}, 0), {d}, -1)|1:torch.slice_scatter({v}, {v}.narrow({d}, 0, 1), {d}, 0, 1)
1:torch.slice_scatter({v}, {v}[::2] + 1, 0, 0, None, 2)|2:torch.diagonal_scatter({v}, {v}.diagonal() * 2)|any:F.one_hot({v}.clamp(0, 3).long(), 4)|any:torch.bucketize({v}, torch.tensor([-1.0, 0.0, 2.0]))|any:F.embedding({v}.clamp(0, 2).long(), torch.arange(6.0).reshape(3, 2))
1:{v} + torch.arange({v}.shape[-1])|1:{v} * {v}.shape[0]|any:{v} + {v}.numel()|1:torch.arange({v}.shape[0], dtype=torch.float32) / 2|1:torch.zeros({v}.shape[0], 2) + {v}.ndim|1:torch.eye({v}.shape[-1])|1:torch.linspace(0, 1, 4) * {v}.shape[0]
2:{v} @ {v}.mT|2:{v}.mT @ {v}|1:{v} @ {v}.flatten()[: {v}.shape[-1]]|2:torch.einsum("...ij,...kj->...ik", {v}, {v})|1:torch.outer({v}.flatten()[:5], {v}.flatten()[:4])|1:torch.kron({v}[:2], {v}[:1])|1:torch.dot({v}.flatten(), {s}.flatten())
float1:F.linear({v}, torch.ones(3, {v}.shape[-1], dtype={v}.dtype) / 2)|float2:torch.cdist({v}, {v})|2:torch.addmm({v}.mT @ {v}, {v}.mT, {v})|2:torch.tensordot({v}, {v}, ([0], [0]))|1:torch.inner({v}, {v})|2:torch.baddbmm({v}, {v}, {v}.mT)
float3:F.conv1d({v}[..., 0:4].flatten(0, -3), torch.ones(2, {v}.shape[-2], 3, dtype={v}.dtype) / 4, padding=1)|float3:F.max_pool1d({v}.flatten(0, -3), 2, 1)|float3:F.avg_pool1d({v}.flatten(0, -3), 3, 2, 1)|float3:F.adaptive_avg_pool1d({v}.flatten(0, -3), 2)
float3:F.max_pool2d({v}, 2, 1, 1)|float3:F.avg_pool2d({v}, 3, 1, 1)|float4:F.interpolate({v}, scale_factor=2)|float4:F.interpolate({v}, size=(3, 4), mode="bilinear")|float3:F.adaptive_max_pool2d({v}, 2)|float4:F.conv2d({v}, torch.ones(2, {v}.shape[1], 2, 2, dtype={v}.dtype), stride=2)
float3:F.group_norm({v}, 1)|float3:F.instance_norm({v})|float2:F.batch_norm({v}, torch.zeros({v}.shape[1]), torch.ones({v}.shape[1]))|float3:F.scaled_dot_product_attention({v}, {v}, {v})|float2:F.cross_entropy({v}, torch.zeros({v}.shape[0], dtype=torch.int64))
any:{v}.to(torch.float32)|any:{v}.to(torch.float64)|any:{v}.to(torch.float16)|any:{v}.to(torch.bfloat16)|any:{v}.bool()|int:{v}.to(torch.int8)|int:{v}.to(torch.uint8)|int:{v}.to(torch.int32)|int:{v}.long()|bool:{v}.to(torch.int16)|bool:{v}.int()
float:torch.nan_to_num({v}).clamp(0, 100).to(torch.uint8)|float:torch.nan_to_num({v}).clamp(-100, 100).to(torch.int8)|float:torch.nan_to_num({v}).clamp(-100, 100).long()|any:{v}.type_as({w})|any:torch.broadcast_tensors({v}, {w})|1:torch.as_strided({v}.contiguous(), (2,), (1,))
2:torch.matmul({v}.float(), {v}.float().mT)|2:torch.cov({v}.float())|1:torch.searchsorted(torch.sort({v})[0], {v})|1:torch.combinations({v}.flatten()[:3])|2:torch.vander({v}.flatten()[:3])|any:torch.real({v})|1:torch.block_diag({v}.flatten()[:2], {v}.flatten()[:2])
2:torch.cross({v}[..., :3], {v}[..., :3], dim=-1)|2:torch.trace({v})|any:{v}.swapaxes(0, -1)|1:torch.renorm({v}[None].float(), 2, 0, 1.0)|any:{v}.expand_as({s})|any:{v}.view_as({s})|float:{v}.view(torch.int32)|2:torch.column_stack([{v}, {v}])|2:F.pixel_shuffle({v}[None], 1)
"""
IN_PLACE = """
any:{v}.add_(1)|any:{v}.mul_({k})|any:{v}.sub_({w})|any:{v}.clamp_(-1, 2)|any:{v}.fill_({k})|any:{v}.zero_()|any:{v}.copy_({w})|any:{v}.masked_fill_({v} > 0, 1)|float:{v}.sigmoid_()|float:{v}.relu_()|any:{v}.neg_()|float:{v}.exp_()
1:{v}[0] = {k}|1:{v}[{i}:] = {k}|1:{v}[::2] += 1|1:{v}[..., -1] = {v}[..., 0]|any:{v}[{v} > 0] = {k}|2:{v}.t()[0] = 2|2:{v}.transpose(0, -1).mul_(2)|any:{v}.view(-1)[:2].add_(1)|2:{v}[:, 0].zero_()|2:{v}.diagonal().fill_(3)|1:{v}[[0, -1]] = {k}
1:{v}.index_add_(0, torch.tensor([0]), {v}[:1].clone())|1:{v}.scatter_({d}, torch.zeros_like({v}, dtype=torch.int64), 3)|1:{v}.index_fill_({d}, torch.tensor([0]), 2)|1:{v}.cumsum_({d})|2:{v}.t_()|any:{v}.unsqueeze_({e})|any:{v}.squeeze_()|2:{v}.tril_()|1:{v}[1:] = {v}[:-1].clone()
2:{v}[0], {v}[-1] = {v}[-1].clone(), {v}[0].clone()|1:{v}.narrow({d}, 0, 1).add_(5)|any:{v}.logical_not_()|1:{v}.index_put_((torch.tensor([0, 0]),), {v}[0].clone(), accumulate=True)|any:{v}.expand(2, *{v}.shape)[0].add_(1)|1:{v}.split(1, {d})[0].mul_(3)|float:{v}.nan_to_num_()
"""


def _rows(text: str) -> list[tuple[str, int, str]]:
    """Returns the kind of value, the least rank, and the text of each template."""
    rows = []
    for row in re.split(r"\|(?=(?:any|float|int|bool)?\d?:)|\n", text.strip()):
        kind, _, template = row.partition(":")
        word, rank = re.fullmatch(r"([a-z]*)(\d?)", kind).groups()  # type: ignore[union-attr]
        rows.append(("" if word == "any" else word, int(rank or 0), template))
    return rows


_CALLS = [*_rows(TEMPLATES), *[("", 0, f"{f}({{v}})") for f in UNARY], *[("", 0, f"{f}({{v}}, {{w}})") for f in BINARY]]
_CHANGES = _rows(IN_PLACE)


def _filled(n: Draw, template: str, v: str) -> str:
    rank, d = len(n.shape(v)), n.axis(v)
    order = n.rng.sample(range(rank), rank)
    words = {
        "v": v, "w": n.other(v), "s": n.other(v, same=True), "d": d, "k": n.number(), "e": n.rng.randint(-1, rank), "p": str(order)[1:-1],
        "i": n.rng.choice([0, 1, -1, 2]), "j": n.rng.choice([-1, 2, 3]), "z": n.size(v, 0) if rank else 1, "x": n.index(v, 0),
        "xl": n.index(v, -1 if "..." in template else min(1, rank - 1), 2), "xd": n.index(v, d),
    }  # fmt: skip
    if template.startswith("{v}[{xl}, {xl}]") and rank > 1:
        return f"{v}[{n.index(v, 0, 2)}, {n.index(v, 1, 2)}]"
    return re.sub(r"\{(v|w|s|d|k|e|p|i|j|z|x|xl|xd)\}", lambda m: str(words[m[1]]), template)


def random_function(seed: int) -> Function:
    """Returns the function of a seed."""
    rng = random.Random(seed)
    door = DOORS[seed % len(DOORS)]
    n = Draw(rng, "dynamic" in door, main=rng.choice(["float32", "float32", "float32", *FLOATS, *INTS, "bool"]))
    common = [rng.choice([2, 3, 4, 3, 2, 1, 5, 7]) for _ in range(4)]
    if not n.dynamic and rng.random() < 0.12:
        common[rng.randrange(4)] = 0
    if n.dynamic:
        for d in {rng.randrange(1, 4), rng.randrange(4)}:
            common[d] = rng.choice(["n", "m"])
    special = rng.random() < 0.15
    for k in range(rng.choice([1, 2, 2, 3])):
        rank = rng.choice([0, 1, 2, 2, 3, 3, 4]) if k else rng.choice([1, 2, 2, 3, 3, 4])
        shape = tuple(common[4 - rank :])
        if k and rng.random() < 0.2:
            shape = tuple([1 if rng.random() < 0.4 else e for e in shape])
        dtype = n.main if rng.random() < 0.7 else rng.choice([*FLOATS, *INTS, "bool"])
        one = Input(shape, dtype, rng.choice(LAYOUTS), rng.randrange(2**31), special)
        n.inputs.append((f"x{k}", one))
        n.scope[f"x{k}"] = one.tensor(FIRST)
    changes_inputs = door.startswith("compile") and rng.random() < 0.15
    wanted, tries = rng.randint(1, 9), 0
    while len(n.statements) < wanted and tries < 100:
        tries += 1
        in_place = rng.random() < 0.15
        kind, rank, template = rng.choice(_CHANGES if in_place else _CALLS)
        v = n.pick(kind, rank)
        if v is None or in_place and not changes_inputs and _shares(n.scope[v], [n.scope[k] for k, _ in n.inputs]):
            continue
        n.add(_filled(n, template, v), in_place)
    used = " ".join(s.text.split("=", 1)[-1] for s in n.statements)
    mine = [k for k in n.scope if k not in dict(n.inputs)]
    leaves = [k for k in mine if not re.search(rf"\b{k}\b", used)] or list(n.scope)[-1:]
    results = rng.sample(leaves, min(len(leaves), 3)) + ([rng.choice(list(n.scope))] if rng.random() < 0.3 else [])
    if not mine:
        return random_function(seed + 1_000_003 * 4)
    return Function(tuple(n.inputs), tuple(n.statements), tuple(results), door)


def _shares(t: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    return any(t.untyped_storage()._cdata == o.untyped_storage()._cdata for o in others)


class Moved(TorchDispatchMode):
    """Moves each result of an inexact operation by up to one machine epsilon."""

    exact = re.compile(
        r"aten\.(_?(to_copy|copy|clone|floor|ceil|round|trunc|abs|neg|relu|where|max|min|amax|amin|maximum|minimum|sign|sort|index|gather|"
        r"take|cat|stack|zeros|ones|full|empty|arange|fill|eye|flip|roll|tril|triu|pad|constant_pad_nd|masked_fill|scatter|clamp|"
        r"slice_scatter|select_scatter|repeat|zero|new_\w+|\w+_like|lift_fresh))_?\."
    )

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        fresh = [r.alias_info is None or r.alias_info.is_write for r in func._schema.returns]
        if not self.exact.match(str(func)):
            for t, is_new in zip(out if isinstance(out, (tuple, list)) else [out], fresh, strict=False):
                if is_new and isinstance(t, torch.Tensor) and t.dtype.is_floating_point and 0 not in t.stride():
                    wide = torch.rand(t.shape, generator=self.generator, dtype=torch.float64) * 2 - 1
                    t.copy_(t.to(torch.float64) * (1 + torch.finfo(t.dtype).eps * wide))
        return out


Results = list[torch.Tensor]


def _all_of(run: Callable[..., Any], given: Results) -> Results:
    """Returns the results of a call, those in tuples one after the other, and its inputs after it."""
    return [*tree_leaves(run(*given)), *given]


def tolerance(one: Function, sizes: dict[str, int]) -> float:
    """Returns what may differ, relative to the largest finite element of a result."""
    seen = [torch.finfo(t.dtype).eps for t in _values_of(one, sizes) if t.dtype.is_floating_point]
    return 16 * (1 + len(one.statements)) * max(seen, default=0.0)


def _cancelled(one: Function, sizes: dict[str, int]) -> float:
    """Returns the largest product of two values, where differences of products may cancel; else 0."""
    if not any("cross(" in s.text for s in one.statements):
        return 0.0
    values = [t for t in _values_of(one, sizes) if t.dtype.is_floating_point and t.numel()]
    return max([float(torch.nan_to_num(t.double(), 0, 0, 0).abs().max()) ** 2 for t in values], default=0.0)


def _values_of(one: Function, sizes: dict[str, int]) -> Iterator[torch.Tensor]:
    """Yields all values of a function."""
    scope: dict[str, Any] = {"torch": torch, "F": F, **dict(zip(dict(one.inputs), one.given(sizes), strict=True))}
    for s in one.statements:
        exec(s.text, scope)
    yield from [t for t in scope.values() if isinstance(t, torch.Tensor)]


def _difference(
    got: torch.Tensor, want: torch.Tensor, allowed: float, spread: torch.Tensor | None = None, least: float = 1e-3
) -> str:
    """Returns what is wrong with a result, or nothing; ``least`` is the least magnitude that ``allowed`` is relative to."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{tuple(got.shape)} instead of {want.dtype}{tuple(want.shape)}"
    if not want.dtype.is_floating_point:
        bad = (got != want) & (spread == 0 if spread is not None else True)
    else:
        a, b = got.double(), want.double()
        scale = b[b.isfinite()].abs().max().item() if b.isfinite().any() else 1.0
        limit = allowed * max(scale, least) + (0 if spread is None else 8 * spread)
        bad = ~((a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= limit))
    if not bad.any():
        return ""
    place = tuple(bad.nonzero()[0].tolist())
    return f"{int(bad.sum())} of {bad.numel()} differ, first {got[place].item()!r} instead of {want[place].item()!r} at {place}"


def _spread(run: Callable[..., Any], one: Function, sizes: dict[str, int], want: Results) -> list[torch.Tensor]:
    """Returns how far the results move when each operation is moved by a rounding."""
    out = [torch.zeros(t.shape, dtype=torch.float64) for t in want]
    for seed in range(4):
        with torch.no_grad(), Moved(seed):
            moved = _all_of(run, one.given(sizes))
        for k, (a, b) in enumerate(zip(moved, want, strict=True)):
            a, b = a.double(), b.double()
            away = torch.where(
                (a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs().nan_to_num(nan=math.inf, posinf=math.inf)
            )
            out[k] = torch.maximum(out[k], away)
    return out


def _memory(tensors: Results) -> list[list[bool]]:
    """Returns which tensors share memory, of those that have some."""
    some = [t.untyped_storage().data_ptr() if t.numel() else k for k, t in enumerate(tensors)]
    return [[a == b for b in some] for a in some]


class Hung(Exception):
    """Raised when a function takes far longer than others."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise Hung after so long."""

    def ring(*_: Any) -> None:
        raise Hung(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Unusable(Exception):
    """Raised when PyTorch itself does not take a function."""


class Exported(torch.nn.Module):
    """A function as a module, which torch.export asks for."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *given: torch.Tensor) -> Any:
        return self.run(*given)


def _door(one: Function, run: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns what the door makes of a function, and what says which sizes PyTorch itself takes."""
    if "compile" in one.door:
        torch._dynamo.reset()
        return torch.compile(run, backend=tw.torch.backend, dynamic=one.is_dynamic, options={"strict": True}), run
    try:
        dims = tuple(
            {d: torch.export.Dim.AUTO for d, e in enumerate(i.shape) if isinstance(e, str)} or None
            for _, i in one.inputs
        )
        more = {"dynamic_shapes": (dims,)} if one.is_dynamic else {}
        program = torch.export.export(Exported(run), tuple(one.given(FIRST)), strict=False, **more)
        program.run_decompositions()
    except Exception as error:
        raise Unusable(f"{type(error).__name__}: {error}") from error
    graph = tw.from_torch(program)
    unbounded = {d.name for v in graph.inputs for d in v.shape if hasattr(d, "name")} - set(graph.bounds)
    built = tw.build(graph, target="native -num-cores=1", bounds=dict.fromkeys(unbounded, 16))

    def call(*given: torch.Tensor) -> list[torch.Tensor]:
        made = built(*[to_array(t) for t in given])
        return [_tensor(a) for a in (made if isinstance(made, (tuple, list)) else [made])]

    return call, program.module()


def _tensor(a: Any) -> torch.Tensor:
    if a.dtype.name in ("bfloat16", "uint16"):  # bfloat16 is given as its bits; no function has uint16
        return torch.from_numpy(np.array(a.view(np.uint16))).view(torch.bfloat16)
    return torch.from_numpy(np.array(a))


@dataclass(frozen=True)
class Outcome:
    """What came of a function: ``equal``, ``doubtful``, ``refused``, ``unusable`` or ``finding``; a message, and the sizes."""

    kind: str
    message: str = ""
    sizes: dict[str, int] = field(default_factory=lambda: FIRST)

    @property
    def key(self) -> str:
        """Returns the message without numbers, names and places: the same for findings that are probably one."""
        line = self.message.split("\n")[0]
        if "operators that are not supported" in line:
            names = sorted(set(re.findall(r"((?:aten|prims)[.][\w.]+)", line)))
            return f"{self.kind}: not supported: {', '.join(names)}"
        text = re.sub(r"\([^()]*(:\d+|[vx]\d+|_\d+)\)", "", line)
        return f"{self.kind}: {re.sub(r'[vxs]?[0-9][0-9.e+-]*|nan|inf', '#', text)[:200]}"


_SORTED = re.compile(r"torch\.(mode|kthvalue)\(")
_ASSERTED = "have to lie within"
"""What a kernel says at the call when a size that was not there when the program was traced leaves its arrays."""


def _failed(error: BaseException, sizes: dict[str, int]) -> Outcome:
    """Returns whether an exception is a refusal of the library or a finding."""
    inner: BaseException = error
    while True:
        deeper = getattr(inner, "inner_exception", None) or (
            inner.__cause__ if "torch" in type(inner).__module__.split(".")[0] else None
        )
        if deeper is None:
            break
        inner = deeper
    text = f"{type(inner).__name__}: {inner}"
    if type(inner).__module__.startswith("tilewright") or _ASSERTED in text:
        return Outcome("refused", text, sizes)
    where = [
        f for f in traceback.extract_tb(inner.__traceback__) if "tilewright" in f.filename and "tests" not in f.filename
    ]
    if not where:
        return Outcome("unusable", text, sizes)
    return Outcome("finding", f"{text.splitlines()[0]} [{Path(where[-1].filename).name} {where[-1].name}]", sizes)


def checked(one: Function) -> Outcome:
    """Returns what came of a function."""
    run = one.made()
    forget()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            want = _all_of(run, one.given(FIRST))
        except Exception as error:
            return Outcome("unusable", f"{type(error).__name__}: {error}")
        try:
            with limited(60):
                fast, reference = _door(one, run)
        except Unusable as error:
            return Outcome("unusable", str(error))
        except Hung as error:
            return Outcome("finding", f"hangs: {error}")
        except Exception as error:
            return _failed(error, FIRST)
        result = _compared(one, run, fast, FIRST, want)
        if result.kind != "equal" or not one.is_dynamic:
            return result
        further = 1 if "compile" in one.door else 3  # torch.compile compiles again for sizes of 0 and 1
        for sizes in random.Random(one.source).sample(SIZES, further):
            try:
                want = _all_of(run, one.given(sizes))
                stated = _all_of(reference, one.given(sizes))
            except Exception:
                continue  # sizes that the function does not take
            if [t.shape for t in stated] != [t.shape for t in want] or (1 in sizes.values() and "queeze" in one.source):
                continue  # what was traced has another rank, as squeeze() has where a size becomes 1
            result = _compared(one, run, fast, sizes, want)
            if result.kind != "equal":
                return result
    return result


def _compared(
    one: Function, run: Callable[..., Any], fast: Callable[..., Any], sizes: dict[str, int], want: Results
) -> Outcome:
    given = one.given(sizes)
    try:
        with limited(60):
            got = _all_of(fast, given)
    except Hung as error:
        return Outcome("finding", f"hangs: {error}", sizes)
    except Exception as error:
        return _failed(error, sizes)
    if len(got) != len(want):
        return Outcome("finding", f"{len(got) - len(given)} results instead of {len(want) - len(given)}", sizes)
    allowed, spread, doubt, least = tolerance(one, sizes), None, "", max(1e-3, _cancelled(one, sizes))
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        problem = _difference(a, b, allowed, None, least)
        if problem and a.dtype == b.dtype and a.shape == b.shape:
            doubt = problem
            spread = spread or _spread(run, one, sizes, want)
            problem = _difference(a, b, allowed, spread[k])
        if problem and _SORTED.search(one.source) and any(t.isnan().any() for t in _values_of(one, sizes)):
            return Outcome("unusable", "eager finds modes and places among NaN in no order", sizes)
        if problem and "interpolate(" in one.source and any(t.isinf().any() for t in _values_of(one, sizes)):
            return Outcome("unusable", "PyTorch's own decomposition multiplies infinities by weights of 0", sizes)
        if problem and _depends_on_strides(one, run, sizes, want):
            return Outcome("unusable", f"eager gives something else for contiguous inputs: {problem}", sizes)
        if problem:
            what = f"result {k}" if k < len(want) - len(given) else "an input after the call"
            return Outcome("finding", f"{what}: {problem}", sizes)
    if "compile" in one.door and _memory(got) != _memory(want):
        return Outcome("finding", "other results share memory than in eager", sizes)
    return Outcome("doubtful", doubt, sizes) if doubt else Outcome("equal", "", sizes)


def _depends_on_strides(one: Function, run: Callable[..., Any], sizes: dict[str, int], want: Results) -> bool:
    """Returns whether eager itself gives other results for contiguous copies of the inputs, where strides mean nothing."""
    if "as_strided" in one.source or any("stride" in s.text for s in one.statements):
        return False
    plain = _all_of(run, [t.clone(memory_format=torch.contiguous_format) for t in one.given(sizes)])
    allowed = tolerance(one, sizes)
    results = len(want) - len(one.inputs)
    return any(a.shape != b.shape or bool(_difference(a, b, allowed)) for a, b in zip(plain[:results], want[:results], strict=True))  # fmt: skip


def shrunk(one: Function, found: Outcome, most: int = 60) -> tuple[Function, Outcome]:
    """Returns the smallest function found that fails in the same way: fewer results, statements, and inputs as they come."""
    tries = 0
    again = True
    while again and tries < most:
        again = False
        for smaller in _smaller(one):
            tries += 1
            if tries > most:
                break
            result = checked(smaller)
            if result.kind == found.kind and result.key.split(":")[:2] == found.key.split(":")[:2]:
                one, found, again = smaller, result, True
                break
    return one, found


def _smaller(one: Function) -> Iterator[Function]:
    """Yields functions with less: one result, without a statement, with an input for a value, with plain inputs."""
    if len(one.results) > 1:
        for k in range(len(one.results)):
            yield _trimmed(replace(one, results=one.results[k : k + 1]))
        for k in range(len(one.results)):
            yield _trimmed(replace(one, results=one.results[:k] + one.results[k + 1 :]))
    if not one.is_dynamic:
        scope: dict[str, Any] = {"torch": torch, "F": F, **dict(zip(dict(one.inputs), one.given(FIRST), strict=True))}
        fronts = []
        for k, s in enumerate(one.statements):
            exec(s.text, scope)
            if s.name and isinstance(scope[s.name], torch.Tensor):
                v = scope[s.name].clone()
                kept = (*one.inputs, (s.name, Input(tuple(v.shape), str(v.dtype)[6:], "plain", 0, False, v)))
                fronts.append(
                    _trimmed(replace(one, inputs=kept, statements=one.statements[:k] + one.statements[k + 1 :]))
                )
        yield from (f for f in reversed(fronts) if len(f.statements) < len(one.statements))
    for k in reversed(range(len(one.statements))):
        rest = one.statements[:k] + one.statements[k + 1 :]
        name = one.statements[k].name
        if name and any(re.search(rf"\b{name}\b", s.text) for s in rest):
            continue
        left = tuple(r for r in one.results if r != name) or tuple([s.name for s in rest if s.name][-1:])
        if left:
            yield _trimmed(replace(one, statements=rest, results=left))
    for k, (name, i) in enumerate(one.inputs):
        plainer = (
            [replace(i, layout="plain", data=None if i.data is None else i.data.contiguous())]
            if i.layout != "plain"
            else []
        )
        for new in [*plainer, *([replace(i, special=False)] if i.special else [])]:
            yield replace(one, inputs=(*one.inputs[:k], (name, new), *one.inputs[k + 1 :]))


def _trimmed(one: Function) -> Function:
    """Returns a function without statements and inputs that nothing reads; changes in place stay while their value is there."""
    kept: list[Statement] = []
    needed = set(one.results)
    for s in reversed(one.statements):
        names = set(re.findall(r"\b[vx]\d+\b", s.text))
        if not s.name or s.name in needed:
            kept.insert(0, s)
            needed |= names
    inputs = tuple((n, i) for n, i in one.inputs if n in needed) or one.inputs[:1]
    return replace(one, inputs=inputs, statements=tuple(kept))


def done_rows(rows: Path) -> dict[int, dict[str, Any]]:
    """Returns the rows of a file by seed; the seed during which the process ended is a finding."""
    done = {r["seed"]: r for r in map(json.loads, rows.read_text().splitlines())} if rows.exists() else {}
    now = rows.with_suffix(".now")
    if now.exists() and (seed := int(now.read_text())) not in done:
        one = random_function(seed)
        row = {"seed": seed, "door": one.door, "kind": "finding", "key": "finding: the process ended", "message": "the process ended", "script": one.script(FIRST)}  # fmt: skip
        done[seed] = row
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
    return done


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Returns counts by kind and door, of the refusals by message, and of the findings."""
    lines = [f"{len(rows)} functions: {dict(Counter(r['kind'] for r in rows))}"]
    for kind in ("refused", "finding"):
        lines += [
            f"{count:5} {key}" for key, count in Counter(r["key"] for r in rows if r["kind"] == kind).most_common()
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, help="how many (200)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--rows", type=Path, help="a file of JSON lines, with which a run goes on")
    parser.add_argument("--no-shrink", action="store_true", help="leave findings as they are")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--full", action="store_true", help="schedule and optimize kernels as builds usually do")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with nullcontext() if asked.full else cheap_builds():
        _run(asked)


def _run(asked: argparse.Namespace) -> None:
    done = done_rows(asked.rows) if asked.rows else {}
    seen = {r["key"] for r in done.values()}
    begin = time.monotonic()
    for seed in range(asked.seed, asked.seed + asked.n):
        if seed in done:
            continue
        if time.monotonic() - begin > asked.seconds:
            break
        if asked.rows:
            asked.rows.with_suffix(".now").write_text(str(seed))
        start = time.monotonic()
        one = random_function(seed)
        found = checked(one)
        key = found.key
        if key not in seen and found.kind in ("finding", "refused"):
            if not asked.no_shrink:
                one, found = shrunk(one, found)
            print(f"# seed {seed}: {found.kind}: {found.message[:600]}\n{one.script(found.sizes)}\n", flush=True)
        seen |= {key, found.key}
        row = {"seed": seed, "door": one.door, "kind": found.kind, "key": found.key, "message": found.message[:600],
               "statements": len(one.statements), "seconds": round(time.monotonic() - start, 2)}  # fmt: skip
        if found.kind in ("finding", "doubtful", "refused"):
            row["script"] = one.script(found.sizes)
        done[seed] = row
        if asked.rows:
            with asked.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(summary([done[s] for s in sorted(done)]))


if __name__ == "__main__":
    main()

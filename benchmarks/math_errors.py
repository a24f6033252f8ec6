"""This script measures the errors of mathematical functions in ULPs: all 2**32 float32 values, and float64 samples.

``nice -n 19 python benchmarks/math_errors.py exp tanh … [--sample N] [--float64 N] [--update docs/reference/math.md]``

Each function is compiled and run on every bit pattern of float32, NaN, infinities, denormals and both zeros among
them, and compared with NumPy's float64 function (SciPy's for erf and gelu). One ULP is the distance of neighbouring
float32 around the exact result: a correctly rounded result is at most 0.5 off. ``steps`` counts the float32 between
the result and the correctly rounded one. A wrong special value, a lost NaN or a zero of the wrong sign counts as an
infinite error. float64 is sampled and compared with NumPy's long double (erf and gelu with series in long double). ``--update`` replaces the functions' rows in a Markdown table.
All of float32 takes a minute or two for each function.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.tir.expr import Expr, const, op
from tilewright.tir.expr.intrinsics import operation_named
from tilewright.tir.expr.intrinsics.number_operations import abs_, erf, isfinite, isnan, reinterpret

CHUNK = 1 << 15  # the arrays of a chunk fit into the level-2 cache
Reference = Callable[..., Any]


def _sigmoid(x: Any) -> Any:
    t = np.exp(-np.abs(x))
    return np.where(x >= 0, x.dtype.type(1), t) / (1 + t)


def _areas(a: Any, power: Any) -> tuple[Any, Any]:
    """(Phi(a) - 1/2, Phi(-a)) of long doubles a >= 0, from power = exp(-a**2 / 2): a series of positive terms below 2, a
    continued fraction beyond (Abramowitz and Stegun, 26.2.11 and 26.2.14)."""
    density = power / np.sqrt(8 * np.arctan(np.longdouble(1)))
    near, far = np.minimum(a, 2), np.clip(a, 2, 60)
    total = term = near
    for k in range(1, 60):
        term = term * near * near / (2 * k + 1)
        total = total + term
    fraction = far
    for k in range(300, 0, -1):
        fraction = far + k / fraction
    middle, tail = density * total, density / fraction
    half = np.longdouble(0.5)
    return np.where(a < 2, middle, half - tail), np.where(a < 2, half - middle, tail)


def _power(a: Any, factor: float) -> Any:
    """exp(factor * a**2) of long doubles that are float64: the square is taken in two parts, each exact."""
    high = a.astype(np.float32).astype(np.longdouble)
    low = a - high
    return np.exp(factor * high * high) * np.exp(factor * low * (high + a))


def _erf(x: Any) -> Any:
    if x.dtype == np.longdouble:
        a = np.minimum(np.abs(x), 40)
        return np.copysign(2 * _areas(a * np.sqrt(np.longdouble(2)), _power(a, -1.0))[0], x)
    from scipy.special import erf  # the reference of two functions only

    return erf(x)


def _gelu(x: Any) -> Any:
    if x.dtype == np.longdouble:
        a = np.minimum(np.abs(x), 60)
        middle, tail = _areas(a, _power(a, -0.5))
        exact = np.where(x < 0, np.where(x < -37.5, -0.0, x * tail), x * (np.longdouble(0.5) + middle))
        return np.where(x == -math.inf, math.nan, exact)
    from scipy.special import erfc

    exact = np.where(x < -13, -0.0, x * 0.5 * erfc(x * -math.sqrt(0.5)))  # below -13: 0, see docs/reference/math.md
    return np.where(x == -math.inf, math.nan, exact)


UNARY: dict[str, Reference] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(x.dtype.type(10), x), "expm1": np.expm1, "log": np.log,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "tanh": np.tanh, "sigmoid": _sigmoid, "erf": _erf,
    "gelu": _gelu, "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
BINARY: dict[str, Reference] = {"pow": np.power, "atan2": np.arctan2, "hypot": np.hypot, "fmod": np.fmod}


@dataclass
class Worst:
    """The largest error so far and where it is."""

    ulp: float = 0.0
    where: tuple[float, ...] = ()
    steps: int = 0
    wrong: int = 0

    def see(self, error: np.ndarray, *xs: np.ndarray) -> None:
        """Update the worst error with the errors at ``xs``."""
        i = int(error.argmax())
        if error[i] > self.ulp:
            self.ulp, self.where = float(error[i]), tuple([float(x[i]) for x in xs])
            if math.isinf(self.ulp):
                self.wrong += int(np.isinf(error).sum())


def apply(name: str, *args: Any) -> Expr:
    """Returns the function as an expression of the compiler."""
    if name == "gelu":
        (x,) = args
        return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)  # what te.ops.gelu declares
    return operation_named(name)(*args)


def with_errors(name: str, arguments: int, target: str) -> tw.Module:
    """``f(*xs, want, error, steps)``: the function of float32 against its float64 values."""
    xs = [te.placeholder((CHUNK,), "float32", name=f"x{n}") for n in range(arguments)]
    want = te.placeholder((CHUNK,), "float64", name="want")
    y = te.compute((CHUNK,), lambda i: apply(name, *[x[i] for x in xs]), name="y")

    def bits(x: Expr) -> Expr:
        return reinterpret("int32", x)

    def error(i: Any) -> Expr:
        got, exact = y[i], want[i]
        best = exact.astype("float32")
        exponent = op.max_(op.min_((bits(best) >> 23) & 255, 254), 1)
        scale = (1023 + 150 - exponent).astype("int64") << 52
        off = abs_(got.astype("float64") - exact) * reinterpret("float64", scale)
        same = op.any_(bits(got).equal(bits(best)), op.all_(isnan(got), isnan(best)))
        bad = op.any_(isnan(got), isnan(best), op.all_(got.equal(0.0), best.equal(0.0)))
        off = op.select(same, op.select(isfinite(off), off, 0.0), op.select(bad, math.inf, off))
        return off.astype("float32")

    def steps(i: Any) -> Expr:
        def place(x: Expr) -> Expr:
            b = bits(x)
            return op.select(b < 0, -2147483648 - b, b)

        got, best = y[i], want[i].astype("float32")
        apart = abs_(place(got) - place(best))
        return op.select(op.any_(isnan(got), isnan(best)), const(0), apart)

    e = te.compute((CHUNK,), error, name="error")
    s = te.compute((CHUNK,), steps, name="steps")
    return tw.build(te.create_prim_func([*xs, want, e, s]), target=target)


def patterns(sample: int | None) -> Iterator[np.ndarray]:
    """Returns all float32, or about ``sample`` of them evenly spread, a chunk at a time."""
    step = 1 if sample is None else max(1, (1 << 32) // sample) | 1
    count = ((1 << 32) + step - 1) // step
    first = np.arange(CHUNK, dtype=np.uint32) * np.uint32(step & 0xFFFFFFFF)
    for start in range(0, count, CHUNK):
        yield (first + np.uint32(start * step & 0xFFFFFFFF)).view(np.float32)


SPECIAL = np.array(
    [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0**-149, -(2.0**-149), 2.0**-126, -(2.0**-126), 3.4e38,
     -3.4e38]
)  # fmt: skip


def pairs(count: int, dtype: type, seed: int = 1) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Arguments of functions of two: all pairs of special values, then random ones of all sizes and near each other."""
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(SPECIAL, SPECIAL)
    yield _padded(x, dtype), _padded(y, dtype)
    for n in range(0, count, CHUNK):
        reach = (4, 30, 100)[n // CHUNK % 3]
        a, b = [rng.choice([-1, 1, 1, 1], CHUNK) * np.exp2(rng.uniform(-reach, reach, CHUNK)) for _ in range(2)]
        if n // CHUNK % 4 == 3:
            a = 1 + rng.uniform(-0.3, 0.3, CHUNK)
        yield a.astype(dtype), b.astype(dtype)


def _padded(x: np.ndarray, dtype: type) -> np.ndarray:
    return np.resize(x.ravel().astype(dtype), CHUNK)


def measure32(name: str, sample: int | None, target: str) -> Worst:
    """Returns the largest error of a float32 function."""
    out = Worst()
    reference = UNARY.get(name) or BINARY[name]
    arguments = 1 if name in UNARY else 2
    f = with_errors(name, arguments, target)
    error, steps = np.empty(CHUNK, np.float32), np.empty(CHUNK, np.int32)
    chunks: Iterator[Any] = pairs(sample or 1 << 26, np.float32)
    if arguments == 1:
        chunks = ((x,) for c in (iter([_padded(SPECIAL, np.float32)]), patterns(sample)) for x in c)
    for xs in chunks:
        want = np.asarray(reference(*[x.astype(np.float64) for x in xs]))
        f(*xs, want, error, steps)
        out.see(error, *xs)
        out.steps = max(out.steps, int(steps.max()))
    return out


def samples64(count: int, seed: int = 1) -> Iterator[np.ndarray]:
    """float64 values: all bit patterns alike, sizes from 2**-40 to 2**12, and an even spread."""
    rng = np.random.default_rng(seed)
    yield _padded(SPECIAL, np.float64)
    for n in range(max(1, count // CHUNK)):
        yield rng.integers(0, 1 << 64, CHUNK, dtype=np.uint64).view(np.float64)
        yield rng.choice([-1, 1], CHUNK) * np.exp2(rng.uniform(-40, 12, CHUNK))
        yield rng.uniform(-(2.0 ** (n % 8)), 2.0 ** (n % 8), CHUNK)


def measure64(name: str, count: int, target: str) -> Worst | None:
    """Returns the largest error of a float64 function over samples; None where there is no wider reference."""
    if np.finfo(np.longdouble).eps > 1e-18:
        return None
    out = Worst()
    reference = UNARY.get(name) or BINARY[name]
    arguments = 1 if name in UNARY else 2
    places = [te.placeholder((CHUNK,), "float64", name=f"x{n}") for n in range(arguments)]
    y = te.compute((CHUNK,), lambda i: apply(name, *[x[i] for x in places]), name="y")
    f = tw.build(te.create_prim_func([*places, y]), target=target)
    got = np.empty(CHUNK)
    for xs in pairs(count, np.float64) if arguments == 2 else ((x,) for x in samples64(count)):
        f(*xs, got)
        exact = reference(*[x.astype(np.longdouble) for x in xs])
        best = exact.astype(np.float64)
        off = np.abs(got - exact) / np.spacing(np.minimum(np.abs(best), 1.7e308))
        same = (got.view(np.int64) == best.view(np.int64)) | (np.isnan(got) & np.isnan(best))
        bad = np.isnan(got) | np.isnan(best) | ((got == 0) & (best == 0))
        off = np.where(same, np.where(np.isfinite(off), off, 0), np.where(bad, math.inf, off))
        out.see(off.astype(np.float64), *xs)
    return out


def row(name: str, w32: Worst, w64: Worst | None) -> list[str]:
    """Returns a line of the table."""
    where = ", ".join([f"{x:.9g}" for x in w32.where]) or "–"
    double = "–" if w64 is None else f"{w64.ulp:.2f}"
    return [name, f"{w32.ulp:.2f}", str(w32.steps), where, double]


def update(path: Path, name: str, cells: list[str]) -> None:
    """Put the figures into the row of the function in a Markdown table; a cell without a new figure stays."""
    text = path.read_text(encoding="utf-8")

    def replaced(m: re.Match[str]) -> str:
        old = [c.strip() for c in m.group(0).strip("|").split("|")]
        new = [o if c == "–" else c for o, c in zip(old, cells, strict=False)]
        return "| " + " | ".join([old[0], *new[1:], *old[len(cells) :]]) + " |"

    new, found = re.subn(rf"^\| `{name}` \|.*\|$", replaced, text, flags=re.M)
    if not found:
        raise SystemExit(f"{path} has no row for {name}")
    path.write_text(new, encoding="utf-8")


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", nargs="*", default=[*UNARY, *BINARY], help="all of them when none is named")
    parser.add_argument("--sample", type=int, help="so many values of float32 instead of all")
    parser.add_argument("--float64", type=int, default=1 << 20, help="how many values of float64 (0: none)")
    parser.add_argument("--target", default="native -num-cores=1")
    parser.add_argument("--update", type=Path, help="a Markdown file whose rows are to be replaced")
    options = parser.parse_args()
    print(f"{'function':10s} {'float32':>8s} {'steps':>6s}  {'worst input':28s} {'float64':>8s}", flush=True)
    for name in options.functions:
        with np.errstate(all="ignore"):
            w32 = measure32(name, options.sample, options.target)
            w64 = measure64(name, options.float64, options.target) if options.float64 else None
        cells = row(name, w32, w64)
        spot = "" if w64 is None else "  at " + ", ".join([repr(x) for x in w64.where])
        print(f"{cells[0]:10s} {cells[1]:>8s} {cells[2]:>6s}  {cells[3]:28s} {cells[4]:>8s}{spot}", flush=True)
        if options.update is not None:
            update(options.update, name, cells)


if __name__ == "__main__":
    main()

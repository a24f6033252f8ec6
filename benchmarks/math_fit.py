"""This script fits the tables of ``codegen/math/lookup_tables.py``: polynomials of degree 5 on sixteen intervals each.

``python benchmarks/math_fit.py gelu erf tanh`` prints them as they stand there. It needs mpmath.

An interval's polynomial is the minimax one (Lawson's iteration: least squares whose weights move to where the error is
largest; C. Lawson, thesis, UCLA 1961) of the relative error, in a - centre. The centre lies near the middle, at a float32 where the
first coefficient is nearly one as well (after S. Gal, "An accurate elementary mathematical library for the IEEE floating
point standard", ACM TOMS 17, 1991). The other coefficients are rounded one by one, and those after it fitted anew.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable

import mpmath
import numpy as np

from tilewright.codegen.math.lookup_tables import BEND, ERF, GELU, STEP, TANH, PiecewisePolynomial

DEGREE, NODES = 5, 120
Function = Callable[[float], float]
"""What a polynomial is to be: a number from a number, to float64's precision."""


def minimax(columns: np.ndarray, wanted: np.ndarray, turns: int = 60) -> np.ndarray:
    """The combination of the columns whose largest difference from ``wanted`` is least, nearly."""
    size = np.abs(columns).max(axis=0)
    weights, best, least = np.full(len(wanted), 1 / len(wanted)), None, np.inf
    for _ in range(turns):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(columns / size * root[:, None], wanted * root, rcond=None)[0] / size
        error = np.abs(columns @ found - wanted)
        if error.max() < least:
            least, best = error.max(), found
        weights = weights * (error / error.max() + 1e-3)
        weights /= weights.sum()
    assert best is not None
    return best


def rounded_one_by_one(
    x: np.ndarray, wanted: np.ndarray, weight: np.ndarray, known: list[float], first: int, last: int
) -> tuple[list[float], float]:
    """float32 coefficients of x**first … x**last, after those known; the largest weighted error."""
    have = list(known)

    def lacks() -> np.ndarray:
        return np.asarray(wanted - sum(c * x ** (first + k) for k, c in enumerate(have))) * weight

    while first + len(have) <= last:
        columns = np.stack([x**k * weight for k in range(first + len(have), last + 1)], axis=1)
        have.append(float(np.float32(minimax(columns, lacks(), 30)[0])))
    return have, float(np.abs(lacks()).max())


def nodes(low: float, high: float) -> np.ndarray:
    """Chebyshev nodes of an interval."""
    return (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)


def fitted(f: Function, scale: Function, low: float, high: float, known: float | None) -> tuple[list[float], float]:
    """(centre, coefficients) of f on an interval, and the largest error in units of ``scale``. ``known``: the interval
    begins at zero, f is zero there, and is fitted without ``known`` * x."""
    x = nodes(low, high)
    wanted, weight = np.array([f(v) for v in x]), 1 / np.array([scale(v) for v in x])
    if known is not None:
        have, error = rounded_one_by_one(x, wanted - known * x, weight, [], 1, DEGREE)
        return [0.0, 0.0, *have], error
    middle = float(np.float32((low + high) / 2))
    columns = np.stack([(x - middle) ** k * weight for k in range(DEGREE + 1)], axis=1)
    whole = np.polynomial.Polynomial(minimax(columns, wanted * weight, 100))
    places = [float(np.float32(middle + k * (high - low) / 2000)) for k in range(-40, 41)]
    values = [float(whole(p - middle)) for p in places]
    firsts = [(float(np.float32(v)), v) for v in values]
    _, centre, first = min((abs(short - v), p, short) for (short, v), p in zip(firsts, places, strict=True))
    have, error = rounded_one_by_one(x - centre, wanted, weight, [first], 0, DEGREE)
    return [centre, *have], error


def table(
    pieces: PiecewisePolynomial, f: Function, scale: Function, odd: bool
) -> tuple[list[list[float]], list[float]]:
    """The rows of a table, by the interval's number, and the errors."""
    rows: dict[int, list[float]] = {}
    errors: dict[int, float] = {}
    for low, high in pieces.intervals():
        at = pieces.number((low + high) / 2)
        assert at not in rows, "two intervals of one number"
        rows[at], errors[at] = fitted(f, scale, low, high, float(pieces.apart) if odd and low == 0 else None)
    spare = rows[pieces.number(pieces.limit * 0.999)]
    return [rows.get(k, spare) for k in range(16)], [errors.get(k, 0.0) for k in range(16)]


def gelu(a: float) -> float:
    """f - 1 with a * Phi(-a) = min(a, limit of the first kind) / 2 * 2**n * exp(-r / 2 * ...) * f; see lookup_tables."""
    x = mpmath.mpf(a)
    share = 2 * mpmath.log(2) / STEP
    value = mpmath.erfc(x / mpmath.sqrt(2)) * mpmath.exp(share * x * x / 2)
    return float(value * max(x / BEND, 1) - 1)


def power_of_step() -> None:
    """exp(-r * log(2) / STEP) - 1, which is 2**(-r / STEP) - 1, over r on |r| <= STEP / 2."""
    x = nodes(-STEP / 2 * 1.0001, STEP / 2 * 1.0001)
    wanted = np.array([float(mpmath.expm1(-mpmath.log(2) / STEP * mpmath.mpf(v))) for v in x])
    have, error = rounded_one_by_one(x, wanted, 1 / (1 + wanted), [], 1, 6)
    print(f"POWER = ({', '.join([shortest(c) for c in have])})  # 2**{np.log2(error):.1f}")


def shortest(value: float) -> str:
    """The shortest decimal that is this float32."""
    return repr(float(str(np.float32(value))))


FUNCTIONS: dict[str, tuple[PiecewisePolynomial, Function, Function, bool]] = {
    "gelu": (GELU, gelu, lambda a: 1 + gelu(a), False),
    "erf": (ERF, lambda a: float(mpmath.erf(a)), lambda a: float(mpmath.erf(a)), True),
    "tanh": (TANH, lambda a: float(mpmath.tanh(a)), lambda a: float(mpmath.tanh(a)), True),
}


def main() -> None:
    """Print the tables that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("functions", nargs="*", default=list(FUNCTIONS), help="all of them when none is named")
    options = parser.parse_args()
    mpmath.mp.dps = 40
    for name in options.functions:
        rows, errors = table(*FUNCTIONS[name])
        print(f"{name.upper()}_TABLE: Sequence[Sequence[float]] = (  # 2**{np.log2(max(errors)):.1f}")
        for column in zip(*rows, strict=True):
            text = ", ".join([shortest(v) for v in column])
            print(textwrap.fill(f"({text}),", 116, initial_indent="    ", subsequent_indent="     "))
        print(")  # fmt: skip")
        if name == "gelu":
            power_of_step()


if __name__ == "__main__":
    main()

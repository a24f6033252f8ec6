"""Every rewrite rule on graphs drawn from its pattern, at the edges of the types, against the graph that is not rewritten.

A rule is exact, NaN, the infinities and signs of zeros included, unless a table below says by how much it may round. The
tables are those of docs/guides/models.md, "What rewriting may change".
"""

import warnings
import zlib

import numpy as np
import pytest

from tilewright.graph import GraphError, evaluate
from tilewright.graph.algebra import RULES as ALGEBRA
from tilewright.graph.passes import fold_scales, split_transposed
from tilewright.graph.patterns import RULES as PATTERNS
from tilewright.graph.rules import Rule, any_value, constant, numbers_of, op, rewritten
from tilewright.tir.expr import DType

from .graphs_of_rules import FINFO, NARROW, drawn_graph, magnitudes, widened

RULES = [*ALGEBRA, *PATTERNS, *fold_scales.RULES, *split_transposed.RULES]

ROUNDED = {
    "constants_meet": 2, "reciprocal_of_root": 2, "product_with_itself": 1, "short_power": 2, "division_by_root": 3,
    "gelu": 16, "gelu_approximate_tanh": 16, "sigmoid": 4, "silu": 4, "swiglu": 2, "hardsigmoid": 4, "hardswish": 4, "elu": 4,
    "elu_alpha_1": 4, "celu": 4, "celu_alpha_1": 4, "softplus": 4, "mish": 16, "logaddexp": 4, "softmax": 16, "scaled_norm": 3,
    "rms_norm": 16,
}  # fmt: skip
"""Units in the last place of the right value by which an element may differ, where the written steps do not err more."""

SUMS = {
    "batch_norm", "scale_of_product", "shift_of_product", "product_of_scaled", "product_of_shifted", "transposed", "of_single_pixels",
    "product_of_quantized", "product_of_quantized_with_bias", "attention", "layer_norm", "shifted_norm",
}  # fmt: skip
"""Sums of other numbers, or in another order: they err by units of the sum of the magnitudes of their terms."""

UNITS_OF_SUMS = 16

FINITE = {"transposed", "of_single_pixels", "attention", "layer_norm", "shifted_norm"}
"""Rules that are compared for finite operands: NaN and infinities reach more places, or magnitudes say nothing of them."""

OPEN_ZEROS = {"maximum_with_zero", "between_bounds", "clip_of_clip", "batch_norm", "scale_of_product", "shift_of_product",
              "product_of_scaled", "product_of_shifted", "transposed", "of_single_pixels", "maximum_by_dimension",
              "reduction_of_one", "minimum_of_positive"}  # fmt: skip
"""Rules that may give the other zero: of maxima of two zeros, and of sums."""

TYPES = (*FINFO, *NARROW, "int32", "float32")
HITS, TRIES = 6, 3000


def differences(rule, graph, after, arrays, dtype):
    """Returns what is wrong with the rewritten graph; '' for nothing."""
    with np.errstate(all="ignore"):
        (want,), (got,) = evaluate(graph, *arrays), evaluate(after, *arrays)
    (out,) = graph.outputs
    want, got = numbers_of(want, out.dtype), numbers_of(got, out.dtype)
    same = (want == got) | (np.isnan(want) & np.isnan(got)) if want.dtype.kind == "f" else want == got
    if want.dtype.kind == "f" and rule.name not in OPEN_ZEROS | ROUNDED.keys() | SUMS:
        same &= (want != 0) | (np.signbit(want) == np.signbit(got))
    if want.dtype.kind == "f" and rule.name in ROUNDED.keys() | SUMS:
        same |= close(rule, graph, arrays, want.astype(np.float64), got.astype(np.float64), out.dtype)
    if same.all():
        return ""
    at = np.argwhere(~same)[0]
    return f"{rule.name}, {dtype}: {got[tuple(at)]} in place of {want[tuple(at)]} at {at}\n{graph}\n{after}\n{arrays}"


def close(rule, graph, arrays, want, got, dtype):
    """Returns where a result is as near as the rule's table says to the written steps, or to the right values."""
    most, tiny, eps = FINFO[dtype]
    with np.errstate(all="ignore"):
        try:
            (exact,) = evaluate(*_flat(widened(graph, arrays)))
        except GraphError:  # functions of integers are float32
            exact = want
        if rule.name in SUMS:
            (size,) = evaluate(*_flat(magnitudes(graph, arrays)))
            allowed = UNITS_OF_SUMS * eps * np.abs(size) + 2.0**-90 * (most > 1e5)
        else:
            allowed = ROUNDED[rule.name] * eps * np.abs(exact) + 4 * tiny * eps
            allowed = allowed + (8 * eps if rule.name.startswith("gelu") else 0.0)  # 1 + tanh and 1 + erf cancel
        near = np.abs(got - want) <= allowed
        better = np.abs(got - exact) <= np.maximum(2 * np.abs(want - exact), allowed)
        if rule.name != "constants_meet" and rule.name not in SUMS:  # functions do not overflow in between
            near |= ~np.isfinite(want) & (
                better | ((np.abs(exact) >= most * (1 - eps)) & (got == np.sign(exact) * np.inf))
            )
            better &= np.isfinite(want)
        last = np.abs(exact) >= most * (1 - ROUNDED.get(rule.name, UNITS_OF_SUMS) * eps)
        return near | (better & np.isfinite(want) & np.isfinite(got)) | last & (np.sign(got) == np.sign(want))


def _flat(pair):
    graph, arrays = pair
    return graph, *arrays


def examples(rule, tries=TRIES, hits=HITS):
    """Yields graphs that the rule changes, before and after."""
    rng = np.random.default_rng(zlib.crc32(rule.name.encode()))
    found = 0
    for n in range(tries):
        dtype = TYPES[n % len(TYPES)]
        try:
            graph, arrays = drawn_graph(rule, rng, dtype, rule.name in SUMS)
        except (GraphError, ValueError, IndexError, OverflowError):
            continue
        if rule.name in FINITE and not all(np.isfinite(numbers_of(a, v.dtype)).all() and np.all(np.abs(numbers_of(a, v.dtype)) < 1e6)
               for v, a in [*zip(graph.inputs, arrays, strict=True), *graph.constants.items()] if DType(v.dtype).is_float):  # fmt: skip
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            after = rewritten(graph, [rule])
        if after is not graph:
            found += 1
            yield graph, after, arrays, dtype
        if found == hits:
            return


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_a_rule_holds_where_it_is_applied(rule):
    seen = 0
    for graph, after, arrays, dtype in examples(rule):
        seen += 1
        wrong = differences(rule, graph, after, arrays, dtype)
        assert not wrong, wrong
    assert seen, f"no graph was drawn that {rule.name} changes"


def _folded_without_care(m):
    c, d = m.array("c"), m.array("d")
    with np.errstate(all="ignore"):
        total = c + d if m.root.op == "add" else c * d
    return m.op(m.root.op, m["x"], m.constant(total, m["c"].dtype)) if c.shape == d.shape else None


@pytest.mark.parametrize("name", ["add", "multiply"])
def test_a_rule_without_care_is_caught(name):
    pattern = op(name, op(name, any_value("x"), constant("c")), constant("d"))
    careless = Rule("constants_meet", pattern, _folded_without_care)
    wrong = [differences(careless, *example) for example in examples(careless, hits=60)]
    assert any(wrong)

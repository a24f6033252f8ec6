"""Converters of ensembles of decision trees, as scikit-learn, LightGBM and XGBoost are exported (domain ai.onnx.ml).

All trees are tables of nodes. A loop as long as the deepest tree moves from a node to the next one, for each row and tree; a
leaf is its own next node. The weights of the leaves that are reached are then added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.builder import add_scan
from ...graph.graph import Value
from .call import OnnxCall, register_onnx_operator
from .other_domains import transformed

_HOLDS = {"LEQ": "less_equal", "LT": "less", "GTE": "greater_equal", "GT": "greater", "EQ": "equal", "NEQ": "not_equal"}
"""The operators of the comparisons that lead to the first branch."""

Table = np.ndarray[Any, Any]


class _Trees:
    """The nodes of all trees side by side: what each compares and where it leads, and the weights of leaves."""

    def __init__(self, c: OnnxCall, kind: str, targets: int) -> None:
        self.c, self.targets = c, targets
        trees, numbers = (np.asarray(c.attr(n), np.int64) for n in ("nodes_treeids", "nodes_nodeids"))
        place = {key: n for n, key in enumerate(zip(trees.tolist(), numbers.tolist(), strict=True))}
        names, modes = sorted(set(trees.tolist())), [m.removeprefix("BRANCH_") for m in c.attr("nodes_modes")]
        leaf = np.array([m == "LEAF" for m in modes])
        self.comparisons = sorted({m for m in modes if m != "LEAF"})
        if unknown := [m for m in self.comparisons if m not in _HOLDS]:
            raise c.error(f"the mode {unknown[0]} is not supported")
        self.mode = np.array([self.comparisons.index(m) if m in self.comparisons else 0 for m in modes])
        self.feature = np.where(leaf, 0, np.asarray(c.attr("nodes_featureids"), np.int64))
        self.limit = np.where(leaf, 0, self.numbers("nodes_values"))
        self.missing = np.asarray(c.attr("nodes_missing_value_tracks_true") or np.zeros(len(leaf)), bool)
        self.next = []
        for attribute in ("nodes_truenodeids", "nodes_falsenodeids"):
            given = zip(trees.tolist(), c.attr(attribute), leaf, range(len(leaf)), strict=True)
            self.next.append(np.array([n if end else place[t, to] for t, to, end, n in given], np.int64))
        led_to = {int(n) for side in self.next for n, own in zip(side, range(len(leaf)), strict=True) if n != own}
        self.roots = np.array([next(n for n in np.flatnonzero(trees == t) if int(n) not in led_to) for t in names])
        self.weights, self.given = np.zeros((2, len(leaf), targets))
        ends = [c.attr(f"{kind}_{what}") for what in ("treeids", "nodeids", "ids")]
        for t, n, target, weight in zip(*ends, self.numbers(f"{kind}_weights"), strict=True):
            self.weights[place[t, n], target] += weight
            self.given[place[t, n], target] = 1
        self.depth = self._depth(leaf)

    def numbers(self, name: str) -> Table:
        """Returns an attribute of numbers, which is a list or, of float64, a tensor."""
        tensor = self.c.attr(f"{name}_as_tensor")
        return np.asarray(self.c.attr(name, ()), np.float32) if tensor is None else np.ravel(tensor)

    def _depth(self, leaf: Table) -> int:
        """Returns the steps from a root to the deepest leaf."""
        at, depth = np.unique(self.roots), 0
        while not leaf[at].all():
            at, depth = np.unique(np.concatenate([side[at] for side in self.next])), depth + 1
            if depth > len(leaf):
                raise self.c.error("a tree has a cycle")
        return depth

    def reached(self, x: Value) -> Value:
        """Returns the number of the leaf that each row of ``x`` reaches in each tree."""
        c, columns = self.c, x.shape[1]
        if isinstance(columns, int) and self.feature.max(initial=0) >= columns:
            raise c.error(f"it compares column {self.feature.max()} of {x.type_text}")
        flat, shape = c.op("reshape", x, shape=(-1,)), (x.shape[0], len(self.roots))
        row = c.op("multiply", c.places(x.shape[0], "int64", 0, 2), c.size(columns, "int64"))
        start = c.op("broadcast_to", c.constant(self.roots, "int64"), shape=shape)
        limits, features = c.constant(self.limit.astype(x.dtype), x.dtype), c.constant(self.feature, "int64")
        first, second = [c.constant(side, "int64") for side in self.next]

        def step(states: Sequence[Value], parts: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
            (at,) = states
            seen = c.op("take", flat, c.op("add", row, c.op("take", features, at, axis=0)), axis=0)
            limit, holds = c.op("take", limits, at, axis=0), None
            for n, mode in enumerate(self.comparisons):
                one = c.op(_HOLDS[mode], seen, limit)
                here = None if holds is None else c.op("equal", c.op("take", c.constant(self.mode, "int64"), at, axis=0), c.constant(n, "int64"))  # fmt: skip
                holds = one if holds is None or here is None else c.op("where", here, one, holds)
            assert holds is not None
            if self.missing.any():
                follows = c.op("take", c.constant(self.missing, "bool"), at, axis=0)
                holds = c.op("logical_or", holds, c.op("logical_and", follows, c.op("not_equal", seen, seen)))
            return [c.op("where", holds, c.op("take", first, at, axis=0), c.op("take", second, at, axis=0))], []

        if not self.depth:
            return start
        steps = c.constant(np.arange(self.depth), "int64")
        return add_scan(c.builder, [start], [steps], step)[0][0]

    def scores(self, x: Value) -> Value:
        """Returns the combined weights of the leaves, (rows, targets), without the base values."""
        c, how = self.c, self.c.attr("aggregate_function", "SUM")
        if how in ("MIN", "MAX") and not self.given[self.next[0] == np.arange(len(self.given))].all():
            raise c.error(f"{how} of leaves that do not all have a weight for each target")
        found = c.op("take", c.constant(self.weights.astype(x.dtype), x.dtype), self.reached(x), axis=0)
        out = c.op({"MIN": "min", "MAX": "max"}.get(how, "sum"), found, axis=1)
        return c.op("divide", out, c.like(len(self.roots), out)) if how == "AVERAGE" else out


def _matrix(c: OnnxCall) -> Value:
    x = c.input(0) if c.input(0).dtype == "float64" else c.cast(c.input(0), "float32")
    return x if x.ndim == 2 else c.op("reshape", x, shape=(1, -1))


def tree_regressor(c: OnnxCall) -> Value:
    trees = _Trees(c, "target", int(c.attr("n_targets", 1)))
    out, base = trees.scores(_matrix(c)), trees.numbers("base_values")
    if base.size:
        out = c.op("add", out, c.constant(base.astype(out.dtype), out.dtype))
    return c.cast(transformed(c, out), "float32")


def tree_classifier(c: OnnxCall) -> tuple[Value, ...]:
    """Returns labels and scores; the label is that of the greatest score.

    Trees with weights for one of two classes give the second one's score, and the first one's is what is left: 1 without it
    where all weights are positive, else its negative. Where both have weights, ONNX Runtime returns 1 for a positive score
    of the second class and 0 otherwise, whatever the labels are.
    """
    labels = c.attr("classlabels_int64s") or c.attr("classlabels_ints")
    if labels is None:
        raise c.error("labels that are strings are not supported")
    trees = _Trees(c, "class", len(labels))
    used = np.unique(np.asarray(c.attr("class_ids")))
    scores, base = trees.scores(_matrix(c)), trees.numbers("base_values")
    if len(labels) == 2 and len(used) == 1:
        score = c.part(scores, 1, int(used[0]), 1)
        if base.size:
            score = c.op("add", score, c.constant(base[-1:].astype(score.dtype), score.dtype))
        positive = bool((trees.weights >= 0).all())
        chosen = c.cast(c.op("greater", score, c.like(0.5 if positive else 0.0, score)), "int64")
        best = c.op("reshape", chosen, shape=(score.shape[0],))
        if positive and c.attr("post_transform", "NONE") != "LOGISTIC":
            other = c.op("subtract", c.like(1.0, score), score)
        else:
            other = c.op("negative", score)
        scores = c.op("concatenate", other, score, axis=1)
    else:
        if base.size:
            scores = c.op("add", scores, c.constant(base.astype(scores.dtype), scores.dtype))
        best = c.op("argmax", scores, axis=1, dtype="int64")
    label = c.op("take", c.constant(np.asarray(labels, np.int64), "int64"), best, axis=0)
    return label, c.cast(transformed(c, scores), "float32")


register_onnx_operator("TreeEnsembleRegressor", tree_regressor, "ai.onnx.ml")
register_onnx_operator("TreeEnsembleClassifier", tree_classifier, "ai.onnx.ml")

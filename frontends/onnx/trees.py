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
    """The nodes of all trees side by side: what each compares and where it leads, and the weights of leaves.

    ``modes`` are the comparisons by name, LEAF for leaves; ``sides`` are the nodes to which each leads when its comparison
    holds and otherwise, a leaf to itself. ``weights`` are those of each node for each target, ``given`` says for which it has one.
    """

    def __init__(
        self,
        c: OnnxCall,
        modes: Sequence[str],
        feature: Table,
        limit: Table,
        missing: Table,
        sides: Sequence[Table],
        roots: Table,
        weights: Table,
        given: Table,
    ) -> None:
        self.c, self.next, self.roots, self.weights, self.given = c, sides, roots, weights, given
        self.leaf = np.array([m == "LEAF" for m in modes])
        self.comparisons = sorted({m for m in modes if m != "LEAF"})
        if unknown := [m for m in self.comparisons if m not in _HOLDS]:
            raise c.error(f"the mode {unknown[0]} is not supported")
        self.mode = np.array([self.comparisons.index(m) if m in self.comparisons else 0 for m in modes])
        self.feature, self.limit = np.where(self.leaf, 0, feature), np.where(self.leaf, 0, limit)
        self.missing = np.asarray(missing, bool)
        self.depth = self._depth(self.leaf)

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

    def scores(self, x: Value, how: str) -> Value:
        """Returns the combined weights of the leaves, (rows, targets), without the base values.

        A tree whose leaf has no weight for a target does not count in its least or greatest one, which is 0 of no trees.
        """
        c, reached = self.c, self.reached(x)
        if how not in ("MIN", "MAX"):
            out = c.op("sum", self._of_nodes(self.weights, x.dtype, reached), axis=1)
            return c.op("divide", out, c.like(len(self.roots), out)) if how == "AVERAGE" else out
        absent = np.inf if how == "MIN" else -np.inf
        weights = np.where(self.given != 0, self.weights, absent)
        out = c.op(how.lower(), self._of_nodes(weights, x.dtype, reached), axis=1)
        if (self.given != 0)[self.leaf].all():
            return out
        some = c.op("max", self._of_nodes(self.given != 0, "bool", reached), axis=1)
        return c.op("where", some, out, c.like(0, out))

    def _of_nodes(self, table: Table, dtype: str, reached: Value) -> Value:
        return self.c.op("take", self.c.constant(table.astype(dtype), dtype), reached, axis=0)


def _numbers(c: OnnxCall, name: str) -> Table:
    """Returns an attribute of numbers, which is a list or, of float64, a tensor."""
    tensor = c.attr(f"{name}_as_tensor")
    return np.asarray(c.attr(name, ()), np.float32) if tensor is None else np.ravel(tensor)


def _numbered_trees(c: OnnxCall, kind: str, targets: int) -> _Trees:
    """Returns trees whose nodes, leaves among them, go by the numbers of their tree and in it."""
    trees, numbers = (np.asarray(c.attr(n), np.int64) for n in ("nodes_treeids", "nodes_nodeids"))
    place = {key: n for n, key in enumerate(zip(trees.tolist(), numbers.tolist(), strict=True))}
    names, modes = sorted(set(trees.tolist())), [m.removeprefix("BRANCH_") for m in c.attr("nodes_modes")]
    leaf = [m == "LEAF" for m in modes]
    missing = c.attr("nodes_missing_value_tracks_true") or np.zeros(len(modes))
    sides = []
    for attribute in ("nodes_truenodeids", "nodes_falsenodeids"):
        found = zip(trees.tolist(), c.attr(attribute), leaf, range(len(modes)), strict=True)
        sides.append(np.array([n if end else place[t, to] for t, to, end, n in found], np.int64))
    led_to = {int(n) for side in sides for n, own in zip(side, range(len(modes)), strict=True) if n != own}
    roots = np.array([next(n for n in np.flatnonzero(trees == t) if int(n) not in led_to) for t in names])
    weights, given = np.zeros((2, len(modes), targets))
    ends = [c.attr(f"{kind}_{what}") for what in ("treeids", "nodeids", "ids")]
    for t, n, target, weight in zip(*ends, _numbers(c, f"{kind}_weights"), strict=True):
        weights[place[t, n], target] += weight
        given[place[t, n], target] = 1
    feature = np.asarray(c.attr("nodes_featureids"), np.int64)
    return _Trees(c, modes, feature, _numbers(c, "nodes_values"), missing, sides, roots, weights, given)


_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")


def _rooted_trees(c: OnnxCall, targets: int) -> _Trees:
    """Returns trees whose inner nodes and leaves are two tables.

    A node that asks whether a number is a member of a set becomes as many nodes as the set has members, each of which
    compares with one and leads to the next.
    """
    codes = np.ravel(c.attr("nodes_modes")).tolist()
    if any(not 0 <= m < len(_MODES) for m in codes):
        raise c.error(f"the mode {max(codes)} is unknown; there are 0 to {len(_MODES) - 1}")
    modes, ids = [_MODES[m] for m in codes], np.asarray(c.attr("leaf_targetids"), np.int64)
    inner, leaves = len(modes), len(ids)
    if leaves and not 0 <= ids.min() <= ids.max() < targets:
        raise c.error(f"a leaf has the target {ids.max()} of {targets}")
    sides = [_led_to(c, side, inner, leaves) for side in ("true", "false")]
    feature = np.asarray(c.attr("nodes_featureids"), np.int64).tolist()
    limit = np.ravel(c.attr("nodes_splits")).astype(np.float64).tolist()
    missing = [bool(m) for m in c.attr("nodes_missing_value_tracks_true") or [0] * inner]
    if {len(feature), len(limit), len(missing)} != {inner}:
        raise c.error(f"its attributes describe {inner}, {len(feature)}, {len(limit)} and {len(missing)} nodes")
    weights, given = np.zeros((2, inner + leaves, targets))
    weights[inner + np.arange(leaves), ids] = np.ravel(c.attr("leaf_weights"))
    given[inner + np.arange(leaves), ids] = 1
    modes, feature, limit, missing = (
        modes + ["LEAF"] * leaves,
        feature + [0] * leaves,
        limit + [0.0] * leaves,
        missing + [False] * leaves,
    )
    for n, members in zip(
        [n for n in range(inner) if modes[n] == "MEMBER"], _sets(c, modes.count("MEMBER")), strict=True
    ):
        at, otherwise, modes[n] = n, sides[1][n], "EQ"
        limit[n] = members[0] if members else np.nan  # no number equals NaN
        for member in members[1:]:
            sides[1][at] = at = len(modes)
            modes.append("EQ")
            feature.append(feature[n])
            limit.append(member)
            missing.append(missing[n])
            sides[0].append(sides[0][n])
            sides[1].append(otherwise)
    further = np.zeros((len(modes) - len(weights), targets))
    roots = np.asarray(c.attr("tree_roots"), np.int64)
    if roots.size and not 0 <= roots.min() <= roots.max() < inner:
        raise c.error(f"a tree begins at the node {roots.max()} of {inner}")
    return _Trees(
        c, modes, np.array(feature, np.int64), np.array(limit), np.array(missing), [np.array(s, np.int64) for s in sides], roots,
        np.concatenate([weights, further]), np.concatenate([given, further]),
    )  # fmt: skip


def _led_to(c: OnnxCall, side: str, inner: int, leaves: int) -> list[int]:
    """Returns the nodes to which the inner ones lead, and for each leaf itself; leaves come behind all inner nodes."""
    to, ends = c.attr(f"nodes_{side}nodeids"), c.attr(f"nodes_{side}leafs")
    if len(to) != inner or len(ends) != inner:
        raise c.error(f"{len(to)} {side} branches and {len(ends)} marks of leaves for {inner} nodes")
    for n, end in zip(to, ends, strict=True):
        if not 0 <= n < (leaves if end else inner):
            raise c.error(f"a branch leads to {'leaf' if end else 'node'} {n} of {leaves if end else inner}")
    return [n + inner if end else n for n, end in zip(to, ends, strict=True)] + [*range(inner, inner + leaves)]


def _sets(c: OnnxCall, count: int) -> list[list[float]]:
    """Returns the sets of members, which NaN ends."""
    given = c.attr("membership_values")
    sets: list[list[float]] = [[]]
    for member in np.ravel(() if given is None else given).tolist():
        sets.append([]) if np.isnan(member) else sets[-1].append(member)
    sets = sets if sets[-1] else sets[:-1]
    if len(sets) != count:
        raise c.error(f"membership_values has {len(sets)} sets for {count} nodes that ask for members")
    return sets


def _matrix(c: OnnxCall) -> Value:
    x = c.input(0) if c.input(0).dtype == "float64" else c.cast(c.input(0), "float32")
    return x if x.ndim == 2 else c.op("reshape", x, shape=(1, -1))


def tree_regressor(c: OnnxCall) -> Value:
    trees = _numbered_trees(c, "target", int(c.attr("n_targets", 1)))
    out, base = trees.scores(_matrix(c), c.attr("aggregate_function", "SUM")), _numbers(c, "base_values")
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
    trees = _numbered_trees(c, "class", len(labels))
    used = np.unique(np.asarray(c.attr("class_ids")))
    scores, base = trees.scores(_matrix(c), "SUM"), _numbers(c, "base_values")
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


_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def tree_ensemble(c: OnnxCall) -> Value:
    """Returns the scores of the targets, of the type of the input. float16 is computed in float32.

    ``post_transform`` is numbered as ONNX has it: 1 is softmax and 2 the sigmoid, which ONNX Runtime exchanges.
    """
    numbers = {"aggregate_function": (_AGGREGATES, 1), "post_transform": (_TRANSFORMS, 0)}
    names = {}
    for attribute, (known, default) in numbers.items():
        n = int(c.attr(attribute, default))
        if not 0 <= n < len(known):
            raise c.error(f"{attribute} is {n}; there are 0 to {len(known) - 1}")
        names[attribute] = known[n]
    trees = _rooted_trees(c, int(c.attr("n_targets", 1)))
    out = trees.scores(_matrix(c), names["aggregate_function"])
    return c.cast(transformed(c, out, names["post_transform"]), c.input(0).dtype)


register_onnx_operator("TreeEnsemble", tree_ensemble, "ai.onnx.ml")
register_onnx_operator("TreeEnsembleRegressor", tree_regressor, "ai.onnx.ml")
register_onnx_operator("TreeEnsembleClassifier", tree_classifier, "ai.onnx.ml")

"""This module computes the features of candidates: named columns that are the same for every sketch.  So one cost model
serves all sketches.

A sketch describes its rows with :class:`Costs`: cycles and bytes by cause, as arrays over the rows.
:func:`feature_table` turns them into the feature matrix; its last columns are the terms of the analytic prior and their
sum, so the cost model learns what the prior gets wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...pages.messages import near_words, short_repr
from .machine_model import PROCESSOR, Features, MachineModel

FEATURE_NAMES = PROCESSOR.names
"""The columns of the feature matrix of processors, in order. Amounts and sizes are log2 of (1 + value)."""
Columns = Mapping[str, np.ndarray]
"""The decisions of some rows by name, each an array over the rows."""


@dataclass
class Costs:
    """The costs of the rows of a sketch, by name. A cost is an array over the rows, or missing where it is zero.

    ``features`` are the names that there are on the machine.
    """

    rows: int
    values: dict[str, np.ndarray] = field(default_factory=dict)
    features: Features = PROCESSOR

    __repr__ = short_repr("rows", "values")

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values.get(name, np.zeros(self.rows))

    def put(self, **columns: np.ndarray | float) -> Costs:
        """Set columns; a number stands for all rows."""
        for name, value in columns.items():
            if name not in self.features.columns:
                near = near_words(name, self.features.columns, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(self.features.columns))}"
                raise KeyError(f"{name!r} is not a feature; {hint}")
            column = np.asarray(value, dtype=np.float64)
            self.values[name] = column if column.shape == (self.rows,) else np.full(self.rows, column)
        return self


def prior_seconds(costs: Costs, machine: MachineModel) -> np.ndarray:
    """Returns the seconds that the machine's model predicts for each row."""
    return machine.seconds(costs)


def seconds_of_counts(kernels: Sequence[Mapping[str, float]], machine: MachineModel) -> float:
    """Returns the seconds that the machine's model makes of counts, by the names of its columns. The kernels run in a
    row."""
    counted = [Costs(1, features=machine.features).put(**kernel) for kernel in kernels]
    return float(sum(machine.seconds(costs)[0] for costs in counted))


def feature_table(costs: Costs, machine: MachineModel, seconds: np.ndarray) -> np.ndarray:
    """Returns the rows' features, a float32 matrix with a column for each name of the machine's features. ``seconds``
    is what the prior expects of them."""
    features = machine.features
    columns = []
    for name in (*features.extensive, *features.intensive):
        value = costs[name]
        columns.append(value if name in features.raw else np.log2(1.0 + np.maximum(value, 0.0)))
    cycles = machine.cycles_by_cause(costs)
    total = np.maximum(sum(cycles.values()), 1e-9)  # type: ignore[call-overload]
    columns.extend(cycles[name] / total for name in features.causes)
    columns.append(np.log2(seconds))
    return np.stack(columns, axis=1).astype(np.float32)


def combine(parts: Sequence[Costs], machine: MachineModel) -> Costs:
    """Returns the costs of a program whose parts run one after the other."""
    if len(parts) == 1:
        return parts[0]
    features = machine.features
    out = Costs(parts[0].rows, features=features)
    weights = np.stack([prior_seconds(p, machine) for p in parts])
    weights = weights / weights.sum(axis=0)
    columns: dict[str, np.ndarray] = {n: np.sum([p[n] for p in parts], axis=0) for n in features.extensive}
    for name in features.intensive:
        columns[name] = np.sum([w * p[name] for w, p in zip(weights, parts, strict=True)], axis=0)
    return out.put(**columns)


def ceil_div(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """Returns ``a / b`` rounded up."""
    return np.ceil(np.asarray(a, dtype=np.float64) / b)


def up_to(limit: int, *values: int) -> tuple[int, ...]:
    """Returns the values up to the first that reaches ``limit``, clipped to it, without repetition.

    >>> up_to(10, 1, 4, 8, 16, 32)
    (1, 4, 8, 10)
    """
    out: list[int] = []
    for value in values:
        out.append(min(value, max(1, limit)))
        if value >= limit:
            break
    return tuple(dict.fromkeys(out))

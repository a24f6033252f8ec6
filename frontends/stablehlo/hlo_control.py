"""Converters of branches and loops, of tokens and tuples, and of calls that say something about the program only."""

from __future__ import annotations

import numpy as np

from .hlo_call import Given, HloCall
from .hlo_table import hlo, op
from .known_arrays import Known, known

LONGEST_LOOP = 4096
"""Loops of more iterations are not written out."""


@hlo("while")
def loop(c: HloCall) -> tuple[Given, ...]:
    condition, body = c.regions
    values = list(c.args)
    for _ in range(LONGEST_LOOP):
        (goes_on,) = c.run(condition, *values)
        if not isinstance(goes_on, Known):
            raise c.error("the condition of a loop has to be known while the program is read: loops are written out")
        if not goes_on.data.item():
            return tuple(values)
        values = c.run(body, *values)
    raise c.error(f"a loop of more than {LONGEST_LOOP} iterations is too long to be written out")


@hlo("if", "case")
def branch(c: HloCall) -> tuple[Given, ...]:
    """Returns the results of one branch where the choice is known; else all are computed, and one is selected."""
    chosen, regions = c.args[0], c.regions
    if isinstance(chosen, Known):
        number = int(chosen.data.item())
        if c.name == "if":
            return tuple(c.run(regions[0 if number else 1]))
        return tuple(c.run(regions[number if 0 <= number < len(regions) else -1]))
    if c.name == "if":
        first, second = [[c.value(v) for v in c.run(r)] for r in regions]
        return tuple(c.where(c.broadcast(chosen, a.shape), a, b) for a, b in zip(first, second, strict=True))
    every = [[c.value(v) for v in c.run(r)] for r in regions]
    out = every[-1]
    for n, values in enumerate(every[:-1]):
        here = c.op("equal", chosen, c.constant(n, chosen.dtype))
        out = [c.where(c.broadcast(here, a.shape), a, b) for a, b in zip(values, out, strict=True)]
    return tuple(out)


@hlo("optimization_barrier")
def passed(c: HloCall) -> tuple[Given, ...]:
    return tuple(c.args)


@op("custom_call @Sharding", "custom_call @annotate_device_placement")
def annotated(c: HloCall) -> Given:
    return c.args[0]


@op("custom_call @shape_assertion")
def asserted(c: HloCall) -> tuple[Given, ...]:
    return ()


@hlo("after_all", "create_token")
def token(c: HloCall) -> Given:
    return known(np.zeros((), bool), "bool")


@hlo("constant")
def constant(c: HloCall) -> Given:
    return c.literal()


@hlo("get_dimension_size")
def size(c: HloCall) -> Given:
    return known(c.args[0].shape[c.attribute("dimension")], c.dtype)


@hlo("replica_id", "partition_id")
def alone(c: HloCall) -> Given:
    return known(0, c.dtype)

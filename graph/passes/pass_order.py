"""The order of the passes, and the function that runs them: timed, verified after each, shown on request.

The passes :func:`simplify_operators` and :func:`recognize` apply rewrite rules: those of :mod:`..algebra`, and those that find
operators written out in parts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from ...pages.messages import short_repr
from ..algebra import RULES as ALGEBRA
from ..graph import Graph, Node, Value, with_output_names, without_unread
from ..kernels import Services
from ..patterns import RULES as PATTERNS
from ..reference import verify
from ..rules import Rule, rewritten
from .choose_layouts import choose_layouts
from .choose_winograd import choose_winograd
from .drop_states import drop_states
from .fold_constants import distinct_outputs, fold_constants, fold_narrow, merge_equal
from .fold_scales import fold_scales
from .hoist_from_loops import hoist_from_loops
from .join_extremes import join_extremes
from .join_products import join_products
from .narrow_weights import constants_out_of_loops, move_narrow_weights, narrow_into_loops
from .pack_nbits import find_nbits_weights, pack_nbits_weights
from .quantize_by_scale import quantize_quotients
from .split_transposed import split_transposed
from .tables_of_bytes import tables_of_bytes


def simplify_operators(graph: Graph, services: Services = Services()) -> Graph:
    """Replace operators by fewer or cheaper ones that compute the same.

    Before::

        t = transpose(x, axes=(1, 0))
        u = transpose(t, axes=(1, 0))
        y = add(u, 0)

    After::

        y = x
    """
    return rewritten(graph, ALGEBRA)


def recognize(graph: Graph, services: Services = Services()) -> Graph:
    """Apply the rules of :mod:`..patterns`, and those that users have added.

    Before::

        s = sigmoid(x)
        y = multiply(x, s)

    After::

        y = silu(x)
    """
    return rewritten(graph, PATTERNS)


def register_rule(added: Rule) -> Rule:
    """Add a rewrite rule, made by the decorator :func:`..rules.rule`."""
    PATTERNS.append(added)
    return added


def rewritten_bodies(graph: Graph, rewrite: Callable[[Graph], Graph]) -> Graph:
    """Returns the graph with ``rewrite`` applied to the body of each loop, in which inputs that are constants are constants.

    Before::

        w = constant()
        def step(h, x_t, r):
            return add(dense(h, r), x_t)
        last = scan(h0, x, w, body=step, states=1, arrays=1, steps=7)

    After::

        def step(h, x_t):
            r = constant()
            return add(dense(h, r), x_t)
        last = scan(h0, x, body=step, states=1, arrays=1, steps=7)
    """
    new = {node: _with_body(graph, node, node.body, rewrite) for node in graph.nodes if node.body is not None}
    return without_unread(graph.replaced([new.get(n, n) for n in graph.nodes])) if new else graph


def _with_body(graph: Graph, node: Node, body: Graph, rewrite: Callable[[Graph], Graph]) -> Node:
    first = node.attrs["states"] + node.attrs["arrays"]
    given: list[Value] = list(node.given)
    known = {n for n, v in enumerate(given) if n >= first and v in graph.constants}
    constants = {**body.constants, **{body.inputs[n]: graph.constants[given[n]] for n in known}}
    inputs = tuple([v for n, v in enumerate(body.inputs) if n not in known])
    made = rewrite(Graph(body.name, inputs, body.outputs, body.nodes, constants))
    kept = tuple([v for n, v in enumerate(given) if n not in known])
    return Node(node.op, kept, node.outputs, {**node.attrs, "body": made})


@dataclass(frozen=True)
class GraphPass:
    """A named pass. ``run`` takes the graph and the services that the caller of :func:`prepare` provides."""

    name: str
    run: Callable[[Graph, Services], Graph]

    __repr__ = short_repr()


def _prepare_bodies(graph: Graph, services: Services) -> Graph:
    return rewritten_bodies(graph, lambda body: prepare(body, services=replace(services, repeated=True)))


PASSES: list[GraphPass] = [
    GraphPass("drop_states", drop_states),
    GraphPass("fold_narrow", fold_narrow),
    GraphPass("move_narrow", move_narrow_weights),
    GraphPass("hoist_from_loops", hoist_from_loops),
    GraphPass("merge_equal", merge_equal),
    GraphPass("fold_narrow", fold_narrow),
    GraphPass("simplify_operators", simplify_operators),
    GraphPass("patterns", recognize),
    GraphPass("find_nbits", find_nbits_weights),
    GraphPass("fold_constants", fold_constants),
    GraphPass("fold_scales", fold_scales),
    GraphPass("narrow_into_loops", narrow_into_loops),
    GraphPass("loop_bodies", _prepare_bodies),
    GraphPass("constants_out_of_loops", constants_out_of_loops),
    GraphPass("split_transposed", split_transposed),
    GraphPass("fold_constants", fold_constants),
    GraphPass("tables_of_bytes", tables_of_bytes),
    GraphPass("join_products", join_products),
    GraphPass("choose_layouts", choose_layouts),
    GraphPass("fold_constants", fold_constants),
    GraphPass("simplify_operators", simplify_operators),
    GraphPass("choose_winograd", choose_winograd),
    GraphPass("join_extremes", join_extremes),
    GraphPass("pack_nbits", pack_nbits_weights),
    GraphPass("quantize_quotients", quantize_quotients),
    GraphPass("merge_equal", merge_equal),
    GraphPass("distinct_outputs", distinct_outputs),
]
"""The passes in order. One that stands there several times has one name."""


@dataclass
class PassTimes:
    """The seconds that each pass took, and how many operators there were before and after it, at its last turn."""

    seconds: dict[str, float] = field(default_factory=dict)
    operators: dict[str, tuple[int, int]] = field(default_factory=dict)

    __repr__ = short_repr("seconds")

    def __str__(self) -> str:
        counts = {name: f"{before} → {after}" for name, (before, after) in self.operators.items()}
        return "\n".join([f"{name:24s} {1e3 * t:8.2f} ms {counts[name]}" for name, t in self.seconds.items()])


def register_pass(name: str, run: Callable[[Graph, Services], Graph], *, before: str = "distinct_outputs") -> GraphPass:
    """Add a pass in front of the last one named ``before``; ValueError when there is none.

    >>> made = register_pass("nothing", lambda graph, services: graph)
    >>> PASSES.remove(made)
    """
    places = [n for n, p in enumerate(PASSES) if p.name == before]
    if not places:
        raise ValueError(f"there is no pass {before!r}; there are {', '.join(dict.fromkeys(p.name for p in PASSES))}")
    made = GraphPass(name, run)
    PASSES.insert(places[-1], made)
    return made


def prepare(
    graph: Graph,
    passes: Sequence[GraphPass] | None = None,
    *,
    services: Services = Services(),
    show: Collection[str] = (),
    times: PassTimes | None = None,
) -> Graph:
    """Returns the graph after all ``passes`` (None: :data:`PASSES`), verified before the first one and after each.

    ``show``: names of passes before and after which the graph is printed to stderr, when they change it (``"all"``: every
    one). ``times`` collects seconds and counts. Outputs keep their names.
    """
    checked: set[Node] = set()
    verify(graph, checked)
    names = [v.name for v in graph.outputs]
    for step in PASSES if passes is None else passes:
        start = time.perf_counter()
        after = step.run(graph, services)
        if times is not None:
            times.seconds[step.name] = times.seconds.get(step.name, 0.0) + time.perf_counter() - start
            times.operators[step.name] = len(graph.nodes), len(after.nodes)
        if after is not graph:
            if step.name in show or "all" in show:
                print(f"# before {step.name}\n{graph}\n# after {step.name}\n{after}", file=sys.stderr)
            verify(after, checked)
        graph = after
    return with_output_names(graph, names)

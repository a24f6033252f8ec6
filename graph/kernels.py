"""How a graph becomes kernels: which operators are one kernel, and the tensor expressions of each.

Building a model (``driver/models/model_building.py``) has the passes prepare its graph (:mod:`.passes.pass_order`), and calls
:func:`fuse`. It goes through the operators in their order. Each one begins as a kernel of its own, and its kind (``KINDS`` of
:mod:`.graph_operators` explains them; operators have theirs from where they are registered) or, for products, its name says which kernels before it join:

=========================  ================================================================================================
``elementwise``,           the kernels that make its operands (``join_producer``): the result of a product or a convolution
``broadcast``, lookups     is still in registers or in the first-level cache then
``rows``, ``reduction``,   element-wise and injective kernels that make its operands (``join_light_operands``): softmax, norms
``injective``              and sums compute their operands while they read them, chains that move elements become one loop nest
``matmul``, ``dense``      the element-wise kernel that widens its weights (``join_decoded_weight``): they are decoded where
                           they are multiplied
other ``anchor``,          none. Later operators may join an anchor (a convolution, a pool); an opaque operator stays alone
``opaque``
=========================  ================================================================================================

Kernels stay apart

- where something else reads what one makes for the other, it leaves the graph, or its operator has several outputs
  (``_is_read_only_by``);
- where both have an anchor, rows or a reduction, or where one has and its result has another shape than the element-wise
  operator's (``join_producer``);
- where one has a transpose that moves the last axis and the other takes several steps over rows, or any transpose before a
  prefix sum (``_strides``);
- where a way leads from one to the other through a third one, the joined kernel could not read a symbolic size off its
  arguments, or it would have more than ``_MEMBERS`` operators (``_merge``).

What is cheap and element-wise, and read by several kernels, is computed by each of them (``with_cheap_repeated``).

So of ``y = softmax(relu(dense(x, w) + b))`` two kernels are made, ``dense_add_relu`` and ``softmax``. (Where ``w`` and ``b``
are constants, the pass ``fold_scales`` usually makes ``b`` an operand of ``dense``, and the first kernel is ``dense_relu``.) No times are predicted here: which schedule a
kernel gets is chosen afterwards.

An operator that only gives a tensor another shape needs no kernel: its result is a view of its input (:func:`is_view`). It
belongs to no group, so that operators before a view and behind it are different kernels. An output of the graph that is a
view is written by the kernel before it.

:func:`divide` makes the kernels of the groups: a :class:`Kernel` of each, whose :attr:`~Kernel.func` is the program that is
scheduled and compiled. An operator with a body, a loop of the graph (``scan``, which is opaque), becomes a :class:`LoopKernel`,
and its body is fused by itself. The :class:`Division` has the kernels in an order in which they can run; :mod:`.memory_plan` may
choose another one. At the end stand the conditions under which operators compute what they say, and :class:`Services`: what
passes may ask of the layers above.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from .. import te
from ..pages.messages import short_repr
from ..te.tensor import Requirement, Tensor, ordered_operations
from ..tir.analysis.known_ranges import asserted_sizes
from ..tir.analysis.simplify import simplify
from ..tir.arith import Analyzer
from ..tir.cost import instructions_of
from ..tir.expr import DType, Expr, Select, Var, same, substitute, transform, vars_in
from ..tir.stmt import AssertStmt, PrimFunc
from ..tir.walk import blocks_of, pre_order, transform_statements
from .graph import Dim, Graph, GraphError, Node, Value, bodies, computed_sizes, same_shape, sizes_of
from .graph_operators import infer, operator, placeholder_for

VIEWS = frozenset({"reshape", "flatten", "squeeze", "expand_dims"})
"""Operators whose result has the elements of the input in the same order."""

_LIGHT = ("elementwise", "broadcast")
_PRODUCTS = ("matmul", "dense")
_SCANS = ("cumsum", "cumprod")
_MEMBERS = 24
"""The most operators of one kernel, so that functions stay short."""

_SMALL = 4096
"""The bytes of an operand that stays in the first-level cache beside the others."""

_CHEAP = 8
"""The most instructions per element that are repeated, all repetitions together. A result that is stored and read again takes
about as long from the second-level cache, and a call more."""


# which operators are one kernel


def fuse(graph: Graph) -> Division:
    """Returns the division of the graph into kernels, with operators joined as the module's table says."""
    groups = _Groups(graph)
    for node in graph.nodes:
        if is_view(node, graph):
            continue
        groups.add(node)
        kind = operator(node.op).kind
        if kind in _LIGHT or _is_lookup(node, graph):
            groups.join_producer(node)
        elif kind in ("rows", "reduction", "injective"):
            groups.join_light_operands(node)
        elif node.op in _PRODUCTS:
            groups.join_decoded_weight(node)
    return divide(graph, groups.with_cheap_repeated(), fuse)


def _is_lookup(node: Node, graph: Graph) -> bool:
    """Returns whether each element is the one of a constant vector that the number at its place says."""
    if node.op != "take":
        return False
    table, index = node.given
    return table in graph.constants and table.ndim == 1 and same_shape(node.output.shape, index.shape)


def is_view(node: Node, graph: Graph) -> bool:
    """Returns whether the node needs no kernel, as a view.

    One that leaves the graph is one where another operator writes to the memory of that output alone; else a kernel copies it.
    """
    return node.op in VIEWS and (node.output not in graph.outputs or _is_made_for(node.output, graph))


def _is_made_for(output: Value, graph: Graph) -> bool:
    """Returns whether a view that leaves the graph is all that leaves it of what an operator makes."""
    producers, roots = graph.producers(), []
    for v in graph.outputs:
        while (p := producers.get(v)) is not None and p.op in VIEWS:
            v = next(p.given)
        roots.append(v)
    root = roots[graph.outputs.index(output)]
    return root in producers and roots.count(root) == 1


class _Groups:
    """The groups so far: ``of`` is the group of each operator, a list that its members share."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers, self.users = graph.producers(), graph.users()
        self.position = {node: n for n, node in enumerate(graph.nodes)}
        self.of: dict[Node, list[Node]] = {}

    def listed(self) -> list[list[Node]]:
        return list({id(group): group for group in self.of.values()}.values())

    def add(self, node: Node) -> None:
        self.of[node] = [node]

    def join_producer(self, node: Node) -> None:
        """Join the kernels that make the operands of an element-wise operator, where that is possible.

        Only one of them may have an anchor (a product, a convolution), rows or a reduction: an anchor is asked first, then
        rows, then reductions. It joins only where its result has the shape of the operator's.
        """
        ranks = {"anchor": 0, "rows": 1, "reduction": 2}
        producers = [self.producers[v] for v in node.given if v in self.producers]
        producers = [p for p in producers if p in self.of and self._is_read_only_by(p, node)]
        for p in sorted(producers, key=lambda p: min(ranks.get(operator(n.op).kind, 3) for n in self.of[p])):
            heavy = [n for n in self.of[p] if operator(n.op).kind not in (*_LIGHT, "injective")]
            mine = [n for n in self.of[node] if operator(n.op).kind not in (*_LIGHT, "injective")]
            if heavy and mine or any(operator(n.op).kind == "opaque" for n in heavy):
                continue
            if same_shape(p.outputs[0].shape, node.output.shape) or not heavy:
                self._merge(p, node)

    def join_light_operands(self, node: Node) -> None:
        """Take in the element-wise and injective kernels that make the operands, when nothing else reads them.

        A transpose stays a kernel of its own before a prefix sum, whose steps follow one another, and one that moves the last
        axis also before several steps over rows: read across the rows, it would not be tiled.
        """
        for v in dict.fromkeys(node.given):
            p = self.producers.get(v)
            if p is None or p not in self.of or not self._is_read_only_by(p, node):
                continue
            kinds = {operator(n.op).kind for n in self.of[p]}
            if kinds <= {"elementwise", "broadcast", "injective"} and not any(_strides(node, n) for n in self.of[p]):
                self._merge(p, node)

    def join_decoded_weight(self, node: Node) -> None:
        """Take in the element-wise kernel that widens the second operand of a product, such as weights of int8 with
        scales. The product then reads the narrow numbers, and decodes them in registers."""
        weight = node.inputs[1]
        p = None if weight is None else self.producers.get(weight)
        if weight is None or p is None or p not in self.of or not self._is_read_only_by(p, node):
            return
        members = self.of[p]
        made = {v for n in members for v in n.outputs}
        read = dict.fromkeys([v for n in members for v in n.given if v not in made])
        wide = [v for v in read if same_shape(v.shape, weight.shape)]
        narrow = 2 * sum(DType(v.dtype).bits for v in wide) <= DType(weight.dtype).bits
        if wide and narrow and all(operator(n.op).kind in _LIGHT for n in members):
            self._merge(p, node)

    def with_cheap_repeated(self) -> list[list[Node]]:
        """Returns the groups, where each that reads the result of a cheap one computes it again.

        So ``sum(x * x, axis=0)`` and ``sum(x * x, axis=1)`` are two kernels that read ``x``. A group is repeated where all that
        reads its result would take it in if nothing else read it, and reads each element once, and where it reads one array that is
        no larger than the result: then nothing is read that was not read before, and the result is never stored. Where one group
        alone reads the result, at several places, nothing is repeated.
        """
        homes = {node: [group] for node, group in self.of.items()}
        for group in sorted(self.listed(), key=lambda g: -self.position[g[-1]]):  # readers first, for chains
            value = self._only_result(group)
            users = [] if value is None else self.users.get(value, [])
            if value is None or not users or not all(u in homes and self._reads_once(u, value, group) for u in users):
                continue
            readers = list({id(reader): reader for u in users for reader in homes[u]}.values())
            if len(readers) > 1 and not self._is_cheap(group, value, len(readers) - 1):
                continue
            if any(len({*group, *r}) > _MEMBERS or self._loses_sizes({*group, *r}) for r in readers):
                continue
            for reader in readers:
                reader[:] = sorted({*group, *reader}, key=self.position.__getitem__)
            homes.update((node, readers) for node in group)
        return list({id(group): group for groups in homes.values() for group in groups}.values())

    def _only_result(self, group: list[Node]) -> Value | None:
        """Returns the one value of an element-wise group that others read.

        None where they read several, or where it leaves the graph.
        """
        read = [v for n in group for v in n.outputs if _is_read_outside(v, set(group), self.graph, self.users)]
        light = all(operator(n.op).kind in _LIGHT for n in group)
        return read[0] if light and len(read) == 1 and read[0] not in self.graph.outputs else None

    def _reads_once(self, user: Node, value: Value, group: list[Node]) -> bool:
        """Returns whether an operator takes in the element-wise ``group`` of an operand, whose elements it reads once."""
        kind = operator(user.op).kind
        if kind in ("rows", "reduction"):
            return not any(_strides(user, n) for n in group)
        if kind not in (*_LIGHT, "injective") or len(user.outputs) != 1:
            return False
        shapes = (user.output.shape, value.shape)
        return same_shape(*shapes) or (
            all(isinstance(d, int) for shape in shapes for d in shape) and math.prod(shapes[0]) <= math.prod(shapes[1])
        )

    def _is_cheap(self, group: list[Node], value: Value, again: int) -> bool:
        """Returns whether it takes less to compute a group ``again`` so often than to store its result."""
        made = {v for n in group for v in n.outputs}
        read = dict.fromkeys([v for n in group for v in n.given if v not in made])
        large = [v for v in read if not v.is_static or math.prod(v.shape) * DType(v.dtype).bits > 8 * _SMALL]
        if len(large) > 1 or not all(same_shape(v.shape, value.shape) for v in large):
            return False
        if any(DType(v.dtype).bits > DType(value.dtype).bits for v in large):
            return False
        kernel = Kernel("repeated", tuple(group), tuple(read), (value,))
        bodies = [realize.block.body for realize in blocks_of(kernel.func)]
        work = sum(instructions_of(e) for body in bodies for e in pre_order(body) if isinstance(e, Expr))
        return work * again <= _CHEAP

    def _is_read_only_by(self, producer: Node, node: Node) -> bool:
        """Returns whether nothing else reads what ``producer`` makes, one value that stays inside the graph."""
        return len(producer.outputs) == 1 and all(
            v not in self.graph.outputs and self.users.get(v, []) == [node] for v in producer.outputs
        )

    def _merge(self, producer: Node, node: Node) -> None:
        """Join the groups of two operators, if the kernel is not too long and all its operators can run together."""
        first, second = self.of[producer], self.of[node]
        if first is second or len(first) + len(second) > _MEMBERS:
            return
        both = {*first, *second}
        if self._leaves_and_returns(both) or self._loses_sizes(both):
            return
        joined = sorted(both, key=self.position.__getitem__)
        for member in joined:
            self.of[member] = joined

    def _loses_sizes(self, members: set[Node]) -> bool:
        """Returns whether the joined kernel could not know a symbolic size that its operators have.

        A kernel reads sizes off the shapes of its arguments. One that only values inside the kernel have is lost.
        """
        made = {v for n in members for v in n.outputs}
        inner = _sizes_of(made)
        if not inner:
            return False
        read = [v for n in members for v in n.given if v not in made]
        shown = [v for v in made if v in self.graph.outputs or any(u not in members for u in self.users.get(v, []))]
        return not inner <= _sizes_of([*read, *shown])

    def _leaves_and_returns(self, members: set[Node]) -> bool:
        """Returns whether a way leads from the members through other operators back to one of them."""
        last = max(self.position[m] for m in members)
        frontier = [u for u in self._users_of(members) if u not in members]
        seen: set[Node] = set()
        while frontier:
            node = frontier.pop()
            if node in seen or self.position[node] > last:
                continue
            seen.add(node)
            group = self.of.get(node, [node])
            for user in self._users_of(group):
                if user in members:
                    return True
                frontier.append(user)
        return False

    def _users_of(self, nodes: Iterable[Node]) -> list[Node]:
        values: list[Value] = [v for n in nodes for v in n.outputs]
        return [u for v in values for u in self.users.get(v, [])]


def _strides(node: Node, producer: Node) -> bool:
    """Returns whether a prefix sum reads a transpose, or steps over rows read one that moves the last axis."""
    if producer.op != "transpose" or (node.op not in _SCANS and operator(node.op).kind != "rows"):
        return False
    shape = next(producer.given).shape
    axes = producer.attrs.get("axes") or tuple(reversed(range(len(shape))))
    long = [a % len(shape) for a in axes if shape[a] != 1]
    return node.op in _SCANS or (bool(long) and long[-1] != max(long))


def _sizes_of(values: Iterable[Value]) -> set[Var]:
    """Returns the symbolic sizes in the shapes of values."""
    return {var for v in values for d in v.shape if isinstance(d, Expr) for var in vars_in(d)}


# kernels


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel has the operators that one function computes: ``inputs`` come from outside, ``outputs`` are used outside."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: frozenset[Value] = frozenset()

    __repr__ = short_repr("name", "inputs", "outputs")

    @cached_property
    def func(self) -> PrimFunc:
        """Returns the function of tensor expressions, with the parameters ``inputs`` and then ``outputs``.

        The weights of its anchor are layout-free: the schedule may have them packed ahead. It asserts nothing of sizes: the
        function that calls it checks :attr:`requirements`.
        """
        return without_assertions(self._asserting)

    @cached_property
    def _asserting(self) -> PrimFunc:
        tensors: dict[Value, Tensor] = {}
        for v in self.inputs:
            tensors[v] = te.placeholder(self._own(v.shape), v.dtype, v.name)
        for node in self.nodes:
            given = [None if v is None else tensors[v] for v in node.inputs]
            attrs = {key: self._own(value) for key, value in node.attrs.items()}
            tensors.update(zip(node.outputs, operator(node.op).tensors(given, attrs), strict=True))
        func = te.create_prim_func([tensors[v] for v in (*self.inputs, *self.outputs)], self.name)
        free = [n for n, v in enumerate(self.inputs) if v in self.constants and self._is_weight(v)]
        return func.with_attr("layout_free_buffers", free) if free else func

    @cached_property
    def sizes(self) -> dict[Var, Expr]:
        """Returns the sizes that the kernel has under names of its own: expressions such as ``n + m``.

        The extents of its arrays need not tell each variable of the graph; then an extent is a size as a whole, and of
        ``4 * n * m`` that is ``n * m``. So is an extent of an input that is a choice, such as that of a broadcast.
        """
        dims = [d for v in (*self.inputs, *self.outputs) for d in v.shape if isinstance(d, Expr)]
        choices = [d for v in self.inputs for d in v.shape if isinstance(d, Expr) and _is_choice(d)]
        chosen = _named(choices, 0)
        rest = [_written(d, chosen) for d in dims] if chosen else dims
        known = _told(rest) | set(chosen)
        attrs = [_written(e, chosen) for n in self.nodes for e in _expressions(n.attrs)] if chosen else []
        if not set().union(*[vars_in(e) for e in (*rest, *attrs)]) <= known:
            chosen, rest, known = {}, dims, _told(dims)
        untold = [_product(d) for d in rest if not vars_in(d) <= known]
        return {**chosen, **_named(untold, len(chosen))}

    @property
    def requirements(self) -> list[Requirement]:
        """Returns the conditions on sizes that the function assumes, written with the sizes of the graph."""
        if all(v.is_static for v in (*self.inputs, *self.outputs)):
            return []
        return [(substitute(condition, self.sizes), message) for condition, message in asserted_sizes(self._asserting)]

    def _own(self, value: Any) -> Any:
        """Returns a shape or an attribute, written with the kernel's own symbolic sizes."""
        if not self.sizes:
            return value
        if isinstance(value, (tuple, list)):
            return tuple([self._own(v) for v in value])
        if not isinstance(value, Expr):
            return value

        return _written(value, self.sizes)

    @cached_property
    def signature(self) -> tuple[Any, ...]:
        """Returns a key that kernels of equal operators on equal types share; their functions differ in names only."""
        numbers: dict[Any, int] = {}

        def number(key: Any) -> int:
            return numbers.setdefault(key, len(numbers))

        def plain(value: Any) -> Any:
            if isinstance(value, (tuple, list)):
                return ("tuple", *[plain(v) for v in value])
            if isinstance(value, Var):
                return ("symbol", number(value))
            return ("expression", id(value)) if isinstance(value, Expr) else (type(value).__name__, value)

        types = [(v.dtype, plain(v.shape), v in self.constants and self._is_weight(v)) for v in self.inputs]
        values = {v: number(v) for v in self.inputs}
        rows = []
        for node in self.nodes:
            attrs = tuple([(key, plain(value)) for key, value in sorted(node.attrs.items())])
            rows.append((node.op, tuple([None if v is None else values[v] for v in node.inputs]), attrs))
            values.update((v, number(v)) for v in node.outputs)
        return (*types, *rows, tuple([values[v] for v in self.outputs]))

    def _is_weight(self, value: Value) -> bool:
        """Returns whether an anchor of this kernel, and nothing else in it, reads ``value`` as its second operand.

        It may be read through operators that decode it element by element.
        """
        shape = value.shape
        while True:
            users = [n for n in self.nodes if value in n.inputs]
            if len(users) != 1 or value in self.outputs:
                return False
            (user,) = users
            kind = operator(user.op).kind
            if kind == "anchor":
                return user.inputs[1:2] == (value,)
            if kind not in ("elementwise", "broadcast") or user.output.shape != shape:
                return False
            value = user.output


def _is_choice(extent: Expr) -> bool:
    """Returns whether an extent is one of two, whichever the sizes of a call say."""
    return any(isinstance(e, Select) for e in pre_order(extent))


def _expressions(value: Any) -> Iterator[Expr]:
    """Yields the expressions in the attributes of an operator; those of bodies have been divided by themselves."""
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, (tuple, list)):
        for v in value:
            yield from _expressions(v)
    elif isinstance(value, Mapping):
        yield from _expressions([*value.values()])


def _told(extents: Sequence[Expr]) -> set[Var]:
    """Returns the variables whose values the values of ``extents`` tell."""
    known: set[Var] = set()
    while found := {v for d in extents if len(vars_in(d) - known) == 1 for v in vars_in(d) - known}:
        known |= found
    return known


def _named(extents: Sequence[Expr], first: int) -> dict[Var, Expr]:
    """Returns a name for each of the different extents."""
    out: dict[Var, Expr] = {}
    for d in extents:
        if not any(same(d, one) for one in out.values()):
            out[Var("_".join(sorted(v.name for v in vars_in(d))) + f"_{first + len(out)}", d.dtype)] = d
    return out


def _written(extent: Expr, sizes: Mapping[Var, Expr]) -> Expr:
    """Returns an extent written with ``sizes``, in place of the expressions that they name."""

    def replaced(e: Any) -> Any:
        return next((v for v, whole in sizes.items() if isinstance(e, Expr) and same(e, whole)), None)

    made: Expr = transform(simplify(extent), pre=replaced)
    return made


def _product(extent: Expr) -> Expr:
    """Returns the sizes that an extent multiplies, without the number; another extent itself."""
    analyzer = Analyzer()
    terms = analyzer.poly(extent)
    if len(terms) != 1:
        return extent
    ((sizes, factor),) = terms.items()
    return analyzer.to_expr({sizes: 1}, extent.dtype) if sizes and factor > 1 else extent


@dataclass(frozen=True, eq=False)
class LoopKernel:
    """The kernels of one ``scan``: those of ``body`` run once for each of ``steps``.

    A loop that may run zero times leaves its first states as results. For such a loop ``copies`` has a kernel for each state,
    which copies the state's first value to where results are read; where the number of steps is not known before the loop, it
    copies each step's result there, too.
    """

    name: str
    node: Node
    body: Division
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    copies: tuple[Kernel, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Returns the operator, as kernels return theirs."""
        return (self.node,)

    @property
    def steps(self) -> Dim | None:
        """Returns how often the body runs; None where its first state says whether it runs again."""
        return self.node.attrs["steps"]

    @property
    def double_buffered(self) -> tuple[Value, ...]:
        """Returns the results that are double buffered: states of which only the last step is kept."""
        attrs = self.node.attrs
        return tuple([v for n, v in enumerate(self.outputs[: attrs["states"]]) if n not in attrs.get("history", ())])

    def __repr__(self) -> str:
        return f"{self.name}: {'steps while it goes on' if self.steps is None else f'{self.steps} steps'}"


class Leaf(NamedTuple):
    """A kernel, the division that it stands in, and how often one run calls it. A symbolic number of steps counts
    once."""

    kernel: Kernel
    division: Division
    calls: int


@dataclass(frozen=True)
class Division:
    """A division has the kernels of a graph in the order in which they run. It also has the values that are views of
    others."""

    graph: Graph
    kernels: tuple[Kernel | LoopKernel, ...]
    views: dict[Value, Value]

    __repr__ = short_repr("graph", "kernels")

    def leaves(self, calls: int = 1) -> Iterator[Leaf]:
        """Yields the kernels in order, those of loops at the places of the loops."""
        for kernel in self.kernels:
            if isinstance(kernel, Kernel):
                yield Leaf(kernel, self, calls)
            else:
                yield from (Leaf(copy, self, calls) for copy in kernel.copies)
                yield from kernel.body.leaves(calls * kernel.steps if isinstance(kernel.steps, int) else calls)

    def loops(self) -> Iterator[tuple[LoopKernel, Division]]:
        """Yields the loops, with the divisions that they stand in; inner ones follow outer ones."""
        for kernel in self.kernels:
            if isinstance(kernel, LoopKernel):
                yield kernel, self
                yield from kernel.body.loops()

    def root(self, value: Value) -> Value:
        """Returns the value whose memory holds ``value``."""
        while value in self.views:
            value = self.views[value]
        return value


def kernel_alone(name: str, op: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any]) -> Kernel:
    """Returns a kernel of one operator by itself, whose inputs are constants but for the first one.

    The operator has one result.
    """
    ((dtype, shape),) = infer(op, inputs, attrs)
    alone = Node(op, tuple(inputs), (Value("out", dtype, shape),), attrs)
    given = tuple([v for v in inputs if v is not None])
    return Kernel(name, (alone,), given, alone.outputs, frozenset(given[1:]))


def divide(graph: Graph, groups: Sequence[Sequence[Node]], inner: Callable[[Graph], Division]) -> Division:
    """Returns the division of a graph into ``groups`` of its operators. No group has a view, unless it is to be copied.

    The groups hold the other operators in the order of the graph; no group both feeds another one and reads from it. One that
    several groups hold is computed by each of them.
    ``inner`` divides the bodies of loops.
    """
    group_of = {node: n for n, group in enumerate(groups) for node in group}
    homes: dict[Node, list[set[Node]]] = {}
    for group in groups:
        members = set(group)
        for node in group:
            homes.setdefault(node, []).append(members)
    views = {n.output: v for n in graph.nodes if n not in group_of for v in n.given}
    producers, users = graph.producers(), graph.users()
    computed = computed_sizes(graph)
    kernels: dict[int, Kernel | LoopKernel] = {}
    constants = frozenset(graph.constants)
    taken: set[str] = set()
    order: list[int] = []
    waiting: set[int] = set()

    def is_read(v: Value, node: Node, members: set[Node]) -> bool:
        """Returns whether a value leaves the graph, or a group reads it that does not compute it itself."""
        readers = [u for u in users.get(v, []) if u not in members]
        return v in graph.outputs or any(u not in homes or any(node not in home for home in homes[u]) for u in readers)

    def visit(n: int) -> None:
        if n in kernels or n in waiting:
            return
        waiting.add(n)
        members, nodes = set(groups[n]), tuple(groups[n])
        made = {v for node in nodes for v in node.outputs}
        inputs = tuple(dict.fromkeys(v for node in nodes for v in node.given if v not in made))
        outputs = tuple([v for node in nodes for v in node.outputs if is_read(v, node, members)])
        for v in inputs:
            _visit_producer(v)
        for size in {s for node in nodes for s in sizes_of(node)} & set(computed) if computed else ():
            if computed[size] not in members:
                visit(group_of[computed[size]])
        name = _name(nodes, taken)
        if nodes[0].body is not None:
            kernels[n] = _loop(name, nodes[0], inner(nodes[0].body))
        else:
            kernels[n] = Kernel(name, nodes, inputs, outputs, constants)
        order.append(n)

    def _visit_producer(v: Value) -> None:
        while v in views:
            v = views[v]
        if v in producers:
            visit(group_of[producers[v]])

    for n in range(len(groups)):
        visit(n)
    return Division(graph, tuple([kernels[n] for n in order]), views)


def _loop(name: str, node: Node, body: Division) -> LoopKernel:
    """Returns the kernel of a loop, with copies of its first states where it may run zero times."""
    given = tuple(node.given)
    copies: list[Kernel] = []
    steps = node.attrs["steps"]
    sure = isinstance(steps, int) and steps > 0
    for k in range(0 if sure else node.attrs["states"]):
        copies.append(kernel_alone(f"{name}_copy_{k}", "identity", given[k : k + 1], {}))
    return LoopKernel(name, node, body, given, node.outputs, tuple(copies))


def _is_read_outside(v: Value, members: set[Node], graph: Graph, users: dict[Value, list[Node]]) -> bool:
    """Returns whether a value leaves the graph, or an operator that is no member reads it."""
    return v in graph.outputs or any(user not in members for user in users.get(v, []))


def _name(nodes: Sequence[Node], taken: set[str]) -> str:
    """Returns a name that says what the kernel computes, such as ``conv2d_add_relu``."""
    base = "_".join(dict.fromkeys(n.op for n in nodes))[:48].rstrip("_")
    out, k = base, 0
    while out in taken:
        k += 1
        out = f"{base}_{k}"
    taken.add(out)
    return out


def unfused(graph: Graph) -> Division:
    """Returns the division in which each operator is a kernel of its own."""
    return divide(graph, [[node] for node in graph.nodes if not is_view(node, graph)], unfused)


def whole_function(graph: Graph) -> PrimFunc:
    """Returns the function of a graph: its parameters are the inputs, the constants, and the outputs. GraphError for an output
    that is an input."""
    given = (*graph.inputs, *graph.constants)
    for v in graph.outputs:
        if v in given:
            raise GraphError(f"the output {v.name} is an input; it needs an operator, such as identity")
    return Kernel(graph.name, graph.nodes, given, graph.outputs).func


# what operators take for granted of symbolic sizes, and what passes may ask


def requirements(graph: Graph) -> list[Requirement]:
    """Returns the conditions on symbolic sizes under which the operators compute what they say, each with a message."""
    found: list[Requirement] = []
    for node in graph.nodes:
        if node.body is None and not all(v.is_static for v in (*node.given, *node.outputs)):
            given = [None if v is None else placeholder_for(v) for v in node.inputs]
            made = operator(node.op).tensors(given, node.attrs)
            found += [r for op in ordered_operations([t.op for t in made]) for r in op.requires]
    for body in bodies(graph):
        found += requirements(body)
    return each_once(found)


def each_once(conditions: list[Requirement]) -> list[Requirement]:
    """Returns conditions without repetitions; the first message stays."""
    by_sizes: dict[frozenset[Var], list[Requirement]] = {}
    for one in conditions:
        alike = by_sizes.setdefault(frozenset(vars_in(one[0])), [])
        if not any(same(one[0], known) for known, _ in alike):
            alike.append(one)
    return [one for alike in by_sizes.values() for one in alike]


def without_assertions(func: PrimFunc) -> PrimFunc:
    """Returns the function without its assertions about sizes; the same object when there are none."""
    checked = {id(condition) for condition, _ in asserted_sizes(func)}

    def post(s: Any) -> Any:
        return s.body if isinstance(s, AssertStmt) and id(s.condition) in checked else None

    return func.with_(body=transform_statements(func.body, post)) if checked else func


@dataclass(frozen=True)
class Services:
    """Services are what the caller of the passes provides; each may be missing.

    ``run(func, *arrays)`` computes a function, outputs in place; without it only small constants are folded.
    ``seconds(kernel)`` predicts the time of a kernel when it is scheduled as well as possible; without it choices follow
    from counts of operations and bytes. ``winograd``: the largest tile of results that convolutions by Winograd's method may
    compute at a time, 0 where they are not allowed; ``accuracy``: the largest error that they may have by
    :func:`~.passes.choose_winograd.winograd_error`, None for any. ``packed_nbits``: the types of data by which there are
    products with packed weights of a few bits, float32 and int8. ``repeated``: whether the graph is the body of a loop, before
    which its weights may be decoded. ``fused_multiply_add``: whether the machine has that instruction.
    """

    run: Callable[..., Any] | None = None
    seconds: Callable[[Kernel], float] | None = None
    winograd: int = 0
    accuracy: float | None = None
    packed_nbits: frozenset[str] = frozenset()
    repeated: bool = False
    fused_multiply_add: bool = False

    __repr__ = short_repr()

"""A recurrence is a tensor whose elements at one step depend on those of earlier steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..tir.arith import Analyzer
from ..tir.expr import Call, Expr, IterVar, Range, Select, Var, cast, is_const_int
from ..tir.walk import pre_order
from .operation import ComputeOp, Operation, PlaceholderOp, ordered_operations
from .tensor import ProducerLoad, Tensor


class ScanOp(Operation):
    """This operation is a recurrence over ``scan_axis``; ``body`` are the computations of one step, producers first.

    ``init``, ``update`` and ``state_placeholder`` have one tensor per output; ``inputs`` are the tensors that the body
    reads from outside.
    """

    __slots__ = ("body", "init", "inputs", "scan_axis", "state_placeholder", "update")

    def __init__(
        self,
        name: str,
        tensors: tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]],
        inputs: Sequence[Tensor],
        tag: str = "",
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        Operation.__init__(self, name, tag, attrs)
        self.init, self.update, self.state_placeholder = tensors
        total = self.state_placeholder[0].shape[0]
        first = cast(total.dtype, self.init[0].shape[0])
        self.scan_axis = IterVar(Range(first, total - first), Var(f"{name}.idx", total.dtype), IterVar.SCAN)
        self.outputs = tuple([Tensor(self, i, t.shape, t.dtype) for i, t in enumerate(self.state_placeholder)])
        self.body = _body(name, self.update, self.state_placeholder)
        read = [t for op in self.body for t in op.input_tensors]
        own = {*self.state_placeholder, *[t for op in self.body for t in op.outputs]}
        self.inputs = tuple(dict.fromkeys([t for t in (*inputs, *read) if t not in own]))
        for op in self.body:
            _check_steps(self, op)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """Returns the initial values, and the tensors that the steps read from outside."""
        return tuple(dict.fromkeys((*self.init, *self.inputs)))


def scan(
    init: Any,
    update: Any,
    state_placeholder: Any,
    inputs: Sequence[Tensor] | None = None,
    name: str = "scan",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Returns tensors that are given step by step along their first dimension: a running sum, a recurrent network.

    ``state_placeholder`` stands for the result inside ``update``, the computation of step ``t``, which may read it at
    ``t - 1`` and so on; both have the result's shape. ``init`` has the first steps, as many as its first dimension
    says. Lists of each give a list of results over common steps. ``inputs`` may name what the update reads from
    outside; it is found anyway. ValueError for shapes that do not fit, and for a step that reads its own or a later
    step.

    >>> from tilewright import te
    >>> X, state = te.placeholder((5, 3), name="X"), te.placeholder((5, 3))
    >>> first = te.compute((1, 3), lambda _, i: X[0, i])
    >>> total = te.scan(first, te.compute((5, 3), lambda t, i: state[t - 1, i] + X[t, i]), state)
    >>> total.op.scan_axis.dom.min
    1
    """
    many = isinstance(state_placeholder, (list, tuple))
    groups = [tuple(ts) if isinstance(ts, (list, tuple)) else (ts,) for ts in (init, update, state_placeholder)]
    if len({len(g) for g in groups}) != 1 or not groups[0]:
        raise ValueError(f"scan {name}: {', '.join(str(len(g)) for g in groups)} initial values, updates and states")
    for t in [t for g in groups for t in g]:
        if not isinstance(t, Tensor):
            raise TypeError(f"scan {name}: {t!r} ({type(t).__name__}) is not a tensor")
    _check_shapes(name, *groups)
    op = ScanOp(name, (groups[0], groups[1], groups[2]), inputs or (), tag, attrs)
    return list(op.outputs) if many else op.output(0)


def _check_shapes(name: str, init: Sequence[Tensor], update: Sequence[Tensor], state: Sequence[Tensor]) -> None:
    analyzer = Analyzer()

    def same(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
        return len(a) == len(b) and all(analyzer.can_prove_equal(x, y) for x, y in zip(a, b, strict=True))

    for first, step, s in zip(init, update, state, strict=True):
        shapes = f"init {first!r}, update {step!r}, state {s!r}"
        if not isinstance(s.op, PlaceholderOp):
            raise ValueError(f"scan {name}: the state {s!r} is not a placeholder")
        if s.ndim < 1 or not same(step.shape, s.shape) or not same(first.shape[1:], s.shape[1:]):
            raise ValueError(
                f"scan {name}: the shapes do not fit: {shapes}; they differ in the first dimension of init alone"
            )
        if not first.dtype == step.dtype == s.dtype:
            raise TypeError(f"scan {name}: the data types differ: {shapes}")
        if not same(first.shape[:1], init[0].shape[:1]) or not same(s.shape[:1], state[0].shape[:1]):
            raise ValueError(f"scan {name}: the states have different numbers of steps: {shapes}")
        if not isinstance(step.op, ComputeOp):
            raise ValueError(f"scan {name}: the update {step!r} is not a te.compute")
    if len(set(update)) != len(update) or len(set(state)) != len(state):
        raise ValueError(f"scan {name}: one update for two states, or one state for two results")
    if is_const_int(init[0].shape[0], 0):
        raise ValueError(f"scan {name}: init has no steps")


def _body(name: str, update: Sequence[Tensor], state: Sequence[Tensor]) -> tuple[ComputeOp, ...]:
    """Returns the computations of a step: those on the way from the states to the updates, producers first."""
    states = {t.op for t in state}
    moved: dict[Operation, bool] = {op: True for op in states}
    out: list[ComputeOp] = []
    for op in ordered_operations([t.op for t in update], stop=states):
        moved[op] = op in states or any(moved[t.op] for t in op.input_tensors)
        if moved[op] and op not in states:
            if not isinstance(op, ComputeOp):
                raise ValueError(f"scan {name}: the step {op!r} is not a te.compute")
            out.append(op)
    for t in update:
        if t.op not in out:
            out.append(t.op)  # type: ignore[arg-type]
    return tuple(out)


def _check_steps(scan: ScanOp, op: ComputeOp) -> None:
    """Raise ValueError unless ``op`` is computed step by step and reads only earlier steps of the recurrence."""
    dom = scan.scan_axis.dom
    analyzer = Analyzer()
    if not op.axis or not analyzer.can_prove_equal(op.axis[0].dom.extent, dom.min + dom.extent):
        raise ValueError(
            f"scan {scan.name}: {op.name} depends on the state, so its first dimension has to be the "
            f"{dom.min + dom.extent} steps"
        )
    step = op.axis[0].var
    for iv, own in ((op.axis[0], dom), *[(iv, iv.dom) for iv in (*op.axis[1:], *op.reduce_axis)]):
        analyzer.bind(iv.var, own)
    body = {t for other in scan.body for t in other.outputs}
    for e in op.body:
        for n in pre_order(e):
            if not isinstance(n, ProducerLoad):
                continue
            if n.producer in scan.state_placeholder:
                index = n.indices[0]
                guarded = any(isinstance(g, (Call, Select)) for g in pre_order(e))
                if not analyzer.can_prove(index < step) or not (guarded or analyzer.can_prove(index >= 0)):
                    raise ValueError(
                        f"scan {scan.name}: {op.name} reads the state at step {index}; it may read {step.name} - 1 and what "
                        f"is earlier, as far as the {dom.min} initial steps reach"
                    )
            elif n.producer in body and not analyzer.can_prove_equal(n.indices[0], step):
                raise ValueError(
                    f"scan {scan.name}: {op.name} reads {n.producer.name} at step {n.indices[0]}; what is computed within "
                    f"a step is read at this step, {step.name}"
                )


def copy_of(tensor: Tensor, name: str) -> ComputeOp:
    """Returns an operation that copies ``tensor``."""
    axis = tuple([IterVar(Range.from_extent(e), Var(f"i{n}", e.dtype)) for n, e in enumerate(tensor.shape)])
    return ComputeOp(name, axis, (ProducerLoad(tensor, tuple([iv.var for iv in axis])),))


def with_bodies(ops: Sequence[Operation]) -> list[Operation]:
    """Returns ``ops`` with the computations of a recurrence's steps in front of it."""
    return [inner for op in ops for inner in ((*op.body, op) if isinstance(op, ScanOp) else (op,))]

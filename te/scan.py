"""A recurrence is a tensor whose elements at one step depend on those of earlier steps.

:func:`recurrence` makes its loop nests: the first steps are copied, and a loop runs the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..tir.arith import Analyzer
from ..tir.expr import Call, Expr, IterVar, Range, Reduce, Select, Var, cast, is_const_int
from ..tir.stmt import For, Stmt, seq
from ..tir.walk import pre_order
from .tensor import ComputeOp, Operation, PlaceholderOp, ProducerLoad, Tensor, ordered_operations

if TYPE_CHECKING:
    from .create_prim_func import NestBuilder


class ScanOp(Operation):
    """This operation is a recurrence over ``scan_axis``, which is dimension ``step_dim`` of its results.

    ``body`` are the computations of one step, producers first.

    ``init``, ``update`` and ``state_placeholder`` have one tensor per output; ``inputs`` are the tensors that the body
    reads from outside.
    """

    __slots__ = ("body", "init", "inputs", "scan_axis", "state_placeholder", "step_dim", "update")

    def __init__(
        self,
        name: str,
        tensors: tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]],
        inputs: Sequence[Tensor],
        tag: str = "",
        attrs: Mapping[str, Any] | None = None,
        axis: int = 0,
    ) -> None:
        Operation.__init__(self, name, tag, attrs)
        self.step_dim = axis
        self.init, self.update, self.state_placeholder = tensors
        total = self.state_placeholder[0].shape[axis]
        first = cast(total.dtype, self.init[0].shape[axis])
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
    axis: int = 0,
) -> Any:
    """Returns tensors that are given step by step along dimension ``axis``: a running sum, a recurrent network.

    ``state_placeholder`` stands for the result inside ``update``, the computation of step ``t``, which may read it at
    ``t - 1`` and so on; both have the result's shape. ``init`` has the first steps, as many as its dimension ``axis``
    says; with none, and along another dimension than the first, a condition guards the reads of earlier steps. Lists of each give a list of results over common steps. ``inputs`` may name what the update reads from
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
    rank = min(t.ndim for g in groups for t in g)
    if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < max(rank, 1):
        raise ValueError(f"scan {name}: axis={axis!r} of states of {rank} dimensions")
    axis = axis % max(rank, 1)
    _check_shapes(name, axis, *groups)
    op = ScanOp(name, (groups[0], groups[1], groups[2]), inputs or (), tag, attrs, axis)
    return list(op.outputs) if many else op.output(0)


def _check_shapes(
    name: str, axis: int, init: Sequence[Tensor], update: Sequence[Tensor], state: Sequence[Tensor]
) -> None:
    analyzer = Analyzer()

    def same(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
        return len(a) == len(b) and all(analyzer.can_prove_equal(x, y) for x, y in zip(a, b, strict=True))

    def others(t: Tensor) -> Sequence[Expr]:
        return [*t.shape[:axis], *t.shape[axis + 1 :]]

    along = f"dimension {axis}" if axis else "the first dimension"
    for first, step, s in zip(init, update, state, strict=True):
        shapes = f"init {first!r}, update {step!r}, state {s!r}"
        if not isinstance(s.op, PlaceholderOp):
            raise ValueError(f"scan {name}: the state {s!r} is not a placeholder")
        if s.ndim < 1 or not same(step.shape, s.shape) or not same(others(first), others(s)):
            raise ValueError(f"scan {name}: the shapes do not fit: {shapes}; they differ in {along} of init alone")
        if not first.dtype == step.dtype == s.dtype:
            raise TypeError(f"scan {name}: the data types differ: {shapes}")
        if not same([first.shape[axis]], [init[0].shape[axis]]) or not same([s.shape[axis]], [state[0].shape[axis]]):
            raise ValueError(f"scan {name}: the states have different numbers of steps: {shapes}")
        if not isinstance(step.op, ComputeOp):
            raise ValueError(f"scan {name}: the update {step!r} is not a te.compute")
    if len(set(update)) != len(update) or len(set(state)) != len(state):
        raise ValueError(f"scan {name}: one update for two states, or one state for two results")


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
    at = scan.step_dim
    if len(op.axis) <= at or not analyzer.can_prove_equal(op.axis[at].dom.extent, dom.min + dom.extent):
        which = f"dimension {at}" if at else "first dimension"
        raise ValueError(
            f"scan {scan.name}: {op.name} depends on the state, so its {which} has to be the {dom.min + dom.extent} steps"
        )
    step = op.axis[at].var
    for d, iv in enumerate((*op.axis, *op.reduce_axis)):
        analyzer.bind(iv.var, dom if d == at else iv.dom)
    body = {t for other in scan.body for t in other.outputs}
    for e in op.body:
        for n in pre_order(e):
            if not isinstance(n, ProducerLoad):
                continue
            if n.producer in scan.state_placeholder:
                index = n.indices[at]
                guarded = any(isinstance(g, (Call, Select)) for g in pre_order(e))
                if not analyzer.can_prove(index < step) or not (guarded or analyzer.can_prove(index >= 0)):
                    raise ValueError(
                        f"scan {scan.name}: {op.name} reads the state at step {index}; it may read {step.name} - 1 and what "
                        f"is earlier, as far as the {dom.min} initial steps reach"
                    )
            elif n.producer in body and not analyzer.can_prove_equal(n.indices[at], step):
                raise ValueError(
                    f"scan {scan.name}: {op.name} reads {n.producer.name} at step {n.indices[at]}; what is computed within "
                    f"a step is read at this step, {step.name}"
                )


def copy_of(tensor: Tensor, name: str) -> ComputeOp:
    """Returns an operation that copies ``tensor``."""
    axis = tuple([IterVar(Range.from_extent(e), Var(f"i{n}", e.dtype)) for n, e in enumerate(tensor.shape)])
    return ComputeOp(name, axis, (ProducerLoad(tensor, tuple([iv.var for iv in axis])),))


def with_bodies(ops: Sequence[Operation]) -> list[Operation]:
    """Returns ``ops`` with the computations of a recurrence's steps in front of it."""
    return [inner for op in ops for inner in ((*op.body, op) if isinstance(op, ScanOp) else (op,))]


def _accumulates_apart(update: Tensor, state: Tensor) -> bool:
    """Returns whether a reduction reads the state that it updates. The value that it adds then needs a buffer of its
    own."""
    return isinstance(update.op.body[0], Reduce) and state in update.op.input_tensors  # type: ignore[attr-defined]


def place_first_steps(builder: NestBuilder, op: ScanOp, ops: Sequence[Operation]) -> None:
    """Let first steps that only the recurrence reads be computed in the buffers of its results, as in TVM.

    A reduction is not: it accumulates in a buffer that nothing else writes.
    """
    for init, out in zip(op.init, op.outputs, strict=True):
        made, used = init.op, sum(init is t for o in ops for t in o.input_tensors) + sum(init is t for t in op.init)
        plain = type(made) is ComputeOp and made.num_outputs == 1 and not isinstance(made.body[0], Reduce)
        if used == 2 and is_const_int(init.shape[op.step_dim], 0) and init not in builder.buffers:
            builder.without_nest.add(made)
        if plain and used == 2 and init not in builder.buffers and init.dtype == out.dtype:
            if out not in builder.buffers:
                builder.allocated.append(builder.new_buffer(out))
            builder.buffers[init] = builder.buffers[out]


def recurrence(builder: NestBuilder, op: ScanOp) -> list[Stmt]:
    """Returns the first steps copied, and the loop over the others; all write the buffers of the results.

    A recurrence of one computation keeps its loops in the order of its axes; of several, the steps are outermost.
    """
    nests: list[Stmt] = []
    copies: list[tuple[Tensor, Tensor]] = []
    for init, out, update, state in zip(op.init, op.outputs, op.update, op.state_placeholder, strict=True):
        builder.buffers[state] = builder.buffers[out]
        if _accumulates_apart(update, state):
            copies.append((update, out))
        else:
            builder.buffers[update] = builder.buffers[out]
        if builder.buffers.get(init) is builder.buffers[out] or is_const_int(init.shape[op.step_dim], 0):
            continue
        first = copy_of(init, f"{out.name}_init")
        builder.buffers[first.output(0)] = builder.buffers[out]
        nests.append(builder.compute(first))
        builder.blocks.setdefault(op, []).extend(builder.blocks.pop(first))
    alone = len(op.body) == 1 and not copies
    step = None if alone else Var(op.body[-1].axis[op.step_dim].var.name, op.scan_axis.var.dtype)
    steps: list[Stmt] = []
    for inner in op.body:
        builder.require(inner.requires)
        for t in inner.outputs:
            if t not in builder.buffers:
                builder.allocated.append(builder.new_buffer(t))
        updates = any(builder.buffers[t] is builder.buffers[out] for t in inner.outputs for out in op.outputs)
        steps.append(_one_step(builder, op, inner, inner.outputs, step, updates))
    for update, out in copies:
        steps.append(_one_step(builder, op, copy_of(update, f"{out.name}_update"), (out,), step, True))
    if step is None:
        return [*nests, *steps]
    dom = op.scan_axis.dom
    return [*nests, For(step, dom.min, dom.extent, "serial", seq(*steps))]


def _one_step(
    builder: NestBuilder, op: ScanOp, inner: ComputeOp, into: Sequence[Tensor], step: Var | None, updates: bool
) -> Stmt:
    """Returns the nest of ``inner`` within one step of a recurrence, storing to the buffers of ``into``.

    Without ``step`` the nest has the loop over the steps at its own place.
    """
    kind = IterVar.SCAN if updates else IterVar.SPATIAL
    at = op.step_dim
    axis = (*inner.axis[:at], IterVar(op.scan_axis.dom, inner.axis[at].var, kind), *inner.axis[at + 1 :])
    moved = ComputeOp(inner.name, axis, inner.body, inner.tag, inner.attrs, inner.requires)
    builder.buffers.update({new: builder.buffers[t] for new, t in zip(moved.outputs, into, strict=True)})
    nest = builder.compute(moved, step, at)
    builder.blocks.setdefault(inner if inner in op.body else op, []).extend(builder.blocks.pop(moved))
    return nest

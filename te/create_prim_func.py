"""This module turns tensors into loop nests: one block per computation, producers first.

    C = te.compute((128, 128), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    create_prim_func([A, B, C])

becomes

    @T.prim_func
    def main(A: T.Buffer((128, 128), "float32"), B: …, C: …):
        T.func_attr({"tir.noalias": True})
        for i, j, k in T.grid(128, 128, 128):
            with T.block("C"):
                v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                T.reads(A[v_i, v_k], B[v_k, v_j])
                T.writes(C[v_i, v_j])
                with T.init():
                    C[v_i, v_j] = T.float32(0)
                C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..tir.analysis.regions import access_regions
from ..tir.expr import BufferLoad, DType, Expr, IterVar, Range, Reduce, Var, const, is_const_int, structural_equal
from ..tir.expr.deep_recursion import with_room
from ..tir.expr.intrinsics.control_and_memory import if_then_else
from ..tir.index_width import widened, with_index_dtype
from ..tir.stmt import (
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    LetStmt,
    PrimFunc,
    Stmt,
    root_block,
    seq,
)
from ..tir.storage_types import WRITES_ALL
from ..tir.walk import free_vars, pre_order, reads_memory, replace_buffers, statements, substitute, transform, vars_in
from .read_bounds import by_domains, require_reads_inside
from .scan import ScanOp, place_first_steps, recurrence
from .tensor import ComputeOp, ExternOp, Operation, PlaceholderOp, ProducerLoad, Tensor, ordered_operations

LAYOUT_FREE = "layout_free_placeholders"


def create_prim_func(
    ops: Sequence[Tensor | Var], name: str = "main", *, index_dtype_override: str | None = None
) -> PrimFunc:
    """Returns the function that computes the tensors ``ops``; its parameters are ``ops``, in this order.

    Inputs have to be among ``ops``; computed tensors that are not become buffers of the function's own. A
    :func:`tilewright.te.var` among ``ops`` is a scalar parameter; other variables in shapes are bound to the arrays'
    sizes at the call. ValueError names a missing input, or a variable whose value does not follow from an argument.

    Loops, axes and indices have the types of the shapes, int32 mostly; all are int64 when int32 does not count the
    elements of a tensor or hold an index. ``index_dtype_override`` ("int32" or "int64") gives sizes, loops
    and indices one type, scalar parameters among them.

    >>> from tilewright import te
    >>> A = te.placeholder((4,), name="A")
    >>> func = create_prim_func([A, te.compute((4,), lambda i: A[i] + 1.0, name="B")])
    >>> [buffer.name for buffer in func.buffers]
    ['A', 'B']
    """
    func = lower_with_blocks(ops, name)[0]
    return func if index_dtype_override is None else with_index_dtype(func, DType(index_dtype_override))


@with_room
def lower_with_blocks(ops: Sequence[Tensor | Var], name: str = "main") -> tuple[PrimFunc, dict[Operation, list[str]]]:
    """Returns the function of :func:`create_prim_func`, and the names of each operation's blocks."""
    args = _checked_args(ops)
    builder = NestBuilder(args)
    ops_in_order = ordered_operations([t.op for t in args if isinstance(t, Tensor)])
    for op in ops_in_order:
        if type(op) in PLACES:
            PLACES[type(op)](builder, op, ops_in_order)
    for op in ops_in_order:
        builder.add(op)
    func = PrimFunc(
        tuple(builder.params),
        root_block("root", seq(*builder.nests), tuple(builder.allocated)),
        builder.buffer_map,
        {"global_symbol": name, "tir.noalias": True, **builder.func_attrs()},
    )
    packed = [t.op for t in args if isinstance(t, Tensor) and t.dtype.per_byte > 1 and type(t.op) is not PlaceholderOp]
    if packed and all([type(op) is ComputeOp for op in packed]):
        func = func.with_attr(WRITES_ALL, True)
    _check_free_vars(func)
    if builder.guards:
        func = func.with_(body=root_block("root", builder.guarded(seq(*builder.nests)), tuple(builder.allocated)))
    return widened(func), builder.blocks


def _checked_args(ops: Sequence[Tensor | Var]) -> list[Tensor | Var]:
    args: list[Tensor | Var] = []
    for arg in [ops] if isinstance(ops, (Tensor, Var)) else ops:
        if isinstance(arg, (tuple, list)):
            raise TypeError("create_prim_func takes one flat list; put the outputs of a tuple one by one: [A, *outs]")
        if not isinstance(arg, (Tensor, Var)):
            raise TypeError(f"create_prim_func takes tensors and te.var, got {arg!r} ({type(arg).__name__})")
        if any(arg is other for other in args):
            raise ValueError(f"{arg!r} is given twice")
        args.append(arg)
    if not any(isinstance(a, Tensor) for a in args):
        raise ValueError("create_prim_func needs at least one tensor")
    return args


class NestBuilder:
    """A builder collects buffers and the loop nests over them."""

    def __init__(self, args: Sequence[Tensor | Var]) -> None:
        self.buffers: dict[Tensor, Buffer] = {}
        self.params: list[Var] = []
        self.buffer_map: dict[Var, Buffer] = {}
        self.allocated: list[Buffer] = []
        self.nests: list[Stmt] = []
        self.layout_free: list[Tensor] = []
        self.without_nest: set[Operation] = set()
        self.blocks: dict[Operation, list[str]] = {}
        self.block_names: dict[str, int] = {"root": 0}
        self.buffer_names: dict[str, int] = {}
        self.guards: list[tuple[Expr, str]] = []
        self.args = args
        for arg in args:
            if isinstance(arg, Var):
                self.params.append(arg)
                continue
            buffer = self.new_buffer(arg)
            handle = Var(f"var_{buffer.name}", "handle")
            self.params.append(handle)
            self.buffer_map[handle] = buffer

    def new_buffer(self, tensor: Tensor) -> Buffer:
        """Returns the buffer of ``tensor``; an extern's output has the one that its body writes."""
        op = tensor.op
        if isinstance(op, ExternOp):
            buffer = op.output_placeholders[tensor.value_index]
            unique_name(self.buffer_names, buffer.name)
        else:
            buffer = Buffer(unique_name(self.buffer_names, tensor.name), tensor.shape, tensor.dtype)
        self.buffers[tensor] = buffer
        return buffer

    def add(self, op: Operation) -> None:
        """Add the loop nest of one operation, whose inputs were added before."""
        if op in self.without_nest:
            return
        if isinstance(op, PlaceholderOp):
            if op.output(0) not in self.buffers:
                raise ValueError(
                    f"the input {op.name} is read but is not among the arguments "
                    f"({', '.join(a.name for a in self.args)}); add it"
                )
            return
        for tensor in op.outputs:
            if tensor not in self.buffers:
                self.allocated.append(self.new_buffer(tensor))
        self.require(op.requires)
        if type(op) in NESTS:
            self.nests += NESTS[type(op)](self, op)
        elif isinstance(op, ComputeOp):
            require_reads_inside(op, False)
            self.nests.append(self.compute(op))
        else:
            raise TypeError(f"{op!r}: create_prim_func knows no {type(op).__name__}")

    def require(self, conditions: Iterable[tuple[Expr, str]]) -> None:
        """Add conditions that hold at the call, each once."""
        for condition, message in conditions:
            if not any(structural_equal(condition, known) for known, _ in self.guards):  # few, and of one line
                self.guards.append((condition, message))

    def guarded(self, body: Stmt) -> Stmt:
        """Returns ``body`` after the assertions on the sizes that its operations ask for."""
        for condition, message in reversed(self.guards):
            body = AssertStmt(condition, message, body)
        return body

    # one nest

    def compute(self, op: ComputeOp, step: Var | None = None, at: int = 0) -> Stmt:
        """Returns the nest of ``op``; within a recurrence without the loop over its axis ``at``, whose variable is ``step``."""
        axes = axes_of(op)
        loops = [Var(iv.var.name, iv.var.dtype) for iv in axes]
        if step is not None:
            loops[at] = step
        if isinstance(op.body[0], Reduce):
            body: Stmt = self.block(op, op.outputs, loops, op.name)
        elif op.num_outputs == 1:
            body = self.block(op, op.outputs, loops, op.name)
        else:
            body = seq(*[self.block(op, (t,), loops, f"{op.name}.v{t.value_index}") for t in op.outputs])
        by_loop = {iv.var: loop for loop, iv in zip(loops, axes, strict=True)}
        for loop, iv in reversed(list(zip(loops, axes, strict=True))):
            if loop is not step:
                dom = self.domain(iv, by_loop)
                body = For(loop, dom.min, dom.extent, "serial", body)
        return body

    def domain(self, iv: IterVar, loops: Mapping[Var, Var]) -> Range:
        """Returns the domain of an axis, which may depend on axes before it: over their loops."""
        ends = [self.loads(substitute(e, loops), {}) for e in (iv.dom.min, iv.dom.extent)]
        return iv.dom if ends[0] is iv.dom.min and ends[1] is iv.dom.extent else Range(*ends)

    def block(self, op: ComputeOp, tensors: Sequence[Tensor], loops: Sequence[Var], name: str) -> BlockRealize:
        """Returns the block that stores ``tensors``, with its axes bound to ``loops``."""
        axes = axes_of(op)
        by_loop = {iv.var: loop for loop, iv in zip(loops, axes, strict=True)}
        own = [IterVar(self.domain(iv, by_loop), Var(f"v_{iv.var.name}", iv.var.dtype), iv.kind) for iv in axes]
        rename = {iv.var: mine.var for iv, mine in zip(axes, own, strict=True)}
        ranges = {v: Range(*[self.loads(substitute(e, rename), {}) for e in (iv.dom.min, iv.dom.extent)])
                  for iv, v in zip(axes, rename.values(), strict=True)}  # fmt: skip
        indices = tuple([mine.var for mine in own[: len(op.axis)]])

        def lower(e: Expr) -> Expr:
            return self.loads(substitute(e, rename), ranges)

        init: Stmt | None = None
        body: Stmt
        first = op.body[tensors[0].value_index]
        buffers = [self.buffers[t] for t in tensors]
        if isinstance(first, Reduce):
            start, body = init_and_update(first, buffers, indices, lower)
            if len(axes) == len(op.axis):  # a reduction over an empty domain is its identity
                body = start
            else:
                init = start
        else:
            body = BufferStore(buffers[0], lower(first), indices)
        values: tuple[Expr, ...] = tuple(loops)
        if not own:  # a tensor of rank 0: as in TVM, one axis of extent 1
            own, values = [IterVar(Range(const(0), const(1)), Var("vi"))], (const(0),)
        bounds = [Evaluate(e) for r in ranges.values() for e in (r.min, r.extent) if reads_memory(e)]
        reads, writes = access_regions(seq(body, *bounds), init)  # loads in the bounds of an axis are reads as well
        name = self.block_name(op, name)
        block = Block(tuple(own), reads, writes, name, body, init, (), (), self.block_attrs(op))
        return BlockRealize(values, const(True, "bool"), block)

    def block_name(self, op: Operation, wish: str) -> str:
        name = unique_name(self.block_names, wish)
        self.blocks.setdefault(op, []).append(name)
        return name

    def loads(self, e: Expr, ranges: Mapping[Var, Range]) -> Expr:
        """Returns ``e`` with loads of buffers in place of those of tensors, simplified by the domains ``ranges`` of the
        axes."""

        def post(n: Any) -> Any:
            return BufferLoad(self.buffers[n.producer], n.indices) if isinstance(n, ProducerLoad) else None

        lowered: Expr = transform(e, post=post)
        return by_domains(lowered, ranges)

    def block_attrs(self, op: ComputeOp) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in op.attrs.items():
            if isinstance(value, Tensor) or (
                isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value)
            ):
                tensors = [value] if isinstance(value, Tensor) else list(value)
                if key != LAYOUT_FREE:
                    raise TypeError(f"{op.name}: attribute {key!r} holds a tensor; only {LAYOUT_FREE!r} may")
                self.layout_free += tensors
            else:
                out[key] = value
        return out

    def func_attrs(self) -> dict[str, Any]:
        which = [i for i, a in enumerate(self.args) if any(a is free for free in self.layout_free)]
        return {"layout_free_buffers": which} if which else {}


def _with_unique_blocks(builder: NestBuilder, body: Stmt) -> Stmt:
    """Returns ``body`` with block names that are different from the existing ones."""

    def post(n: Any) -> Any:
        if isinstance(n, Block):
            name = unique_name(builder.block_names, n.name_hint)
            return None if name == n.name_hint else n.with_(name_hint=name)
        return None

    out: Stmt = transform(body, post=post)
    return out


def _extern(builder: NestBuilder, op: ExternOp) -> list[Stmt]:
    mapping = {
        inner: builder.buffers[t]
        for inner, t in zip(op.input_placeholders, op.inputs, strict=True)
        if inner is not builder.buffers[t]
    }
    for inner, t in zip(op.output_placeholders, op.outputs, strict=True):
        if inner is not builder.buffers[t]:
            mapping[inner] = builder.buffers[t]
    reads = tuple([builder.buffers[t].full_region() for t in op.inputs])
    writes = tuple([builder.buffers[t].full_region() for t in op.outputs])
    body: Any = replace_buffers(op.body, mapping)
    allocs: tuple[Buffer, ...] = ()
    if isinstance(body, BlockRealize) and not body.block.iter_vars and not body.block.reads + body.block.writes:
        body, allocs = body.block.body, body.block.alloc_buffers  # a function's root
    body = _with_unique_blocks(builder, body)
    name = builder.block_name(op, op.name)
    block = Block((), reads, writes, name, body, None, allocs, (), dict(op.attrs))
    return [BlockRealize((), const(True, "bool"), block)]


NESTS: dict[type[Operation], Callable[[NestBuilder, Any], list[Stmt]]] = {ExternOp: _extern, ScanOp: recurrence}
"""What makes the statements of an operation other than a ``ComputeOp``, by its class."""

PLACES: dict[type[Operation], Callable[[NestBuilder, Any, Sequence[Operation]], None]] = {ScanOp: place_first_steps}
"""What chooses buffers for the inputs of an operation among all operations, before any of them gets its statements."""


def unique_name(taken: dict[str, int], name: str) -> str:
    """Returns ``name``, or ``name_1``, ``name_2`` … when it is taken."""
    unique = name
    while unique in taken:
        taken[name] += 1
        unique = f"{name}_{taken[name]}"
    taken[unique] = 0
    return unique


def _check_free_vars(func: PrimFunc) -> None:
    known = _given(func) | {buffer.data for buffer in _all_buffers(func)}
    unknown = sorted((v for v in free_vars(func.body) if v not in known), key=lambda v: v.name)
    if unknown:
        raise ValueError(
            f"nothing gives {', '.join(v.name for v in unknown)} a value: not an axis of the stage that uses it, not an "
            "argument, not a size in an argument's shape. A te.reduce_axis has to be reduced over in the same "
            "te.compute, e.g. te.sum(…, axis=k); pass a te.var in the list of arguments"
        )
    for buffer in func.buffers:
        for e in buffer.shape:
            missing = sorted({n.name for n in pre_order(e) if isinstance(n, Var) and n not in known})
            if missing:
                raise ValueError(
                    f"the size {e} of {buffer.name} does not give {' and '.join(missing)} a value; pass them in the list of "
                    "arguments, or as sizes of their own"
                )


def _given(func: PrimFunc) -> set[Var]:
    """Returns the parameters, and the sizes that follow from the arrays' shapes one after the other."""
    known = set(func.params)
    shapes = [e for buffer in func.buffers for e in (*buffer.shape, *buffer.strides, buffer.elem_offset)]
    while True:
        unknown = [{n for n in pre_order(e) if isinstance(n, Var)} - known for e in shapes]
        found = set().union(*[variables for variables in unknown if len(variables) == 1])
        if not found:
            return known
        known |= found


def _all_buffers(func: PrimFunc) -> Iterator[Buffer]:
    yield from func.buffers
    for n in statements(func.body):
        if isinstance(n, Block):
            yield from n.alloc_buffers
            yield from (m.buffer for m in n.match_buffers)
        elif isinstance(n, BufferStore):
            yield n.buffer


def axes_of(op: ComputeOp) -> tuple[IterVar, ...]:
    """Returns the axes of the block; a reduction over no elements has only the spatial ones. ValueError when the domain
    of an axis depends on one that comes after it."""
    after: dict[Var, IterVar] = {}
    for iv in reversed(op.reduce_axis):
        after[iv.var] = iv
        for v in (vars_in(iv.dom.min) | vars_in(iv.dom.extent)) & after.keys():
            raise ValueError(
                f"{op.name}: the domain of {iv.var.name}, ({iv.dom.min}, {iv.dom.min + iv.dom.extent}), depends on {v.name}, "
                f"which comes after it; put {v.name} first in axis=[…]"
            )
    empty = any(is_const_int(iv.dom.extent, 0) for iv in op.reduce_axis)
    return op.axis if empty else (*op.axis, *op.reduce_axis)


def init_and_update(
    reduce: Reduce, buffers: Sequence[Buffer], indices: tuple[Expr, ...], lower: Callable[[Expr], Expr]
) -> tuple[Stmt, Stmt]:
    """Returns the init and update of a reduction into ``buffers`` (several: a tuple reduction, through variables
    ``v_…``)."""
    combiner = reduce.combiner
    start = reduce.init or combiner.identity_element
    init = seq(*[BufferStore(b, lower(e), indices) for b, e in zip(buffers, start, strict=True)])
    source = list(reduce.source)
    if not is_const_int(reduce.condition, 1):  # where=: elements where it is false count as the identity
        pairs = zip(source, combiner.identity_element, strict=True)
        source = [if_then_else(reduce.condition, e, neutral) for e, neutral in pairs]
    source = [lower(e) for e in source]
    mapping: dict[Var, Expr] = {v: BufferLoad(b, indices) for v, b in zip(combiner.lhs, buffers, strict=True)}
    mapping.update(zip(combiner.rhs, source, strict=True))
    results = [substitute(e, mapping) for e in combiner.result]
    if len(buffers) == 1:
        return init, BufferStore(buffers[0], results[0], indices)
    temporaries = [Var(f"v_{b.name}", b.dtype) for b in buffers]
    body = seq(*[BufferStore(b, v, indices) for b, v in zip(buffers, temporaries, strict=True)])
    for temporary, result in reversed(list(zip(temporaries, results, strict=True))):
        body = LetStmt(temporary, result, body)
    return init, body

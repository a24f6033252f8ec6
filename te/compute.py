"""This module declares tensors: inputs, computations with the variables in them, and stages that the user writes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union, overload

import numpy as np
from numpy.typing import DTypeLike

from ..tir.analysis.regions import access_regions
from ..tir.arith.normal_form.forms import difference
from ..tir.expr import DType, Expr, IntImm, IterVar, Range, Reduce, Var, const, convert
from ..tir.stmt import BlockRealize, Buffer, Evaluate, PrimFunc, Stmt
from ..tir.walk import fresh_copy, pre_order, replace_buffers
from .read_bounds import require_reads_inside
from .tensor import ComputeOp, ExternOp, PlaceholderOp, Requirement, Tensor

Shape = Union[Sequence[Union[int, Expr]], int, Expr]


def var(name: str = "tindex", dtype: str = "int32") -> Var:
    """Returns a variable: a size known when the function is called, or a scalar argument of it."""
    return Var(name, as_dtype(dtype))


def size_var(name: str = "size", dtype: str = "int32") -> Var:
    """Returns a variable that stands for a size, never negative."""
    return var(name, dtype)


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> IterVar:
    """Returns a thread axis such as ``threadIdx.x``, to bind loops to; ``te.thread_axis("threadIdx.x")`` works as
    well."""
    if isinstance(dom, str):
        dom, tag = None, dom
    if not tag:
        raise ValueError("thread_axis needs a tag, e.g. 'threadIdx.x'")
    extent = const(1) if dom is None else convert(dom[1] - dom[0] if isinstance(dom, (tuple, list)) else dom)
    return IterVar(Range.from_extent(extent), Var(name or tag.replace(".", "_")), IterVar.THREAD, tag)


def as_shape(shape: Any, name: str) -> tuple[Expr, ...]:
    """Returns a shape as expressions: whole numbers or integer expressions, none negative."""
    if isinstance(shape, np.ndarray):
        shape = shape.tolist()
    dims = shape if isinstance(shape, (tuple, list)) else (shape,)
    out = []
    for dim in dims:
        e = convert(int(dim) if isinstance(dim, float) and dim == int(dim) else dim)
        if not e.dtype.is_int:
            raise TypeError(f"{name}: a dimension is {e!r} ({e.dtype}), not an integer")
        if isinstance(e, IntImm) and e.value < 0:
            raise ValueError(f"{name}: dimension {e.value} in the shape ({', '.join(map(str, dims))})")
        out.append(e)
    return tuple(out)


def as_dtype(dtype: Any) -> DType:
    """Returns a data type by name; for a NumPy type its NumPy name. ValueError when there is no such type."""
    if not isinstance(dtype, str):
        try:
            dtype = np.dtype(dtype).name
        except TypeError:
            raise ValueError(f"{dtype!r} is not a data type; write e.g. 'float32'") from None
    return DType(dtype)


def said_name(kind: str, name: str) -> str:
    """Returns how messages call a tensor: its kind and its name, one word where the user gave none."""
    return kind if name == kind else f"{kind} {name}"


def placeholder(shape: Shape, dtype: str | DTypeLike | None = None, name: str = "placeholder") -> Tensor:
    """Returns an input tensor, ``float32`` unless said otherwise.

    >>> from tilewright import te
    >>> te.placeholder((2, te.var("n")), name="A").ndim
    2
    """
    text = as_dtype("float32" if dtype is None else dtype)
    return PlaceholderOp(name, as_shape(shape, f"{said_name('placeholder', name)}"), text).output(0)


@overload
def compute(
    shape: Shape,
    fcompute: Callable[..., tuple[Expr | float, ...] | list[Expr | float]],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
    requires: Sequence[Requirement] = (),
) -> tuple[Tensor, ...]: ...


@overload
def compute(
    shape: Shape,
    fcompute: Callable[..., Expr | float],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
    requires: Sequence[Requirement] = (),
) -> Tensor: ...


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
    requires: Sequence[Requirement] = (),
) -> Any:
    """Returns a tensor whose element at ``i, j, …`` is ``fcompute(i, j, …)``. When ``fcompute`` returns a tuple, the
    result is a tuple of tensors.

    The axes take the names of ``fcompute``'s parameters (``i0, i1, …`` for ``*i``, or ``varargs_names``). A reduction
    (``te.sum(…, axis=k)`` and its like) may only be the whole body. ValueError when the number of parameters is not
    that of dimensions, IndexError when an element outside a tensor's shape is read. Reads that sizes decide are checked
    at the call; indices that are read from memory are not checked. ``requires``: conditions on sizes that are checked at
    the call as well, each with a message.

    >>> from tilewright import te
    >>> A = te.placeholder((4, 8), name="A")
    >>> B = te.compute((8, 4), lambda i, j: A[j, i], name="B")
    >>> [axis.var.name for axis in B.op.axis]
    ['i', 'j']
    """
    dims = as_shape(shape, f"{said_name('compute', name)}")
    names = _axis_names(fcompute, len(dims), name, varargs_names)
    axis = tuple([IterVar(Range.from_extent(e), Var(n, e.dtype)) for n, e in zip(names, dims, strict=True)])
    result = fcompute(*[iv.var for iv in axis])
    if result is None:
        raise TypeError(f"{said_name('compute', name)}: the function returns nothing")
    many = isinstance(result, (tuple, list))
    if many and not result:
        raise ValueError(f"{said_name('compute', name)}: the function returns an empty tuple")
    body = tuple([convert(e) for e in (result if many else (result,))])
    op = ComputeOp(name, axis, _checked_body(name, body), tag, attrs, requires)
    require_reads_inside(op, True)
    return op.outputs if many and len(body) > 1 else op.output(0)


def _axis_names(fcompute: Callable[..., Any], ndim: int, name: str, varargs_names: Sequence[str] | None) -> list[str]:
    names: list[str] = []
    rest = False
    for p in inspect.signature(fcompute).parameters.values():
        if p.kind == p.VAR_POSITIONAL:
            rest = True
        elif p.kind in (p.VAR_KEYWORD, p.KEYWORD_ONLY):
            raise TypeError(
                f"{said_name('compute', name)}: the function has keyword-only parameters; it is called with the axes"
            )
        elif p.default is p.empty:
            names.append(p.name)
    if rest:
        more = ndim - len(names)
        if varargs_names is not None and len(varargs_names) != more:
            raise ValueError(f"{said_name('compute', name)}: {len(varargs_names)} varargs_names for {more} dimensions")
        names += list(varargs_names) if varargs_names is not None else [f"i{i}" for i in range(len(names), ndim)]
    elif not names and varargs_names is None and not inspect.signature(fcompute).parameters and ndim == 0:
        return []
    if len(names) != ndim:
        raise ValueError(
            f"{said_name('compute', name)}: the function takes {len(names)} axes, the shape has {ndim} dimensions"
        )
    return names


def _checked_body(name: str, body: tuple[Expr, ...]) -> tuple[Expr, ...]:
    for e in body:
        for n in pre_order(e):
            if isinstance(n, Reduce) and n is not e:
                raise ValueError(
                    f"{said_name('compute', name)}: a reduction inside a larger expression; make it a te.compute of its own "
                    "and use its elements here"
                )
    reductions = [e for e in body if isinstance(e, Reduce)]
    if not reductions:
        return body
    first = reductions[0]
    same = len(reductions) == len(body) and all(
        r.combiner is first.combiner and r.axis is first.axis and r.source is first.source for r in reductions
    )
    if not same:
        raise ValueError(
            f"{said_name('compute', name)}: several outputs that are reductions have to come from one comm_reducer call over a tuple"
        )
    if [r.value_index for r in reductions] != list(range(len(first.source))):
        raise ValueError(
            f"{said_name('compute', name)}: the reduction gives {len(first.source)} values; the function has to return all, in order"
        )
    return body


def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[[list[Buffer], list[Buffer]], Stmt | Expr],
    name: str = "extern",
    dtype: Any = None,
    in_buffers: Sequence[Buffer] | None = None,
    out_buffers: Sequence[Buffer] | None = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """Returns tensors made by a statement of your own over buffers, e.g. a loop nest or a ``tir.call_extern``.

    ``fcompute(ins, outs)`` gets a buffer per input and per output and returns a statement (or an expression that is
    evaluated for its effect). ``shape`` is one shape, or a list of shapes for several outputs; ``dtype`` likewise, by
    default that of the first input. The stage becomes one opaque block that reads its inputs and writes its outputs
    whole.
    """
    shapes = shape if isinstance(shape, list) and shape and isinstance(shape[0], (tuple, list)) else [shape]
    if isinstance(shape, tuple) and shape and isinstance(shape[0], (tuple, list)):
        shapes = list(shape)
    dims = [as_shape(s, f"extern {name}") for s in shapes]
    inputs = [inputs] if isinstance(inputs, Tensor) else inputs
    for t in inputs:
        if not isinstance(t, Tensor):
            raise TypeError(f"extern {name}: an input is {t!r} ({type(t).__name__}), not a tensor")
    if dtype is None:
        if not inputs:
            raise ValueError(f"extern {name}: without inputs, say which dtype the outputs have")
        dtype = inputs[0].dtype
    dtypes = [as_dtype(d) for d in (dtype if isinstance(dtype, (tuple, list)) else [dtype] * len(dims))]
    if len(dtypes) != len(dims):
        raise ValueError(f"extern {name}: {len(dtypes)} dtypes for {len(dims)} outputs")
    ins = list(in_buffers) if in_buffers is not None else [Buffer(t.name, t.shape, t.dtype) for t in inputs]
    outs = list(out_buffers) if out_buffers is not None else [
        Buffer(name if len(dims) == 1 else f"{name}_v{i}", s, d)
        for i, (s, d) in enumerate(zip(dims, dtypes, strict=True))
    ]  # fmt: skip
    if len(ins) != len(inputs) or len(outs) != len(dims):
        raise ValueError(f"extern {name}: as many in_buffers as inputs and out_buffers as outputs are needed")
    body = fcompute(ins, outs)
    if isinstance(body, Expr):
        body = Evaluate(body)
    if not isinstance(body, Stmt):
        raise TypeError(f"extern {name}: the function returns {type(body).__name__}, not a statement or an expression")
    op = ExternOp(name, tuple(inputs), tuple(ins), tuple(outs), body, tag, attrs)
    return op.output(0) if len(outs) == 1 else list(op.outputs)


def extern_primfunc(
    inputs: Sequence[Tensor], primfunc: PrimFunc, name: str = "extern_primfunc", tag: str = "", attrs: Any = None
) -> Any:
    """Returns tensors made by ``primfunc``: ``inputs`` stand for the buffers that it only reads, in the order of its parameters.

    The buffers that it writes are the outputs; when it reads all of them too, the last is taken as output alone.
    ValueError when the number of inputs or a shape does not fit.
    """
    root = primfunc.body
    inner = root.block.body if isinstance(root, BlockRealize) else root
    read, written = access_regions(inner)
    reads, writes = {r.buffer for r in read}, {r.buffer for r in written}
    if any(p not in primfunc.buffer_map for p in primfunc.params):
        raise ValueError(f"extern_primfunc {primfunc.name}: scalar parameters are not supported")
    ins = [b for b in primfunc.buffers if b in reads]
    outs = [b for b in primfunc.buffers if b in writes and b not in reads]
    if not outs:
        both = [b for b in primfunc.buffers if b in writes]
        if not both:
            raise ValueError(f"extern_primfunc {primfunc.name}: it writes no buffer")
        outs = [both[-1]]
        ins.remove(both[-1])
    if len(ins) != len(inputs):
        raise ValueError(
            f"extern_primfunc {primfunc.name}: {len(inputs)} inputs for the buffers {', '.join(b.name for b in ins)}"
        )
    for t, b in zip(inputs, ins, strict=True):
        fits = t.ndim == b.ndim and all(difference(x, y) == 0 for x, y in zip(t.shape, b.shape, strict=True))
        if not fits or t.dtype != b.dtype:
            raise ValueError(f"extern_primfunc {primfunc.name}: {t!r} does not fit {b!r}")
    fresh = {b: b.with_() for b in (*ins, *outs)}
    body = replace_buffers(fresh_copy(root), fresh)
    return extern(
        [list(b.shape) for b in outs],
        inputs,
        lambda *_: body,
        name,
        [b.dtype for b in outs],
        [fresh[b] for b in ins],
        [fresh[b] for b in outs],
        tag,
        attrs,
    )

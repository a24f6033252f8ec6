"""This module declares stages whose body the user writes: a statement over buffers, or a PrimFunc."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..tir.analysis.regions import access_regions
from ..tir.arith.normal_form.forms import difference
from ..tir.expr import Expr
from ..tir.stmt import BlockRealize, Buffer, Evaluate, PrimFunc, Stmt
from ..tir.walk import fresh_copy, replace_buffers
from .compute import as_dtype, as_shape
from .operation import ExternOp
from .tensor import Tensor


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

"""This module parses blocks and what they declare: buffers, regions, axes, predicates; and loads."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ..analysis.regions import access_regions
from ..arith import Analyzer
from ..arith.normal_form.forms import difference
from ..expr import (
    INDEX,
    Broadcast,
    BufferLoad,
    Call,
    DType,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Ramp,
    Range,
    Var,
    const,
    convert,
    is_const_int,
)
from ..stmt import Block, BlockRealize, Buffer, BufferRegion, MatchBufferRegion, Stmt, decl_buffer
from ..vocabulary import TypeWord
from .parser_base import BufferMethod, Frame, Parse, Parser

BUFFER_ARGS = (
    "shape", "dtype", "data", "strides", "elem_offset", "scope", "align", "offset_factor", "buffer_type",
    "axis_separators",
)  # fmt: skip


def parse_index_nodes(node: ast.Subscript) -> list[ast.expr]:
    """Return the index expressions between the brackets."""
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def check_rank(p: Parser, buffer: Buffer, count: int, node: ast.AST) -> None:
    if count != buffer.ndim:
        raise p.error(f"buffer {buffer.name} has {buffer.ndim} dimensions, indexed with {count}", node)


def parse_load(p: Parser, buffer: Buffer, node: ast.Subscript) -> BufferLoad:
    """Parse ``A[i, 0:4]`` as a load; a slice reads a vector of consecutive elements."""
    return BufferLoad(buffer, parse_indices(p, buffer, node))


def parse_indices(p: Parser, buffer: Buffer, node: ast.Subscript) -> tuple[Expr, ...]:
    """Parse the indices of a load or store."""
    out: list[Expr] = []
    for n in parse_index_nodes(node):
        if isinstance(n, ast.Slice):
            out.append(_parse_ramp(p, n))
        elif isinstance(n, ast.Starred):
            out.extend([p.as_expr(v, n) for v in p.items([n])])
        else:
            out.append(p.expr(n))
    check_rank(p, buffer, len(out), node)
    return tuple(out)


def _parse_ramp(p: Parser, node: ast.Slice) -> Expr:
    if node.lower is None or node.upper is None:
        raise p.error("a vector of elements needs both ends", node)
    r = parse_span(p, node.lower, node.upper)
    step = 1 if node.step is None else p.number(node.step)
    if not isinstance(r.extent, IntImm) or r.extent.value < 1 or step < 1:
        raise p.error("a vector needs a constant number of elements", node)
    lanes = (r.extent.value + step - 1) // step
    return Ramp(r.min, const(step, r.min.dtype), lanes) if lanes > 1 else r.min


def parse_span(p: Parser, lower: ast.expr, upper: ast.expr) -> Range:
    """Return the range ``[lower, upper)``. For ``x:x + n`` the extent is ``n`` as it is written."""
    start = p.eval(lower)
    if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add) and ast.dump(upper.left) == ast.dump(lower):
        lo = p.as_expr(start, lower)
        if not (isinstance(lo, IntImm) and lo.value == 0):
            return Range(lo, p.expr(upper.right, lo.dtype))
    stop = p.eval(upper)
    hi = p.as_expr(stop, upper, start.dtype if isinstance(start, Expr) else None)
    return _parse_between(p, p.as_expr(start, lower, hi.dtype), hi)


def _parse_between(p: Parser, lo: Expr, hi: Expr) -> Range:
    if isinstance(lo, IntImm) and lo.value == 0:
        return Range(lo if lo.dtype == hi.dtype else const(0, hi.dtype), hi)
    apart = difference(hi, lo)
    if apart is not None:
        return Range(lo, const(apart, lo.dtype))
    if p.analyzer is None:
        p.analyzer = Analyzer()
    return Range(lo, p.analyzer.simplify(hi - lo))


def parse_region(p: Parser, node: ast.AST) -> BufferRegion:
    """Parse ``A[i, 0:4]`` as a region; ``A`` is the whole buffer."""
    if not isinstance(node, ast.Subscript):
        value = p.eval(node)
        if isinstance(value, Buffer):
            return value.full_region()
        if isinstance(value, BufferLoad):
            return BufferRegion(value.buffer, tuple([Range(i, const(1, i.dtype)) for i in value.indices]))
        if isinstance(value, BufferRegion):
            return value
        raise p.error("a region of a buffer is needed", node)
    buffer = p.eval(node.value)
    if not isinstance(buffer, Buffer):
        return _parse_load_region(p, node)
    ranges: list[Range] = []
    for n in parse_index_nodes(node):
        if isinstance(n, ast.Slice):
            if n.step is not None:
                raise p.error("a region's slices have no step", n)
            ranges.append(_parse_slice(p, n, buffer, len(ranges), node))
        else:
            for value in p.items([n]):
                e = p.as_expr(value, n)
                if isinstance(e, Ramp) and e.base.dtype.lanes == 1:
                    ranges.append(Range(e.base, (e.lanes - 1) * e.stride + 1))
                else:
                    ranges.append(Range(e, const(1, e.dtype)))
    check_rank(p, buffer, len(ranges), node)
    return BufferRegion(buffer, tuple(ranges))


def _parse_load_region(p: Parser, node: ast.Subscript) -> BufferRegion:
    value = p.eval(node)
    if isinstance(value, Buffer):
        return value.full_region()
    raise p.error("a region of a buffer is needed", node)


def _parse_slice(p: Parser, n: ast.Slice, buffer: Buffer, axis: int, node: ast.AST) -> Range:
    if n.lower is not None and n.upper is not None:
        return parse_span(p, n.lower, n.upper)
    if axis >= buffer.ndim:
        check_rank(p, buffer, axis + 1, node)
    extent = buffer.shape[axis]
    if n.lower is None:
        stop = extent if n.upper is None else p.expr(n.upper, extent.dtype)
        return Range(const(0, stop.dtype), stop)
    return _parse_between(p, p.expr(n.lower, extent.dtype), extent)


def parse_buffer_call(p: Parser, method: BufferMethod, node: ast.Call) -> Any:
    b = method.buffer
    if method.name == "scope":
        return b.scope
    if method.name == "vload":
        args = p.arguments(node, "begin", "dtype", "predicate")
        indices = parse_index_list(p, args["begin"], b, node)
        predicate = p.expr(args["predicate"]) if "predicate" in args else None
        load = BufferLoad(b, indices, predicate)
        if "dtype" in args:
            dtype = p.dtype(args["dtype"])
            lanes = DType(dtype).lanes
            if indices and lanes > 1 and load.dtype.lanes == 1:  # consecutive elements, as in TVM
                load = BufferLoad(b, consecutive_indices(b, indices, lanes), predicate)
            if load.dtype != dtype:
                raise p.error(f"vload of {b.name} reads {load.dtype}, not {dtype}", node)
        return load
    if method.name == "access_ptr":
        return _parse_access_ptr(p, b, node)
    raise p.error(f"`{method.name}` is a statement", node)


def _parse_access_ptr(p: Parser, b: Buffer, node: ast.Call) -> Call:
    """Parse ``A.access_ptr("r", offset=…)``, the address of an element that is read or written."""
    args = p.arguments(node, "access_mask", "ptr_type", "content_lanes", "offset", "extent")
    mask = p.eval(args["access_mask"]) if "access_mask" in args else "r"
    if isinstance(mask, str):
        mask = sum({"r": 1, "w": 2}.get(letter, 0) for letter in set(mask))
    lanes = p.number(args["content_lanes"]) if "content_lanes" in args else 1
    total: Expr = const(1, b.elem_offset.dtype)
    for size in b.shape:
        total = total * size
    offset = p.expr(args["offset"], total.dtype) if "offset" in args else const(0, total.dtype)
    extent = p.expr(args["extent"], total.dtype) if "extent" in args else total - offset
    kind = Call("tir.type_annotation", (), b.dtype.with_lanes(lanes))
    numbers = (b.elem_offset + offset, extent, p.as_expr(mask, node))
    return Call("tir.tvm_access_ptr", (kind, b.data, *numbers), "handle")


def parse_buffer_view(p: Parser, b: Buffer, name: str, node: ast.Call) -> Buffer:
    """Parse ``A.view(4, 8)``, the same memory with another shape or data type."""
    kwargs = p.keywords(node)
    sizes = p.items(node.args)
    dtype = kwargs.pop("dtype", b.dtype)
    if len(sizes) == 1 and isinstance(sizes[0], (str, TypeWord)):
        dtype, sizes = sizes[0], list(b.shape)
    if kwargs:
        raise p.error(f"view has no argument `{next(iter(kwargs))}`", node)
    shape = _parse_sizes(p, sizes, node)
    dtype = dtype.dtype if isinstance(dtype, TypeWord) else dtype
    return p.guarded(node, decl_buffer, shape, dtype, name, scope=b.scope, data=b.data)


def parse_index_list(p: Parser, node: ast.expr, buffer: Buffer, call: ast.Call) -> tuple[Expr, ...]:
    """Parse the indices of vload and vstore."""
    value = p.eval(node)
    items = value if isinstance(value, (list, tuple)) else [value]
    check_rank(p, buffer, len(items), call)
    return tuple([p.as_expr(v, node) for v in items])


def parse_buffer(
    p: Parser, name: str, args: dict[str, ast.expr], node: ast.AST, like: BufferRegion | None = None
) -> Buffer:
    """Return a buffer from the arguments of ``T.Buffer``, ``T.match_buffer`` and similar words."""
    if "shape" in args:
        shape = _parse_sizes(p, p.eval(args["shape"]), args["shape"])
    elif like is not None:
        extents = [r.extent for r in like.region]
        shape = tuple(extents)
    else:
        raise p.error("the buffer's shape is missing", node)
    rest: dict[str, Any] = {}
    if "strides" in args:
        value = p.eval(args["strides"])
        rest["strides"] = _parse_sizes(p, value, args["strides"]) if value is not None else ()
    factor = p.number(args["offset_factor"]) if "offset_factor" in args else 0
    index = shape[0].dtype if shape else INDEX
    offset = p.eval(args["elem_offset"]) if "elem_offset" in args else None
    if isinstance(offset, str):
        rest["elem_offset"] = _parse_size(p, offset, args["elem_offset"])
    elif offset is not None:
        at = p.as_expr(offset, args["elem_offset"], INDEX)
        if not is_const_int(at, 0):  # a zero of any type is the default offset
            rest["elem_offset"] = at
    elif factor:
        rest["elem_offset"] = Var(f"{name}_elem_offset", index)
    if factor:
        rest["offset_factor"] = factor
    if "align" in args:
        align = p.number(args["align"])
        rest["data_alignment"] = align if align > 0 else 64
    if "axis_separators" in args:
        rest["axis_separators"] = tuple(int(i) for i in p.eval(args["axis_separators"]) or ())
    if "data" in args:
        data = p.eval(args["data"])
        if isinstance(data, Var):
            rest["data"] = data
        elif data is not None:
            raise p.error("data= is a pointer's variable", args["data"])
    scope = p.string(args["scope"]) if "scope" in args else like.buffer.scope if like is not None else "global"
    dtype = p.dtype(args["dtype"]) if "dtype" in args else like.buffer.dtype if like is not None else "float32"
    return p.guarded(node, decl_buffer, shape, dtype, name, scope=scope, **rest)


def _parse_sizes(p: Parser, value: Any, node: ast.AST) -> tuple[Expr, ...]:
    items = value if isinstance(value, (list, tuple)) else [value]
    return tuple([_parse_size(p, v, node) for v in items])


def _parse_size(p: Parser, value: Any, node: ast.AST) -> Expr:
    if isinstance(value, str):  # a text is the name of a size: strides=("s0", "s1")
        known = next((s[value] for s in reversed(p.scopes) if value in s), None)
        if isinstance(known, Var):
            return known
        if not value.isidentifier():
            return _parse_size_text(p, value, node)
        var = Var(value, p.size_dtypes.get(value, INDEX))
        p.define(value, var)
        p.named_sizes[value] = var
        return var
    return p.as_expr(value, node)


def _parse_size_text(p: Parser, text: str, node: ast.AST) -> Expr:
    """Parse a size given as text, ``"n // 4"``; unknown names in it become sizes."""
    if len(text) > 400:  # this also limits the nesting
        raise p.error("this size is too long a text", node)
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise p.error(f"{text!r} is not a size", node) from None
    words = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}  # the T of T.int64
    for n in ast.walk(tree):
        ast.copy_location(n, node)
        if isinstance(n, ast.Name) and id(n) not in words and not any(n.id in scope for scope in p.scopes):
            _parse_size(p, n.id, node)
    return p.as_expr(p.eval(tree), node)


def consecutive_indices(buffer: Buffer, indices: tuple[Expr, ...], lanes: int) -> tuple[Expr, ...]:
    """Return the indices of ``lanes`` consecutive elements from ``indices`` on, in row-major order."""
    last = indices[-1]
    carry: Expr = Ramp(last, const(1, last.dtype), lanes)
    reach = lanes + (last.value if isinstance(last, IntImm) else 0)
    out: list[Expr] = []
    for index, extent in zip(reversed(indices), reversed(buffer.shape), strict=True):
        position = carry if not out else carry if isinstance(index, IntImm) and not index.value else carry + index
        if len(out) + 1 == len(indices) or not isinstance(extent, IntImm) or reach <= extent.value:
            out.append(position)
            rest = indices[: len(indices) - len(out)]
            return (*rest, *reversed(out))
        size = Broadcast(const(extent.value, carry.dtype.split("x")[0]), lanes)
        out.append(FloorMod(position, size))
        carry = FloorDiv(position, size)
        reach = -(-reach // extent.value)
    return tuple(reversed(out))


def parse_domain(p: Parser, node: ast.expr, dtype: str | None) -> Range:
    if isinstance(node, (ast.Tuple, ast.List)):
        if len(node.elts) != 2:
            raise p.error("a domain is an extent or (start, stop)", node)
        return parse_span(p, node.elts[0], node.elts[1])
    value = p.eval(node)
    if isinstance(value, Range):
        return value
    extent = p.as_expr(value, node, dtype)
    return Range(const(0, extent.dtype), extent)


_KINDS = {"S": "spatial", "R": "reduce", "O": "opaque", "C": "scan"}


def parse_block(p: Parser, call: ast.Call, body: Callable[[], Stmt]) -> Stmt:
    """Parse ``with T.block(name): body``."""
    args = p.arguments(call, "name", "no_realize")
    if "no_realize" in args and p.eval(args["no_realize"]):
        raise p.error("a block that is not realized is not a statement of a program", args["no_realize"])
    name = p.string(args["name"]) if "name" in args else ""
    may_be_root = len(p.frames) == 1 and not p.loops
    frame = Frame()
    p.frames.append(frame)
    p.scopes.append({})
    inner = body()
    p.scopes.pop()
    p.frames.pop()
    reads, writes = frame.reads, frame.writes
    found: Any = ((), ())
    if reads is None or writes is None:
        found = _accesses(frame, inner)
    block = Block(
        tuple(frame.axes), found[0] if reads is None else reads, found[1] if writes is None else writes, name,
        inner, frame.init, tuple(frame.allocs), tuple(frame.matches), frame.annotations,
    )  # fmt: skip
    predicate = frame.predicate if frame.predicate is not None else IntImm(1, "bool")
    realize = BlockRealize(tuple(frame.values), predicate, block)
    if may_be_root and not frame.axes:
        p.roots[realize] = block.with_(reads=reads or (), writes=writes or ())
    return realize


def _accesses(frame: Frame, body: Stmt) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Return the regions outside the block that it reads and writes; a matched buffer counts as its source
    region."""
    own = set(frame.allocs)
    sources = {m.buffer: m.source for m in frame.matches}
    out = []
    for regions in access_regions(body, frame.init):
        kept: dict[Buffer, BufferRegion] = {}
        for r in regions:
            r = sources.get(r.buffer, r)
            if r.buffer not in own:
                kept.setdefault(r.buffer, r)
        out.append(tuple(kept.values()))
    return out[0], out[1]


def parse_init(p: Parser, call: ast.Call, body: Callable[[], Stmt]) -> None:
    """Parse ``with T.init(): body``."""
    frame = p.frame(call, "T.init")
    if frame.has_init:
        raise p.error("this block has an init already", call)
    frame.init, frame.has_init = body(), True


def parse_where(p: Parser, call: ast.Call) -> None:
    """Parse ``T.where(condition)``."""
    frame = p.frame(call, "T.where")
    if len(call.args) != 1 or call.keywords:
        raise p.error("write T.where(condition)", call)
    if frame.predicate is not None:
        raise p.error("this block has a T.where already", call)
    value = p.eval(call.args[0])
    frame.predicate = convert(value) if isinstance(value, bool) else p.condition(call.args[0])


def _parse_regions(p: Parser, call: ast.Call) -> tuple[BufferRegion, ...]:
    nodes: list[ast.expr] = []
    for n in call.args:
        nodes.extend(n.elts if isinstance(n, (ast.List, ast.Tuple)) else [n])
    return tuple([parse_region(p, n) for n in nodes])


def parse_reads(p: Parser, call: ast.Call) -> None:
    """Parse ``T.reads(A[i, 0:4], …)``."""
    frame = p.frame(call, "T.reads")
    frame.reads = (frame.reads or ()) + _parse_regions(p, call)


def parse_writes(p: Parser, call: ast.Call) -> None:
    """Parse ``T.writes(C[i, j])``."""
    frame = p.frame(call, "T.writes")
    frame.writes = (frame.writes or ()) + _parse_regions(p, call)


def parse_block_attr(p: Parser, call: ast.Call) -> None:
    """Parse ``T.block_attr({…})``."""
    frame = p.frame(call, "T.block_attr")
    frame.annotations.update(p.attributes(p.arguments(call, "attrs")["attrs"]))


def parse_func_attr(p: Parser, call: ast.Call) -> None:
    """Parse ``T.func_attr({…})``."""
    if len(p.frames) != 1:
        raise p.error("T.func_attr belongs to the function, outside of its blocks", call)
    p.frames[0].annotations.update(p.attributes(p.arguments(call, "attrs")["attrs"]))


def parse_axis(p: Parser, kind: str, name: str, call: ast.Call) -> Var:
    """Parse ``vi = T.axis.spatial(16, value)``."""
    frame = p.frame(call, f"T.axis.{kind}")
    args = p.arguments(call, "dom", "binding", "dtype")
    if "dom" not in args or "binding" not in args:
        raise p.error(f"write T.axis.{kind}(domain, value)", call)
    value = p.eval(args["binding"])
    value = value.var if isinstance(value, IterVar) else value
    dtype = value.dtype if isinstance(value, Expr) else None
    dom = parse_domain(p, args["dom"], dtype)
    binding = p.as_expr(value, args["binding"], dom.extent.dtype)
    var = Var(name, p.dtype(args["dtype"]) if "dtype" in args else dom.extent.dtype)
    frame.axes.append(IterVar(dom, var, kind))
    frame.values.append(binding)
    return var


def parse_remap(p: Parser, target: ast.expr, call: ast.Call) -> None:
    """Parse ``vi, vk = T.axis.remap("SR", [i, k])``."""
    frame = p.frame(call, "T.axis.remap")
    args = p.arguments(call, "kinds", "bindings", "dtype")
    if "kinds" not in args or "bindings" not in args:
        raise p.error('write T.axis.remap("SR", [i, k])', call)
    kinds = p.string(args["kinds"])
    values = p.eval(args["bindings"])
    if not isinstance(values, (list, tuple)):
        raise p.error("a list of loop variables is needed", args["bindings"])
    targets = list(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else [target]
    if not len(kinds) == len(values) == len(targets):
        raise p.error(f"{len(targets)} axes, {len(kinds)} kinds, {len(values)} loop variables", call)
    for t, k, v in zip(targets, kinds, values, strict=True):
        if k not in _KINDS:
            raise p.error(f"axis kind {k!r}; there are {', '.join(_KINDS)}", args["kinds"])
        if not isinstance(v, Var) or v not in p.loops:
            raise p.error(f"T.axis.remap takes loop variables; {v} is not one", args["bindings"])
        if not isinstance(t, ast.Name):
            raise p.error("an axis is a name", t)
        dom = p.loops[v]
        var = Var(t.id, v.dtype)
        frame.axes.append(IterVar(dom, var, _KINDS[k]))
        frame.values.append(v)
        p.define(t.id, var)


def parse_alloc_buffer(p: Parser, name: str, call: ast.Call) -> Buffer:
    """Parse ``B = T.alloc_buffer((16,), "float32")``; the buffer belongs to the innermost block."""
    buffer = parse_buffer(p, name, p.arguments(call, *BUFFER_ARGS), call)
    p.frames[-1].allocs.append(buffer)
    return buffer


def parse_match_buffer(p: Parser, name: str, call: ast.Call) -> Buffer:
    """Parse ``A = T.match_buffer(a, shape)`` of a parameter, or of a region in a block."""
    args = p.arguments(call, "param", *BUFFER_ARGS, "type")
    if "param" not in args:
        raise p.error("T.match_buffer needs a parameter or a region", call)
    param = args.pop("param")
    if isinstance(param, ast.Name):
        value = p.eval(param)
        if isinstance(value, Var):
            return _parse_match_param(p, name, value, param, args, call)
    source = parse_region(p, param)
    buffer = parse_buffer(p, name, args, call, source)
    p.frame(call, "T.match_buffer of a region").matches.append(MatchBufferRegion(buffer, source))
    return buffer


def _parse_match_param(
    p: Parser, name: str, var: Var, param: ast.expr, args: dict[str, ast.expr], call: ast.Call
) -> Buffer:
    top = p.frames[0]
    if var.dtype != "handle":
        raise p.error(f"T.match_buffer takes a parameter of type T.handle, {var.name} is {var.dtype}", param)
    if var in top.params:
        raise p.error(f"{var.name} has a buffer already", param)
    buffer = parse_buffer(p, name, args, call)
    top.params[var] = buffer
    return buffer


BLOCK_WORDS: dict[str, Parse] = {
    "where": parse_where,
    "reads": parse_reads,
    "writes": parse_writes,
    "block_attr": parse_block_attr,
    "func_attr": parse_func_attr,
}
"""The words that are statements of a block."""

"""Writes statements in C: loops, which OpenMP distributes where they are parallel, stores, memory and assertions."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.expr import BufferLoad, Call, DType, Expr, IntImm, product
from ...tir.stmt import AssertStmt, Buffer, For, IfThenElse, Stmt, While
from ...tir.walk import pre_order
from ..backend.effects import asserts
from ..backend.storage import elements_of
from ..lowered import NULL_ARRAY, Param
from .c_scope import CScope, element
from .inline_functions import scalar_type


def block(em: CScope, head: str, body: Stmt, first: str = "") -> None:
    """Write a statement in braces, after the line ``first`` if there is one."""
    em.put(f"{head} {{")
    em.depth += 1
    if first:
        em.put(first)
    em.stmt(body)
    em.depth -= 1
    em.put("}")


def branch(em: CScope, s: IfThenElse) -> None:
    """Write an if."""
    block(em, f"if ({em.value(s.condition)})", s.then_case)
    if s.else_case is not None:
        block(em, "else", s.else_case)


def while_loop(em: CScope, s: While) -> None:
    """Write a loop that tests its condition before each iteration."""
    block(em, f"while ({em.guarded(s.condition)})", s.body)


def loop_head(em: CScope, s: For) -> str:
    """Returns the head of a loop, counted in 64 bits. Bounds that are read from memory are read once, in front of it."""
    name = em.vars[s.loop_var] = em.name(s.loop_var.name)
    em.indices.add(s.loop_var)
    low, extent = em.index(s.min), em.index(s.extent)
    if any(isinstance(n, (BufferLoad, Call)) for e in (s.min, s.extent) for n in pre_order(e)):
        kind = em.index_kind(s.loop_var.dtype)
        low, extent = _fixed(em, f"{name}_min", low, kind), _fixed(em, f"{name}_extent", extent, kind)
    start = isinstance(s.min, IntImm) and s.min.value == 0
    return f"for ({em.index_kind(s.loop_var.dtype)} {name} = {low}; {name} < {extent if start else f'{low} + {extent}'}; ++{name})"


def _fixed(em: CScope, hint: str, text: str, kind: str) -> str:
    """Write the declaration of an integer and return its name; a number is returned as it is."""
    if text.isdecimal():
        return text
    name = em.name(hint)
    em.put(f"const {kind} {name} = {text};")
    return name


def serial_loop(em: CScope, s: For) -> None:
    """Write a loop whose iterations run in order."""
    block(em, loop_head(em, s), s.body)


def parallel_loop(em: CScope, s: For) -> None:
    """Write a loop whose iterations OpenMP distributes."""
    head, can_fail = loop_head(em, s), asserts(s.body)
    em.in_parallel, em.outside = True, len(em.scratch)
    em.regions += 1
    failed = f"tw_failed{em.regions}"
    if can_fail:
        em.put(f"int32_t {failed} = 0;")
    pragma(em, f"parallel for schedule(static) num_threads({em.target.num_cores})")
    block(em, head, s.body)
    em.in_parallel = False
    if can_fail:
        em.lines.insert(len(em.lines) - 1, f"{'  ' * em.depth}tw_next{em.regions}:;")
        frees = "".join(f"free({pointer}); " for pointer in reversed(em.scratch))
        em.put(f"if ({failed}) {{ {frees}return {failed}; }}")


def pragma(em: CScope, text: str) -> None:
    """Write a pragma of OpenMP; strict C shows it to compilers with OpenMP only, since others may warn."""
    lines = [f"#pragma omp {text}"]
    for line in ["#ifdef _OPENMP", *lines, "#endif"] if em.target.is_portable_c else lines:
        em.put(line)


def check_arrays(em: CScope, params: Sequence[Param], names: Sequence[str]) -> None:
    """Write a test that ends the function when an array that has elements is NULL."""
    missing = []
    for p, name in zip(params, names, strict=True):
        elements = None if p.buffer is None else product(p.buffer.shape)
        if isinstance(elements, IntImm):
            missing += [f"!{name}"] * (elements.value != 0)
        elif elements is not None:
            missing.append(f"(!{name} && {em.index(elements)} != 0)")
    if missing:
        em.put(f"if ({' || '.join(missing)}) return {NULL_ARRAY};")


def assertion(em: CScope, holds: str, s: AssertStmt, number: int) -> None:
    """Leave the function with the number of the message. A parallel loop ends its iteration and keeps the largest
    number."""
    em.put(f"if (!{holds}) {{ /* {s.message.replace('*/', '* /')} */")
    em.depth += 1
    if not em.target.is_freestanding:  # whose memory is static
        for pointer in reversed(em.scratch[em.outside if em.in_parallel else 0 :]):
            free(em, pointer)
    if em.in_parallel:
        failed = f"tw_failed{em.regions}"
        pragma(em, "critical (tw_failed)")
        em.put(f"if ({failed} < {number}) {failed} = {number};")
        em.put(f"goto tw_next{em.regions};")
    else:
        em.put(f"return {number};")
    em.depth -= 1
    em.put("}")


def evaluated(em: CScope, value: str) -> None:
    """Write a value as a statement."""
    em.put(f"{value};")


def store(
    em: CScope, buffer: Buffer, indices: tuple[Expr, ...], value: str, dtype: DType, predicate: Expr | None
) -> None:
    """Write a store to memory."""
    lanes = dtype.lanes
    pointer, at = em.place(buffer, indices, lanes)
    if lanes == 1:
        em.put(f"{element(pointer)} = {value};")
        return
    kind = em.helpers.vector(dtype)
    if dtype.is_bool:
        kind = em.helpers.vector_named(f"u8x{lanes}")
        value = f"({kind})(-{value})"
    if predicate is None and at is None:
        em.put(f"*({kind}_u *){pointer} = {value};")
        return
    mask = "" if predicate is None else f", {em.value(predicate)}"
    what = ("mask" if mask else "") + ("store" if at is None else "scatter")
    where = "" if at is None else f", {at}"
    em.put(f"{em.helpers.memory(what, dtype)}({pointer}{where}, {value}{mask});")


def new_register(em: CScope, buffer: Buffer) -> str:
    """Returns the name of a register value, which is initialized, since a masked store chooses between old and new
    lanes."""
    kind, name = em.helpers.vector(buffer.dtype), em.name(buffer.name)
    em.put(f"{kind} {name} = {{0}};")
    return name


def set_register(em: CScope, buffer: Buffer, value: str) -> None:
    """Write an assignment to a register value."""
    em.put(f"{em.registers[buffer]} = {value};")


def stack_memory(em: CScope, buffer: Buffer, elements: int) -> str:
    """Returns the name of an array on the stack."""
    name = em.name(buffer.name)
    em.put(f"{scalar_type(buffer.dtype.element)} {name}[{elements}] __attribute__((aligned(64)));")
    return name


def scratch_memory(em: CScope, buffer: Buffer, elements: int | None) -> str:
    """Returns the name of a pointer to memory on the heap."""
    amount = em.index(elements_of(buffer)) if elements is None else str(elements)
    scratch, name = em.helpers.plain("scratch"), em.name(buffer.name)
    base = scalar_type(buffer.dtype.element)
    em.put(f"{base} *restrict {name} = {scratch}({amount} * {buffer.dtype.bytes});")
    return name


def free(em: CScope, pointer: str) -> None:
    """Give memory on the heap back."""
    em.put(f"free({pointer});")

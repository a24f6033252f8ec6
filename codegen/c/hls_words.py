"""Writes C for high-level synthesis: pragmas for pipelines, unrolled loops and divided arrays, and arrays of known
sizes."""

from __future__ import annotations

from collections.abc import Mapping

from ...tir.expr import shape_text
from ...tir.stmt import Allocate, Buffer, For
from ...tir.walk import statements
from ..backend.emitter import constant_elements
from ..lower.loop_annotations import HLS_UNROLL, PIPELINE, interval_of, partition_of, steps_number
from ..lowered import REGISTER_SCOPE, LoweredFunc
from .c_header import argument_type, c_names
from .c_stmt import CScope, loop_head
from .inline_functions import CEmitError, scalar_type


class HlsScope(CScope):
    """The state of a writer for high-level synthesis. ``divided``: factors by dimension of the buffers by name."""

    divided: Mapping[str, Mapping[int, int]]


def hls_prototype(func: LoweredFunc) -> str:
    """Returns the head of a function whose arrays have their sizes: ``int32_t f(const int8_t A[256])``."""
    parts = []
    for p, name in zip(func.params, c_names(func.params), strict=True):
        size = None if p.buffer is None else constant_elements(p.buffer)
        kind = argument_type(p)
        parts.append(f"{kind} {name}" if size is None else f"{kind.removesuffix('*')} {name}[{max(size, 1)}]")
    return f"int32_t {func.name}({', '.join(parts) or 'void'})"


def divided_arrays(func: LoweredFunc) -> dict[str, dict[int, int]]:
    """Returns what annotations of the scheduled function say of arrays."""
    return partition_of(func.scheduled or func.func)


def arrays_inside(func: LoweredFunc) -> frozenset[Buffer]:
    """Returns the scratch arrays, all of which are memories of the circuit. CEmitError for a size that is not constant,
    since a circuit has no heap."""
    buffers = [s.buffer for s in statements(func.func.body) if isinstance(s, Allocate)]
    for buffer in buffers:
        if constant_elements(buffer) is None:
            raise CEmitError(
                f"{func.name}: {buffer.name} has {shape_text(buffer.shape)} elements, and -hls has no heap"
            )
    return frozenset([buffer for buffer in buffers if buffer.scope != REGISTER_SCOPE])


def partition_lines(func: LoweredFunc) -> list[str]:
    """Returns the pragmas for the arrays that are parameters; none for other targets."""
    if not func.target.is_hls:
        return []
    divided = divided_arrays(func)
    found = zip(func.params, c_names(func.params), strict=True)
    return [line for p, name in found if p.buffer is not None for line in _partition(p.buffer, name, divided)]


def _partition(buffer: Buffer, name: str, divided: Mapping[str, Mapping[int, int]]) -> list[str]:
    lines = []
    for dim, factor in divided.get(buffer.name, {}).items():
        how = f"cyclic factor={factor}"
        if factor == 0:
            how = "complete" if buffer.ndim == 1 else f"{'block' if dim == 0 else 'cyclic'} factor={buffer.shape[dim]}"
        if dim != buffer.ndim - 1 and (dim or factor):
            raise CEmitError(
                f"pragma_array_partition of {buffer.name}, dimension {dim}: arrays are flat in C, so only the last "
                "dimension has factors, and the first one 0"
            )
        lines.append(f"#pragma HLS ARRAY_PARTITION variable={name} {how} dim=1")
    return lines


def serial_loop(em: HlsScope, s: For) -> None:
    """Write a loop with what its annotations ask for."""
    em.put(f"{loop_head(em, s)} {{")
    em.depth += 1
    if PIPELINE in s.annotations:
        interval = interval_of(s)
        em.put("#pragma HLS PIPELINE" + (f" II={interval}" if interval else ""))
    if HLS_UNROLL in s.annotations:
        factor = steps_number(s.annotations[HLS_UNROLL], HLS_UNROLL, f"loop {s.loop_var.name}")
        em.put("#pragma HLS UNROLL" + (f" factor={factor}" if factor else ""))
    em.stmt(s.body)
    em.depth -= 1
    em.put("}")


def stack_memory(em: HlsScope, buffer: Buffer, elements: int) -> str:
    """Returns the name of an array, which is divided as annotations say."""
    name = em.name(buffer.name)
    em.put(f"{scalar_type(buffer.dtype.element)} {name}[{elements}];")
    for line in _partition(buffer, name, em.divided):
        em.put(line)
    return name

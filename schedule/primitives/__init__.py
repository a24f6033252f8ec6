"""The primitives: one function each, registered by :func:`~tilewright.schedule.primitive.primitive`.

- ``annotate`` answers questions about a program, adds what the caller knows, and says how loops run.
- ``loops`` and ``loop_partition`` rewrite loop nests.
- ``compute_at``, ``rfactor``, ``equal_results``, ``epilogue`` and ``rolling_buffer`` move computation; ``blockize`` and ``tensorize`` make
  blocks of loops, and intrinsics of blocks; ``online_softmax`` makes a kernel of attention, ``call_blas`` a call of a library.
- ``cache_read_write``, ``read_write_at``, ``cache_index``, ``reindex`` and ``shift_operand`` make copies of buffers; ``expand_offsets``
  takes zero points out of sums, and ``pad_before_offset`` out of padded stages.
- ``transform_layout`` and ``buffer_storage`` say where and how a buffer is stored; ``padding`` makes and divides padding.
- ``sampling`` makes random decisions.

A module is imported here so that its primitives are registered.
"""

from . import (
    annotate,
    blockize,
    buffer_storage,
    cache_index,
    cache_read_write,
    call_blas,
    compute_at,
    epilogue,
    equal_results,
    expand_offsets,
    loop_partition,
    loops,
    online_softmax,
    pad_before_offset,
    padding,
    read_write_at,
    reindex,
    rfactor,
    rolling_buffer,
    sampling,
    shift_operand,
    tensorize,
    transform_layout,
)

__all__ = [
    "annotate", "blockize", "buffer_storage", "cache_index", "cache_read_write", "call_blas", "compute_at", "epilogue", "equal_results", "expand_offsets", "loop_partition", "loops",
    "online_softmax", "pad_before_offset", "padding", "read_write_at", "reindex", "rfactor", "rolling_buffer", "sampling", "shift_operand", "tensorize", "transform_layout",
]  # fmt: skip

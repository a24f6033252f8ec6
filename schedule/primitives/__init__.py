"""The primitives: one function each, registered by :func:`~tilewright.schedule.primitive.primitive`.

- ``query`` answers questions about a program and changes nothing; ``annotate`` adds what the caller knows.
- ``split_fuse``, ``reorder``, ``merge`` and ``loop_partition`` rewrite loop nests; ``loop_kinds`` says how loops run.
- ``compute_at``, ``inline``, ``decompose_reduction``, ``rfactor``, ``epilogue`` and ``rolling_buffer`` move
  computation; ``blockize`` and ``tensorize`` make blocks of loops, and intrinsics of blocks.
- ``cache_read_write``, ``read_write_at``, ``cache_inplace``, ``cache_index``, ``reindex`` and ``shift_operand`` make
  copies of buffers.
- ``transform_layout``, ``transform_block_layout`` and ``buffer_storage`` say where and how a buffer is stored;
  ``pad_einsum`` and ``decompose_padding`` make and divide padding.
- ``sampling`` makes random decisions.

A module is imported here so that its primitives are registered.
"""

from . import (
    annotate,
    blockize,
    buffer_storage,
    cache_index,
    cache_inplace,
    cache_read_write,
    compute_at,
    decompose_padding,
    decompose_reduction,
    epilogue,
    inline,
    loop_kinds,
    loop_partition,
    merge,
    pad_einsum,
    query,
    read_write_at,
    reindex,
    reorder,
    rfactor,
    rolling_buffer,
    sampling,
    shift_operand,
    split_fuse,
    tensorize,
    transform_block_layout,
    transform_layout,
)

__all__ = [
    "annotate",
    "blockize",
    "buffer_storage",
    "cache_index",
    "cache_inplace",
    "cache_read_write",
    "compute_at",
    "decompose_padding",
    "decompose_reduction",
    "epilogue",
    "inline",
    "loop_kinds",
    "loop_partition",
    "merge",
    "pad_einsum",
    "query",
    "read_write_at",
    "reindex",
    "reorder",
    "rfactor",
    "rolling_buffer",
    "sampling",
    "shift_operand",
    "split_fuse",
    "tensorize",
    "transform_block_layout",
    "transform_layout",
]

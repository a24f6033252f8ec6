"""The primitives: one function each, registered by :func:`~tilewright.schedule.primitive.primitive`.

- ``query`` and ``dataflow`` answer questions about a program and change nothing; ``annotate`` and ``annotate_access`` add
  what the caller knows.
- ``split_fuse``, ``reorder``, ``merge`` and ``loop_partition`` rewrite loop nests; ``loop_kinds`` says how loops run.
- ``compute_at``, ``inline``, ``reverse_inline``, ``decompose_reduction``, ``rfactor``, ``epilogue`` and ``rolling_buffer`` move
  computation; ``blockize`` and ``tensorize`` make blocks of loops, and intrinsics of blocks.
- ``cache_read_write``, ``read_write_at``, ``cache_inplace``, ``cache_index``, ``reindex``, ``reindex_cache`` and
  ``shift_operand`` make copies of buffers.
- ``transform_layout``, ``transform_block_layout`` and ``buffer_storage`` say where and how a buffer is stored;
  ``pad_einsum`` and ``decompose_padding`` make and divide padding.
- ``sampling`` and ``compute_location`` make random decisions.

A module is imported here so that its primitives are registered.
"""

from . import (
    annotate,
    annotate_access,
    blockize,
    buffer_storage,
    cache_index,
    cache_inplace,
    cache_read_write,
    compute_at,
    compute_location,
    dataflow,
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
    reindex_cache,
    reorder,
    reverse_inline,
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
    "annotate_access",
    "blockize",
    "buffer_storage",
    "cache_index",
    "cache_inplace",
    "cache_read_write",
    "compute_at",
    "compute_location",
    "dataflow",
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
    "reindex_cache",
    "reorder",
    "reverse_inline",
    "rfactor",
    "rolling_buffer",
    "sampling",
    "shift_operand",
    "split_fuse",
    "tensorize",
    "transform_block_layout",
    "transform_layout",
]

"""The primitives: one function each, registered by :func:`~tilewright.schedule.primitive.primitive`.

``query`` and ``dataflow`` look around; ``access`` and ``annotate`` add what is known; ``loops`` and ``order`` rewrite loop
nests, ``kinds`` says how loops run; ``cache``, ``compute_at``, ``inline``, ``reduction``, ``rfactor``, ``layout`` and
``block_layout`` move computation and data; ``reindex``, ``reindex_cache``, ``inplace``, ``index_cache`` and ``copy_at``
make copies of other kinds, ``shift_operand`` one of the other signedness; ``storage`` says where and how a buffer lies;
``sampling`` and ``location`` decide.
A module is imported here so that its primitives are registered.
"""

from . import (
    access,
    annotate,
    block_layout,
    blockize,
    cache,
    compute_at,
    copy_at,
    dataflow,
    decompose_padding,
    epilogue,
    index_cache,
    inline,
    inplace,
    kinds,
    layout,
    location,
    loops,
    merge,
    order,
    pad_einsum,
    partition,
    query,
    reduction,
    reindex,
    reindex_cache,
    rfactor,
    rolling_buffer,
    sampling,
    shift_operand,
    storage,
    tensorize,
)

__all__ = [
    "access",
    "annotate",
    "block_layout",
    "blockize",
    "cache",
    "compute_at",
    "copy_at",
    "dataflow",
    "decompose_padding",
    "epilogue",
    "index_cache",
    "inline",
    "inplace",
    "kinds",
    "layout",
    "location",
    "loops",
    "merge",
    "order",
    "pad_einsum",
    "partition",
    "query",
    "reduction",
    "reindex",
    "reindex_cache",
    "rfactor",
    "rolling_buffer",
    "sampling",
    "shift_operand",
    "storage",
    "tensorize",
]

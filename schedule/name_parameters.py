"""Which arguments of primitives are names: of blocks, and of the buffers that a block reads or writes."""

from __future__ import annotations

from typing import Any

from ..tir.buffer import Buffer
from ..tir.stmt import Block

BLOCK_PARAMETERS = frozenset((
    "block", "block_or_loop", "consumer_blocks", "epilogue_block", "reduction_block", "scope_block", "target",
))  # fmt: skip
"""The parameters of primitives that take blocks by name (beside ``get_block``)."""

BUFFER_PARAMETERS = {
    "buffer": "either", "buffer_index": "write", "read_buffer_index": "read", "write_buffer_index": "write",
}  # fmt: skip
"""The parameters that take buffers by name, and whether the block reads or writes it; ``buf_type`` says so itself."""


def buffer_number(parameter: str, given: str | Buffer, block: Block, buf_type: str | None = None) -> Any:
    """Return a buffer, or the one that ``block`` calls by this name, by its number among those that the block reads or
    writes, as traces keep it.

    For the parameter ``buffer`` a pair, ``["read", 0]``. An unknown name or buffer comes back as it is.
    """
    kind = buf_type or BUFFER_PARAMETERS[parameter]
    for which, regions in (("write", block.writes), ("read", block.reads)):
        if kind in ("either", which):
            for number, region in enumerate(regions):
                if region.buffer is given or region.buffer.name == given:
                    return [which, number] if parameter == "buffer" else number
    return given

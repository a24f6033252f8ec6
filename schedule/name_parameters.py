"""This module lists which parameters of primitives take names of blocks, or of buffers that a block reads or writes."""

from __future__ import annotations

from typing import Any

from ..tir.stmt import Block, Buffer

BLOCK_PARAMETERS = frozenset((
    "block", "block_or_loop", "blocks", "consumer_blocks", "epilogue_block", "reduction_block", "scope_block", "target",
))  # fmt: skip
"""These parameters of primitives take blocks by name (beside the one of ``get_block``)."""

BUFFER_PARAMETERS = {
    "buffer": "either", "buffer_index": "write", "read_buffer_index": "read", "write_buffer_index": "write",
}  # fmt: skip
"""These parameters take buffers by name; the value says whether the block reads or writes the buffer, unless ``buf_type`` does."""


def buffer_number(parameter: str, given: str | Buffer, block: Block, buf_type: str | None = None) -> Any:
    """Return the number of a buffer, or of a buffer's name, among those that ``block`` reads or writes.

    Traces keep this number.

    For the parameter ``buffer`` it is a pair, ``["read", 0]``. An unknown name or buffer is returned as it is.
    """
    kind = buf_type or BUFFER_PARAMETERS[parameter]
    for which, regions in (("write", block.writes), ("read", block.reads)):
        if kind in ("either", which):
            for number, region in enumerate(regions):
                if region.buffer is given or region.buffer.name == given:
                    return [which, number] if parameter == "buffer" else number
    return given

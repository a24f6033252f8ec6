"""The signatures of the schedule's methods, for type checkers; the methods are made from the primitives.

Written by ``python -m tests.house.method_signatures``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tir.expr import Expr
from .handles import BlockRV, ExprRV, LoopRV

Block = BlockRV | str
Factor = int | Expr | None


class MethodSignatures:
    """The methods that registered primitives give to ``Schedule``."""

    def add_unit_loop(self, block_or_loop: Block | LoopRV) -> LoopRV:
        """Put a loop of one iteration around a block or a loop; returns its variable."""
        raise NotImplementedError

    def annotate(self, block_or_loop: Block | LoopRV, ann_key: str, ann_val: Any) -> None:
        """Set an annotation of a block or loop."""
        raise NotImplementedError

    def annotate_buffer_access(self, block: Block, buffer_index: int | str, buf_type: str, gen_new_ranges: Any) -> None:
        """Declare which part of a buffer ``block`` reads or writes (``buf_type``: ``"read"`` or ``"write"``)."""
        raise NotImplementedError

    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Run the iterations of a loop on the threads of a GPU axis (``blockIdx.x``, ``threadIdx.y``, ``vthread.x`` …)."""
        raise NotImplementedError

    def blockize(self, target: LoopRV | Block | Sequence[Block], preserve_unit_iters: bool = True) -> BlockRV:
        """Turn the loops from ``target`` on, and the block in them, into one block; return it."""
        raise NotImplementedError

    def cache_index(self, block: Block, storage_scope: str, cse_thresh: int = 0) -> list[BlockRV]:
        """Compute the expressions of a block that depend on its axes alone once, and look them up."""
        raise NotImplementedError

    def cache_inplace(self, block: Block, read_buffer_index: int | str, storage_scope: str) -> list[BlockRV]:
        """Let a block that reads and writes a buffer work on a copy of the declared region."""
        raise NotImplementedError

    def cache_read(
        self,
        block: Block,
        read_buffer_index: int | str,
        storage_scope: str,
        consumer_blocks: Sequence[Block] | Block | None = None,
        dtype: str | None = None,
    ) -> BlockRV:
        """Copy a buffer that ``block`` reads into a new one of ``storage_scope``, and let the consumers read the copy."""
        raise NotImplementedError

    def cache_write(
        self,
        block: Block,
        write_buffer_index: int | str,
        storage_scope: str,
        consumer_blocks: Sequence[Block] | Block | None = None,
    ) -> BlockRV:
        """Let ``block`` write into a new buffer of ``storage_scope``, and copy that to the buffer it wrote before."""
        raise NotImplementedError

    def call_blas(self, block: Block) -> None:
        """Compute a matrix product by a call of the BLAS library that the target names."""
        raise NotImplementedError

    def compute_at(self, block: Block, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1) -> None:
        """Move a producer under ``loop``, where it computes the elements that its consumers there need."""
        raise NotImplementedError

    def compute_inline(self, block: Block, *blocks: Block) -> None:
        """Compute the value of ``block`` where it is read, and remove the block and its buffer."""
        raise NotImplementedError

    def decompose_padding(self, block: Block, loop: LoopRV) -> BlockRV:
        """Split a padding block into one that writes the constant everywhere, just before ``loop``, and one for the inner part."""
        raise NotImplementedError

    def decompose_reduction(self, block: Block, loop: LoopRV) -> BlockRV:
        """Move the init of a reduction into a block and loops of its own, just before ``loop``."""
        raise NotImplementedError

    def drop_equal_steps(self, block: Block) -> None:
        """Leave out the steps of a reduction that combine the value of an earlier step again."""
        raise NotImplementedError

    def enter_postproc(self) -> None:
        """Mark in the trace that the steps from here on are post-processing, which replays may leave out."""
        raise NotImplementedError

    def expand_offsets(self, block: Block) -> list[BlockRV]:
        """Sum the products of the elements alone where factors are elements less a zero point, and correct the sums."""
        raise NotImplementedError

    def fuse(self, *loops: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """Fuse perfectly nested loops, given outermost first, into one; returns its variable."""
        raise NotImplementedError

    def fuse_reduction_epilogue(self, reduction_block: Block, epilogue_block: Block) -> None:
        """Start a reduction from the operand that its epilogue adds, and write to the epilogue's buffer."""
        raise NotImplementedError

    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """Return the block of this name; the outermost one is called ``root``."""
        raise NotImplementedError

    def get_child_blocks(self, block_or_loop: Block | LoopRV) -> list[BlockRV]:
        """Return the outermost blocks inside a block, or under a loop, in program order."""
        raise NotImplementedError

    def get_consumers(self, block: Block) -> list[BlockRV]:
        """Return the later blocks of the scope that read or overwrite what the block writes, in program order."""
        raise NotImplementedError

    def get_loops(self, block: Block) -> list[LoopRV]:
        """Return the loops above a block within its scope, outermost first."""
        raise NotImplementedError

    def get_output_blocks(self, scope_block: Block) -> list[BlockRV]:
        """Return the blocks inside a block, at any depth, that write buffers not allocated there, in program order."""
        raise NotImplementedError

    def get_producers(self, block: Block) -> list[BlockRV]:
        """Return the earlier blocks of the scope that write a buffer which the block reads or writes, in program order."""
        raise NotImplementedError

    def get_symbol(self, name: str | int) -> ExprRV:
        """Return the size variable or scalar parameter ``name``, for use in factors and index maps."""
        raise NotImplementedError

    def interchange(self, *ordered_loops: LoopRV) -> None:
        """Put loops of one nest into the given order as :func:`reorder` does, also those of scan axes."""
        raise NotImplementedError

    def loop_partition(
        self, loop: LoopRV, factors: Sequence[int | None], preserve_unit_iters: bool = True
    ) -> list[LoopRV]:
        """Run a loop as consecutive loops of ``factors`` iterations each; returns their variables."""
        raise NotImplementedError

    def merge(self, *loops: LoopRV) -> LoopRV:
        """Run the bodies of consecutive loops, one after the other, in one loop; returns its variable."""
        raise NotImplementedError

    def online_softmax(self, block: Block, groups: int = 2, keys: int = 128) -> BlockRV:
        """Compute attention, of which ``block`` stores the result, in one kernel on warp groups of sm_90a."""
        raise NotImplementedError

    def pad_before_offset(self, block: Block) -> BlockRV:
        """Pad narrow integers with the zero point that a stage takes from them, and take it after."""
        raise NotImplementedError

    def pad_einsum(self, block: Block, padding: Sequence[int]) -> None:
        """Round the extents of a contraction's axes up to multiples of ``padding``, one number per axis."""
        raise NotImplementedError

    def pad_reduction(self, block: Block) -> None:
        """Let the bounds of reduction axes depend on no other axes; a condition takes the place of those bounds."""
        raise NotImplementedError

    def parallel(self, loop: LoopRV) -> None:
        """Run the iterations of a loop in parallel."""
        raise NotImplementedError

    def read_at(self, loop: LoopRV, block: Block, read_buffer_index: int | str, storage_scope: str) -> BlockRV:
        """Copy in each iteration of ``loop`` all that it reads of a buffer, and read the copy instead."""
        raise NotImplementedError

    def reduce_once(self, block: Block) -> BlockRV:
        """Reduce once what is the same along an axis, and copy the results along it afterwards."""
        raise NotImplementedError

    def reduce_where_copied(self, block: Block) -> None:
        """Compute the results of a reduction only where the block that copies them reads them, and remove the copy."""
        raise NotImplementedError

    def reindex(self, block: Block, buffer: Any, skip_simplify: bool = False, place: int | None = None) -> BlockRV:
        """Let a block access a copy of a buffer whose dimensions are the axes that address it."""
        raise NotImplementedError

    def reindex_cache_read(
        self, block: Block, read_buffer_index: int | str, storage_scope: str, index_map: Any
    ) -> BlockRV:
        """Copy what ``block`` reads of a buffer into a new one of ``storage_scope``, laid out by ``index_map``."""
        raise NotImplementedError

    def reindex_cache_write(
        self, block: Block, write_buffer_index: int | str, storage_scope: str, index_map: Any
    ) -> BlockRV:
        """Let ``block`` write into a new buffer of ``storage_scope``, laid out by ``index_map``, and copy that back."""
        raise NotImplementedError

    def reorder(self, *ordered_loops: LoopRV) -> None:
        """Put loops of one nest into the given order; loops that are not named keep their places."""
        raise NotImplementedError

    def reorder_block_iter_var(self, block: Block, new_order: Sequence[int]) -> None:
        """Put the axes of a block into another order: axis ``new_order[n]`` becomes the n-th."""
        raise NotImplementedError

    def reverse_compute_at(
        self, block: Block, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a consumer under ``loop``, where it consumes the elements that its producers there compute."""
        raise NotImplementedError

    def reverse_compute_inline(self, block: Block) -> None:
        """Compute the value of ``block`` directly where its only producer computes its input, and remove the block."""
        raise NotImplementedError

    def rfactor(self, loop: LoopRV, factor_axis: int) -> BlockRV:
        """Reduce into one partial result per iteration of ``loop``, then reduce the partial results."""
        raise NotImplementedError

    def rolling_buffer(self, block: Block, write_buffer_index: int | str) -> None:
        """Keep elements that a producer computed for the last tile, where the next tile needs them again."""
        raise NotImplementedError

    def sample_categorical(
        self, candidates: Sequence[int | float | Expr], probs: Sequence[float], decision: int | None = None
    ) -> ExprRV:
        """Choose one of the candidates with the given probabilities; ``decision`` is the position of the chosen one."""
        raise NotImplementedError

    def sample_compute_location(self, block: Block, decision: int | None = None) -> LoopRV:
        """Choose a place for :func:`compute_at` among the legal ones, all with equal probability."""
        raise NotImplementedError

    def sample_partitioned_tile(
        self,
        loop: LoopRV,
        n: int,
        partition_pos: int = 0,
        innerpart_factor: int = 1,
        decision: Sequence[int] | None = None,
    ) -> list[ExprRV]:
        """Factor a loop's extent into ``n`` tile sizes of which the inner ones have a product divisible by ``innerpart_factor``."""
        raise NotImplementedError

    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> list[ExprRV]:
        """Factor a loop's extent into ``n`` tile sizes whose product is the extent."""
        raise NotImplementedError

    def sample_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 64, decision: Sequence[int] | None = None
    ) -> list[ExprRV]:
        """Choose ``n`` tile sizes that cover a loop's extent and need not divide it."""
        raise NotImplementedError

    def set_axis_separator(self, block: Block, buffer: Any, axis_separators: list[int] | None) -> None:
        """Set between which dimensions of a buffer one physical axis ends and the next begins."""
        raise NotImplementedError

    def set_scope(self, block: Block, buffer_index: int | str, storage_scope: str) -> None:
        """Move a buffer that ``block`` writes to another storage scope (``global``, ``local``, ``shared`` …)."""
        raise NotImplementedError

    def shift_operand(self, block: Block, read_buffer_index: int | str) -> list[BlockRV]:
        """Turn an int8 factor of a sum of products into uint8, or a uint8 one into int8."""
        raise NotImplementedError

    def split(
        self,
        loop: LoopRV,
        factors: Sequence[Factor] | None = None,
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
        *,
        factor: Factor = None,
        nparts: Factor = None,
    ) -> list[LoopRV]:
        """Split a loop into nested loops with the given extents, outermost first; returns their variables."""
        raise NotImplementedError

    def storage_align(self, block: Block, buffer_index: int | str, axis: int, factor: int, offset: int) -> None:
        """Align the stride of ``axis`` of a buffer to ``k * factor + offset`` elements, for the smallest sufficient k."""
        raise NotImplementedError

    def tensorize(self, block_or_loop: Block | LoopRV, tensor_intrin: str, preserve_unit_iters: bool = True) -> None:
        """Replace a block, or a loop and all in it, by a tensor intrinsic."""
        raise NotImplementedError

    def transform_block_layout(self, block: Block, index_map: Any) -> None:
        """Run a block over new axes, to which ``index_map`` maps the old ones, in new loops."""
        raise NotImplementedError

    def transform_layout(
        self,
        block: Block,
        buffer: Any,
        index_map: Any,
        pad_value: Any = None,
        *,
        assume_injective_transform: bool = False,
        leave_padding: bool = False,
    ) -> None:
        """Store the elements of a buffer at the places that ``index_map`` gives, in all accesses."""
        raise NotImplementedError

    def unannotate(self, block_or_loop: Block | LoopRV, ann_key: str) -> None:
        """Remove an annotation of a block or loop; not ``atomic_update`` where the block's reduction runs on ``blockIdx``."""
        raise NotImplementedError

    def unroll(self, loop: LoopRV) -> None:
        """Write out the iterations of a loop one after the other."""
        raise NotImplementedError

    def unsafe_set_dtype(self, block: Block, buffer_index: int | str, dtype: str) -> None:
        """Store a buffer that ``block`` writes as another data type."""
        raise NotImplementedError

    def vectorize(self, loop: LoopRV) -> None:
        """Run the iterations of a loop as the lanes of vectors."""
        raise NotImplementedError

    def work_on(self, func_name: str) -> None:
        """Let ``get_block`` and block names refer to this function of the module from now on."""
        raise NotImplementedError

    def write_at(self, loop: LoopRV, block: Block, write_buffer_index: int | str, storage_scope: str) -> BlockRV:
        """Let each iteration of ``loop`` write into a new buffer, and copy the written box to the old one."""
        raise NotImplementedError

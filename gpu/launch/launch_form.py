"""Gives every kernel its launch form: blocks outside, then shared memory, then threads, then what one thread does.

A kernel is an outermost loop on an axis of blocks or threads. Its loops on one axis, wherever they stand and however
often, are the same threads: each becomes the thread's number. Before::

    for b in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding(8, thread="threadIdx.x"):
            S = T.decl_buffer((64,), scope="shared")
            for k in range(2):
                for u in T.thread_binding(8, thread="threadIdx.x"): S[k * 8 + u] = ...
                ...

After::

    for blockIdx_x in T.thread_binding(4, thread="blockIdx.x"):
        S = T.decl_buffer((64,), scope="shared")
        for threadIdx_x in T.thread_binding(8, thread="threadIdx.x"):
            for k in range(2):
                S[k * 8 + threadIdx_x] = ...
                ...

A store or an atomic addition to memory that threads share, outside of the loops on some axis of the kernel, is made by number 0 of
that axis alone. Shorter loops than the longest one on an axis run under a condition.

The axes of a GPU stand first: blocks, threads and virtual threads, and which threads hold a tile together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ...codegen.machine.target import WARP, WARP_GROUP
from ...tir.annotations import ALIGN
from ...tir.arith import Analyzer
from ...tir.expr import Call, DType, Expr, IntImm, Var, const, floordiv, floormod
from ...tir.expr.intrinsics.control_and_memory import CHANGES
from ...tir.expr.intrinsics.matrix_operations import GROUP_ROWS, ROW_TILE, is_warp_tile, tile_columns
from ...tir.stmt import Allocate, AttrStmt, Buffer, BufferStore, Evaluate, For, IfThenElse, PrimFunc, Stmt
from ...tir.walk import statements, substitute

BLOCK_TAGS = ("blockIdx.z", "blockIdx.y", "blockIdx.x")
THREAD_TAGS = ("threadIdx.z", "threadIdx.y", "threadIdx.x")
"""Outermost first: threads with neighbouring numbers differ in ``threadIdx.x``."""


ATOMIC_CALLS = frozenset(["tir.atomic_add", *[row.op for row in CHANGES]])
"""What changes an element for all threads at once."""


class GpuError(ValueError):
    """Raised for a program whose thread axes have no meaning on a GPU. The message names the loop or the buffer."""


def tag_of(s: object) -> str:
    """Returns the axis of blocks or threads that a loop is bound to, or an empty text."""
    tag = s.thread_binding if isinstance(s, For) and s.kind == "thread_binding" else None
    return tag if tag in BLOCK_TAGS or tag in THREAD_TAGS else ""


def is_virtual(s: object) -> bool:
    """Returns whether a loop is bound to virtual threads."""
    return isinstance(s, For) and s.kind == "thread_binding" and str(s.thread_binding).startswith("vthread")


def thread_extents(stmts: Iterable[Stmt]) -> dict[str, int]:
    """Returns the number of threads along each axis of ``threadIdx`` below some statements: of several loops the most.

    GpuError when a number is not a constant.
    """
    out: dict[str, int] = {}
    for top in stmts:
        for s in statements(top):
            tag = tag_of(s)
            if tag not in THREAD_TAGS:
                continue
            assert isinstance(s, For)
            if not isinstance(s.extent, IntImm):
                raise GpuError(f"the loop {s.loop_var.name} on {tag} has {s.extent} threads, which is not a constant")
            out[tag] = max(out.get(tag, 1), s.extent.value)
    return {tag: out[tag] for tag in THREAD_TAGS if tag in out}


def is_shared(scope: str) -> bool:
    """Returns whether the threads of a block share one copy of the memory of this scope."""
    return scope.split(".")[0] in ("shared", "warp")


def is_private(scope: str) -> bool:
    """Returns whether each thread has a copy of the memory of this scope."""
    return not is_shared(scope) and scope.split(".")[0] != "global"


# tiles in registers that a warp, or the four warps of a warp group, hold together

SWIZZLED = "shared.swizzled"
"""The scope of shared memory in rows of 128 bytes whose pieces of 16 bytes are exchanged."""
SWIZZLED_ALIGNMENT = 1024
"""Where such a buffer begins, in bytes: the exchanges repeat after eight rows."""


def threads_of_tile(dtype: DType) -> int:
    """Returns how many threads hold a value of ``dtype`` together, or 0 where each has its own."""
    return WARP if is_warp_tile(dtype) else WARP_GROUP if tile_columns(dtype) or dtype == ROW_TILE else 0


def threads_of_scope(scope: str) -> int:
    """Returns how many threads hold the tiles of a buffer of this scope together, or 0 for other buffers."""
    return WARP if scope.startswith("wmma.") else WARP_GROUP if scope.startswith("wgmma.") else 0


ROWS_SCOPE = "wgmma.rows"
"""The scope of buffers whose last dimension is a number for each row of sums."""


def held_of(buffer: Buffer, elements: int) -> int:
    """Returns how many of so many elements of a buffer a thread holds. Of numbers of rows they are those of its two rows."""
    if buffer.scope == ROWS_SCOPE:
        return elements * 2 // GROUP_ROWS
    return elements // (threads_of_scope(buffer.scope) or 1)


def tile_rank(buffer: Buffer) -> int:
    """Returns how many of the last dimensions of a buffer of tiles are one tile."""
    return 1 if buffer.scope == ROWS_SCOPE else 2


MOST_BLOCKS_ACROSS = 65_535
"""The most blocks along y and along z; along x there are more."""
_MOST_BLOCKS = 2**31 - 1

SCOPE_ATTR = "gpu.shared_scope"
"""The attribute around the statement at which a block allocates shared memory, with the number of the allocation."""


def to_launch_form(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with each of its kernels in launch form. GpuError when no loop is bound to an axis."""
    found: list[For] = []
    body = _host(func.body, found)
    if not found:
        raise GpuError(
            f"{func.name}: no loop runs on blocks or threads; bind one: sch.bind(loop, 'blockIdx.x'), "
            "or let the tuner's rules for GPUs schedule it"
        )
    return func.with_body(body)


def _host(s: Stmt, found: list[For]) -> Stmt:
    if tag_of(s):
        assert isinstance(s, For)
        found.append(s)
        return _LaunchedKernel(s).form()
    return s.map_children(lambda c: _host(c, found) if isinstance(c, Stmt) else c)


class _LaunchedKernel:
    """The rewriting of one kernel. ``axes``: the variables by their tags; ``extents``: how many numbers each has."""

    def __init__(self, root: For) -> None:
        self.root = root
        self.extents: dict[str, Expr] = {tag: const(n) for tag, n in thread_extents([root]).items()}
        self.axes: dict[str, Var] = {}
        analyzer = Analyzer()
        for s in statements(root):
            tag = tag_of(s)
            if not tag:
                continue
            assert isinstance(s, For)
            self.axes.setdefault(tag, Var(tag.replace(".", "_"), s.loop_var.dtype))
            known = self.extents.setdefault(tag, s.extent)
            if tag in BLOCK_TAGS and not analyzer.can_prove_equal(known, s.extent):
                raise GpuError(f"loops of {known} and of {s.extent} iterations on {tag} in one kernel")
        self.shared: list[Allocate] = []
        self.outside: list[Allocate] = []

    def form(self) -> Stmt:
        """Return the kernel in launch form, inside the allocations of its global memory."""
        out = self.visit(self.root, frozenset())
        for tag in reversed(THREAD_TAGS):
            out = self._loop(tag, out)
        if self.shared and not any(tag in self.axes for tag in BLOCK_TAGS):  # one block, which has the shared memory
            self.axes[BLOCK_TAGS[-1]], self.extents[BLOCK_TAGS[-1]] = Var("blockIdx_x", "int32"), const(1)
        for alloc in reversed(self.shared):
            out = Allocate(alloc.buffer, out, alloc.annotations)
        out = self._on_blocks(out)
        for alloc in reversed(self.outside):
            out = Allocate(alloc.buffer, out, alloc.annotations)
        return out

    def _on_blocks(self, body: Stmt) -> Stmt:
        """Return the loops over blocks: one along x for all of them where y or z has too many."""
        sizes = {tag: self.extents[tag] for tag in BLOCK_TAGS if tag in self.axes}
        numbers = {tag: size.value for tag, size in sizes.items() if isinstance(size, IntImm)}
        *few, many = BLOCK_TAGS
        if len(numbers) < len(sizes) or all(numbers.get(tag, 1) <= MOST_BLOCKS_ACROSS for tag in few):
            for tag in reversed(BLOCK_TAGS):
                body = self._loop(tag, body)
            return body
        total = math.prod(numbers.values())
        if total > _MOST_BLOCKS:
            raise GpuError(f"a kernel of {total} blocks; there are at most {_MOST_BLOCKS}")
        whole = Var(many.replace(".", "_"), "int32")
        places: dict[Var, Expr] = {}
        inner = 1
        for tag in reversed([tag for tag in BLOCK_TAGS if tag in numbers]):
            place, var = floormod(floordiv(whole, inner), numbers[tag]), self.axes[tag]
            places[var] = place if var.dtype == place.dtype else place.astype(var.dtype)
            inner *= numbers[tag]
        self.axes[many], self.extents[many] = whole, const(total)
        return self._loop(many, substitute(body, places))

    def _loop(self, tag: str, body: Stmt) -> Stmt:
        var = self.axes.get(tag)
        if var is None:
            return body
        extent = self.extents[tag]
        extent = extent if extent.dtype == var.dtype else extent.astype(var.dtype)
        return For(var, const(0, var.dtype), extent, "thread_binding", body, tag)

    def visit(self, s: Stmt, bound: frozenset[str]) -> Stmt:
        """Return ``s`` for one thread; ``bound``: the axes of the loops around it."""
        tag = tag_of(s)
        if tag:
            assert isinstance(s, For)
            return self.visit(self._numbered(s, tag), bound | {tag})
        if isinstance(s, Allocate) and is_shared(s.buffer.scope):
            number = len(self.shared)
            wishes = {"gpu.align": s.annotations[ALIGN]} if ALIGN in s.annotations else {}
            self.shared.append(s.with_(annotations={**s.annotations, **wishes, SCOPE_ATTR: number}))
            return AttrStmt(s.buffer.name, SCOPE_ATTR, const(number), self.visit(s.body, bound))
        if isinstance(s, Allocate) and not is_private(s.buffer.scope):
            self.outside.append(s)
            return self.visit(s.body, bound)
        adds = isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op in ATOMIC_CALLS
        if adds or (isinstance(s, BufferStore) and not is_private(s.buffer.scope)):
            for missing, var in self.axes.items():
                extent = self.extents[missing]
                if missing not in bound and not (isinstance(extent, IntImm) and extent.value <= 1):
                    s = IfThenElse(var.equal(const(0, var.dtype)), s)  # type: ignore[assignment]
            return s
        return s.map_children(lambda c: self.visit(c, bound) if isinstance(c, Stmt) else c)

    def _numbered(self, s: For, tag: str) -> Stmt:
        """Return the body of a loop on an axis with the thread's number in place of the loop's variable."""
        var, full = self.axes[tag], self.extents[tag]
        number = var if var.dtype == s.loop_var.dtype else var.astype(s.loop_var.dtype)
        at = number if isinstance(s.min, IntImm) and s.min.value == 0 else number + s.min
        body: Stmt = substitute(s.body, {s.loop_var: at})
        if isinstance(s.extent, IntImm) and isinstance(full, IntImm) and s.extent.value < full.value:
            body = IfThenElse(number < s.extent, body)
        return body


def inside_threads(kernel: Stmt) -> tuple[Mapping[str, For], Stmt]:
    """Returns the loops on axes around the body of a kernel in launch form, by tag, and that body."""
    loops: dict[str, For] = {}
    s = kernel
    while True:
        tag = tag_of(s)
        if tag:
            assert isinstance(s, For)
            loops[tag] = s
            s = s.body
        elif isinstance(s, Allocate) and any(tag_of(n) for n in statements(s.body)):
            s = s.body
        else:
            return loops, s


def with_body(kernel: Stmt, body: Stmt) -> Stmt:
    """Returns a kernel in launch form with another body for its threads."""
    if tag_of(kernel) or (isinstance(kernel, Allocate) and any(tag_of(n) for n in statements(kernel.body))):
        return kernel.with_(body=with_body(kernel.body, body))  # type: ignore[attr-defined]
    return body

"""The text of attention by online softmax in one kernel on warp groups (``wgmma`` of sm_90a).

A block has :attr:`AttentionTiles.groups` groups of 64 queries, and goes through the keys in tiles. A step holds, in registers of a group, the
scores S of one tile, the weights P of the tile before, the sums O, and for each row the largest score m and the sum of weights l::

    S = Q · K[j + 1]ᵀ          begun
    O += P · V[j]              begun, P from registers
    m' = max(m, rows' maxima of S);  E = 2**((S - m') · c);  l = l · 2**((m - m') · c) + rows' sums of E
    O = O · 2**((m - m') · c)  when its product is done
    P = E, rounded to the operands' type

with ``c = scale · log2(e)`` (Milakov and Gimelshein, 2018; Dao et al., 2022). The softmax of a tile runs beside the product with the values of
the tile before. K and V have two versions in shared memory, copied a step ahead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..tir.expr.intrinsics.matrix_operations import GROUP_ROWS, GROUP_STEPS, PANEL
from ..tir.parser import parse
from ..tir.stmt import PrimFunc

_GROUP = 128
"""The threads of a warp group."""
_PIECE = 8
"""The elements that a thread copies at once."""


@dataclass(frozen=True)
class AttentionShape:
    """What a kernel computes. ``lead``: the sizes of batch and heads; ``depth``: the features of queries and keys, ``width``: of values;
    ``scale``: of scores.
    ``causal``: whether query i sees the keys up to ``i + keys - queries`` alone."""

    lead: tuple[int, ...]
    queries: int
    keys: int
    depth: int
    width: int
    dtype: str
    scale: float
    causal: bool = False


@dataclass(frozen=True)
class AttentionTiles:
    """How a kernel computes it. ``groups``: the warp groups of a block, with 64 queries each; ``keys``: those of a tile."""

    groups: int = 2
    keys: int = 128


def unfit(shape: AttentionShape, tiles: AttentionTiles) -> str:
    """Return why the tiles do not fit the shape, or an empty text."""
    queries = GROUP_ROWS * tiles.groups
    if shape.dtype not in ("float16", "bfloat16"):
        return f"the operands are {shape.dtype}, not float16 or bfloat16"
    if not 1 <= tiles.groups <= 8 or tiles.keys not in (64, 128, 192, 256):
        return f"there are {tiles.groups} groups of threads, and {tiles.keys} keys in a tile: 1 to 8, and 64, 128, 192 or 256"
    if shape.queries % queries or shape.keys % tiles.keys:
        return f"{queries} queries of a block and {tiles.keys} keys of a tile do not divide {shape.queries} and {shape.keys}"
    if shape.depth % PANEL or shape.width not in (64, 128, 192, 256):
        return f"features are {shape.depth} and {shape.width}, not a multiple of {PANEL} and 64, 128, 192 or 256"
    if shape.causal and shape.keys < shape.queries:
        return f"a query sees none of the {shape.keys} keys, for there are {shape.queries} queries"
    if shape.scale <= 0 or not math.isfinite(shape.scale):
        return f"the scale of scores, {shape.scale}, is not positive"
    return ""


def attention_kernel(shape: AttentionShape, tiles: AttentionTiles) -> PrimFunc:
    """Return the kernel as a function of Q, K, V and the result R."""
    return parse(_Text(shape, tiles).function())  # type: ignore[return-value]


class _Text:
    """The text of one kernel, line by line. ``steps``: the tiles of keys that the queries of a block see."""

    def __init__(self, shape: AttentionShape, tiles: AttentionTiles) -> None:
        self.shape, self.tiles = shape, tiles
        self.lines: list[str] = []
        self.tall = GROUP_ROWS * tiles.groups
        self.later = shape.keys - shape.queries
        self.factor = shape.scale * math.log2(math.e)
        self.scores, self.sums = GROUP_ROWS * tiles.keys, GROUP_ROWS * shape.width
        heads: int = math.prod(shape.lead)
        digits: list[str] = []
        for size in reversed(shape.lead):
            digits.append(f"h // {math.prod(shape.lead[len(shape.lead) - len(digits) :])} % {size}, ")
        self.lead = "".join(reversed(digits))
        self.heads = heads
        self.steps = (
            f"((b * {self.tall} + {self.tall - 1 + self.later}) // {tiles.keys} + 1)"
            if shape.causal
            else str(shape.keys // tiles.keys)
        )

    def put(self, depth: int, *lines: str) -> None:
        """Write lines at a depth of indentation."""
        self.lines += ["    " * depth + line for line in lines]

    def function(self) -> str:
        """Return the whole text."""
        shape, tiles, dtype = self.shape, self.tiles, self.shape.dtype
        sizes = {
            "Q": (shape.queries, shape.depth),
            "K": (shape.keys, shape.depth),
            "V": (shape.keys, shape.width),
            "R": (shape.queries, shape.width),
        }
        params = [f'{name}: T.Buffer({(*shape.lead, *size)}, "{dtype}")' for name, size in sizes.items()]
        self.put(0, "@T.prim_func", f"def main({', '.join(params)}):")
        self.put(1, f'for h in T.thread_binding({self.heads}, thread="blockIdx.y"):')
        self.put(2, f'for b in T.thread_binding({shape.queries // self.tall}, thread="blockIdx.x"):')
        for name, rows, columns in (
            ("Qs", self.tall, shape.depth),
            ("Ks", tiles.keys, shape.depth),
            ("Vs", tiles.keys, shape.width),
        ):
            versions = () if name == "Qs" else (2,)
            self._buffer(3, name, (*versions, columns // PANEL, rows, PANEL), dtype, "shared.swizzled")
        self.put(3, f'for y in T.thread_binding({tiles.groups}, thread="threadIdx.y"):')
        self.put(4, f'for x in T.thread_binding({_GROUP}, thread="threadIdx.x"):')
        for name in ("S", "E"):
            self._buffer(5, name, (GROUP_ROWS, tiles.keys), "float32", "wgmma.accumulator")
        self._buffer(5, "P", (GROUP_ROWS, tiles.keys), dtype, "wgmma.accumulator")
        self._buffer(5, "O", (GROUP_ROWS, shape.width), "float32", "wgmma.accumulator")
        for name in ("m", "n", "l", "a"):
            self._buffer(5, name, (GROUP_ROWS,), "float32", "wgmma.rows")
        self.body(5)
        return "\n".join(self.lines)

    def _buffer(self, depth: int, name: str, shape: Sequence[int], dtype: str, scope: str) -> None:
        self.put(depth, f'{name} = T.decl_buffer({tuple(shape)}, "{dtype}", scope="{scope}")')

    def body(self, d: int) -> None:
        """Write what a thread does."""
        shape, tiles, width = self.shape, self.tiles, self.shape.width
        self.copy(d, "Qs", "", "Q", self.tall, f"b * {self.tall}", shape.depth)
        self.copy(d, "Ks", "0, ", "K", tiles.keys, "0", shape.depth)
        self.arrived(d, committed=False)
        self.put(d, f"if 1 < {self.steps}:")
        self.copy(d + 1, "Ks", "1, ", "K", tiles.keys, str(tiles.keys), shape.depth)
        self.copy(d, "Vs", "0, ", "V", tiles.keys, "0", width)
        self.put(d, _COMMIT)
        self.score(d, "0")
        self.put(d, f"S.vstore([0, 0], T.wgmma_wait({self.tile('S')}, 0))")
        self.weigh(d, "0", first=True, masked=shape.causal)
        self.narrow(d)
        self.put(d, f"O.vstore([0, 0], T.Broadcast(T.float32(0), {self.sums}))")
        if shape.causal:  # only the last tiles have keys that some query of the block does not see
            whole = f"T.max({self.steps} - {-(-self.tall // tiles.keys) + 1}, 0)"
            self.put(d, f"for t in range({whole}):")
            self.step(d + 1, "t", masked=False)
            self.put(d, f"for u in range({self.steps} - 1 - {whole}):")
            self.step(d + 1, f"(u + {whole})", masked=True)
        else:
            self.put(d, f"for t in range({self.steps} - 1):")
            self.step(d + 1, "t", masked=False)
        self.arrived(d)
        self.put(d, f"O.vstore([0, 0], T.wgmma_fence({self.tile('O')}))")
        self.add_values(d, f"({self.steps} - 1) % 2")
        self.put(d, f"O.vstore([0, 0], T.wgmma_wait({self.tile('O')}, 0))")
        share = f'T.wgmma_across("float32x{self.sums}", T.Broadcast(T.float32(1), {GROUP_ROWS}) / {_row("l")})'
        place = f"T.address_of(R[{self.lead}b * {self.tall} + y * {GROUP_ROWS}, 0])"
        self.put(
            d,
            f'T.evaluate(T.wgmma_store({place}, {width}, T.Cast("{shape.dtype}x{self.sums}", {self.tile("O")} * {share})))',
        )

    def step(self, d: int, t: str, masked: bool) -> None:
        """Write the step that weighs tile ``t + 1`` and adds the values of tile ``t``."""
        keys = self.tiles.keys
        self.arrived(d)
        self.put(d, f"if {t} + 2 < {self.steps}:")
        self.copy(d + 1, "Ks", f"{t} % 2, ", "K", keys, f"({t} + 2) * {keys}", self.shape.depth)
        self.copy(d, "Vs", f"({t} + 1) % 2, ", "V", keys, f"({t} + 1) * {keys}", self.shape.width)
        self.put(d, _COMMIT, f"O.vstore([0, 0], T.wgmma_fence({self.tile('O')}))")
        self.score(d, f"({t} + 1) % 2")
        self.add_values(d, f"{t} % 2")
        self.put(d, f"S.vstore([0, 0], T.wgmma_wait({self.tile('S')}, 1))")
        self.weigh(d, f"({t} + 1)", first=False, masked=masked)
        self.put(d, f"O.vstore([0, 0], T.wgmma_wait({self.tile('O')}, 0))")
        self.put(d, f'O.vstore([0, 0], {self.tile("O")} * T.wgmma_across("float32x{self.sums}", {_row("a")}))')
        self.narrow(d)

    def tile(self, name: str) -> str:
        """Return a whole tile in registers."""
        return f'{name}.vload([0, 0], "float32x{self.sums if name == "O" else self.scores}")'

    def copy(self, d: int, target: str, version: str, source: str, rows: int, first: str, columns: int) -> None:
        """Write copies of ``rows`` rows to shared memory, which run beside the threads."""
        lines = _GROUP * _PIECE // PANEL
        together = lines * self.tiles.groups
        over = -(-rows // together)
        self.put(d, 'with T.attr(None, "async_scope", 1):')
        self.put(d + 1, f"for p, o in T.grid({columns // PANEL}, {over}):")
        if over * together > rows:
            self.put(d + 2, f"if o * {together} + y * {lines} < {rows}:")
            d += 1
        row = f"o * {together} + y * {lines} + x // {PANEL // _PIECE}"
        column = f"x % {PANEL // _PIECE} * {_PIECE} + v"
        self.put(d + 2, f"for v in T.vectorized({_PIECE}):")
        self.put(
            d + 3,
            f"{target}[{version}p, {row}, {column}] = {source}[{self.lead}{first} + {row}, p * {PANEL} + {column}]",
        )

    def arrived(self, d: int, committed: bool = True) -> None:
        """Write what waits for all copies of all threads."""
        self.put(
            d,
            *[] if committed else [_COMMIT],
            "T.evaluate(T.ptx_wait_group(0))",
            'T.evaluate(T.tvm_storage_sync("shared"))',
        )

    def score(self, d: int, version: str) -> None:
        """Write the begin of the product of queries and keys."""
        dtype, keys = self.shape.dtype, self.tiles.keys
        for k in range(0, self.shape.depth, GROUP_STEPS):
            sums = self.tile("S") if k else f"T.Broadcast(T.float32(0), {self.scores})"
            panel, column = divmod(k, PANEL)
            left = f'T.wgmma_left("{dtype}x1024", T.address_of(Qs[{panel}, y * {GROUP_ROWS}, {column}]), {PANEL})'
            right = f'T.wgmma_right_t("{dtype}x{GROUP_STEPS * keys}", T.address_of(Ks[{version}, {panel}, 0, {column}]), {PANEL})'
            self.put(d, f"S.vstore([0, 0], T.wgmma_dot({sums}, {left}, {right}))")
        self.put(d, "T.evaluate(T.wgmma_commit())")

    def add_values(self, d: int, version: str) -> None:
        """Write the begin of the product of weights and values."""
        dtype, keys, width = self.shape.dtype, self.tiles.keys, self.shape.width
        for k in range(0, keys, GROUP_STEPS):
            left = f'T.wgmma_columns("{dtype}x1024", P.vload([0, 0], "{dtype}x{self.scores}"), {k})'
            right = f'T.wgmma_right("{dtype}x{GROUP_STEPS * width}", T.address_of(Vs[{version}, 0, {k}, 0]), {PANEL}, {PANEL * keys})'
            self.put(d, f"O.vstore([0, 0], T.wgmma_dot({self.tile('O')}, {left}, {right}))")
        self.put(d, "T.evaluate(T.wgmma_commit())")

    def weigh(self, d: int, tile: str, first: bool, masked: bool) -> None:
        """Write the weights of a tile of scores, and what becomes of the rows' numbers."""
        keys, lanes = self.tiles.keys, self.scores
        scores = self.tile("S")
        if masked:
            number = f"T.Ramp(0, 1, {lanes})"
            key = f"{number} % T.Broadcast({keys}, {lanes}) + T.Broadcast({tile} * {keys}, {lanes})"
            query = f"{number} // T.Broadcast({keys}, {lanes}) + T.Broadcast(b * {self.tall} + y * {GROUP_ROWS} + {self.later}, {lanes})"
            self.put(
                d, f"E.vstore([0, 0], T.Select({key} <= {query}, {scores}, T.Broadcast(T.float32('-inf'), {lanes})))"
            )
            scores = self.tile("E")
        top = f"T.wgmma_row_max({scores})"
        larger = f"T.max({_row('m')}, {top})"
        self.put(d, f"n.vstore([0], {top if first else larger})")
        each, of_rows = [f"T.Broadcast(T.float32({self.factor!r}), {count})" for count in (lanes, GROUP_ROWS)]
        self.put(
            d,
            f'E.vstore([0, 0], T.exp2_approx({scores} * {each} - T.wgmma_across("float32x{lanes}", {_row("n")} * {of_rows})))',
        )
        sums = f"T.wgmma_row_sum({self.tile('E')})"
        if not first:
            self.put(d, f"a.vstore([0], T.exp2_approx(({_row('m')} - {_row('n')}) * {of_rows}))")
            sums = f"{_row('l')} * {_row('a')} + {sums}"
        self.put(d, f"l.vstore([0], {sums})", f"m.vstore([0], {_row('n')})")

    def narrow(self, d: int) -> None:
        """Write the rounding of weights to the operands' type."""
        self.put(d, f'P.vstore([0, 0], T.Cast("{self.shape.dtype}x{self.scores}", {self.tile("E")}))')


_COMMIT = "T.evaluate(T.ptx_commit_group())"


def _row(name: str) -> str:
    return f'{name}.vload([0], "float32x{GROUP_ROWS}")'

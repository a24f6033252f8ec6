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

Where tiles are longer than the queries, the keys or the features, shared memory holds zeros, the scores of keys beyond the end are -inf, and
the result goes through shared memory, from which threads store what there is of it. Scores with a mask, or another function of each score,
come from ``S + G``: who makes the kernel puts the function in its place. Then a row may have seen no key yet, and counts its
largest score, -inf, as 0; so it may where a window of keys begins after the first key. Tiles that no query of a block sees are left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..tir.expr.intrinsics.matrix_operations import GROUP_ROWS, GROUP_STEPS, PANEL
from ..tir.parser import parse
from ..tir.stmt import PrimFunc

_GROUP = 128
"""The threads of a warp group."""
PIECE = 8
"""The elements that a thread copies at once."""
_REGISTERS, _BESIDE = 65_536, 30
"""The registers of a multiprocessor, and those that a thread needs beside its sums of a product (ptxas asks for them)."""


@dataclass(frozen=True)
class AttentionShape:
    """What a kernel computes. ``lead``: the sizes of batch and heads; ``depth``: the features of queries and keys, ``width``: of values;
    ``scale``: of scores.
    ``since`` and ``until``: query i sees the keys from ``i + since`` to ``i + until`` alone, None for all on that side. ``scored``: whether scores are another function of
    the products, and of the query and the key, than products times ``scale``; ``safe``: whether a row that sees nothing is 0.
    ``apart``: whether neighbouring rows of the result lie elsewhere than behind each other."""

    lead: tuple[int, ...]
    queries: int
    keys: int
    depth: int
    width: int
    dtype: str
    scale: float
    since: int | None = None
    until: int | None = None
    scored: bool = False
    safe: bool = False
    apart: bool = False

    @property
    def ranged(self) -> bool:
        """Whether which keys a query sees depends on its place."""
        return self.since is not None or self.until is not None

    @property
    def pairs(self) -> int:
        """How many pairs of a query and a key that it sees a head has."""
        query = np.arange(self.queries)
        first = np.maximum(query + self.since, 0) if self.since is not None else 0
        last = np.minimum(query + self.until, self.keys - 1) if self.until is not None else self.keys - 1
        return int((np.maximum(last - first + 1, 0) + 0 * query).sum())

    @property
    def hollow(self) -> bool:
        """Whether a query may have seen no key yet after a tile."""
        return self.scored or self.since is not None or (self.until is not None and self.until < 0)


@dataclass(frozen=True)
class AttentionTiles:
    """How a kernel computes it. ``groups``: the warp groups of a block, with 64 queries each; ``keys``: those of a tile."""

    groups: int = 2
    keys: int = 128


def unfit(shape: AttentionShape, tiles: AttentionTiles) -> str:
    """Return why the tiles do not fit the shape, or an empty text. The scale is positive."""
    if shape.dtype not in ("float16", "bfloat16"):
        return f"the operands are {shape.dtype}, not float16 or bfloat16"
    if not 1 <= tiles.groups <= 8 or tiles.keys not in (64, 128, 192, 256):
        return f"there are {tiles.groups} groups of threads, and {tiles.keys} keys in a tile: 1 to 8, and 64, 128, 192 or 256"
    if not shape.keys or not shape.queries or not all(shape.lead):
        return "there are no queries or no keys"
    if shape.depth % PIECE or shape.width % PIECE or not shape.depth or not 0 < shape.width <= 256:
        return f"features are {shape.depth} and {shape.width}, not multiples of {PIECE}, of values up to 256"
    columns = max(tiles.keys, -(-shape.width // PANEL) * PANEL)
    own, needed = _REGISTERS // (_GROUP * tiles.groups) // 8 * 8, columns * GROUP_ROWS // _GROUP + _BESIDE
    if needed > own:
        return f"a product of {columns} columns takes {needed} registers of a thread, and each has {own} in {tiles.groups} groups"
    return ""


def tiles_of_keys(shape: AttentionShape, tiles: AttentionTiles) -> int:
    """Return how many tiles of keys all blocks of one head go through together."""
    tall, most = GROUP_ROWS * tiles.groups, -(-shape.keys // tiles.keys)
    top = np.arange(0, shape.queries, tall)
    first = np.zeros_like(top) if shape.since is None else np.clip((top + shape.since) // tiles.keys, 0, most - 1)
    if shape.until is None:
        return int((most - first).sum())
    end = np.minimum((top + tall - 1 + shape.until) // tiles.keys + 1, most)
    return int(np.maximum(end - first, 1).sum())


def attention_kernel(shape: AttentionShape, tiles: AttentionTiles) -> PrimFunc:
    """Return the kernel as a function of Q, K, V and the result R. Where it is ``scored``, it takes G as well. Accesses are at batch and
    heads, row and feature; G is read at batch and heads, queries and keys."""
    return parse(_Text(shape, tiles).function())  # type: ignore[return-value]


class _Text:
    """The text of one kernel, line by line. The queries of a block see ``steps`` tiles of keys, from tile ``first`` on."""

    def __init__(self, shape: AttentionShape, tiles: AttentionTiles) -> None:
        self.shape, self.tiles = shape, tiles
        self.lines: list[str] = []
        self.tall = GROUP_ROWS * tiles.groups
        self.factor = math.log2(math.e) * (1.0 if shape.scored else shape.scale)
        self.depth, self.width = (-(-n // PANEL) * PANEL for n in (shape.depth, shape.width))
        self.scores, self.sums = GROUP_ROWS * tiles.keys, GROUP_ROWS * self.width
        self.ended = shape.keys % tiles.keys > 0
        self.bounded = self.ended and (shape.until is None or shape.until > shape.keys - shape.queries)
        self.through = shape.apart or shape.queries % self.tall > 0 or self.width > shape.width
        heads: int = math.prod(shape.lead)
        digits: list[str] = []
        for size in reversed(shape.lead):
            digits.append(f"h // {math.prod(shape.lead[len(shape.lead) - len(digits) :])} % {size}, ")
        self.lead = "".join(reversed(digits))
        self.heads = heads
        self.most = -(-shape.keys // tiles.keys)
        self.top = f"b * {self.tall}"
        self.first, end = "0", str(self.most)
        last = (-(-shape.queries // self.tall) - 1) * self.tall
        if shape.since is not None:
            self.first = f"T.max(({self.top} + {shape.since}) // {tiles.keys}, 0)"
            if last + shape.since >= self.most * tiles.keys:
                self.first = f"T.min({self.first}, {self.most - 1})"
        if shape.until is not None:
            end = f"(({self.top} + {self.tall - 1 + shape.until}) // {tiles.keys} + 1)"
            if last + self.tall - 1 + shape.until >= self.most * tiles.keys:
                end = f"T.min({end}, {self.most})"
            if shape.hollow:
                end = f"T.max({end}, {self.first} + 1)"
        self.steps = f"({end} - {self.first})" if shape.since is not None else end

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
        params += [f'G: T.Buffer({(*shape.lead, shape.queries, shape.keys)}, "float32")'] if shape.scored else []
        self.put(0, "@T.prim_func", f"def main({', '.join(params)}):")
        self.put(1, f'for h in T.thread_binding({self.heads}, thread="blockIdx.y"):')
        self.put(2, f'for b in T.thread_binding({-(-shape.queries // self.tall)}, thread="blockIdx.x"):')
        for name, rows, columns in (
            ("Qs", self.tall, self.depth),
            ("Ks", tiles.keys, self.depth),
            ("Vs", tiles.keys, self.width),
        ):
            versions = () if name == "Qs" else (2,)
            self._buffer(3, name, (*versions, columns // PANEL, rows, PANEL), dtype, "shared.swizzled")
        if self.through:
            self._buffer(3, "Rs", (self.tall, self.width), dtype, "shared")
        self.put(3, f'for y in T.thread_binding({tiles.groups}, thread="threadIdx.y"):')
        self.put(4, f'for x in T.thread_binding({_GROUP}, thread="threadIdx.x"):')
        for name in ("S", "E"):
            self._buffer(5, name, (GROUP_ROWS, tiles.keys), "float32", "wgmma.accumulator")
        self._buffer(5, "P", (GROUP_ROWS, tiles.keys), dtype, "wgmma.accumulator")
        self._buffer(5, "O", (GROUP_ROWS, self.width), "float32", "wgmma.accumulator")
        for name in ("m", "n", "l", "a", *(["e"] if shape.hollow else [])):
            self._buffer(5, name, (GROUP_ROWS,), "float32", "wgmma.rows")
        self.body(5)
        return "\n".join(self.lines)

    def _buffer(self, depth: int, name: str, shape: Sequence[int], dtype: str, scope: str) -> None:
        self.put(depth, f'{name} = T.decl_buffer({tuple(shape)}, "{dtype}", scope="{scope}")')

    def body(self, d: int) -> None:
        """Write what a thread does."""
        shape, tiles = self.shape, self.tiles
        self.copy(d, "Q", "", self.tall, f"b * {self.tall}")
        self.copy(d, "K", "0, ", tiles.keys, self.place("0"))
        self.arrived(d, committed=False)
        if self.most > 1:
            self.put(d, f"if 1 < {self.steps}:")
            self.copy(d + 1, "K", "1, ", tiles.keys, self.place("1"))
        self.copy(d, "V", "0, ", tiles.keys, self.place("0"))
        self.put(d, _COMMIT)
        self.score(d, "0")
        self.put(d, f"S.vstore([0, 0], T.wgmma_wait({self.tile('S')}, 0))")
        self.weigh(d, "0", first=True, masked=shape.ranged or self.most == 1)
        self.narrow(d)
        self.put(d, f"O.vstore([0, 0], T.Broadcast(T.float32(0), {self.sums}))")
        for var, (begin, end, masked) in zip("tuw", self.spans(), strict=False):
            if begin != end:
                self.put(d, f"for {var} in range({end} - {begin}):")
                self.step(d + 1, var if begin == "0" else f"({var} + {begin})", masked)
        self.arrived(d)
        self.put(d, f"O.vstore([0, 0], T.wgmma_fence({self.tile('O')}))")
        self.add_values(d, f"({self.steps} - 1) % 2")
        self.put(d, f"O.vstore([0, 0], T.wgmma_wait({self.tile('O')}, 0))")
        ones, sums = f"T.Broadcast(T.float32(1), {GROUP_ROWS})", _row("l")
        share = f'T.wgmma_across("float32x{self.sums}", {ones} / {f"T.max({sums}, {ones})" if shape.safe else sums})'
        place = f"Rs[y * {GROUP_ROWS}, 0]" if self.through else f"R[{self.lead}b * {self.tall} + y * {GROUP_ROWS}, 0]"
        value = f'T.Cast("{shape.dtype}x{self.sums}", {self.tile("O")} * {share})'
        self.put(d, f"T.evaluate(T.wgmma_store(T.address_of({place}), {self.width}, {value}))")
        if self.through:
            self.store(d)

    def spans(self) -> list[tuple[str, str, bool]]:
        """Return from which step to which one tiles are compared, or are not. A tile is where it has keys that some query does not see."""
        shape, keys = self.shape, self.tiles.keys
        last = f"({self.steps} - 1)" if shape.ranged else str(self.most - 1)
        whole = keys + self.tall - 1  # the keys that a query has to see so that a tile need not be compared
        if shape.since is not None and shape.until is not None and shape.until - shape.since + 1 < whole:
            return [("0", last, True)]
        begin, end = "0", last
        if shape.since is not None:
            tile = f"({self.top} + {self.tall + keys - 2 + shape.since}) // {keys}"
            begin = f"T.max(T.min({tile} - 1 - {self.first}, {last}), 0)"
        if shape.until is not None:
            tile = f"({self.top} + {shape.until + 1}) // {keys}"
            tile = f"T.min({tile}, {shape.keys // keys})" if self.bounded else tile
            end = f"T.max({tile} - 1 - {self.first}, {begin})"
            end = f"T.min({end}, {last})" if shape.hollow else end
        elif self.ended and self.most > 1:
            end = f"T.max({shape.keys // keys - 1} - {self.first}, {begin})" if shape.ranged else str(self.most - 2)
        return [("0", begin, True), (begin, end, False), (end, last, True)]

    def place(self, step: str) -> str:
        """Return the first key of a step's tile."""
        tile = step if self.first == "0" else f"({self.first} + {step})"
        return f"{tile} * {self.tiles.keys}"

    def store(self, d: int) -> None:
        """Write the copy of the result from shared memory, of the rows and features that there are."""
        shape, pieces = self.shape, self.width // PIECE
        threads = _GROUP * self.tiles.groups
        self.put(d, 'T.evaluate(T.tvm_storage_sync("shared"))')
        self.put(d, f"for o in range({self.tall * pieces // threads}):")
        number = f"(o * {threads} + y * {_GROUP} + x)"
        row, column = f"{number} // {pieces}", f"{number} % {pieces} * {PIECE}"
        conditions = [f"b * {self.tall} + {row} < {shape.queries}"] if shape.queries % self.tall else []
        conditions += [f"{number} % {pieces} < {shape.width // PIECE}"] if self.width > shape.width else []
        if conditions:
            d += 1
            self.put(d, f"if {' and '.join(conditions)}:")
        self.put(d + 1, f"for v in T.vectorized({PIECE}):")
        self.put(d + 2, f"R[{self.lead}b * {self.tall} + {row}, {column} + v] = Rs[{row}, {column} + v]")

    def step(self, d: int, t: str, masked: bool) -> None:
        """Write the step that weighs tile ``t + 1`` and adds the values of tile ``t``."""
        keys = self.tiles.keys
        self.arrived(d)
        self.put(d, f"if {t} + 2 < {self.steps}:")
        self.copy(d + 1, "K", f"{t} % 2, ", keys, self.place(f"({t} + 2)"))
        self.copy(d, "V", f"({t} + 1) % 2, ", keys, self.place(f"({t} + 1)"))
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

    def copy(self, d: int, source: str, version: str, rows: int, first: str) -> None:
        """Write copies of ``rows`` rows to shared memory, which run beside the threads. There are zeros beyond the end."""
        shape = self.shape
        columns, known = (shape.width, self.width) if source == "V" else (shape.depth, self.depth)
        length = shape.queries if source == "Q" else shape.keys
        lines = _GROUP * PIECE // PANEL
        together = lines * self.tiles.groups
        over = -(-rows // together)
        self.put(d, 'with T.attr(None, "async_scope", 1):')
        self.put(d + 1, f"for p, o in T.grid({known // PANEL}, {over}):")
        if over * together > rows:
            self.put(d + 2, f"if o * {together} + y * {lines} < {rows}:")
            d += 1
        pieces = PANEL // PIECE
        row = f"o * {together} + y * {lines} + x // {pieces}"
        column = f"x % {pieces} * {PIECE} + v"
        value = f"{source}[{self.lead}{first} + {row}, p * {PANEL} + {column}]"
        inside = [f"{first} + {row} < {length}"] if length % rows else []
        inside += [f"p * {pieces} + x % {pieces} < {columns // PIECE}"] if known > columns else []
        if inside:
            value = f"T.if_then_else({' and '.join(inside)}, {value}, T.{shape.dtype}(0))"
        self.put(d + 2, f"for v in T.vectorized({PIECE}):")
        self.put(d + 3, f"{source}s[{version}p, {row}, {column}] = {value}")

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
        dtype, keys, width = self.shape.dtype, self.tiles.keys, self.width
        for k in range(0, keys, GROUP_STEPS):
            left = f'T.wgmma_columns("{dtype}x1024", P.vload([0, 0], "{dtype}x{self.scores}"), {k})'
            right = f'T.wgmma_right("{dtype}x{GROUP_STEPS * width}", T.address_of(Vs[{version}, 0, {k}, 0]), {PANEL}, {PANEL * keys})'
            self.put(d, f"O.vstore([0, 0], T.wgmma_dot({self.tile('O')}, {left}, {right}))")
        self.put(d, "T.evaluate(T.wgmma_commit())")

    def weigh(self, d: int, step: str, first: bool, masked: bool) -> None:
        """Write the weights of a tile of scores, and what becomes of the rows' numbers."""
        shape, keys, lanes = self.shape, self.tiles.keys, self.scores
        number, scores = f"T.Ramp(0, 1, {lanes})", self.tile("S")
        key = f"{number} % T.Broadcast({keys}, {lanes}) + T.Broadcast({self.place(step)}, {lanes})"
        query = f"{number} // T.Broadcast({keys}, {lanes}) + T.Broadcast(b * {self.tall} + y * {GROUP_ROWS}, {lanes})"
        if shape.scored:
            rows = f"T.min({query}, T.Broadcast({shape.queries - 1}, {lanes}))" if shape.queries % self.tall else query
            columns = f"T.min({key}, T.Broadcast({shape.keys - 1}, {lanes}))" if self.ended else key
            self.put(d, f"E.vstore([0, 0], {scores} + G[{self.lead}{rows}, {columns}])")
            scores = self.tile("E")
        seen = []
        if masked and shape.since is not None:
            seen.append(f"{key} >= {query} + T.Broadcast({shape.since}, {lanes})")
        if masked and shape.until is not None:
            seen.append(f"{key} <= {query} + T.Broadcast({shape.until}, {lanes})")
        if masked and self.bounded:
            seen.append(f"{key} < T.Broadcast({shape.keys}, {lanes})")
        for condition in seen:
            never = f"T.Broadcast(T.float32('-inf'), {lanes})"
            self.put(d, f"E.vstore([0, 0], T.Select({condition}, {scores}, {never}))")
            scores = self.tile("E")
        top = f"T.wgmma_row_max({scores})"
        larger = f"T.max({_row('m')}, {top})"
        self.put(d, f"n.vstore([0], {top if first else larger})")
        each, of_rows = [f"T.Broadcast(T.float32({self.factor!r}), {count})" for count in (lanes, GROUP_ROWS)]
        most = "n"
        if shape.hollow:
            most = "e"
            never, zero = (f"T.Broadcast(T.float32({x}), {GROUP_ROWS})" for x in ("'-inf'", "0"))
            self.put(d, f"e.vstore([0], T.Select({_row('n')} == {never}, {zero}, {_row('n')}))")
        if shape.scored:
            power = f'({scores} - T.wgmma_across("float32x{lanes}", {_row("e")})) * {each}'  # of large numbers the difference first
        else:
            power = f'{scores} * {each} - T.wgmma_across("float32x{lanes}", {_row(most)} * {of_rows})'
        self.put(d, f"E.vstore([0, 0], T.exp2_approx({power}))")
        sums = f"T.wgmma_row_sum({self.tile('E')})"
        if not first:
            self.put(d, f"a.vstore([0], T.exp2_approx(({_row('m')} - {_row(most)}) * {of_rows}))")
            sums = f"{_row('l')} * {_row('a')} + {sums}"
        self.put(d, f"l.vstore([0], {sums})", f"m.vstore([0], {_row('n')})")

    def narrow(self, d: int) -> None:
        """Write the rounding of weights to the operands' type."""
        self.put(d, f'P.vstore([0, 0], T.Cast("{self.shape.dtype}x{self.scores}", {self.tile("E")}))')


_COMMIT = "T.evaluate(T.ptx_commit_group())"


def _row(name: str) -> str:
    return f'{name}.vload([0], "float32x{GROUP_ROWS}")'

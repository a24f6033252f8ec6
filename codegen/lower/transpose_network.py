"""Transposes a square of vectors by shuffles, as hand-written register transposes do.

First every group of rows that fills a 128-bit lane is transposed within the lanes by interleaving halves (a perfect
shuffle repeated log2 times is a transpose; each step is one unpack instruction per row), then blocks of that size
change places between the groups: exchanging blocks at distances 1, 2, 4 … (J. O. Eklundh, "A fast computer method for
matrix transposing", IEEE Transactions on Computers C-21(7), 1972).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.expr import Expr, Shuffle


def transposed(rows: Sequence[Expr], block: int) -> list[Expr]:
    """Returns the columns of a square of ``len(rows)`` vectors of as many lanes. ``block``: the elements of a 128-bit
    lane.

    >>> from tilewright.tir.expr import Var
    >>> [str(row) for row in transposed([Var("a", "float32x2"), Var("b", "float32x2")], 4)]
    ['T.Shuffle([a, b], [0, 2])', 'T.Shuffle([a, b], [1, 3])']
    """
    size = len(rows)
    block = min(block, size)
    groups = [_within_lanes(rows[g : g + block], size) for g in range(0, size, block)]
    out: list[Expr] = []
    columns = [_exchanged([group[r] for group in groups], block, size) for r in range(block)]
    for place in range(size // block):
        out += [columns[r][place] for r in range(block)]
    return out


def _within_lanes(rows: Sequence[Expr], lanes: int) -> list[Expr]:
    """Returns ``rows`` (as many as a lane has elements) with each lane's square transposed."""
    block, now = len(rows), list(rows)
    half = block // 2
    low, high = [], []
    for start in range(0, lanes, block):
        low += [x for n in range(half) for x in (start + n, lanes + start + n)]
        high += [x for n in range(half, block) for x in (start + n, lanes + start + n)]
    for _ in range(block.bit_length() - 1):
        now = [Shuffle((now[r], now[r + half]), tuple(order)) for r in range(half) for order in (low, high)]
    return now


def _exchanged(rows: list[Expr], block: int, lanes: int) -> list[Expr]:
    """Returns a square of blocks transposed."""
    now, distance = list(rows), 1
    while distance < len(now):
        first = [n if not (n // block) & distance else lanes + n - distance * block for n in range(lanes)]
        second = [n + distance * block if not (n // block) & distance else lanes + n for n in range(lanes)]
        after = list(now)
        for r in range(len(now)):
            if not r & distance:
                pair = (now[r], now[r + distance])
                after[r], after[r + distance] = Shuffle(pair, tuple(first)), Shuffle(pair, tuple(second))
        now, distance = after, distance * 2
    return now

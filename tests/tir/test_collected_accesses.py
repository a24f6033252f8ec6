"""The one collector of accesses, and the dependence test on integers that uses it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.tir import For, PrimFunc, parse
from tilewright.tir.analysis.access import Access, accesses, accesses_below, opaque_buffers
from tilewright.tir.analysis.dependence import accessed_boxes_below, undetermined_by_integers
from tilewright.tir.analysis.simplify import simplify
from tilewright.tir.expr import Reason
from tilewright.tir.walk import pre_order


def func_of(body: str) -> PrimFunc:
    """Returns a function of two buffers with this body."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    found = parse(f'@T.prim_func\ndef main(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):\n{lines}\n')
    assert isinstance(found, PrimFunc)
    return found


def shown(found: Access) -> str:
    """Returns what an access says, in one line."""
    text = f"{found.buffer.name}[{', '.join(map(str, found.indices))}]" + (" =" if found.is_store else "")
    loops = "".join(f" for {loop.loop_var.name}" for loop in found.loops)
    return text + loops + "".join(f" if {guard}" for guard in found.guards)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("for i in range(8):\n    A[i] = B[i + 1]", ["A[i] = for i", "B[i + 1] for i"]),
        ("for i in range(8):\n    if i < 3:\n        A[i] = 0", ["A[i] = for i if i < 3"]),
        ("for i in range(8):\n    A[i] = T.if_then_else(i > 2, B[i - 3], 0)", ["A[i] = for i", "B[i - 3] for i if i > 2"]),
        (
            "for i in range(8):\n    if i > 0 and B[i - 1] > 0:\n        A[i] = 0",
            ["B[i - 1] for i if i > 0", "A[i] = for i if i > 0 if B[i - 1] > 0"],
        ),
        ("for i in range(8):\n    k: T.int32 = i * 4\n    A[k + 1] = 0", ["A[i * 4 + 1] = for i"]),
        ("A[B[0]] = B[1]", ["A[B[0]] =", "B[1]", "B[0]"]),
    ],
)  # fmt: skip
def test_what_stands_around_an_access(body: str, expected: list[str]) -> None:
    assert [shown(a) for a in accesses(func_of(body).body)] == expected


BLOCKS = """
for i in range(16):
    with T.block("outer"):
        v = T.axis.spatial(32, i * 2)
        T.where(i < 9)
        T.reads(B[v:v + 2])
        T.writes(A[v:v + 2])
        for j in range(2):
            A[v + j] = B[v + j] + B[v + j]
"""


def test_axes_are_replaced_and_declared_regions_found() -> None:
    found = accesses_below(func_of(BLOCKS).body)
    assert [shown(a) for a in found.elements] == [
        "A[i * 2 + j] = for i for j if i < 9",
        "B[i * 2 + j] for i for j if i < 9",
        "B[i * 2 + j] for i for j if i < 9",
    ]
    declared = [(shown(a), [int(e) for e in a.extents]) for a in found.all if a.is_declared and a.buffer.name in "AB"]
    assert declared == [("B[i * 2] for i if i < 9", [2]), ("A[i * 2] = for i if i < 9", [2])]


def test_an_expression_in_several_places_counts_once() -> None:
    func = func_of("A[0] = B[3]")
    store = next(n for n in pre_order(func.body) if type(n).__name__ == "BufferStore")
    doubled = store.with_(value=store.value + store.value)
    assert len(accesses(doubled)) == 2


def test_unchanged_statements_are_not_walked_again() -> None:
    func = func_of("A[0] = B[3]")
    assert accesses_below(func.body) is accesses_below(func.body)


def test_deep_expressions() -> None:
    func = func_of("A[0] = B[3]")
    store = next(n for n in pre_order(func.body) if type(n).__name__ == "BufferStore")
    value = store.value
    for _ in range(3000):
        value = value * 2 + store.value
    assert len(accesses(store.with_(value=value))) == 2


def test_pointers() -> None:
    func = func_of('T.evaluate(T.call_extern("int32", "f", T.address_of(A[4]), B.data))')
    found = accesses_below(func.body)
    assert [(p.data, p.may_write) for p in found.pointers if p.data is not None] == [
        (b.data, True) for b in func.buffers
    ]
    assert opaque_buffers(func.body) == {b.data for b in func.buffers}
    loop = parse(
        '@T.prim_func\ndef main(A: T.Buffer((64,), "int32")):\n    for i in range(4):\n'
        "        T.evaluate(T.prefetch(T.address_of(A[i]), 0, 3))\n"
    )
    assert isinstance(loop, PrimFunc)
    (pointer,) = accesses_below(loop.body).pointers
    assert not pointer.may_write
    inner = next(n for n in pre_order(loop.body) if isinstance(n, For))
    why = accessed_boxes_below(inner)
    assert isinstance(why, Reason) and "may touch anything" in why.text and why.nodes == (inner,)


TERMS = ("i", "j", "i // 4", "i % 4", "i % 4 // 2", "j * 2", "3", "j % 3")


@pytest.mark.parametrize("seed", range(60))
def test_integers_find_no_fewer_conflicts_than_all_points(seed: int) -> None:
    rng = np.random.default_rng(seed)
    index = " + ".join(f"({TERMS[n]}) * {rng.choice([1, 2, 4, 8, 16])}" for n in rng.integers(0, len(TERMS), 2))
    other = index if rng.random() < 0.5 else f"{index} + {rng.integers(-3, 4)}"
    trips = int(rng.integers(2, 9)), int(rng.integers(2, 6))
    big = 'A: T.Buffer((512,), "int32"), B: T.Buffer((512,), "int32")'
    func = parse(
        f"@T.prim_func\ndef main({big}):\n    for i, j in T.grid({trips[0]}, {trips[1]}):\n"
        f"        A[{index}] = A[{other}] + 1\n"
    )
    assert isinstance(func, PrimFunc)
    chain = [n for n in pre_order(func.body) if isinstance(n, For)]
    wanted = [loop.loop_var for loop in chain]
    store, load = accesses(chain[-1].body)
    found = undetermined_by_integers(chain, store, load, wanted)
    if found is None:
        return
    points = list(itertools.product(*map(range, trips)))
    at = [(eval(index, {"i": i, "j": j}), eval(other, {"i": i, "j": j})) for i, j in points]
    meet = [(p, q) for (p, (s, _)), (q, (_, o)) in itertools.product(zip(points, at, strict=True), repeat=2) if s == o]
    differ = {v.name for n, v in enumerate(wanted) if any(p[n] != q[n] for p, q in meet)}
    assert differ <= {v.name for v in found}


def test_the_conditions_of_a_choice():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16,)), B: T.Buffer((8,))):
    for i in range(8):
        B[i] = T.if_then_else(i < 3, A[i], T.if_then_else(i < 5, A[i + 3], A[i + 8]))
""")
    buffer = next(b for b in func.buffer_map.values() if b.name == "A")
    found = {str(a.indices[0]): sorted(map(str, map(simplify, a.guards))) for a in accesses(func.body, buffer)}
    assert found == {"i": ["i < 3"], "i + 3": ["i < 5", "i >= 3"], "i + 8": ["i >= 3", "i >= 5"]}

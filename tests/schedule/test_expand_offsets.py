"""expand_offsets: zero points of either factor, in every place where they may be, and what it refuses."""

import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError, Trace
from tilewright.tir import structural_equal, verify
from tilewright.tir.interpret import interpret


def wide(x):
    return x.astype("int32")


ZEROS = {
    "none": lambda z, i, j: 0,
    "constant": lambda z, i, j: 113,
    "scalar": lambda z, i, j: wide(z[0]),
    "rows": lambda z, i, j: wide(z[i]),
    "columns": lambda z, i, j: wide(z[j]),
    "sum": lambda z, i, j: wide(z[i]) * 3 - wide(z[j]),
}


def product(left, right, types=("uint8", "int8"), m=5, n=4, k=7):
    a, b = te.placeholder((m, k), types[0], "A"), te.placeholder((k, n), types[1], "B")
    y, z = te.placeholder((8,), types[0], "y"), te.placeholder((8,), types[1], "z")
    q = te.reduce_axis((0, k), name="q")
    of = lambda i, j: (wide(a[i, q]) - ZEROS[left](y, i, j)) * (wide(b[q, j]) - ZEROS[right](z, i, j))  # noqa: E731
    return te.create_prim_func([a, b, y, z, te.compute((m, n), lambda i, j: te.sum(of(i, j), axis=q), name="C")])


def operands(rng, m=5, n=4, k=7):
    a, y = rng.integers(0, 256, (m, k)).astype("uint8"), rng.integers(0, 256, 8).astype("uint8")
    b, z = rng.integers(-128, 128, (k, n)).astype("int8"), rng.integers(-128, 128, 8).astype("int8")
    return a, b, y, z


@pytest.mark.parametrize("left", ZEROS)
@pytest.mark.parametrize("right", ZEROS)
def test_the_sums_stay_what_they_were(left, right):
    func = product(left, right)
    sch = Schedule(func)
    if left == right == "none":
        with pytest.raises(ScheduleError, match="has no product of integers less zero points"):
            sch.expand_offsets("C")
        return
    *sums, result = sch.expand_offsets("C")
    verify(sch.func)
    assert len(sums) == (left != "none") + (right != "none")
    assert result.name == sch.get_output_blocks("root")[0].name
    own = sch.get(sch.get_block("C"))
    assert [r.buffer.name for r in own.reads] == ["A", "B"]
    a, b, y, z = operands(np.random.default_rng(0))
    i, j = np.indices((5, 4))

    def points(kind, v):
        v = v.astype("int64")
        return {
            "none": 0 * i,
            "constant": 0 * i + 113,
            "scalar": 0 * i + v[0],
            "rows": v[i],
            "columns": v[j],
            "sum": 3 * v[i] - v[j],
        }[kind]

    one = a.astype("int64")[:, None, :] - points(left, y)[:, :, None]
    other = b.astype("int64").T[None] - points(right, z)[:, :, None]
    out = np.full((5, 4), 77, "int32")
    interpret(sch.func, a, b, y, z, out)
    np.testing.assert_array_equal(out, (one * other).sum(-1))
    again = Schedule(func)
    Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
    assert structural_equal(again.func, sch.func)


def test_sums_that_wrap():
    """The corrections wrap as the sums do."""
    a, b = te.placeholder((2, 9), "int32", "A"), te.placeholder((9, 3), "int32", "B")
    q = te.reduce_axis((0, 9), name="q")
    c = te.compute((2, 3), lambda i, j: te.sum((a[i, q] - 2**30) * (b[q, j] + 12345678), axis=q), name="C")
    sch = Schedule(te.create_prim_func([a, b, c]))
    sch.expand_offsets("C")
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-(2**31), 2**31, shape).astype("int32") for shape in ((2, 9), (9, 3)))
    out = np.zeros((2, 3), "int32")
    interpret(sch.func, x, w, out)
    exact = [[int(p) for p in row] for row in (x.astype(object) - 2**30) @ (w.astype(object) + 12345678)]
    want = [[(p + 2**31) % 2**32 - 2**31 for p in row] for row in exact]
    np.testing.assert_array_equal(out, want)


def test_a_matrix_by_itself():
    """Both factors may be one array; the sums have names of their own."""
    a, q = te.placeholder((4, 6), "int8", "A"), te.reduce_axis((0, 6), name="q")
    c = te.compute((4, 4), lambda i, j: te.sum((wide(a[i, q]) - 3) * (wide(a[j, q]) - 5), axis=q), name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    one, other, _ = sch.expand_offsets("C")
    assert one.name != other.name
    x = np.random.default_rng(0).integers(-128, 128, (4, 6)).astype("int8")
    out = np.zeros((4, 4), "int32")
    interpret(sch.func, x, out)
    np.testing.assert_array_equal(out, (x.astype("int32") - 3) @ (x.astype("int32") - 5).T)


def refused(of, dtype="int8", total="int32"):
    a, b, z = te.placeholder((4, 6), dtype, "A"), te.placeholder((6, 4), dtype, "B"), te.placeholder((6,), dtype, "z")
    q, to = te.reduce_axis((0, 6), name="q"), lambda x: x.astype(total)
    c = te.compute((4, 4), lambda i, j: te.sum(of(to(a[i, q]), to(b[q, j]), to(z[q])), axis=q), name="C")
    return Schedule(te.create_prim_func([a, b, z, c]))


REFUSED = [
    ("a point for each step", lambda a, b, z: (a - z) * b, {}, "is no element of an array of integers"),
    ("a point less an element", lambda a, b, z: (3 - a) * b, {}, "is no element of an array of integers"),
    ("floats", lambda a, b, z: (a - 3) * b, {"dtype": "float32", "total": "float32"}, "is no element of an array of integers"),
    ("no product", lambda a, b, z: a - 3, {}, "is not a sum of products from zero"),
    ("short sums", lambda a, b, z: (a - 3) * b, {"total": "int16"}, "has no product of integers less zero points"),
]  # fmt: skip


@pytest.mark.parametrize(("of", "options", "words"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_it_refuses(of, options, words):
    with pytest.raises(ScheduleError, match=words):
        refused(of, **options).expand_offsets("C")

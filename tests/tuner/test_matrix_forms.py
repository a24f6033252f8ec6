"""Products of any number of axes on the matrix units of GPUs: which are taken, equal to NumPy on the simulated GPU."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.tuner import Space
from tilewright.tuner.cost.gpu_model import gpu_product
from tilewright.tuner.program import ProgramInfo
from tilewright.tuner.rules.gpu_matrix_units import MatrixProduct

FORMS = {
    "plain": ("ik,kj->ij", {"i": 64, "j": 64, "k": 32}),
    "a batch": ("bik,bkj->bij", {"b": 3, "i": 64, "j": 64, "k": 32}),
    "one matrix for a batch": ("bik,kj->bij", {"b": 2, "i": 32, "j": 64, "k": 64}),
    "two axes of steps": ("ikl,klj->ij", {"i": 64, "j": 64, "k": 2, "l": 32}),
    "heads between the axes": ("ibk,bkj->bij", {"b": 3, "i": 64, "j": 64, "k": 32}),
    "lengths that no tile divides": ("ik,kj->ij", {"i": 50, "j": 75, "k": 37}),
    "lengths that vectors divide": ("ik,jk->ij", {"i": 100, "j": 72, "k": 200}),
    "two axes of columns": ("ik,kxj->ixj", {"i": 64, "x": 2, "j": 32, "k": 64}),
    "a layer's weights": ("ik,jk->ij", {"i": 64, "j": 64, "k": 32}),
    "a layer's gradient": ("ki,kj->ij", {"i": 64, "j": 64, "k": 32}),
    "scores of heads": ("xihk,xjhk->xhij", {"x": 2, "h": 3, "i": 64, "j": 64, "k": 32}),
}


def product(form, extents, dtype="float16", cast="float32", swapped=False):
    """Returns the te tensors of a product that einsum's words describe, with a cast of the result."""
    inputs, result = form.split("->")
    first, second = inputs.split(",")
    a, b = [te.placeholder([extents[x] for x in word], dtype, name) for word, name in ((first, "A"), (second, "B"))]
    steps = {x: te.reduce_axis((0, extents[x]), name=x) for x in sorted(set(first + second) - set(result))}

    def sums(*index):
        at = {**dict(zip(result, index, strict=True)), **steps}
        x, y = [t[tuple(at[n] for n in w)].astype("float32") for t, w in ((a, first), (b, second))]
        return te.sum(y * x if swapped else x * y, axis=list(steps.values()))

    c = te.compute([extents[x] for x in result], sums, name="C")
    return [a, b, c if cast == "float32" else te.compute(c.shape, lambda *i: c[i].astype(cast), name="D")]


def values(tensors):
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, [int(e) for e in t.shape]).astype("float16") for t in tensors[:2]]


@pytest.mark.parametrize("cast", ["float32", "float16"])
@pytest.mark.parametrize("name", FORMS)
def test_forms(name, cast):
    """The best row of the matrix units, and drawn ones, for warps and for warp groups."""
    form, extents = FORMS[name]
    tensors = product(form, extents, cast=cast)
    func, target, (a, b) = te.create_prim_func(tensors), Target("gpu-sim -arch=sm_90a"), values(tensors)
    want = np.einsum(form, a.astype("float32"), b.astype("float32"))
    space, rng = Space(func, target), np.random.default_rng(0)
    sketches = [s for s in space.sketches if s.name.startswith(("warps", "groups"))]
    assert sketches
    for sketch in sketches:
        for row in np.concatenate([sketch.best_rows(1), sketch.sample(1, rng)]):
            got = np.full(want.shape, np.nan, cast)
            compile(space.schedule(sketch, row).func, target)(a, b, got)
            assert (got == want).all(), (sketch.name, sketch.decisions_of(row))


@pytest.mark.parametrize(("form", "extents", "word"), [
    ("bik,bkj->bij", {"b": 16, "i": 512, "j": 512, "k": 512}, "wgmma.mma_async"),
    ("xihk,xjhk->xhij", {"x": 4, "h": 8, "i": 512, "j": 512, "k": 128}, "mma"),
    ("ik,jk->ij", {"i": 1000, "j": 1000, "k": 1000}, "wgmma.mma_async"),
    ("ik,kj->ij", {"i": 1001, "j": 1003, "k": 1005}, "wmma.mma.sync"),
])  # fmt: skip
def test_large_products_take_them(form, extents, word):
    assert word in tw.build(product(form, extents, cast="float16"), "cuda -arch=sm_90a").get_source()


def test_operands_in_the_other_order():
    tensors = product(*FORMS["plain"], swapped=True)
    a, b = values(tensors)
    assert (tw.build(tensors, "gpu-sim")(a, b) == a.astype("float32") @ b.astype("float32")).all()


@pytest.mark.parametrize(("decisions", "groups"), [
    ({"block_rows": 4, "in_flight": 1, "versions": 3}, 2), ({"block_rows": 1, "in_flight": 0, "versions": 2}, 1),
])  # fmt: skip
def test_a_batch_on_warp_groups(decisions, groups):
    """Rows of blocks beside each other, products in flight, and a batch are right together."""
    tensors = product("bik,bkj->bij", {"b": 2, "i": 512, "j": 64, "k": 192}, cast="float16")
    func, target = te.create_prim_func(tensors), Target("gpu-sim -arch=sm_90a")
    where = {f"groups_C.{name}": value for name, value in {**decisions, "row_groups": groups}.items()}
    space = Space(func, target, where=where)
    sketch = next(s for s in space.sketches if s.name.startswith("groups"))
    module = compile(space.schedule(sketch, sketch.best_rows(1)[0]).func, target)
    a, b = values(tensors)
    got = np.empty((2, 512, 64), "float16")
    module(a, b, got)
    assert (got == np.einsum("bik,bkj->bij", a.astype("float32"), b.astype("float32"))).all()


def roles(form, extents):
    func = te.create_prim_func(product(form, extents))
    program = ProgramInfo(func)
    (found,) = [gpu_product(program, block, program.blocks) for block in program.blocks if block.is_reduction]
    return None if found is None else MatrixProduct.of(found)


@pytest.mark.parametrize(("form", "layout", "sizes"), [
    ("ik,kj->ij", "nn", (1, 4, 8, 16)), ("ik,jk->ij", "nt", (1, 4, 8, 16)), ("ki,kj->ij", "tn", (1, 4, 8, 16)),
    ("ki,jk->ij", "tt", (1, 4, 8, 16)), ("bik,bjk->bij", "nt", (2, 4, 8, 16)), ("ibk,jbk->bij", "nt", (2, 4, 8, 16)),
    ("bik,jk->bij", "nt", (1, 8, 8, 16)),
])  # fmt: skip
def test_roles(form, layout, sizes):
    found = roles(form, {"b": 2, "i": 4, "j": 8, "k": 16})
    assert (found.layout, found.sizes) == (layout, sizes)


def test_a_result_with_its_rows_innermost():
    """It is the product of the operands in the other order."""
    found = roles("ik,kj->ji", {"i": 4, "j": 8, "k": 16})
    assert (found.layout, found.sizes) == ("tt", (1, 8, 4, 16))


def test_sums_without_columns():
    assert roles("ik,ik->i", {"i": 4, "k": 16}) is None


def convolution(n, size, c, o, window=3, stride=1):
    """Returns a convolution of float16 with the channels last, which a stage of its own pads, and what NumPy makes of its inputs."""
    x, w = te.placeholder((n, size, size, c), "float16", "X"), te.placeholder((window, window, c, o), "float16", "W")
    p, out = window // 2, size // stride

    def padded(b, i, j, q):
        inside = te.all(i >= p, i < size + p, j >= p, j < size + p)
        return te.if_then_else(inside, x[b, i - p, j - p, q], te.const(0, "float16"))

    source = te.compute((n, size + 2 * p, size + 2 * p, c), padded, name="padded")
    r, t, q = [te.reduce_axis((0, e), name=name) for e, name in ((window, "r"), (window, "t"), (c, "q"))]

    def sums(b, i, j, k):
        return te.sum(
            source[b, i * stride + r, j * stride + t, q].astype("float32") * w[r, t, q, k].astype("float32"),
            axis=[r, t, q],
        )

    y = te.compute((n, out, out, o), sums, name="C")

    def reference(a, b):
        wide = np.pad(a.astype("float32"), ((0, 0), (p, p), (p, p), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(wide, (window, window), axis=(1, 2))[:, ::stride, ::stride]
        return np.einsum("nyxcij,ijco->nyxo", windows[:, :out, :out], b.astype("float32"))

    return [x, w, te.compute(y.shape, lambda *i: y[i].astype("float16"), name="D")], reference


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions(stride):
    tensors, reference = convolution(2, 6, 8, 24, stride=stride)
    func, target, (a, b) = te.create_prim_func(tensors), Target("gpu-sim -arch=sm_90a"), values(tensors)
    space, want = Space(func, target), reference(a, b)
    sketches = [s for s in space.sketches if s.name.startswith(("warps", "groups"))]
    assert len(sketches) == 2
    for sketch in sketches:
        got = np.full(want.shape, np.nan, "float16")
        compile(space.schedule(sketch, sketch.best_rows(1)[0]).func, target)(a, b, got)
        assert (got == want).all()


def test_padded_copies_of_halves_run_beside_the_threads():
    """The choice between an element and 0 is widened and rounded, which changes nothing: it stays a copy."""
    tensors, _ = convolution(8, 56, 64, 64)
    module = tw.build(tensors, "cuda -arch=sm_90a")
    text = module.get_source()
    assert len(module.kernels["main"]) == 1 and "wgmma.mma_async" in text
    assert "ld.global" not in text.partition("wgmma.mma_async")[0]

"""The pass that computes convolutions by Winograd's method: where it does, and what it leaves."""

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target, TargetError
from tilewright.driver.graph_services import prepared
from tilewright.driver.models.model_tuning import kernel_tasks
from tilewright.graph import Services, evaluate, parse
from tilewright.graph.passes.choose_winograd import choose_winograd, winograd_error
from tilewright.te import ops

CONVOLUTION = """
def f(x: float32[1, 5, 6, 2]):
    w: float32[3, 3, 2, 3] = constant()
    b: float32[3] = constant()
    y = conv2d(x, w, b, layout="NHWC", padding=1)
    return y
"""


def graph_of(text, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"w": (3, 3, 2, 3), "b": (3,), "v": (3, 2, 3, 3), "u": (5, 5, 2, 3), "g": (3, 3, 1, 2)}
    data = {name: rng.standard_normal(s).astype("float32") for name, s in shapes.items() if f"    {name}: " in text}
    return parse(text, data)


def services(tile, seconds):
    """Predictions by the tile of a kernel: 0 for a convolution as it stands."""

    def of(kernel):
        (node,) = kernel.nodes
        return seconds[node.inputs[1].shape[0] - 2 if node.op == "winograd_conv2d" else 0]

    return Services(None, of, tile)


@pytest.mark.parametrize(
    ("tile", "seconds", "edge"),
    [
        (4, {0: 3.0, 2: 2.0, 4: 1.0}, 6),
        (4, {0: 3.0, 2: 1.0, 4: 2.0}, 4),
        (2, {0: 3.0, 2: 2.0, 4: 1.0}, 4),
        (0, {0: 3.0, 2: 2.0, 4: 1.0}, None),
        (4, {0: 1.1, 2: 1.0, 4: 1.0}, None),  # hardly faster
        (4, {0: 1.0, 2: 2.0, 4: 3.0}, None),
    ],
)
def test_the_tile_follows_from_predictions(tile, seconds, edge):
    graph = graph_of(CONVOLUTION)
    after = choose_winograd(graph, services(tile, seconds))
    if edge is None:
        assert after is graph
        return
    (node,) = after.nodes
    assert node.op == "winograd_conv2d" and node.inputs[1].shape == (edge, edge, 2, 3)
    assert set(after.constants) == set(node.inputs[1:])  # the weights are held once
    x = np.random.default_rng(1).standard_normal((1, 5, 6, 2)).astype("float32")
    np.testing.assert_allclose(evaluate(after, x)[0], evaluate(graph, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('layout="NHWC", padding=1', 'layout="NHWC", padding=1, stride=2'),
        ('layout="NHWC", padding=1', 'layout="NHWC", padding=2, dilation=(1, 2)'),
        ("w: float32[3, 3, 2, 3] = constant()\n    b: float32[3] = constant()\n    y = conv2d(x, w, b, ",
         "g: float32[3, 3, 1, 2] = constant()\n    y = conv2d(x, g, groups=2, "),
        ("w: float32[3, 3, 2, 3] = constant()\n    b: float32[3] = constant()\n    y = conv2d(x, w, b, ",
         "u: float32[5, 5, 2, 3] = constant()\n    y = conv2d(x, u, "),
        ('conv2d(x, w, b, layout="NHWC", padding=1)', 'conv2d(x, w, b, layout="NHWC", padding=1, out_dtype="float64")'),
        ("x: float32[1, 5,", "x: float32[1, n,"),
        ("x: float32[1, 5, 6, 2]):\n    w: float32[3, 3, 2, 3] = constant()",
         "x: float32[1, 5, 6, 2], w: float32[3, 3, 2, 3]):"),
    ],
)  # fmt: skip
def test_what_stays_as_it_is(old, new):
    graph = graph_of(CONVOLUTION.replace(old, new))
    assert [n.op for n in graph.nodes] == ["conv2d"]
    assert choose_winograd(graph, services(4, {0: 3.0, 2: 2.0, 4: 1.0})) is graph


def test_shared_weights_are_transformed_once():
    text = CONVOLUTION.replace("    return y", '    z = conv2d(x, w, layout="NHWC", padding=0)\n    return y, z')
    after = choose_winograd(graph_of(text), services(4, {0: 3.0, 2: 2.0, 4: 1.0}))
    assert [n.op for n in after.nodes] == ["winograd_conv2d"] * 2
    assert len({id(data) for v, data in after.constants.items() if v.shape == (6, 6, 2, 3)}) == 1


@pytest.mark.parametrize(("weight", "tile"), [(np.inf, 4), (-np.inf, 2), (np.nan, 4), (3e38, 2)])
def test_weights_that_are_not_finite_stay(weight, tile):
    graph = graph_of(CONVOLUTION)
    (w,) = [v for v in graph.constants if v.name == "w"]
    data = graph.constants[w].copy()
    data[:, :, 1, 2] = weight
    graph = parse(CONVOLUTION, {"w": data, "b": np.zeros(3, "float32")})
    assert choose_winograd(graph, services(tile, {0: 3.0, 2: 1.0, 4: 1.0})) is graph


def test_targets_say_whether_it_is_allowed():
    assert Target("native").winograd == 4 and "winograd" not in str(Target("native"))
    target = Target("native -winograd=2")
    assert target.winograd == 2 and Target(str(target)) == target and target.key == Target("native").key
    assert target.with_(winograd=0).winograd == 0
    with pytest.raises(TargetError, match="-winograd=3: there are 0, 2, 4"):
        Target("native -winograd=3")


NETWORK = """
def net(x: float32[1, 20, 20, 64]):
    w: float32[3, 3, 64, 64] = constant()
    b: float32[64] = constant()
    a = conv2d(x, w, b, padding=1, layout="NHWC")
    c = relu(a)
    d = conv2d(c, w, b, padding=1, layout="NHWC")
    e = add(d, x)
    y = relu(e)
    return y
"""


@pytest.mark.parametrize(("images", "numbers"), [("1", [1]), ("n", [0, 1, 2, 5])])
def test_a_residual_block(images, numbers):
    rng = np.random.default_rng(0)
    weight = (rng.standard_normal((3, 3, 64, 64)) / 24).astype("float32")
    graph = parse(NETWORK.replace("[1,", f"[{images},"), {"w": weight, "b": rng.standard_normal(64).astype("float32")})
    targets, bounds = ("native -num-cores=1", "native -num-cores=1 -winograd=0"), {"n": 5} if images == "n" else {}
    fast, plain = (tw.build(graph, target, bounds=bounds) for target in targets)
    assert sum("winograd" in step.name for step in fast.steps) == 2
    assert not any("winograd" in step.name for step in plain.steps)
    for number in numbers:
        x = rng.standard_normal((number, 20, 20, 64)).astype("float32")
        got, want = fast(x), plain(x)
        assert got.shape == want.shape and np.abs(got - want).max(initial=0) <= 1e-4 * np.abs(want).max(initial=0)


@pytest.mark.parametrize(
    ("target", "op"),
    [
        ("native -num-cores=1", "winograd_conv2d"),
        ("llvm -mcpu=x86-64-v3 -num-cores=1", "winograd_conv2d"),
        ("native -num-cores=1 -winograd=0", "conv2d"),
        ("c -mcpu=cortex-m7", "conv2d"),
        ("cuda -arch=sm_90", "conv2d"),
    ],
)
def test_only_processors_with_room_for_larger_weights(target, op):
    weight = np.ones((3, 3, 64, 64), "float32")
    graph = parse(NETWORK, {"w": weight, "b": np.ones(64, "float32")})
    found = {n.op for n in prepared(graph, Target(target)).nodes if "conv2d" in n.op}
    assert found == {op}


@pytest.mark.parametrize(
    ("accuracy", "edge"),
    [(None, 6), (1e-3, 6), (4e-7, 6), (3e-7, 4), (6e-8, 4), (5e-8, None), (0, None)],  # 2 channels
)
def test_tiles_are_as_exact_as_was_asked_for(accuracy, edge):
    graph = graph_of(CONVOLUTION)
    after = choose_winograd(graph, replace(services(4, {0: 9.0, 2: 2.0, 4: 1.0}), accuracy=accuracy))
    assert [n.inputs[1].shape[0] for n in after.nodes if n.op == "winograd_conv2d"] == ([] if edge is None else [edge])


@pytest.mark.parametrize("channels", [16, 128])
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_errors_are_what_they_are_said_to_be(tile, channels, scale):
    rng = np.random.default_rng(channels)
    x = (rng.uniform(-1, 1, (1, 16, 16, channels)) * scale).astype(np.float32)
    w = rng.standard_normal((3, 3, channels, 16)).astype(np.float32)
    u = ops.winograd_weights(w, tile).astype(np.float32)
    X, U = te.placeholder(x.shape, name="X"), te.placeholder(u.shape, name="U")
    y = np.empty((1, 16, 16, 16), np.float32)
    tw.build([X, U, ops.winograd_conv2d(X, U, padding=1)], "native -num-cores=1")(x, u, y)
    wide = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    exact = sum(wide[:, i : i + 16, j : j + 16] @ w[i, j].astype(np.float64) for i in range(3) for j in range(3))
    error = np.sqrt(((y - exact) ** 2).mean() / (exact**2).mean())
    assert 0.4 * winograd_error(tile, channels) < error < 1.2 * winograd_error(tile, channels)


def test_build_and_tune_agree_on_the_accuracy():
    text = (
        CONVOLUTION.replace("5, 6, 2]", "20, 20, 64]")
        .replace("3, 3, 2, 3]", "3, 3, 64, 64]")
        .replace("[3] =", "[64] =")
    )
    rng = np.random.default_rng(0)
    graph = parse(text, {"w": rng.standard_normal((3, 3, 64, 64), "float32"), "b": np.ones(64, "float32")})
    one = "native -num-cores=1"
    for accuracy, found in ((0, False), (None, True)):
        built = tw.build(graph, one, accuracy=accuracy)
        tasks = kernel_tasks(graph, Target(one), 8, accuracy)
        assert any("winograd" in step.name for step in built.steps) == found
        assert any("winograd" in task.name for task in tasks) == found
    with pytest.raises(ValueError, match="accuracy is a relative error of 0 or more"):
        tw.build(graph, one, accuracy=-1)
    with pytest.raises(TypeError, match="build.. takes accuracy for models only"):
        tw.build("relu:M=1,N=4", one, accuracy=0)

"""Graphs of torch.compile, run and trained in kernels; the oracle is eager PyTorch."""

import cProfile
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

import tilewright as tw  # noqa: E402
from tilewright.doors import compile_backend  # noqa: E402
from tilewright.doors.compile_backend import CompileOptions, forget, seconds_of  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import torch_training  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from tilewright.frontends.torch import TorchError, from_torch  # noqa: E402

nn = torch.nn


@pytest.fixture
def compiled():
    torch._dynamo.reset()
    forget()
    yield lambda f, **options: torch.compile(f, backend=tw.torch.backend, options=options)
    torch._dynamo.reset()


def test_compiled_models_follow_changes_of_their_parameters(compiled):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    fast = compiled(model, strict=True)
    with torch.no_grad():
        for rows in (3, 3, 5, 1):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
            model[0].weight.mul_(2)


def test_training_has_the_gradients_of_eager(compiled):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, 2))
    fast, x = compiled(model, strict=True), torch.randn(4, 8)
    fast(x).square().mean().backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).square().mean().backward()
    for g, p in zip(got, model.parameters(), strict=True):
        torch.testing.assert_close(g, p.grad, rtol=1e-4, atol=1e-5)


LAYERS = {
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (torch.linspace(-1, 1, 80).reshape(2, 5, 8),)),
    "norm first": (
        lambda: nn.TransformerEncoderLayer(8, 4, 16, batch_first=True, norm_first=True, activation="gelu"),
        (torch.linspace(-1, 1, 80).reshape(2, 5, 8),),
    ),
    "heads": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), (torch.linspace(-1, 1, 80).reshape(2, 5, 8),) * 3),
    "bags": (lambda: nn.EmbeddingBag(7, 3, mode="sum"), (torch.tensor([1, 2, 3, 4, 6]), torch.tensor([0, 2, 2]))),
    "means of bags": (
        lambda: nn.EmbeddingBag(7, 3, mode="mean", padding_idx=2, include_last_offset=True),
        (torch.tensor([1, 2, 3, 2, 6]), torch.tensor([0, 3, 4, 5])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_that_pytorch_leaves_whole_are_taken_apart(compiled, name):
    torch.manual_seed(0)
    make, x = LAYERS[name]
    model = make().eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, strict=True)(*x), model(*x), rtol=1e-4, atol=1e-5)


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "truth values": {"attn_mask": torch.tril(torch.ones(7, 5, dtype=torch.bool), -1)},  # the first row sees nothing
    "numbers": {"attn_mask": torch.linspace(-1, 1, 35).reshape(1, 1, 7, 5)},
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("is_input", [False, True])
def test_attention_is_one_kernel(compiled, regions, name, is_input):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 5, 8), torch.randn(2, 3, 5, 8)
    options = MASKS[name]

    def f(q, k, v, mask=None):
        more = options if mask is None else {"attn_mask": mask}
        return nn.functional.scaled_dot_product_attention(q, k, v, **more)

    given = [q, k, v, options["attn_mask"]] if is_input and "attn_mask" in options else [q, k, v]
    with torch.no_grad():
        torch.testing.assert_close(compiled(f, strict=True)(*given), f(*given), rtol=1e-4, atol=1e-5)
    (library,) = regions[0].built.values()
    assert [node.op for node in library.graph.nodes].count("attention") == 1


def test_attention_of_nothing(compiled):
    q = torch.ones(0, 2, 3, 4)
    fast = compiled(lambda q: nn.functional.scaled_dot_product_attention(q, q, q).sum(1), strict=True)
    assert fast(q).shape == (0, 3, 4)


@pytest.mark.parametrize("lead", [(1, 2), ()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_attention_whose_scores_are_all_minus_infinity_is_zero(compiled, lead, dtype):
    """As both of PyTorch's own kernels have it, for operands that are infinite and for masks."""
    q, k, v = torch.ones(*lead, 5, 4, dtype=dtype), torch.ones(*lead, 20, 4, dtype=dtype), torch.randn(*lead, 20, 4)
    q[..., 1, 0], q[..., 2, 0], v = -torch.inf, torch.inf, v.to(dtype)
    mask = torch.arange(100).reshape(5, 20) % 3 == 0
    mask[3] = False
    with sdpa_kernel(SDPBackend.MATH):
        for more in ({}, {"attn_mask": mask}, {"attn_mask": torch.where(mask, 0.0, -torch.inf).to(dtype)}):

            def f(q, k, v, more=more):
                return nn.functional.scaled_dot_product_attention(q, k, v, **more)

            got, want = compiled(f, strict=True)(q, k, v), f(q, k, v)
            assert not want[..., 1, :].any() and want[..., 2, :].isnan().all()
            torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("of", [torch.softmax, torch.log_softmax])
@pytest.mark.parametrize("number", [3.0, torch.inf, -torch.inf, torch.nan])
def test_softmax_of_a_single_number(compiled, of, number):
    x = torch.tensor(number)
    torch.testing.assert_close(compiled(lambda x: of(x, 0), strict=True)(x), of(x, 0), equal_nan=True)


OF_SIZES = {
    "root": lambda x: x * x.shape[-1] ** 0.5,
    "reciprocal root": lambda x: x / (x.shape[-1] ** -0.5),
    "quotient": lambda x: torch.full_like(x, x.shape[0] / 3) + x.shape[0] / x.shape[1],
    "magnitude": lambda x: x * abs(1 - x.shape[0] / 2) + torch.sym_max(x.shape[0] / 2, 3.5),
    "half of the rows": lambda x: x[: int(x.shape[0] / 2)],
    "three quarters, rounded up": lambda x: x[: math.ceil(x.shape[0] * 0.75)],
    "minus a third, towards zero": lambda x: x * int(-x.shape[0] / 3),
    "attention": lambda x: nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
}


@pytest.mark.parametrize("name", OF_SIZES)
def test_floats_that_are_computed_from_symbolic_sizes(name):
    f = OF_SIZES[name]
    torch._dynamo.reset()
    fast = torch.compile(f, backend="tilewright", dynamic=True, options={"strict": True})
    for shape in ((6, 8), (7, 3), (31, 5)):
        x = torch.randn(shape)
        torch.testing.assert_close(fast(x), f(x), rtol=1e-5, atol=1e-5)


def test_an_extent_that_is_computed_in_floats_is_refused_with_a_way_out():
    class Model(torch.nn.Module):
        def forward(self, x):
            return x[: round(x.shape[0] * 0.3)]

    sizes = ({0: torch.export.Dim.AUTO},)
    program = torch.export.export(Model(), (torch.randn(9, 4),), dynamic_shapes=sizes, strict=False)
    with pytest.raises(TorchError, match=r"aten.slice.Tensor .*computed in floats; shapes= can give"):
        from_torch(program)


def test_sizes_that_depend_on_values_are_left_to_pytorch(compiled):
    def f(x):
        return (x * 2).nonzero().sum() + x[x > 0].sum() + torch.unique(x).sum()

    fast = compiled(f)
    for x in (torch.linspace(-1, 1, 7), torch.zeros(7)):
        torch.testing.assert_close(fast(x), f(x))


def test_arithmetic_of_integers(compiled):
    def f(a):
        return a // 3, a % 3, -a // 4, a / 2, a**2, a.bool(), a << 1, a >> 1, a.fmod(3), a * True, a & 6, a.clamp(-2, 5)

    for dtype in (torch.int64, torch.int8):
        a = torch.arange(-8, 9, dtype=dtype)
        for got, want in zip(compiled(f, strict=True)(a), f(a), strict=True):
            torch.testing.assert_close(got, want)


def test_what_is_not_supported_runs_eagerly_and_is_said_once(compiled):
    def f(x):
        return torch.special.bessel_j0(x * 2 + 1).relu() * 3 + x

    fast, x = compiled(f), torch.rand(4, 5)
    with torch.no_grad(), pytest.warns(UserWarning, match=r"run eagerly, .*bessel_j0") as said:
        torch.testing.assert_close(fast(x), f(x))
        torch.testing.assert_close(fast(x), f(x))
    assert len([w for w in said if "tilewright" in str(w.message)]) == 1
    torch._dynamo.reset()
    with (
        torch.no_grad(),
        pytest.raises(Exception, match=r"bessel_j0.*test_torch_compile.py:\d+.*tilewright.frontends.torch.op adds one"),
    ):
        compiled(f, strict=True)(x)


def test_unknown_options_are_refused(compiled):
    with pytest.raises(Exception, match="there is no option 'tuned'"):
        compiled(lambda x: x + 1, tuned=True)(torch.ones(3))


@pytest.fixture
def regions(monkeypatch):
    """The regions that a test makes."""
    made, init = [], compile_backend.Region.__init__

    def noted(self, *args):
        init(self, *args)
        made.append(self)

    monkeypatch.setattr(compile_backend.Region, "__init__", noted)
    return made


@pytest.mark.parametrize("make, x", torch_training.NETS, ids=lambda a: getattr(a, "__name__", ""))
def test_training_follows_eager(compiled, make, x):  # python -m benchmarks.torch_training takes 50 steps
    fast, eager = (torch_training.losses(make, x, 3, compile_it) for compile_it in (True, False))
    np.testing.assert_allclose(fast, eager, rtol=1e-3)
    assert eager[2] != eager[0]


def test_one_library_serves_all_sizes(compiled, regions):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3)).eval()
    fast = compiled(model, strict=True)
    with torch.no_grad():
        for rows in (3, 5, 7, 13, 16, 17):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(fast(x), model(x))
        static, dynamic = regions
        assert [static.is_fixed, len(static.built), len(dynamic.built)] == [True, 1, 1]
        (library,) = dynamic.built.values()
        (bound,) = library.bounds.values()
        x = torch.randn(bound + 1, 8)
        torch.testing.assert_close(fast(x), model(x))
        assert [len(regions), len(dynamic.built)] == [2, 1]


def test_bounds_of_a_program_are_those_of_the_library(compiled, regions):
    x = torch.ones(6, 4)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=9)
    torch.testing.assert_close(compiled(lambda x: x * 2 + x.sum(0), strict=True)(x), x * 2 + x.sum(0))
    (region,) = regions
    (library,) = region.built.values()
    assert list(library.bounds.values()) == [9]


def returned_input(x, y):
    return x, x + y


def returned_twice(x, y):
    z = x * y
    return z, z, z.t()


def views_of_one(x, y):
    z = x * y
    first, second = z.split([1, 2])
    return first.t(), second, z.sum()


def views(x, y):
    return x.t(), x[1:], (x + y)[:, 1:].flatten()


def changed_in_place(x, y):
    x.add_(y)
    y[0] = 7
    return x * 2


def changed_through_a_view(x, y):
    x.t()[1].mul_(3)
    x.flatten()[::2].zero_()
    return x.sum() + y


def changed_and_returned(x, y):
    x.mul_(2)
    return x, y.unsqueeze(0)


def views_of_a_transposed_one(x, y):
    z = torch.relu(x.t().contiguous().t() + y)  # in PyTorch its memory is in the order of columns
    return z.t().view(-1), z[1], z.sum()


def with_a_break(x, y):
    z = x * 2 + y
    torch._dynamo.graph_break()
    return z.relu() - y


def with_a_branch(x, y):
    if x.sum() > 1e6:
        return x
    return y * 3 - x


ALIASES = (
    returned_input, returned_twice, views_of_one, views, changed_in_place, changed_through_a_view, changed_and_returned, views_of_a_transposed_one,
    with_a_break, with_a_branch,
)  # fmt: skip


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.tensor_split(x, 2, -1),
        lambda x: x[:, 1 : x.shape[1] - 1],
        lambda x: (x.view(x.shape[1], -1), x.unflatten(1, (1, x.shape[1])).transpose(0, 1)),
        lambda x: torch.split(x.relu(), x.shape[1] // 2 + 1, 1),
    ],
)
def test_views_by_symbolic_sizes_share_memory(f):
    run = torch.compile(f, backend="tilewright", dynamic=True, options={"strict": True})
    for width in (3, 6):
        x = torch.arange(5.0 * width).reshape(5, width)
        for made, want in zip(flat(run(x)), flat(f(x)), strict=True):
            assert torch.equal(made, want)
            storages = [t.untyped_storage().data_ptr() for t in (made, want, x)]
            assert (storages[0] == storages[2]) == (storages[1] == storages[2])


def flat(results):
    return list(results) if isinstance(results, tuple) else [results]


@pytest.mark.parametrize("f", ALIASES)
def test_memory_is_shared_as_in_eager(compiled, f):
    def places(inputs, outputs):
        """Which of the tensors share memory."""
        every = [t.untyped_storage().data_ptr() for t in (*inputs, *outputs)]
        return [[a == b for b in every] for a in every]

    fast, found = compiled(f, strict=True), []
    with torch.no_grad():
        for run in (fast, f, fast):
            x, y = torch.arange(12.0).reshape(3, 4), torch.linspace(-1, 1, 12).reshape(3, 4)
            out = flat(run(x, y))
            found.append(([x, y, *out], places([x, y], out)))
    for tensors, shared in (found[0], found[2]):
        assert shared == found[1][1]
        for t, e in zip(tensors, found[1][0], strict=True):
            torch.testing.assert_close(t, e)


def test_a_call_takes_few_steps(compiled, regions):
    model, x = nn.Linear(4, 4), torch.randn(3, 4)
    fast = compiled(model, strict=True)
    with torch.no_grad():
        fast(x)
        (region,) = regions
        inputs, run = [], region._last.run
        region._last.run = lambda args: (inputs.append(list(args)), run(args))[1]
        fast(x)
        region._last.run = run
        profile = cProfile.Profile()
        profile.runcall(region, inputs[-1])
    assert sum(row.callcount for row in profile.getstats()) <= 30  # 20 for one input, one output, two parameters


def test_new_results_are_new_each_time(compiled):
    fast, x = compiled(lambda x: x * 2, strict=True), torch.arange(5.0)
    first = fast(x)
    second = fast(x + 1)
    torch.testing.assert_close(first, x * 2)
    torch.testing.assert_close(second, x * 2 + 2)


def test_strided_inputs_are_read_as_they_are(compiled):
    x = torch.arange(35.0).reshape(5, 7)
    fast = compiled(lambda x: x * 2 + 1, strict=True)
    for view in (x.t(), x[:, ::2], x[1:4, 2:5], x.expand(2, 5, 7), x._neg_view()):
        torch.testing.assert_close(fast(view), view * 2 + 1)


def test_threads_follow_those_of_pytorch(compiled, regions):
    before = torch.get_num_threads()
    fast, x = compiled(lambda x: x @ x, strict=True), torch.eye(7)
    try:
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            torch.testing.assert_close(fast(x), x)
        targets = {threads: one.model.target for region in regions for threads, one in region.built.items()}
        assert {threads: target.num_cores for threads, target in targets.items()} == {1: 1, 2: 2}
    finally:
        torch.set_num_threads(before)


def test_parameters_that_change_often_become_inputs(compiled, regions):
    model, x = nn.Linear(3, 2), torch.ones(4, 3)
    fast = compiled(model, strict=True)
    with torch.no_grad():
        for step in range(6):
            model.weight.add_(step)
            torch.testing.assert_close(fast(x), model(x))
    (region,) = regions
    (library,) = region.built.values()
    assert [region.changes, library.held] == [3, []]


def test_buffers_are_constants(compiled, regions):
    model, x = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval(), torch.ones(1, 3, 5, 5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, strict=True)(x), model(x))
    (library,) = regions[0].built.values()
    assert len(library.passed) == 1
    assert len(library.model.steps) == 1  # the normalization is part of the weights


def test_graphs_are_tuned_once_within_the_time(compiled, regions, tmp_path, monkeypatch):
    limits, tune = [], compile_backend.tune_graph

    def noted(graph, target, db, options):
        limits.append(options.time_limit)
        return tune(graph, target, db, replace(options, trials=2))

    monkeypatch.setattr(compile_backend, "tune_graph", noted)
    db, x = tmp_path / "tuning.db", torch.randn(16, 16)
    for _ in range(2):
        torch._dynamo.reset()
        torch.testing.assert_close(compiled(lambda x: x @ x, strict=True, db=db, tune="60s")(x), x @ x)
    assert limits == [60.0]
    with tw.Database(db, readonly=True) as records:
        assert records.query("SELECT count(*) AS n FROM records WHERE status = 'ok'")[0]["n"] > 0
    for region in regions:
        (library,) = region.built.values()
        assert library.model.origin == "1 kernels (1 tuned)"


@pytest.mark.parametrize(
    "given, expected",
    [
        ({}, CompileOptions()),
        ({"strict": True, "db": "t.db"}, CompileOptions("t.db", True)),
        ({"tune": "2min", "db": "t.db"}, CompileOptions("t.db", tune=120.0)),
        ({"tune": 5, "db": "t.db", "dynamic": True}, CompileOptions("t.db", tune=5.0)),
    ],
)
def test_options(given, expected):
    assert CompileOptions.of(given) == expected


@pytest.mark.parametrize("time", ["", "s", "-1s", "0", "3 weeks", "nan", "inf"])
def test_a_time_that_is_none_is_refused(time):
    with pytest.raises(ValueError, match="is not a time above zero"):
        seconds_of(time)


def test_tuning_without_a_file_has_a_default():
    assert os.fspath(CompileOptions.of({"tune": "1s"}).db).endswith("torch-compile.db")


@pytest.mark.parametrize("layout", ["row-major", "channels_last"])
@pytest.mark.parametrize("make", [lambda x: torch.roll(x, -1, 0), lambda x: x * 2, lambda x: torch.flip(x, [0]) + 1])
def test_as_strided_of_an_intermediate_sees_the_order_that_eager_keeps(layout, make):
    x = torch.arange(100.0).reshape(2, 5, 2, 5)
    x = x.to(memory_format=torch.channels_last) if layout == "channels_last" else x

    def f(x):
        return torch.as_strided(make(x), (5, 10), (4, 1), 1) + 1

    torch._dynamo.reset()
    assert torch.equal(torch.compile(f, backend="tilewright")(x), f(x))

"""Programs of PyTorch: exported ones, torch.compile, one kernel as an operator; the oracle is eager PyTorch."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

from torch._higher_order_ops.scan import scan  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright import te  # noqa: E402
from tilewright.driver.models.model_building import build_graph  # noqa: E402
from tilewright.frontends.torch import TorchError, UnsupportedTorchOperators, from_torch  # noqa: E402
from tilewright.frontends.torch.aten_call import CONVERTERS  # noqa: E402

from .torch_operators import check  # noqa: E402
from .torch_samples import own_calls  # noqa: E402

nn = torch.nn


def exported(model, *inputs, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(model.eval(), inputs, **options)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(7, 13), nn.GELU(), nn.LayerNorm(13), nn.Linear(13, 5)), (3, 7)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.Hardswish(),
            nn.MaxPool2d(2), nn.Conv2d(8, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        ),
        (1, 3, 17, 13),
    ),
    "attention": (Attention, (2, 7, 16)),
    "upsampling": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 2, 2), nn.Upsample(scale_factor=2, mode="bilinear")), (1, 3, 5, 7)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_exported_programs_equal_eager(name):
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), torch.randn(shape)
    graph = from_torch(exported(model, x))
    got = build_graph(graph)(x.numpy())
    np.testing.assert_allclose(got, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def root(x):
    """Newton's method, and how many steps it takes."""
    return while_loop(
        lambda v, n: (v * v - x).abs().max() > 1e-3, lambda v, n: ((v + x / v) / 2, n + 1), (x.clone(), torch.tensor(0))
    )


def running(x):
    return scan(lambda c, a: (torch.tanh(c + a), c * a), x[0], x)


def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


@pytest.mark.parametrize("f", [root, running, chosen])
def test_loops_and_branches_equal_eager(f):
    class Model(nn.Module):
        def forward(self, x):
            return f(x)

    x = torch.rand(7, 3) + 0.5
    run = build_graph(from_torch(exported(Model(), x)))
    for given in (x, x + 40, x - 9) if f is not root else (x, x + 40):
        got = run(given.numpy())
        for a, e in zip(
            got if isinstance(got, tuple) else (got,), torch.utils._pytree.tree_leaves(f(given)), strict=True
        ):
            np.testing.assert_allclose(a, e.numpy(), rtol=1e-5)


def test_a_buffer_that_changes_is_an_input_and_an_output():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count.add_(x)
            return self.count * 2

    graph = from_torch(exported(Counter(), torch.ones(3)))
    assert [v.name for v in graph.inputs] == ["x", "count"]
    doubled, count = build_graph(graph)(np.ones(3, np.float32), np.full(3, 4, np.float32))
    np.testing.assert_array_equal(doubled, [10, 10, 10])
    np.testing.assert_array_equal(count, [5, 5, 5])


def test_arguments_that_change_are_outputs_behind_the_results():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x, y):
            self.count.add_(x)
            y.mul_(self.count)
            return y - x, x * 4

    graph = from_torch(exported(Model(), torch.ones(3), torch.ones(3)))
    assert [v.name for v in graph.inputs] == ["x", "y", "count"]
    given = {n: np.full(3, a, np.float32) for n, a in {"x": 2, "y": 3, "count": 5}.items()}
    got = build_graph(graph)(*given.values())
    np.testing.assert_array_equal([a[0] for a in got], [3 * 7 - 2, 8, 7, 21])


@pytest.mark.parametrize("shape", [(), (5,), (3, 7)], ids=str)
def test_shares_and_extremes_of_any_rank(shape):
    class Model(nn.Module):
        def forward(self, x):
            return torch.softmax(x, -1), torch.log_softmax(x, 0), torch.argmax(x, -1), torch.argmin(x)

    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    for got, want in zip(build_graph(from_torch(exported(Model(), x)))(x), Model()(x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def test_symbolic_sizes_stay():
    size = torch.export.Dim("rows", min=2, max=64)
    program = exported(nn.Linear(4, 3), torch.randn(5, 4), dynamic_shapes=({0: size},))
    (x,) = from_torch(program).inputs
    assert not isinstance(x.shape[0], int)
    assert x.shape[1] == 4


def test_sizes_have_the_bounds_of_the_program():
    layer = nn.Linear(4, 3)
    program = exported(layer, torch.randn(5, 4), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=17)},))
    run = build_graph(from_torch(program))
    for rows in (2, 7, 13, 17):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(run(x), layer(x).detach())
    with pytest.raises(RuntimeError, match=r"must be in 0..17"):
        run(torch.ones(18, 4))
    (name,) = from_torch(program).bounds
    build_graph(from_torch(program), bounds={name: 32})(torch.ones(32, 4))
    free = exported(layer, torch.randn(5, 4), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    assert from_torch(free).bounds == {} and from_torch(program, shapes={"input": (5, 4)}).bounds == {}


def test_all_missing_operators_are_listed_at_once():
    class Net(nn.Module):
        def forward(self, x):
            return torch.special.airy_ai(x) + torch.special.bessel_j0(x) + torch.special.bessel_j0(x + 1)

    with pytest.raises(
        UnsupportedTorchOperators, match=r"bessel_j0\.default: 2 \(first: .*test_torch\.py:\d+\)"
    ) as raised:
        from_torch(exported(Net(), torch.eye(3)))
    assert len(raised.value.operators) == 2


def test_an_operator_whose_size_depends_on_values_is_named():
    class Model(nn.Module):
        def forward(self, x):
            return (x * 2).nonzero()

    with pytest.raises(UnsupportedTorchOperators, match="aten.nonzero.default"):
        from_torch(exported(Model(), torch.ones(3)))


def test_a_converter_of_ones_own():
    @tw.torch.op("aten.special_bessel_j0.default")
    def bessel(c, x):  # the first terms of the series, near 0
        quarter = c.op("multiply", c.op("square", x), c.constant(-0.25, x.dtype))
        return c.op("add", quarter, c.constant(1, x.dtype))

    class Net(nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x)

    try:
        graph = from_torch(exported(Net(), torch.full((5,), 0.01)))
        np.testing.assert_allclose(build_graph(graph)(np.full(5, 0.01, np.float32)), np.full(5, 0.999975), rtol=1e-6)
    finally:
        del CONVERTERS["aten.special_bessel_j0.default"]


def test_what_is_no_program_is_refused(tmp_path):
    with pytest.raises(TorchError, match="Linear is not an exported program; torch.export.export"):
        from_torch(nn.Linear(2, 2))
    with pytest.raises(TorchError, match="there is no file"):
        from_torch(tmp_path / "missing.pt2")
    (tmp_path / "damaged.pt2").write_bytes(b"PK\3\4 and nothing else")
    with pytest.raises(TorchError, match="is not a program that torch.export.save wrote"):
        from_torch(tmp_path / "damaged.pt2")


@pytest.mark.parametrize(("dtype", "call"), own_calls(), ids=lambda c: c if isinstance(c, str) else str(c[0])[5:])
def test_core_operators_equal_eager(dtype, call):
    """The calls that PyTorch's samples do not reach; ``python -m tests.frontends.torch_operators`` makes all."""
    assert check([call], compiled=False) == [""]


def test_a_kernel_is_an_operator_of_pytorch():
    a, b = te.placeholder((5, 7), name="a"), te.placeholder((5, 7), name="b")
    c = te.compute((5, 7), lambda i, j: a[i, j] * b[i, j] + 1.0, name="c")
    f = tw.torch.custom_op(
        "tilewright_tests::product_and_one",
        [a, b, c],
        backward=lambda ctx, g: (g * ctx.saved_tensors[1], g * ctx.saved_tensors[0]),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x, y = torch.randn(5, 7, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    torch.testing.assert_close(f(x, y), x * y + 1)
    assert set(torch.library.opcheck(f, (x, y)).values()) == {"SUCCESS"}
    with pytest.raises(ValueError, match="expected 7 in dimension 1, got 6"):
        f(torch.ones(5, 6), torch.ones(5, 7))
    with pytest.raises(TorchError, match="a is .* float32.* is expected"):
        f(torch.ones(5, 7, dtype=torch.float64), torch.ones(5, 7))


def test_results_of_bfloat16_are_tensors_of_bfloat16():
    class Twice(nn.Module):
        def forward(self, x):
            return x + x, x.float()

    x = torch.randn(3, 5).bfloat16()
    for shapes in (None, ({0: torch.export.Dim.AUTO},)):
        model = tw.build(torch.export.export(Twice(), (x,), dynamic_shapes=shapes))
        for made, want in zip(model(x), Twice()(x), strict=True):
            torch.testing.assert_close(made, want, rtol=0, atol=0)
    bits, wide = model(x.view(torch.uint16).numpy())
    assert bits.dtype == np.uint16 and np.array_equal(bits, (x + x).view(torch.uint16).numpy())
    assert wide.dtype == np.float32


@pytest.mark.parametrize("correction", [0, 1])
def test_an_infinity_makes_variance_and_mean_nan(correction):
    class Moments(nn.Module):
        def forward(self, x):
            return (*torch.var_mean(x, 1, correction=correction), *torch.std_mean(x, (0, 1), correction=correction))

    rows = [[1, np.inf, 3, 4], [2, 5, -np.inf, 0], [np.inf, -np.inf, 1, 1], [1, 2, 3, 4], [1e30, -1e30, 0, 0]]
    for x in (torch.tensor(rows), torch.tensor([[np.inf], [2]])):
        made = tw.build(exported(Moments(), x))(x)
        for got, want in zip(made, Moments()(x), strict=True):
            torch.testing.assert_close(got, want, equal_nan=True)


def same_as_eager(f, *tensors):
    class Module(nn.Module):
        def forward(self, *tensors):
            return f(*tensors)

    made, want = tw.build(exported(Module(), *tensors), "native -num-cores=1")(*tensors), f(*tensors)
    for got, expected in zip(*[list(r) if isinstance(r, tuple) else [r] for r in (made, want)], strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64])
def test_common_divisors_and_multiples(dtype):
    numbers = torch.tensor([0, 1, 7, 12, 13, 89, 55, 127, -128, -1, -12, 100], dtype=torch.int64).to(dtype)
    if dtype is torch.int64:
        numbers = torch.cat([numbers, torch.tensor([7540113804746346429, 4660046610375530309, 2**63 - 1])])
    same_as_eager(lambda x: (torch.gcd(x[:, None], x), torch.gcd(x, x.to(torch.int64)[3:4])), numbers)
    small = numbers[:4]
    same_as_eager(lambda x: torch.lcm(x[:, None], x), small)


def test_the_most_frequent_elements():
    numbers = torch.tensor([[3, 1, 1, 3, 2], [5, 4, 3, 2, 1], [np.nan, np.nan, 0, -0.0, 7]])
    same_as_eager(lambda x: (*torch.mode(x), *torch.mode(x, 0, True)), numbers)
    same_as_eager(
        lambda x: (*torch.mode(x, 0), *torch.mode(x[:, :1])), torch.tensor([[True, False], [True, True], [False, True]])
    )
    same_as_eager(lambda x: torch.mode(x), torch.tensor(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32])
def test_bessel_functions(dtype):
    numbers = torch.tensor([0, -0.0, 0.5, -1, 7.9, 8, 8.1, -20, 80]).to(dtype)
    same_as_eager(lambda x: (torch.i0(x), torch.special.i0e(x)), numbers)


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (torch.float32, torch.int32), (torch.bfloat16, torch.uint16), (torch.bool, torch.uint8), (torch.float64, torch.int8),
        (torch.uint8, torch.float32), (torch.int16, torch.int64), (torch.float32, torch.bfloat16), (torch.int64, torch.int64),
    ],
)  # fmt: skip
def test_bits_as_another_type(have, want):
    numbers = torch.arange(-12, 12).to(have).reshape(3, 8)
    same_as_eager(lambda x: x.view(want), numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_the_median_of_no_elements(dtype):
    same_as_eager(lambda x: (x.median(), x.nanmedian()), torch.empty((3, 0), dtype=dtype))


def test_sums_and_products_of_truth_values_are_truth_values():
    x = torch.tensor([[True, False, False], [True, True, True], [False, False, False]])
    same_as_eager(
        lambda x: (x.sum(1, dtype=torch.bool), x.prod(1, dtype=torch.bool), x.sum(dtype=torch.bool)),
        x,
    )
    same_as_eager(lambda x: (x.sum(1, dtype=torch.bool), x.prod(1, dtype=torch.bool)), torch.empty((2, 0)))


def test_numbers_beyond_an_integer_type_wrap():
    x = torch.tensor([8, 0, 254], dtype=torch.uint8)
    same_as_eager(lambda x: (x + -1, x * -2, x == -2), x)


def test_build_takes_programs_and_their_files(tmp_path):
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    program = exported(model, x)
    torch.export.save(program, tmp_path / "net.pt2")
    expected = model(x).detach().numpy()
    for what in (program, tmp_path / "net.pt2", str(tmp_path / "net.pt2")):
        np.testing.assert_allclose(tw.build(what)(x.numpy()), expected, rtol=1e-5, atol=1e-6)


def product():
    a, b = te.placeholder((5, 7), name="a"), te.placeholder((5, 7), name="b")
    return tw.build([a, b, te.compute((5, 7), lambda i, j: a[i, j] * b[i, j] + 1.0, name="c")])


def test_tensors_are_arguments_and_results():
    f, x, y = product(), torch.randn(5, 7), torch.randn(5, 7)
    z = torch.zeros(5, 7)
    f(x, y, z)
    torch.testing.assert_close(z, x * y + 1)
    for made in (f(x, y), f(b=y, a=x), f(x, y.numpy())):
        assert type(made) is torch.Tensor
        torch.testing.assert_close(made, x * y + 1)
    assert type(f(x.numpy(), y)) is np.ndarray
    model = build_graph(from_torch(exported(nn.Linear(7, 3), x)))
    assert type(model(x)) is torch.Tensor


def test_tensors_that_do_not_hold_their_elements_are_refused():
    f, x, y = product(), torch.randn(5, 7), torch.randn(5, 7)
    for wrong, words in (
        (nn.Parameter(x), "it requires a gradient"),
        (x._neg_view(), r"it is a negated view, .* pass \.resolve_neg\(\)"),
        (x.to_sparse(), r"its layout is torch\.sparse_coo; pass \.to_dense\(\)"),
        (torch.view_as_complex(torch.randn(5, 7, 2)).conj(), "it is a conjugated view"),
        (x.double(), "expected dtype float32, got float64"),
        (x[:, :6], r"expected 7 in dimension 1, got 6"),
        (x.t().contiguous().t(), "expected a row-major array without gaps"),
    ):
        with pytest.raises(ValueError, match=words):
            f(wrong, y, torch.zeros(5, 7))
    with pytest.raises(ValueError, match="shares memory with argument"):
        f(x, y, x)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_rows_that_are_hidden_before_they_are_scaled(scale):
    class Weights(torch.nn.Module):
        def forward(self, q, hidden):
            scores = (q @ q.mT).masked_fill(hidden, -torch.inf)
            return torch.ops.aten._safe_softmax(scores * scale, -1)

    hidden = torch.tensor([[True, False, True], [True, True, True], [False, False, False]])
    q = torch.arange(12.0).reshape(3, 4) / 8
    run = tw.build(exported(Weights(), q, hidden))
    torch.testing.assert_close(torch.as_tensor(run(q, hidden)), Weights()(q, hidden))


SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-40,
    1.1754944e-38,
    1.0,
    -1.0,
    0.5,
    -2.5,
    3.0,
    20.0,
    -104.0,
    3e38,
]


@pytest.mark.parametrize(
    "f",
    [
        torch.atan2, torch.hypot, torch.copysign, torch.logaddexp, torch.nextafter, torch.floor_divide,
        lambda a, b: torch.sign(a) + 0 * b.sign(), lambda a, b: torch.signbit(a), lambda a, b: torch.exp2(a),
        lambda a, b: torch.nn.functional.elu(a), lambda a, b: torch.ldexp(a, b.sign()), lambda a, b: torch.fmax(a, b.abs() + 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_special_values_are_those_of_eager(f, dtype):
    class Module(torch.nn.Module):
        def forward(self, a, b):
            return f(a, b)

    x = torch.tensor(SPECIAL, dtype=dtype)
    a, b = [t.ravel().contiguous() for t in torch.meshgrid(x, x, indexing="ij")]
    want = f(a, b).numpy()
    got = tw.build(tw.from_torch(torch.export.export(Module(), (a, b))), target="native -num-cores=1")(
        a.numpy(), b.numpy()
    )
    np.testing.assert_allclose(got, want, rtol=3e-6, atol=0 if want.dtype.kind == "b" else 1e-44)
    if want.dtype.kind == "f":
        sure = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[sure], np.signbit(want)[sure])


def test_a_scatter_of_sizes_that_need_not_be_equal_is_refused_with_a_way_out():
    class Scattered(torch.nn.Module):
        def forward(self, x, y):
            return torch.scatter_reduce(x, 0, torch.zeros_like(x, dtype=torch.int64), y, "amax")

    x = torch.ones(3, 4)
    sizes = ({1: torch.export.Dim.AUTO}, {1: torch.export.Dim.AUTO})
    program = torch.export.export(Scattered(), (x, torch.ones(3, 4)), dynamic_shapes=sizes, strict=False)
    with pytest.raises(TorchError, match=r"scatter_reduce.* have to be numbers here; shapes= can give them"):
        from_torch(program)
    run = tw.build(from_torch(program, shapes={"x": (3, 4), "y": (3, 4)}))
    torch.testing.assert_close(torch.as_tensor(run(x, x * 2)), Scattered()(x, x * 2))

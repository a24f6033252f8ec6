"""A few random functions of PyTorch in each run, and whether their fuzzer finds a planted bug; operators that are taken apart."""

import json
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch")

import tilewright as tw  # noqa: E402
from tilewright.doors.compile_backend import forget  # noqa: E402
from tilewright.doors.torch_door import backend  # noqa: E402
from tilewright.frontends.torch import decompositions  # noqa: E402
from tilewright.frontends.torch.aten_call import CONVERTERS  # noqa: E402

from . import torch_functions as fuzzer  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    yield
    torch._dynamo.reset()
    forget()


@pytest.mark.parametrize("seed", [0, 4, 11, 16, 22, 29])
def test_random_functions_follow_eager(seed):
    found = fuzzer.checked(fuzzer.random_function(seed))
    assert found.kind in ("equal", "refused"), found


def written(door, *lines):
    """A function of two arrays, given by its statements."""
    given = tuple(
        (name, fuzzer.Input((3, 4), "float32", "strided", seed, False)) for seed, name in enumerate(("x0", "x1"))
    )
    statements = tuple(fuzzer.Statement(line, line.split(" = ")[0]) for line in lines)
    return fuzzer.Function(given, statements, (statements[-1].name,), door)


LINES = ("v0 = torch.tanh(x0)", "v1 = v0 - x1", "v2 = v1.t()", "v3 = v2.flip(0)", "v4 = v3 * 2")


@pytest.mark.parametrize("operator, door", [("aten.sub.Tensor", "compile"), ("aten.flip.default", "export")])
def test_a_planted_bug_is_found_and_shrunk_to_its_operator(monkeypatch, operator, door):
    right, one = CONVERTERS[operator], written(door, *LINES)
    assert fuzzer.checked(one).kind == "equal"

    def wrong(c, x, *rest, **named):
        out = right(c, x, *rest, **named)
        return c.op("add", out, c.constant(0.01, "float32"))

    monkeypatch.setitem(CONVERTERS, operator, wrong)
    found = fuzzer.checked(one)
    assert found.kind == "finding"
    small, found = fuzzer.shrunk(one, found)
    (statement,) = small.statements
    assert operator.split(".")[1] in {"v1": "sub", "v3": "flip"}[statement.name]
    assert "differ" in found.message
    shown = []
    exec(small.script(found.sizes), {"print": shown.append})
    (eager,), ours = shown
    ours = torch.as_tensor(ours[0] if isinstance(ours, tuple) else ours)
    torch.testing.assert_close(ours - 0.01, eager)


def test_a_run_goes_on_where_it_was_cut_off(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"seed": 3, "kind": "equal", "key": "equal: "}) + "\n")
    rows.with_suffix(".now").write_text("4")
    done = fuzzer.done_rows(rows)
    assert {seed: row["kind"] for seed, row in done.items()} == {3: "equal", 4: "finding"}
    assert fuzzer.done_rows(rows).keys() == done.keys()


SPECIAL = [0.0, -0.0, 1.0, 2.0, -1.0, -2.0, 0.5, -0.5, 1e-30, 1e10, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("name", ["erfc", "erfinv", "lgamma", "digamma"])
def test_special_functions_are_those_of_pytorch(name):
    x = torch.cat([torch.linspace(-6, 20, 3001, dtype=torch.float64), torch.tensor(SPECIAL, dtype=torch.float64)])
    x = x / 26 if name == "erfinv" else x
    got, want = getattr(decompositions, name)(x), getattr(torch, name)(x)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=0 if name == "erfc" else 1e-14, equal_nan=True)


ORDERED = {
    "cummax": lambda x: torch.cummax(x, 1),
    "cummin": lambda x: torch.cummin(x, 0),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 1),
    "median": lambda x: torch.median(x, 1),
    "searchsorted": lambda x: torch.searchsorted(torch.sort(x[:1].nan_to_num(0))[0], x[:1], right=True),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 2.0])),
    "norms": lambda x: (torch.linalg.vector_norm(x, 3, 1), torch.linalg.vector_norm(x, 0), torch.dist(x, x * 2)),
    "windows": lambda x: x.unfold(1, 2, 2) + 1,
    "steps": lambda x: torch.slice_scatter(x, x[::2] + 1, 0, 0, None, 2),
    "diagonals": lambda x: (torch.diagonal_scatter(x, x.diagonal(-1) * 2, -1), x.diagonal(1) + 1),
    "decimals": lambda x: torch.round(x, decimals=1),
    "conversions": lambda x: x.to(torch.float16).to(torch.float32),
}


@pytest.mark.parametrize("name", ORDERED)
def test_operators_that_are_taken_apart(name):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(5, 4, generator=generator), torch.randn(3, 6, generator=generator)
    x[1, 2], x[2, 3], x[0, 0] = math.nan, math.inf, -0.0
    fast = torch.compile(ORDERED[name], backend="tilewright", dynamic=True, options={"strict": True})
    for one in (x, y):
        torch.testing.assert_close(fast(one), ORDERED[name](one), equal_nan=True)


def test_new_contents_of_inputs_follow_the_results():
    class Model(torch.nn.Module):
        def forward(self, x):
            x.add_(1)
            return x * 2

    given = torch.arange(3.0)
    model = tw.build(tw.from_torch(torch.export.export(Model(), (given,))), target="native -num-cores=1")
    result, changed = model(np.arange(3, dtype=np.float32))
    np.testing.assert_array_equal(result, [2, 4, 6])
    np.testing.assert_array_equal(changed, [1, 2, 3])


@pytest.mark.parametrize("bins, ends", [(4, (0, 3)), (7, (-1.5, 2.25)), (5, (0, 0)), (1, (0, 1)), (3, (2, 2))])
@pytest.mark.parametrize("size", [0, 1, 40])
def test_histograms_are_those_of_pytorch(bins, ends, size):
    """Ends that are equal stand for those of the data; what lies outside counts nowhere."""
    torch.manual_seed(size)
    x = torch.randn(size) * 2
    x[::5] = 1.0

    def f(x):
        return torch.histc(x, bins, *ends)

    assert torch.equal(torch.compile(f, backend=tw.torch.backend, options={"strict": True})(x), f(x))


def test_groups_of_rows_are_multiplied_by_a_matrix_each():
    rows, matrices = torch.randn(9, 16, dtype=torch.bfloat16), torch.randn(3, 16, 8, dtype=torch.bfloat16)
    ends = torch.tensor([4, 4, 9], dtype=torch.int32)

    def f(rows, matrices, ends):
        return torch.nn.functional.grouped_mm(rows, matrices, offs=ends)

    made = torch.compile(f, backend=tw.torch.backend, options={"strict": True})(rows, matrices, ends)
    torch.testing.assert_close(made, f(rows, matrices, ends))


def test_numbers_that_no_shape_tells_are_inputs(recwarn):
    """A count that grows from call to call, as a cache has one: a library, and the count that the graph returns."""
    calls = []

    def backend(gm, inputs):
        calls.append(gm)
        return tw.torch.backend(gm, inputs, options={"strict": True})

    def f(x, count):
        return x * count + torch.arange(4) + count, count + 3

    compiled, x = torch.compile(f, backend=backend, dynamic=True), torch.ones(4)
    for count in (5, 9, 1000, 77, 100000):
        made, after = compiled(x, count)
        assert after == count + 3 and torch.equal(made, f(x, count)[0])
    assert len(calls) == 1


def test_shapes_that_come_again_are_served_again():
    """Results are new tensors each time, of the data of the call, however its tensors lie in memory."""
    layer = torch.nn.Linear(8, 5).eval()

    def f(x, y):
        return torch.relu(layer(x)) + y, x.sum(-1), x[:, 1:]

    with torch.no_grad():
        run = torch.compile(f, backend=backend, dynamic=True, options={"strict": True})
        before = None
        for rows in (3, 5, 3, 3, 7, 5, 3):
            x, y = torch.randn(8, rows).t() if rows == 5 else torch.randn(rows, 8), torch.randn(rows, 5)
            got = run(x, y)
            for a, b in zip(got, f(x, y), strict=True):
                assert a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5)
            assert before is None or before.data_ptr() != got[0].data_ptr()
            before = got[0]

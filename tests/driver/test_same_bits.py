"""A row has the same bits at every call, with any number of threads, and in any batch of the networks here."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.te import ops

ROWS = 13


def of_any_batch(model):
    """Returns the model with its first dimension of every input open."""
    for value in model.graph.input:
        first = value.type.tensor_type.shape.dim[0]
        first.Clear()
        first.dim_param = "n"
    return model


@pytest.mark.parametrize("name", ["resnet", "mobilenet", "transformer", "quantized"])
def test_rows_of_networks(name):
    pytest.importorskip("onnx")
    from ..graph import network_models

    small = {
        "resnet": {"blocks": 1, "size": 8},
        "mobilenet": {"size": 8},
        "transformer": {"blocks": 1},
        "quantized": {},
    }
    model = of_any_batch(getattr(network_models, name)(**small[name]))
    one, two = [tw.build(tw.from_onnx(model), f"native -num-cores={cores}", bounds={"n": 16}) for cores in (1, 2)]
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((ROWS, *v.shape[1:])).astype("float32") for v in one.inputs]

    def run(module, first, last):
        made = module(*[x[first:last] for x in given])
        return np.asarray(made[0] if isinstance(made, (list, tuple)) else made)

    whole = run(one, 0, ROWS)
    for module in (one, two):
        for cuts in ((0, ROWS), (0, 4, 6, ROWS), range(ROWS + 1)):
            parts = [run(module, a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
            np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("shape", [(5, 3000), (300, 1000), (40, 7)], ids=str)
@pytest.mark.parametrize("op", ["sum", "softmax", "layer_norm", "all"])
def test_sums_built_for_any_number_of_threads(op, shape):
    x = te.placeholder(shape, name="x")
    g, b = [te.placeholder(shape[-1:], name=n) for n in "gb"]
    tensors = {
        "sum": lambda: [x, ops.sum(x, axis=1)], "all": lambda: [x, ops.sum(x)], "softmax": lambda: [x, ops.softmax(x)],
        "layer_norm": lambda: [x, g, b, ops.layer_norm(x, g, b, axis=1)],
    }[op]()  # fmt: skip
    rng = np.random.default_rng(0)
    given = [rng.standard_normal([int(e) for e in t.shape]).astype("float32") for t in tensors[:-1]]
    results = []
    for cores in (1, 2, 2):
        out = np.full([int(e) for e in tensors[-1].shape], np.nan, "float32")
        tw.build(tensors, f"native -num-cores={cores}")(*given, out)
        results.append(out)
    for out in results[1:]:
        np.testing.assert_array_equal(out, results[0])

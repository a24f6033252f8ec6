"""Random products with weights of a few bits (``MatMulNBits``) against ONNX Runtime.

``python -m tests.frontends.onnx_nbits --n 500 --seed 0`` prints how many are equal, and each that is not.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw

MICROSOFT = "com.microsoft"


@dataclass
class Case:
    """A model of one product, its input, and the tolerance relative to the largest result."""

    text: str
    model: Any
    x: np.ndarray
    tolerance: float


def draw(seed: int) -> Case:
    """Returns the case of that number."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng((77, seed))
    bits, level = int(rng.choice([2, 4, 4, 8])), int(rng.choice([0, 1, 4, 4]))
    size = int(rng.choice([16, 32, 32, 64, 128, 256]))
    depth = size * int(rng.integers(1, 9)) if rng.random() < 0.6 else int(rng.integers(max(2, size // 2), 700))
    columns = int(rng.choice([1, 3, 16, 17, 48, 64, 100, 256]))
    lead = [(), (1,), (1, 1), (2,), (5,), (16,), (33,), (2, 7), (1, 20)][rng.integers(1, 9)]
    zeros = str(rng.choice(["", "", "packed", "float"])) if bits == 4 else str(rng.choice(["", "packed"]))
    bias = rng.random() < 0.4
    blocks = -(-depth // size)
    given = {
        "w": rng.integers(0, 256, (columns, blocks, size * bits // 8)).astype(np.uint8),
        "s": ((rng.random(columns * blocks) + 0.1) / 8).astype(np.float32),
    }
    if zeros == "packed":
        given["z"] = rng.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8)
    elif zeros == "float":
        given["z"] = (rng.random(columns * blocks) * (1 << bits)).astype(np.float32)
    if bias:
        given["b"] = rng.standard_normal(columns).astype(np.float32)
    names = ["x", "w", "s", "z" if zeros else "", "", "b" if bias else ""]
    while not names[-1]:
        names.pop()
    node = helper.make_node("MatMulNBits", names, ["y"], domain=MICROSOFT, K=depth, N=columns, bits=bits,
                            block_size=size, accuracy_level=level)  # fmt: skip
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*lead, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*lead, columns])],
        [numpy_helper.from_array(a, n) for n, a in given.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    x = rng.standard_normal((*lead, depth)).astype(np.float32)
    text = f"{seed}: {bits} bits, K {depth}, N {columns}, groups of {size}, rows {lead}, zeros {zeros or 'none'}, level {level}"
    return Case(text, model, x, 0.02 if level == 4 else 2e-5)


def differs(case: Case) -> str | None:
    """Returns how the product differs from ONNX Runtime's, None where it is equal; its refusal is no difference."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
        (want,) = session.run(None, {"x": case.x})
    except Exception as error:  # it refuses some forms
        return f"refused by ONNX Runtime: {str(error)[:100]}"
    got = np.asarray(tw.build(tw.from_onnx(case.model))(case.x))
    error = float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-6))
    return None if got.shape == want.shape and error <= case.tolerance else f"differs by {error:.2g} of the largest"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    counts = {"equal": 0, "refused by ONNX Runtime": 0, "different": 0}
    for seed in range(chosen.seed, chosen.seed + chosen.n):
        case = draw(seed)
        found = differs(case)
        kind = "equal" if found is None else "refused by ONNX Runtime" if found.startswith("refused") else "different"
        counts[kind] += 1
        if kind != "equal":
            print(case.text, found, flush=True)
    print(counts)


if __name__ == "__main__":
    main()

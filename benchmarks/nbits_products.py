"""This script times products with weights of 2, 4 and 8 bits in groups, against float32 weights and ONNX Runtime.

    python benchmarks/nbits_products.py [--rows 1,16] [--shapes 4096x4096,11008x4096] [--bits 4,8] [--group 32] [--level 4]
        [--threads 1] [--seconds 2] [--out rows.jsonl]

A shape is columns by steps of the sum. ``--level`` is the ``accuracy_level`` of ``MatMulNBits``: 4 lets both round the data to
int8, 1 keeps floats. All contenders run in turns; the times are minima. The bandwidth is that of reading as many bytes as
the packed weights and scales have, measured in the same turns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from table import print_table

import tilewright as tw
from tilewright import te


def model(rng: Any, rows: int, columns: int, depth: int, bits: int, group: int, level: int) -> Any:
    """Returns a model of one product; ``bits`` of 32 are plain float32 weights."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, d]) for n, d in (("x", depth), ("y", columns))]
    if bits == 32:
        node = helper.make_node("MatMul", ["x", "w"], ["y"])
        constants = {"w": rng.standard_normal((depth, columns), dtype=np.float32)}
    else:
        node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=depth, N=columns,
                                bits=bits, block_size=group, accuracy_level=level)  # fmt: skip
        blocks = -(-depth // group)
        constants = {
            "w": rng.integers(0, 256, (columns, blocks, group * bits // 8), dtype=np.uint8),
            "s": rng.random(columns * blocks, dtype=np.float32) * 0.01,
        }
    weights = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), sum(a.nbytes for a in constants.values())


def reading(count: int, target: str) -> Callable[[], None]:
    """Returns a function that reads ``count`` bytes once."""
    n = -(-count // 4096) * 1024
    x = te.placeholder((n,), name="x")
    k = te.reduce_axis((0, n), name="k")
    func = te.create_prim_func([x, te.compute((1,), lambda i: te.max(x[k], axis=k), name="m")])
    built, data, out = tw.build(func, target), np.ones(n, np.float32), np.zeros(1, np.float32)  # zeros are one page
    return built.bind(data, out)


def in_turns(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Returns the least seconds of each call, in turns."""
    best = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + seconds
    for call in calls.values():
        call()
    while time.perf_counter() < end:
        for name, call in calls.items():
            for _ in range(3):
                start = time.perf_counter()
                call()
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def row_of(rng: Any, wide: Any, shape: tuple[int, int, int], bits: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """Returns the figures of one product; ``wide`` computes it with float32 weights."""
    rows, columns, depth = shape
    target = f"native -num-cores={chosen.threads}"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = chosen.threads
    x = rng.standard_normal((rows, depth), dtype=np.float32)
    made, count = model(rng, rows, columns, depth, bits, chosen.group, chosen.level)
    packed = tw.build(tw.from_onnx(made), target)
    peer = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    out, wide_out = [np.zeros((rows, columns), np.float32) for _ in range(2)]
    want = peer.run(None, {"x": x})[0]
    packed(x, out=out)
    calls = {
        "here": lambda: packed(x, out=out),
        "float32": lambda: wide(x, out=wide_out),
        "ONNX Runtime": lambda: peer.run(None, {"x": x}),
        "reading": reading(count, target),
    }
    error = float(np.abs(out - want).max() / np.abs(want).max())
    return {"rows": rows, "columns": columns, "depth": depth, "bits": bits, "group": chosen.group, "level": chosen.level,
            "threads": chosen.threads, "seconds": in_turns(calls, chosen.seconds), "error": error}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1,16")
    parser.add_argument("--shapes", default="4096x4096,11008x4096")
    parser.add_argument("--bits", default="4,8")
    parser.add_argument("--group", type=int, default=32)
    parser.add_argument("--level", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    table = []
    rng = np.random.default_rng(0)
    for text in chosen.shapes.split(","):
        columns, depth = map(int, text.split("x"))
        for rows in map(int, chosen.rows.split(",")):
            plain, _ = model(rng, rows, columns, depth, 32, chosen.group, chosen.level)
            wide = tw.build(tw.from_onnx(plain), f"native -num-cores={chosen.threads}")
            for bits in map(int, chosen.bits.split(",")):
                row = row_of(rng, wide, (rows, columns, depth), bits, chosen)
                if chosen.out:
                    with chosen.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                best = row["seconds"]
                ratios = [f"{best[n] / best['here']:.2f}" for n in ("reading", "float32", "ONNX Runtime")]
                table.append([f"{rows} × {depth} by {columns}", str(bits), f"{1e6 * best['here']:.0f} µs", *ratios,
                              f"{row['error']:.1e}"])  # fmt: skip
    head = ["product", "bits", "here", "of the bandwidth", "float32 / here", "ONNX Runtime / here", "error"]
    print_table("Products with weights of a few bits, in turns", head, table)


if __name__ == "__main__":
    main()

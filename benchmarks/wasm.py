"""Kernels as WebAssembly SIMD in wasmtime beside the same kernels as native code for SSE4.2: ratios of one run, in turns.

    python benchmarks/wasm.py                      # needs: pip install wasmtime ziglang (or wasm-ld)
    python benchmarks/wasm.py matmul softmax --rounds 20

Both have vectors of 128 bits and one thread, and the schedule that the analytic model chooses for their own target. A ratio of 0.5
means that the native code takes half of the time. The goal is 0.5.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.driver.workloads.catalog import parse_spec

WASM = "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128,+bulk-memory"
NATIVE = "llvm -mcpu=nehalem -num-cores=1"
KERNELS = {
    "matmul": "matmul:M=256,N=256,K=256",
    "conv": "conv2d:CI=32,CO=32,H=28,W=28",
    "depthwise": "depthwise_conv2d:C=64,H=28,W=28",
    "softmax": "softmax:M=256,N=1024",
    "layer_norm": "layer_norm:M=256,N=768",
    "attention": "attention:heads=4,seq=128,dim=64",
}
"""The workloads by name."""


REPEATED = """
(module
  (import "kernel" "kernel" (func $kernel ({types}) (result i32)))
  (func (export "repeated") (param $left i32) {params} (result i32) (local $failed i32)
    (loop $again
      (local.set $failed (i32.or (local.get $failed) (call $kernel {values})))
      (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (local.get $failed)))
"""
"""A module that calls the kernel several times: a call out of Python costs some 20 microseconds."""


class InWasmtime:
    """A function of a module in wasmtime, with its arrays in the module's memory."""

    def __init__(self, module: Any, arrays: list[np.ndarray]) -> None:
        import wasmtime

        engine = wasmtime.Engine()
        self.store = wasmtime.Store(engine)
        with tempfile.TemporaryDirectory() as folder:
            (path,) = module.export(Path(folder) / "kernel.wasm")
            read = wasmtime.Module.from_file(engine, str(path))
        exports = wasmtime.Instance(self.store, read, []).exports(self.store)
        self.memory, self.places = exports["memory"], []
        names = [f"$a{n}" for n in range(len(arrays))]
        text = REPEATED.format(
            types=" ".join(["param", *("i32" for _ in names)]),
            params=" ".join(f"(param {name} i32)" for name in names),
            values=" ".join(f"(local.get {name})" for name in names),
        )
        again = wasmtime.Instance(self.store, wasmtime.Module(engine, text), [exports["kernel"]])
        self.function = again.exports(self.store)["repeated"]
        for array in arrays:
            place = exports["tw_alloc"](self.store, array.nbytes)
            self.memory.write(self.store, array.tobytes(), place)
            self.places.append(place)

    def __call__(self, number: int = 1) -> None:
        if self.function(self.store, number, *self.places):
            raise RuntimeError("the function failed")

    def read(self, number: int, like: np.ndarray) -> np.ndarray:
        """Return an array as it is in the module's memory."""
        place = self.places[number]
        raw = bytes(self.memory.read(self.store, place, place + like.nbytes))
        return np.frombuffer(raw, like.dtype).reshape(like.shape)


def pair(spec: str) -> tuple[InWasmtime, InThisProcess, float]:
    """Return both contenders of a workload, and the largest difference of their results."""
    func = te.create_prim_func(list(parse_spec(spec).tensors))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(n) for n in b.shape]).astype(str(b.dtype)) for b in func.buffers]
    theirs = InWasmtime(tw.build(func, WASM, name="kernel"), arrays)
    native = InThisProcess(tw.build(func, NATIVE).bind(*arrays))
    theirs()
    native()
    out = len(arrays) - 1
    return theirs, native, float(np.abs(theirs.read(out, arrays[out]) - arrays[out]).max())


class InThisProcess:
    """A function with its arrays bound, called several times."""

    def __init__(self, bound: Any) -> None:
        self.bound = bound

    def __call__(self, number: int = 1) -> None:
        for _ in range(number):
            self.bound()


def seconds(call: Any, number: int) -> float:
    """Return the seconds of a call, the mean of ``number``."""
    start = time.perf_counter()
    call(number)
    return (time.perf_counter() - start) / number


def row(name: str, rounds: int) -> tuple[str, float, float, float, float]:
    """Return a kernel's microseconds in both, how fast WebAssembly is relative to native code, and the difference of results."""
    theirs, native, error = pair(KERNELS[name])
    number = max(1, int(0.01 / seconds(native, 1)))
    turns = [(seconds(theirs, number), seconds(native, number)) for _ in range(rounds)]
    wasm, own = [statistics.median(column) for column in zip(*turns, strict=True)]
    return name, 1e6 * wasm, 1e6 * own, statistics.median(n / w for w, n in turns), error


def main() -> int:
    """Print a line for each kernel; return 1 where one is below 0.5."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", default=list(KERNELS))
    parser.add_argument("--rounds", type=int, default=11)
    given = parser.parse_args()
    slow = 0
    print(f"{'kernel':12} {'wasm µs':>10} {'SSE4.2 µs':>10} {'ratio':>6} {'difference':>11}")
    for name in given.kernels:
        _, wasm, own, ratio, error = row(name, given.rounds)
        slow += ratio < 0.5
        print(f"{name:12} {wasm:10.1f} {own:10.1f} {ratio:6.2f} {error:11.1e}", flush=True)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())

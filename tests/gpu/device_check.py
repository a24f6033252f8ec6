"""Compares kernels on an NVIDIA GPU with NumPy and the interpreter: built beforehand, run in processes that may fail.

    python -m tests.gpu.device_check --prepare kernels.pkl.xz   # anywhere: build the kernels, and keep what they should give
    python -m tests.gpu.device_check --run kernels.pkl.xz       # with a device: a line for each that is wrong, and a summary

The kernels are the rules' programs by several rows of each sketch, products on matrix units, attention, the kernels of the table in
docs/guides/gpu.md; with ``--ops FILE`` those of te.ops' tests (``tests.cross``) instead.
"""

from __future__ import annotations

import argparse
import itertools
import lzma
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.codegen.backend.emitter import EmitError
from tilewright.codegen.machine.target_text import TargetError
from tilewright.gpu import GpuError
from tilewright.gpu.ptx import CudaError
from tilewright.tir.parser import parse
from tilewright.tuner import Space, default_schedule

from ..cross.kernels_of_ops import kernels_of_ops
from ..tuner.gpu_programs import PROGRAMS, _product
from ..tuner.test_matrix_forms import FORMS, product
from .kernel_table import CASES

TARGET = "cuda -arch=sm_90a"


@dataclass
class Prepared:
    """A compiled kernel, the arrays that it is called with, what they hold afterwards, and how far off that may be."""

    name: str
    module: Any
    before: list[Any]
    after: list[Any]
    tolerance: float


def _arrays(func: Any, reference: Any, index: int | None = None, below: int = 0) -> tuple[list[Any], list[Any]]:
    """Return integers as inputs, below ``below`` for the input that holds indices, and what the arrays hold afterwards."""
    rng, before, wide = np.random.default_rng(0), [], []
    for n, buffer in enumerate(func.buffers):
        values = rng.integers(*((0, below) if n == index else (-4, 5)), [int(e) for e in buffer.shape])
        bits = buffer.dtype == "bfloat16"  # its upper half is what a float32 stores in 16 bits
        before.append(
            (values.astype("float32").view("uint32") >> 16).astype("uint16")
            if bits
            else values.astype(str(buffer.dtype))
        )
        wide.append(values.astype("int64" if buffer.dtype.is_int else "float64"))
    return before, [*before[:-1], np.asarray(reference(*wide[:-1]), before[-1].dtype)]


def of_rules() -> Iterator[Prepared]:
    """Yield the programs of the rules' tests, by the best row and drawn rows of each sketch."""
    products = {
        f"matrix units {dtype} {m} {n} {k}": (lambda m=m, n=n, k=k, dtype=dtype, out=out: _product(m, n, k, dtype, out))
        for dtype, out in (("float16", "float32"), ("bfloat16", "float32"), ("int8", "int32"))
        for m, n, k in ((256, 512, 256), (1024, 512, 192))
    }
    programs = {name: (p.make, p.reference, p.tolerance) for name, p in PROGRAMS.items()}
    programs |= {name: (make, lambda a, b: a @ b, 1e-6) for name, make in products.items()}
    for name, (make, reference, tolerance) in programs.items():
        func = te.create_prim_func(make())
        before, after = _arrays(func, reference)
        space, rng = Space(func, Target(TARGET)), np.random.default_rng(len(name))
        drawn = 6 if name in products else 2
        for sketch in space.sketches:
            for n, row in enumerate(np.concatenate([sketch.best_rows(1), sketch.sample(drawn, rng)])):
                module = compile(space.schedule(sketch, row).func, Target(TARGET))
                yield Prepared(
                    f"{name}: {sketch.name} {n} {sketch.decisions_of(row)}", module, before, after, tolerance
                )


def of_forms() -> Iterator[Prepared]:
    """Yield products of any number of axes on matrix units, and attention with and without a mask."""
    for name, (form, extents) in FORMS.items():
        func = te.create_prim_func(product(form, extents, cast="float16"))
        before, after = _arrays(func, lambda a, b, form=form: np.einsum(form, a, b))
        space, rng = Space(func, Target(TARGET)), np.random.default_rng(0)
        for sketch in space.sketches:
            for n, row in enumerate(np.concatenate([sketch.best_rows(1), sketch.sample(3, rng)])):
                module = compile(space.schedule(sketch, row).func, Target(TARGET))
                yield Prepared(f"{name}: {sketch.name} {n} {sketch.decisions_of(row)}", module, before, after, 0)
    for dim, causal in itertools.product((64, 128), (False, True)):
        q, k, v = [te.placeholder((3, 512, dim), "float16", x) for x in "QKV"]
        tensors = [q, k, v, te.ops.attention(q, k, v, causal=causal)]

        def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = causal) -> np.ndarray:
            scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
            scores = np.where(np.tri(q.shape[1], dtype=bool) | (not causal), scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)

        before, after = _arrays(te.create_prim_func(tensors), attended)
        yield Prepared(f"attention {dim} causal={causal}", tw.build(tensors, TARGET), before, after, 5e-3)


def of_table() -> Iterator[Prepared]:
    """Yield the kernels of the table of docs/guides/gpu.md at their small sizes."""
    for name, case in CASES.items():
        func = te.create_prim_func(case.build(*case.small))
        before, after = _arrays(func, case.reference, case.index, case.small[0])
        yield Prepared(f"table: {name}", tw.build(case.build(*case.small), TARGET), before, after, case.tolerance)


def of_ops(file: Path, every: int = 1) -> Iterator[Prepared]:
    """Yield the kernels of te.ops' tests, which ``file`` holds or the tests make."""
    for kernel in kernels_of_ops(file)[::every]:
        target = Target(TARGET)
        try:
            module = compile(default_schedule(parse(kernel.text), target).func, target)
            yield Prepared(f"te.ops: {kernel.test}", module, kernel.before, kernel.after, 2e-5)
        except (TargetError, EmitError, GpuError) as error:
            print(f"{kernel.test}: refused: {error}".split("\n")[0])


def compared(kernel: Prepared) -> str:
    """Return ``equal``, or what differs."""
    arrays = [np.array(a) if isinstance(a, np.ndarray) else a for a in kernel.before]
    kernel.module(*arrays)
    for n, (got, want) in enumerate(zip(arrays, kernel.after, strict=True)):
        if not isinstance(want, np.ndarray) or not want.size:
            continue
        if got.dtype.kind in "iub":
            right = got == want
        else:
            got, want = got.astype("float64"), want.astype("float64")
            largest = np.max(np.abs(want), where=np.isfinite(want), initial=1)
            right = np.isclose(got, want, kernel.tolerance, kernel.tolerance * float(largest), equal_nan=True)
        if not right.all():
            at = int(np.argmin(right))
            share = f"{int((~right).sum())} of {right.size}"
            return f"argument {n} differs in {share}, element {at}: {got.ravel()[at]!r}, not {want.ravel()[at]!r}"
    return "equal"


def kept(kernels: Iterator[Prepared], file: Path) -> int:
    """Write kernels to a file, the arrays of each program once; returns how many there are."""
    arrays: dict[int, tuple[list[Any], list[Any]]] = {}
    made = []
    for kernel in kernels:
        key = id(kernel.before)  # kept alive, so that no address comes twice
        arrays[key] = (kernel.before, kernel.after)
        made.append((key, pickle.dumps(replace(kernel, before=[], after=[]))))
    with lzma.open(file, "w", preset=1) as f:
        pickle.dump((arrays, made), f)
    return len(made)


def run_from(file: Path, first: int, step: int) -> None:
    """Print a line for each ``step``-th kernel from ``first`` on, until one leaves the device unusable."""
    with lzma.open(file) as f:
        arrays, made = pickle.load(f)
    for n in range(first, len(made), step):
        key, text = made[n]
        before, after = arrays[key]
        kernel = replace(pickle.loads(text), before=before, after=after)
        try:
            word = compared(kernel)
        except CudaError as error:
            print(f"{n}\tfailed: {error}\t{kernel.name}".replace("\n", " "), flush=True)
            return
        except Exception as error:
            word = f"failed: {type(error).__name__}: {error}"
        print(f"{n}\t{word}\t{kernel.name}".replace("\n", " "), flush=True)
    print("done", flush=True)


def run(file: Path, limit: float, processes: int = 8) -> int:
    """Run all kernels in some processes, which are started again after a failure; returns how many are not equal."""
    found: dict[int, tuple[str, str]] = {}

    def start(first: int) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "tests.gpu.device_check",
            "--from",
            str(first),
            "--step",
            str(processes),
            str(file),
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    running = {lane: (lane, start(lane)) for lane in range(processes)}
    while running:
        for lane, (first, process) in list(running.items()):
            out, _ = process.communicate(timeout=limit)
            at = first
            for line in out.splitlines():
                number, _, rest = line.partition("\t")
                if number.isdigit():
                    word, _, name = rest.partition("\t")
                    found[int(number)], at = (word, name), int(number) + processes
            if out.rstrip().endswith("done"):
                del running[lane]
                continue
            if at == first:  # the process died in this kernel
                found[first], at = (f"failed: {out.strip()[-300:]}", f"number {first}"), first + processes
            running[lane] = (at, start(at))
    for number, (word, name) in sorted(found.items()):
        if word != "equal":
            print(f"{number} {name}: {word}")
    counts = Counter(word.partition(":")[0].partition(" ")[0] for word, _ in found.values())
    print(f"{len(found)} kernels: " + ", ".join(f"{n} {word}" for word, n in counts.most_common()))
    return len(found) - counts["equal"]


def main() -> int:
    """Prepare kernels, or run them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--prepare", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument(
        "--ops", type=Path, help="with --prepare: the kernels of te.ops' tests, collected into this file"
    )
    parser.add_argument("--every", type=int, default=1, help="with --ops: take one kernel of so many")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a process may take")
    parser.add_argument("--from", dest="first", type=int)
    parser.add_argument("--step", type=int, default=1)
    given = parser.parse_args()
    if given.prepare:
        made = of_ops(given.ops, given.every) if given.ops else itertools.chain(of_rules(), of_forms(), of_table())
        count = kept(made, given.file)
        print(f"{count} kernels, {given.file.stat().st_size / 1e6:.1f} MB")
        return 0
    if given.run:
        return 1 if run(given.file, given.limit) else 0
    run_from(given.file, given.first or 0, given.step)
    return 0


if __name__ == "__main__":
    sys.exit(main())

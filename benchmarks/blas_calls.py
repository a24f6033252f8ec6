"""This script compares the analytic model's products with calls of a BLAS library, and with NumPy's ``out=`` from Python.

``python benchmarks/blas_calls.py [--blas numpy] [--rounds 7]``: all on one thread. The numbers are CPU times of the thread, the least
of several turns; ratios are of the same run.
"""

import argparse
import time

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.schedule import Schedule

SHAPES = ((512, 512, 512), (1, 2048, 2048), (128, 3072, 768), (64, 64, 64))


def product(m, n, k):
    A, B, r = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.reduce_axis((0, k), name="r")
    return te.create_prim_func([A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")])


def least_seconds(contenders, rounds):
    """The least CPU seconds of each, in turns."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, run in contenders.items():
            run()
            for _ in range(5):
                start = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
                run()
                best[name] = min(best[name], time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) - start)
    return best


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--blas", default="numpy")
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args()
    from threadpoolctl import threadpool_limits

    target = f"native -num-cores=1 -libs=cblas -blas={given.blas}"
    print(tw.Target(target).blas_library.identity)
    print(f"{'M×N×K':>14} {'ours µs':>10} {'call µs':>10} {'NumPy µs':>10} {'ours/call':>10}")
    for m, n, k in SHAPES:
        func, rng = product(m, n, k), np.random.default_rng(0)
        a, b = rng.random((m, k), dtype="float32"), rng.random((k, n), dtype="float32")
        outs = [np.zeros((m, n), "float32") for _ in range(3)]
        called = Schedule(func)
        called.call_blas("C")
        ours, blas = tw.build(func, target), tw.build(called, target=target)
        runs = {
            "ours": ours.bind(a, b, outs[0]),
            "call": blas.bind(a, b, outs[1]),
            "NumPy": lambda a=a, b=b, out=outs[2]: np.matmul(a, b, out=out),
        }
        with threadpool_limits(1, user_api="blas"):
            best = {name: 1e6 * seconds for name, seconds in least_seconds(runs, given.rounds).items()}
        np.testing.assert_allclose(outs[1], outs[2], rtol=1e-4)
        np.testing.assert_allclose(outs[0], outs[2], rtol=1e-4)
        print(
            f"{f'{m}×{n}×{k}':>14} {best['ours']:10.1f} {best['call']:10.1f} {best['NumPy']:10.1f} "
            f"{best['ours'] / best['call']:10.2f}"
        )


if __name__ == "__main__":
    main()

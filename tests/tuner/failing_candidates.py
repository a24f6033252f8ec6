"""Fourteen ways in which a candidate fails, each with the status that its record must have.

    python -m tests.tuner.failing_candidates 100   # each so many times, a good candidate after each

The workload adds one to each of 16 numbers.
"""

from __future__ import annotations

import collections
import sys
import time

from tilewright import Target
from tilewright.tir.parser import parse
from tilewright.tuner import LocalRunner

TARGET = Target("native -num-cores=1")


def program(line: str, before: str = "") -> str:
    """Returns the text of the workload with this line in place of its own."""
    return f"""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    {before or "T.evaluate(0)"}
    for i in range(16):
        with T.block("B"):
            v = T.axis.spatial(16, i)
            {line}
"""


GOOD = program("B[v] = A[v] + 1.0")


def calling(name: str, *args: int) -> str:
    """Returns a program that calls a function of C."""
    words = "".join(f", {a}" for a in args)
    return program("B[v] = A[v] + 1.0", f'T.evaluate(T.call_extern("int32", "{name}"{words}))')


KINDS: dict[str, tuple[str, str]] = {
    "segfault": (calling("raise", 11), "crash"),
    "abort": (calling("abort"), "crash"),
    "exit": (calling("exit", 0), "crash"),
    "_exit": (calling("_exit", 3), "crash"),
    "hang": (calling("pause"), "timeout"),
    "stop": (calling("raise", 19), "timeout"),
    "out of memory": (
        program(
            "B[v] = big[(15 - v) * 1073741824 + 7]",
            'big = T.alloc_buffer((17179869184,), "float32")\n    for i in range(16):\n        with T.block("big"):\n'
            "            v = T.axis.spatial(16, i)\n            big[v * 1073741824 + 7] = A[v] + 1.0",
        ),
        "run_error",
    ),
    "wrong": (program("B[v] = A[v] + 1.5"), "wrong_result"),
    "NaN": (program("B[v] = (A[v] - A[v]) / (A[v] - A[v])"), "wrong_result"),
    "writes outside": (
        program('B[v + 1 + T.Cast("int32", A[v] - A[v])] = A[v] + 1.0', "B[0] = A[0] + 1.0"), "memory_damaged"
    ),
    "is seen to write outside": (program("B[v + 1] = A[v] + 1.0", "B[0] = A[0] + 1.0"), "compile_error"),
    "writes an input": (program("B[v] = A[v] + 1.0\n            A[v] = 7.0"), "memory_damaged"),
    "unreadable": (GOOD.replace("range", "nowhere"), "compile_error"),
    "unresolved": (calling("tw_no_such_function"), "run_error"),
}  # fmt: skip


def runner() -> LocalRunner:
    """Returns a runner with one process, which does not wait long, opened for the workload."""
    made = LocalRunner(workers=1, run_timeout=1.0, memory_bytes=4 << 30, max_samples=2)
    made.open(parse(GOOD), TARGET)
    return made


def main() -> None:
    """Let each kind fail many times; print how often each was contained, and the longest time to the next result."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with runner() as made:
        for name, (text, wanted) in KINDS.items():
            seen: collections.Counter[str] = collections.Counter()
            longest, contained = 0.0, 0
            for _ in range(times):
                (failed,) = made.measure([text])
                start = time.perf_counter()
                (good,) = made.measure([GOOD])
                longest = max(longest, time.perf_counter() - start)
                seen[failed.status] += 1
                contained += failed.status == wanted and good.ok
            print(f"{name:16} {contained}/{times} contained {dict(seen)}, the next after {longest:.2f} s", flush=True)


if __name__ == "__main__":
    main()

"""This script compares programs that no recipe names with TVM's MetaSchedule, Halide's autoschedulers, numba and NumPy.

    python benchmarks/compilers.py                              # all programs; ours by the default schedule
    python benchmarks/compilers.py --trials 32 blur harris      # ours and TVM tuned, 32 candidates each
    python benchmarks/compilers.py --rows rows.jsonl            # rows of the same mode that are there are not measured again
    python benchmarks/compilers.py --busy                       # processor time, for a machine that is not quiet

Each contender is a process of its own, which tunes and compiles once; then they take turns, on one core. A figure is the
median over ``--rounds`` turns. TVM (``pip install apache-tvm==0.27.0.post1 apache-tvm-ffi==0.1.14.post0``; its search crashes
with the next version of the latter) and Halide (``pip install halide``) declare the very
same programs, by ``foreign_words.py``; who is not installed, or cannot compile a program, is left out, and so is who computes
something else than NumPy.
"""

# mypy: ignore-errors
from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

RIVALS = ("NumPy", "numba", "tvm", "adams2019", "mullapudi2016")
_SLOWEST = 1e-3


def options() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only programs whose names hold one of these")
    parser.add_argument(
        "--trials", type=int, default=0, help="candidates of ours and of TVM; 0: our default, TVM left out"
    )
    parser.add_argument("--rivals", nargs="*", default=RIVALS, choices=RIVALS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    parser.add_argument(
        "--busy", action="store_true", help="processor time instead of wall time, the least instead of the median"
    )
    parser.add_argument("--rows", type=Path, help="a file that keeps the rows, one JSON each")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that a contender may take to be ready")
    parser.add_argument("--serve", metavar="CONTENDER", help=argparse.SUPPRESS)
    return parser.parse_args()


# -- one contender, in a process of its own ----------------------------------------------------------------------------


def prepared(who: str, name: str, small: bool, trials: int) -> tuple[Callable[[], Any], list[np.ndarray]]:
    """Returns what runs a program once, and the arrays that hold its results then."""
    from affine_programs import PROGRAMS, SIZES

    sizes = SIZES[name][0 if small else 1]
    program = PROGRAMS[name](*sizes)
    outputs = [np.zeros(e.shape, "float32" if e.dtype.kind == "f" else e.dtype) for e in program.expected()]
    made = {"ours": _ours, "numba": _numba, "NumPy": _numpy, "tvm": _tvm}.get(who, _halide)
    return made(who, name, sizes, program, outputs, trials), outputs


def _ours(_: str, name: str, sizes: Any, program: Any, outputs: Any, trials: int) -> Callable[[], Any]:
    from any_program import scheduled

    from tilewright import Target
    from tilewright.codegen import compile

    target = Target("native -num-cores=1")
    return compile(scheduled(program.func, target, trials)[0], target, name).bind(*program.inputs, *outputs)


def _numba(_: str, name: str, sizes: Any, program: Any, outputs: Any, trials: int) -> Callable[[], Any]:
    from any_program import numba_kernels

    kernel = numba_kernels(1)[name](*sizes)
    return lambda: kernel(*program.inputs, *outputs)


def _numpy(_: str, name: str, sizes: Any, program: Any, outputs: Any, trials: int) -> Callable[[], Any]:
    def run() -> None:
        found = program.reference(*program.inputs)
        outputs[:] = found if isinstance(found, tuple) else (found,)

    return run


def _tvm(_: str, name: str, sizes: Any, program: Any, outputs: Any, trials: int) -> Callable[[], Any]:
    import tvm
    from affine_programs import PROGRAMS
    from foreign_words import declared, tvm_words
    from tvm.s_tir import meta_schedule as ms

    os.environ["TVM_NUM_THREADS"] = "1"
    func = declared(tvm_words(), PROGRAMS[name], sizes).func
    target = tvm.target.Target({"kind": "llvm", "mcpu": _cpu(), "num-cores": 1})
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    with tempfile.TemporaryDirectory() as work:
        found = ms.tune_tir(mod, target, work, max_trials_global=trials, num_trials_per_iter=min(trials, 16))
        best = ms.tir_integration.compile_tir(found, mod, target)
    if best is None:
        raise RuntimeError("MetaSchedule found no candidate")
    code = tvm.compile(best.mod, target)
    given = [tvm.runtime.tensor(np.ascontiguousarray(a)) for a in program.inputs]
    results = [tvm.runtime.tensor(o) for o in outputs]
    run = code["main"]

    def once() -> None:
        run(*given, *results)

    once()
    outputs[:] = [r.numpy() for r in results]
    return once


def _cpu() -> str:
    from llvmlite import binding

    return str(binding.get_host_cpu_name())


def _halide(who: str, name: str, sizes: Any, program: Any, outputs: Any, trials: int) -> Callable[[], Any]:
    import halide as hl
    from affine_programs import PROGRAMS
    from foreign_words import in_halide

    warnings.simplefilter("ignore")
    hl.load_plugin(str(Path(hl.__file__).parent / "lib64" / f"libautoschedule_{who}.so"))
    inputs, results = in_halide(PROGRAMS[name], sizes).func
    for tensor in (*inputs, *results):
        ends = [(0, e) for e in reversed(tensor.shape)]
        (tensor.param or tensor.func).set_estimates(ends)
    pipeline, target = hl.Pipeline([t.func for t in results]), hl.get_host_target()
    pipeline.apply_autoscheduler(target, hl.AutoschedulerParams(who.capitalize(), {"parallelism": "1"}))
    for tensor, array in zip(inputs, program.inputs, strict=True):
        tensor.param.set(hl.Buffer(np.ascontiguousarray(array)))
    pipeline.compile_jit(target)
    buffers = [hl.Buffer(o) for o in outputs]
    return lambda kept=program: pipeline.realize(buffers, target)  # Halide does not keep the inputs


def serve(chosen: argparse.Namespace) -> None:
    """Be a contender: say when it is ready, and after each line of the input how long a call takes."""
    say = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what compilers print is not an answer
    clock = time.process_time if chosen.busy else time.perf_counter
    start = time.perf_counter()
    try:
        run, outputs = prepared(chosen.serve, chosen.words[0], chosen.small, chosen.trials)
        run()
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}".split("\n")[0][:200]}), file=say, flush=True)
        return
    first = time.perf_counter()
    run()
    number = max(1, min(1000, int(_SLOWEST / (time.perf_counter() - first))))
    path = Path(sys.stdin.readline().strip())
    np.savez(path, *outputs)
    print(json.dumps({"ready": time.perf_counter() - start}), file=say, flush=True)
    for _ in sys.stdin:
        begin = clock()
        for _ in range(number):
            run()
        print(json.dumps({"seconds": (clock() - begin) / number}), file=say, flush=True)


# -- the contest -------------------------------------------------------------------------------------------------------


class Contender:
    """A process that runs one program; ``error`` says why it does not."""

    def __init__(self, who: str, name: str, chosen: argparse.Namespace, folder: Path) -> None:
        words = [sys.executable, __file__, name, "--serve", who, "--trials", str(chosen.trials)]
        words += [f"--{flag}" for flag in ("small", "busy") if getattr(chosen, flag)]
        threads = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "HL_NUM_THREADS", "TVM_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
        )
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **threads},
        )
        self.path = folder / f"{who}.npz"
        answer = self._answer(str(self.path))
        self.error, self.ready = answer.get("error"), answer.get("ready", 0.0)

    def _answer(self, line: str) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):
            print(line, file=self.process.stdin, flush=True)
        text = self.process.stdout.readline()
        return json.loads(text) if text else {"error": f"it ended with {self.process.wait()}"}

    def outputs(self) -> list[np.ndarray]:
        """Returns what it computed."""
        with np.load(self.path) as data:
            return [data[k] for k in data.files]

    def turn(self) -> float:
        """Returns the seconds of a call."""
        return float(self._answer("go")["seconds"])

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def installed(who: str, trials: int) -> bool:
    """Returns whether a rival is there, and has something to search with."""
    module = {"numba": "numba", "tvm": "tvm", "adams2019": "halide", "mullapudi2016": "halide"}.get(who, "numpy")
    return importlib.util.find_spec(module) is not None and (who != "tvm" or trials > 0)


def contest(name: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Returns the row of a program: seconds of each contender, and why others have none."""
    from affine_programs import PROGRAMS, SIZES

    expected = PROGRAMS[name](*SIZES[name][0 if chosen.small else 1]).expected()
    seconds: dict[str, list[float]] = {}
    reasons: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        running = {}
        for who in ("ours", *[r for r in chosen.rivals if installed(r, chosen.trials)]):
            contender = Contender(who, name, chosen, Path(folder))
            if contender.error is None and not _right(contender.outputs(), expected):
                contender.error = "another result than NumPy's"
            if contender.error is None:
                running[who] = contender
            else:
                reasons[who] = contender.error
                contender.close()
        for _ in range(chosen.rounds):
            for who, contender in running.items():
                seconds.setdefault(who, []).append(contender.turn())
        for contender in running.values():
            contender.close()
    middle = min if chosen.busy else statistics.median
    found = {who: middle(times) for who, times in seconds.items()}
    return {
        "program": name,
        **mode_of(vars(chosen)),
        "seconds": found,
        "reasons": reasons,
        "ready": {w: c.ready for w, c in running.items()},
    }


_MODE = ("trials", "small", "busy")
"""What rows of a file must have in common to stand in one table; a row that does not say is measured anew."""


def mode_of(words: Mapping[str, Any]) -> dict[str, Any]:
    """Returns how a row was, or is to be, measured."""
    return {word: words.get(word) for word in _MODE}


def kept_rows(path: Path | None, mode: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the rows of a file that were measured in this mode, by program."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["program"]: row for row in rows if mode_of(row) == mode}


def _right(found: list[np.ndarray], expected: tuple[np.ndarray, ...]) -> bool:
    return len(found) == len(expected) and all(
        a.shape == b.shape and float(np.max(np.abs(a - b) / (1 + np.abs(b)))) < 5e-3
        for a, b in zip(found, expected, strict=True)
    )


def show(row: dict[str, Any]) -> str:
    """Returns a row as text: how many times as long as ours each takes."""
    seconds = row["seconds"]
    if "ours" not in seconds:
        return f"{row['program']:18} {row['reasons']['ours']}"
    cells = [f"{seconds[r] / seconds['ours']:9.2f}x" if r in seconds else f"{'-':>10}" for r in RIVALS]
    why = "; ".join(f"{who}: {reason}" for who, reason in row["reasons"].items())
    return f"{row['program']:18} {seconds['ours'] * 1e3:9.3f} ms {' '.join(cells)}  {why}"


def main() -> None:
    """Print a line for each program, and the geometric mean against the best of the others."""
    chosen = options()
    if chosen.serve:
        return serve(chosen)
    from affine_programs import PROGRAMS

    kept = kept_rows(chosen.rows, mode_of(vars(chosen)))
    print(f"{'program':18} {'ours':>12} {' '.join(f'{r:>10}' for r in RIVALS)}")
    shares = []
    for name in PROGRAMS:
        if chosen.words and not any(word in name for word in chosen.words):
            continue
        row = kept.get(name) or contest(name, chosen)
        if name not in kept and chosen.rows is not None:
            with chosen.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
        print(show(row), flush=True)
        others = [s for who, s in row["seconds"].items() if who != "ours"]
        if others and "ours" in row["seconds"]:
            shares.append((min(others) / row["seconds"]["ours"], name))
    if shares:
        mean = math.exp(statistics.fmean(math.log(s) for s, _ in shares))
        print(
            f"against the best of the others: {mean:.2f} in geometric mean over {len(shares)} programs, least {min(shares)}"
        )
    return None


if __name__ == "__main__":
    main()

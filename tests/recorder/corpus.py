"""What is recorded: items by name, each a function that returns ``(name, text)`` pairs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te, tir
from tilewright.codegen import Target, lower
from tilewright.codegen.c.c_source import emit_c
from tilewright.codegen.llvm.emit import emit as emit_llvm
from tilewright.driver.workloads.catalog import BUILTIN
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tuner import Space

from ..conformance.conftest import cases_of
from ..fuzz.all_steps import Nothing, draw_step
from ..fuzz.random_programs import random_program

__all__ = ["Texts", "items", "texts_of"]

Texts = list[tuple[str, str]]
ROOT = Path(__file__).resolve().parents[2]
WIDE, NARROW = "llvm -mcpu=x86-64-v4 -num-cores=1", "llvm -mcpu=x86-64-v2 -num-cores=2"
CHAIN_STEPS = 12
BEST_ROWS = 4


def items(chains: int) -> list[str]:
    """The names of all items: ``cases/FILE/NAME``, ``kernels/FILE/NUMBER``, ``workloads/NAME``, ``chains/SEED``."""
    names = [f"cases/{path.stem}/{n}" for path in _case_files() for n in range(len(cases_of(path)))]
    names += [f"kernels/{name}/{n}" for name in _kernel_files() for n in range(len(_kernels(name)))]
    names += [f"workloads/{name}" for name in sorted(BUILTIN)]
    names += [f"chains/{seed}" for seed in range(chains)]
    return names


def texts_of(item: str) -> Texts:
    """All texts of an item, each named ``ITEM/…``; an exception is a text too."""
    section, _, rest = item.partition("/")
    found: Texts = []

    def say(name: str, text: str) -> None:
        found.append((f"{item}/{len(found):03} {name}", text if text.endswith("\n") else text + "\n"))

    with _steps_said(say):
        try:
            _SECTIONS[section](rest, say)
        except Exception as error:  # a crash is recorded, too
            say("raised", f"{type(error).__name__}: {error}")
    return found


Say = Callable[[str, str], None]


@contextmanager
def _steps_said(say: Say) -> Iterator[None]:
    """While it is open, every step of every schedule is said: the program after it, or the refusal."""
    apply = Schedule._apply

    def watched(self: Schedule, step: Any, arguments: dict[str, Any]) -> Any:
        try:
            out = apply(self, step, arguments)
        except ScheduleError as error:
            say(f"{step.name} refused", str(error))
            raise
        if step.kind == "rewrite":
            say(step.name, self.mod.script())
        return out

    Schedule._apply = watched  # type: ignore[method-assign]
    try:
        yield
    finally:
        Schedule._apply = apply  # type: ignore[method-assign]


def _compiled(func: Any, say: Say) -> None:
    """The lowered function and the text of both back ends."""
    for name, target in (("wide", WIDE), ("narrow", NARROW)):
        lowered = lower(func, Target(target), "kernel")
        say(f"lowered {name}", lowered.func.script())
        say(f"llvm {name}", emit_llvm(lowered))
    say("c", emit_c([lower(func, Target("c"), "kernel")]))


def _case_files() -> list[Path]:
    return sorted((ROOT / "tests/conformance/cases").glob("*.txt"))


def _case(rest: str, say: Say) -> None:
    file, _, number = rest.partition("/")
    case = cases_of(ROOT / f"tests/conformance/cases/{file}.txt")[int(number)]
    sch = Schedule(tir.parse(case.program), seed=1)
    try:
        exec(compile(case.steps, case.name, "exec"), {"sch": sch, "tir": tir, "te": te})  # noqa: S102
    except ScheduleError:
        return
    say("trace", sch.trace.simplified().as_python())
    if len(sch.mod.functions) == 1:
        _compiled(sch.func, say)


def _kernel_files() -> list[str]:
    folder = str(ROOT / "examples/kernels")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return sorted(p.stem for p in Path(folder).glob("*.py") if "KERNELS" in p.read_text() and p.stem != "kernel")


def _kernels(name: str) -> Any:
    _kernel_files()
    return importlib.import_module(name).KERNELS


def _kernel(rest: str, say: Say) -> None:
    name, _, number = rest.partition("/")
    kernel = _kernels(name)[int(number)]
    say("program", kernel.func.script())
    _compiled(kernel.schedule(kernel.func, Target(WIDE)), say)


def _workload(name: str, say: Say) -> None:
    func = BUILTIN[name].case().func
    say("program", func.script())
    space = Space(func, Target(WIDE))
    for sketch in space.sketches:
        rows = space.best_rows(sketch, BEST_ROWS)
        _, seconds = sketch.score(rows)
        table = [f"{row.tolist()} {value:.4g}" for row, value in zip(rows, seconds, strict=True)]
        say(f"sketch {sketch.name}", "\n".join([repr(sketch), *table]))
    _compiled(tw.tuner.default_schedule(func, Target(WIDE)), say)


def _chain(rest: str, say: Say) -> None:
    seed = int(rest)
    program = random_program(seed)
    say("program", program.func.script())
    sch = Schedule(program.func, seed=seed)
    for number in range(CHAIN_STEPS):
        rng = np.random.default_rng((seed, 2, number))
        _, apply = draw_step(rng, None)
        try:
            apply(rng, sch)
        except (ScheduleError, Nothing):
            pass
    if seed % 4 == 0:
        _compiled(sch.func, say)


_SECTIONS: dict[str, Callable[[str, Say], None]] = {
    "cases": _case,
    "kernels": _kernel,
    "workloads": _workload,
    "chains": _chain,
}

"""Modules for GPUs as Python objects, and the module of the simulated GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..codegen.late_tables import TargetKind
from ..codegen.lower.pipeline import run_passes
from ..codegen.lowered import LoweredFunc
from ..codegen.machine.target import Target
from ..codegen.runtime.arguments import CPU_DEVICES, Arguments, completed
from ..codegen.runtime.module import FunctionsByName, TimingResult
from ..tir.expr import Var
from ..tir.stmt import Buffer, PrimFunc, Stmt
from ..tir.walk import statements
from .launch import LAUNCH_PASSES, THREAD_PASSES
from .launch.kernels import GpuKernel, kernel_problem, kernels_in
from .launch.launch_form import GpuError, tag_of
from .simulation.kernel_counts import KernelCounts
from .simulation.simulator import simulate


def launch_functions(functions: Mapping[str, Any], target: Target) -> dict[str, LoweredFunc]:
    """Returns functions, each as it was scheduled, with their kernels in launch form."""
    out = {}
    for name, func in functions.items():
        if not isinstance(func, PrimFunc):
            raise GpuError(f"{name}: kernels are made of scheduled functions, not of {type(func).__name__}")
        with warnings.catch_warnings():  # on GPUs these annotations are read
            warnings.filterwarnings("ignore", "nothing reads the annotation 'software_pipeline_")
            made = run_passes(func, target, LAUNCH_PASSES)
        out[name] = LoweredFunc.of(made, target, name, func)
    return out


def launch_problem(func: PrimFunc, target: Target, partly: bool = False) -> str:
    """Returns why a scheduled function has no kernels that can be launched; nothing where it has. ``partly``: loops that are not
    bound yet are no reason."""
    if partly and not any(tag_of(s) for s in statements(func.body)):
        return ""
    try:
        (made,) = launch_functions({"main": func}, target).values()
        return kernel_problem(made, partly)
    except ValueError as error:  # GpuError, and the errors of lowering
        return str(error).split("\n")[0]


class GpuModule(FunctionsByName["GpuFunction"]):
    """Functions for a GPU by name. Calling a module calls its only function, or the one named ``main``."""

    devices: tuple[int, ...] = CPU_DEVICES
    """Where arrays that are arguments may lie, DLPack's numbers."""

    def __init__(self, functions: Mapping[str, LoweredFunc], target: Target) -> None:
        self._lowered = dict(functions)
        self.target = target
        self.origin = ""
        self._arguments: dict[str, Arguments] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._lowered)} for {self.target}>"

    @property
    def named(self) -> Mapping[str, LoweredFunc]:
        """Return the lowered functions by name."""
        return self._lowered

    def made(self, name: str) -> GpuFunction:
        """Return the function of a name."""
        return GpuFunction(self, name)

    def arguments(self, name: str) -> Arguments:
        """Return the checker of the arguments of a function."""
        found = self._arguments.get(name)
        if found is None:
            lowered = self._lowered[name]
            found = self._arguments[name] = Arguments(lowered.name, lowered.params, self.devices)
        return found

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.call(self.entry_name, args, named)

    def call(self, name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Call a function with arguments in order, and by name. Return the arrays that it writes and that were not given."""
        arguments = self.arguments(name)
        complete, fresh = completed(arguments, args, named)
        values, alive = arguments.prepare(complete)
        self.run(self._lowered[name], complete, list(values))
        del alive
        return None if not fresh else fresh[0] if len(fresh) == 1 else tuple(fresh)

    def get_source(self, fmt: str = "lowered") -> str:
        """Return the program as text, at a stage or as one of the target's own texts. Stages are ``tir`` or
        ``scheduled`` (before lowering) and ``lowered`` (kernels in launch form). ValueError for another word."""
        if fmt in ("tir", "scheduled"):
            return "\n".join((f.scheduled or f.func).script() for f in self._lowered.values())
        if fmt == "lowered":
            return "\n".join(f.script() for f in self._lowered.values())
        text = self.own_source(fmt)
        if text is None:
            raise ValueError(f"no source {fmt!r} of a module for {self.target.kind}; there are tir, scheduled, lowered")
        return text

    def own_source(self, fmt: str) -> str | None:
        """Return a text that this kind of target has, or None."""
        return None

    def export(self, path: str | Path) -> list[Path]:
        """Write a text of the module to a file, by its suffix: a word that :meth:`get_source` knows. Return the files."""
        place = Path(path)
        place.write_text(self.get_source(place.suffix.lstrip(".")))
        return [place]

    def run(self, lowered: LoweredFunc, args: list[Any], values: list[Any]) -> None:
        """Run a function on complete arguments; ``values`` are their C values, with those of sizes."""
        raise GpuError(f"nothing here runs code for {self.target}")

    def timed(self, lowered: LoweredFunc, args: list[Any], values: list[Any], repeat: int, number: int) -> list[float]:
        """Return the seconds of calls on complete arguments, as :meth:`GpuFunction.time_evaluator` says."""
        raise GpuError(f"times on {self.target} say nothing")

    def bind(self, *args: Any) -> Any:
        """Return :meth:`GpuFunction.bind` of the only function."""
        return self.entry.bind(*args)

    def bound(self, lowered: LoweredFunc, args: list[Any], values: list[Any], alive: Any) -> BoundGpuCall:
        """Return an object that runs a function on complete arguments again and again."""
        return BoundGpuCall(self, lowered, args, values, alive)

    def time_evaluator(
        self, func_name: str | None = None, dev: object = None, **how: Any
    ) -> Callable[..., TimingResult]:
        """Return :meth:`GpuFunction.time_evaluator` of the function named, or of the only one."""
        function = self.entry if func_name is None else self[func_name]
        return function.time_evaluator(**how)


class GpuFunction:
    """One function of a module. Arguments are as those of :class:`~tilewright.codegen.runtime.module.Function`."""

    def __init__(self, module: GpuModule, name: str) -> None:
        self._module, self._lowered, self._key = module, module.named[name], name
        self.name, self.params = self._lowered.name, self._lowered.params
        self._arguments = module.arguments(name)

    def __repr__(self) -> str:
        return f"<{self._module.target.kind} {self.signature}>"

    @property
    def signature(self) -> str:
        """Return the parameters as text."""
        return self._arguments.signature()

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._module.call(self._key, args, named)

    def bind(self, *args: Any) -> BoundGpuCall:
        """Check the arguments now, and return an object that calls the function on them without checks."""
        values, alive = self._arguments.prepare(args)
        return self._module.bound(self._lowered, list(args), list(values), alive)

    def time_evaluator(self, repeat: int = 10, number: int = 1, **_: Any) -> Callable[..., TimingResult]:
        """Return a function of the arguments that times calls on the device. It gives ``repeat`` results, each the mean
        of ``number`` calls after one that does not count."""

        def evaluate(*args: Any) -> TimingResult:
            values, alive = self._arguments.prepare(args)
            found = self._module.timed(self._lowered, list(args), list(values), repeat, number)
            del alive
            return TimingResult(tuple(found), number)

        return evaluate


class KernelModule(GpuModule):
    """Functions for a GPU, of which the kernels and what the host does around them are known."""

    def __init__(self, functions: Mapping[str, LoweredFunc], target: Target) -> None:
        super().__init__(functions, target)
        self.kernels: dict[str, list[GpuKernel]] = {}
        self.bodies: dict[str, Stmt] = {}
        """What the host does around the kernels, by the function."""
        for name, one in functions.items():
            threads = run_passes(one.func, target, THREAD_PASSES)
            self.bodies[name] = threads.body
            self.kernels[name] = kernels_in(LoweredFunc(threads, one.name, target, one.params))

    @property
    def all_kernels(self) -> list[GpuKernel]:
        """The kernels of all functions, in their order."""
        return [kernel for kernels in self.kernels.values() for kernel in kernels]


class BoundGpuCall:
    """A function of a module with its arguments."""

    def __init__(self, module: Any, lowered: LoweredFunc, args: list[Any], values: list[Any], alive: Any) -> None:
        self.module, self.lowered, self.args, self.values, self._alive = module, lowered, args, values, alive

    def __call__(self) -> None:
        self.module.run(self.lowered, self.args, self.values)

    def seconds(self, number: int) -> float:
        """Return the seconds of ``number`` calls together, on the device."""
        return float(self.module.timed(self.lowered, self.args, self.values, 1, number)[0] * number)


class SimulatedCall(BoundGpuCall):
    """A function of the simulated GPU with its arguments, which counts what its kernels do."""

    def counted(self) -> list[dict[str, float]]:
        """Run the function, and return the counts of each kernel by the names of the tuner's model of GPUs."""
        counts: list[KernelCounts] = []
        self.module.run(self.lowered, self.args, self.values, counts)
        return [kernel.columns() for kernel in counts]


class SimulatedModule(GpuModule):
    """A module of the simulated GPU, which runs on this machine and checks every access."""

    def bound(self, lowered: LoweredFunc, args: list[Any], values: list[Any], alive: Any) -> SimulatedCall:
        return SimulatedCall(self, lowered, args, values, alive)

    def run(
        self, lowered: LoweredFunc, args: list[Any], values: list[Any], counts: list[KernelCounts] | None = None
    ) -> None:
        arrays: dict[Buffer, np.ndarray] = {}
        scalars: dict[Var, Any] = {}
        given = iter(args)
        for param, value in zip(lowered.params, values, strict=True):
            arg = value if param.kind == "size" else next(given)
            if param.buffer is not None:
                arrays[param.buffer] = arg if isinstance(arg, np.ndarray) else np.from_dlpack(arg)
            else:
                scalars[param.var] = np.int64(arg) if param.dtype.is_int else arg
        simulate(lowered.func, arrays, scalars, counts)


GPU_SIM = TargetKind(
    "gpu-sim", lambda functions, target: SimulatedModule(launch_functions(functions, target), target),
    words={"arch": "mcpu"}, gpu=True, warps=True, simulated=True, refuses=launch_problem,
    summary="a GPU that this process simulates",
)  # fmt: skip
"""The simulated GPU: ``target="gpu-sim"``, or ``"gpu-sim -arch=sm_90a"`` for schedules of that architecture."""

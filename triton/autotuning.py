"""Choices of a kernel's constants: ``@autotune`` measures configurations, ``@heuristics`` computes them.

The fastest configuration is kept for each value of the key. With ``db`` (or ``cache_results``) each measurement is a record in the
database, under the kernel's program and the values of the key, and what is on record is not measured again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..codegen import CODEGEN_VERSION, Target
from ..pages.messages import near_words
from ..tuning_db import Database, TuningRecord, WorkloadRecord
from .kernel_source import KernelError
from .launch import CompiledKernel, JitFunction
from .testing import do_bench as _do_bench

_NO_TRACE = json.dumps({"format": 1, "insts": []})
"""The trace of a program without schedule."""


@dataclass(eq=False)
class Config:
    """One choice: constants of the kernel, and what a launch says to GPUs.

    ``pre_hook`` is called with all arguments before each run.
    """

    kwargs: dict[str, Any]
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    pre_hook: Callable[[dict[str, Any]], Any] | None = field(default=None, repr=False)

    def all_kwargs(self) -> dict[str, Any]:
        """Return the constants and options that a launch gets."""
        options = {"num_warps": self.num_warps, "num_stages": self.num_stages, "num_ctas": self.num_ctas}
        more = {} if self.maxnreg is None else {"maxnreg": self.maxnreg}
        return {**self.kwargs, **options, **more}

    def decisions(self) -> dict[str, Any]:
        """Return the choice as text and numbers."""
        return {n: v if isinstance(v, (int, float, str)) else repr(v) for n, v in self.all_kwargs().items()}


class _Chooser:
    """A kernel of which some arguments are chosen at each launch."""

    def __init__(self, fn: Any) -> None:
        if not isinstance(fn, (JitFunction, _Chooser)):
            raise TypeError(f"a function with @triton.jit is decorated here, not {fn!r}")
        self.fn = fn
        self.arg_names: tuple[str, ...] = fn.arg_names
        self.__name__: str = getattr(fn, "__name__")  # noqa: B009
        self.__doc__ = fn.__doc__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.fn!r})"

    def __getitem__(self, grid: Any) -> Callable[..., CompiledKernel]:
        return functools.partial(self.run, grid=grid)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **named: Any) -> CompiledKernel:
        """Launch the kernel; returns what ran."""
        raise NotImplementedError

    def warmup(self, *args: Any, grid: Any, **named: Any) -> CompiledKernel:
        """Compile for these arguments without running; returns the compiled kernel."""
        return self.run(*args, grid=grid, warmup=True, **named)

    def known(self, what: str, names: Sequence[str]) -> list[str]:
        """Return names of parameters; ValueError for one that is none."""
        unknown = [n for n in names if n not in self.arg_names]
        if unknown:
            near = [w for n in unknown for w in near_words(n, self.arg_names, 1, 0.6)]
            hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(self.arg_names)}"
            raise ValueError(f"{what} names {', '.join(unknown)}, which the kernel does not have{hint}")
        return list(names)


class Heuristics(_Chooser):
    """A kernel with constants that are computed from its other arguments."""

    def __init__(self, fn: Any, values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> None:
        super().__init__(fn)
        self.known("heuristics", list(values))
        self.values = dict(values)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **named: Any) -> CompiledKernel:
        """Compute the constants and launch the kernel; returns what ran."""
        given = {**dict(zip(self.arg_names, args, strict=False)), **named}
        for name, compute in self.values.items():
            given[name] = named[name] = compute(given)
        found: CompiledKernel = self.fn.run(*args, grid=grid, warmup=warmup, **named)
        return found


class Autotuner(_Chooser):
    """A kernel whose constants are those of the fastest configuration, measured once for each value of a key."""

    def __init__(
        self, fn: Any, configs: Sequence[Config], key: Sequence[str], reset_to_zero: Sequence[str], restore_value: Sequence[str],
        pre_hook: Callable[..., Any] | None, post_hook: Callable[..., Any] | None, prune_configs_by: Mapping[str, Any],
        do_bench: Callable[..., Any] | None, db: Any,
    ) -> None:  # fmt: skip
        super().__init__(fn)
        self.configs = list(configs) or [Config({})]
        for config in self.configs:
            self.known("a Config", list(config.kwargs))
        self.key = self.known("key", key)
        self.reset_to_zero = self.known("reset_to_zero", reset_to_zero)
        self.restore_value = self.known("restore_value", restore_value)
        unknown = set(prune_configs_by) - {"early_config_prune", "perf_model", "top_k"}
        if unknown:
            raise ValueError(
                f"prune_configs_by has no {', '.join(sorted(unknown))}; there are early_config_prune, perf_model and top_k"
            )
        self.prune_configs_by = dict(prune_configs_by)
        self.pre_hook, self.post_hook = pre_hook, post_hook
        self.do_bench = do_bench or functools.partial(_do_bench, warmup=25, rep=100)
        self.db = db
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.timings: dict[Config, list[float]] = {}
        """The quantiles 0.5, 0.2 and 0.8 of the configurations that were measured last, in milliseconds."""
        self.best_config: Config | None = None

    def run(self, *args: Any, grid: Any, warmup: bool = False, **named: Any) -> CompiledKernel:
        """Launch the kernel with the fastest configuration, which is found first where it is not known; returns what ran."""
        given = {**dict(zip(self.arg_names, args, strict=False)), **named}
        config = self.configs[0]
        if len(self.configs) > 1:
            types = [str(x.dtype) for x in given.values() if hasattr(x, "dtype")]
            values = tuple([given[n] for n in self.key if n in given])
            key = (values, tuple(types))
            if key not in self.cache:
                self.cache[key] = self.fastest(values, args, grid, named, given)
            config = self.cache[key]
        self.best_config = config
        self.conflicts(config, named)
        current = {**named, **config.all_kwargs()}
        if config.pre_hook is not None and not warmup:
            config.pre_hook({**given, **current})
        found: CompiledKernel = self.fn.run(*args, grid=grid, warmup=warmup, **current)
        return found

    def conflicts(self, config: Config, named: Mapping[str, Any]) -> None:
        """Raise ValueError where a launch gives what the configurations choose."""
        both = named.keys() & config.kwargs.keys()
        if both:
            raise ValueError(f"{', '.join(sorted(both))} is chosen by autotune, and given at the launch, too")

    def pruned(self, given: dict[str, Any], named: Mapping[str, Any]) -> list[Config]:
        """Return the configurations that are measured."""
        found = list(self.configs)
        early = self.prune_configs_by.get("early_config_prune")
        if early is not None:
            found = list(early(found, given, **named))
            if not found:
                raise ValueError("early_config_prune left no configuration")
        model, most = self.prune_configs_by.get("perf_model"), self.prune_configs_by.get("top_k", 1.0)
        if model is not None:
            count = int(len(self.configs) * most) if isinstance(most, float) and most <= 1.0 else int(most)
            predicted = {c: model(**{**given, **c.all_kwargs()}) for c in found}
            found = sorted(found, key=predicted.__getitem__)[: max(1, count)]
        return found

    def fastest(
        self, values: tuple[Any, ...], args: Sequence[Any], grid: Any, named: dict[str, Any], given: dict[str, Any]
    ) -> Config:
        """Return the configuration that takes the least time, of those on record and those that are measured now."""
        configs = self.pruned(given, named)
        if len(configs) == 1:
            return configs[0]
        opened = closing(Database(self.db)) if isinstance(self.db, (str, os.PathLike)) else nullcontext(self.db)
        with opened as db:
            store = None if db is None else _Records(db, self, values, args, grid, named)
            known = {} if store is None else store.times()
            self.timings, error = {}, ""
            for config in configs:
                self.conflicts(config, named)
                place = json.dumps(config.decisions(), sort_keys=True)
                if place in known and config.pre_hook is None:
                    self.timings[config] = known[place]
                    continue
                times, error = self.measured(config, args, grid, named, given)
                self.timings[config] = times
                if store is not None and config.pre_hook is None:
                    store.add(config, times, error)
        best = min(self.timings, key=lambda c: self.timings[c][0])
        if math.isinf(self.timings[best][0]):
            raise ValueError(f"{self.fn!r}: no configuration can be compiled; {error}")
        return best

    def measured(
        self, config: Config, args: Sequence[Any], grid: Any, named: dict[str, Any], given: dict[str, Any]
    ) -> tuple[list[float], str]:
        """Return the times of one configuration in milliseconds, infinite where ``static_assert`` refuses it, and why."""
        current = {**named, **config.all_kwargs()}
        whole = {**given, **current}

        def call() -> None:
            if config.pre_hook is not None:
                config.pre_hook(whole)
            saved = {n: _copied(given[n]) for n in self.restore_value if given.get(n) is not None}
            if self.pre_hook is not None:
                self.pre_hook(whole)
            else:
                for n in self.reset_to_zero:
                    _fill(given.get(n), 0)
            error: Exception | None = None
            try:
                self.fn.run(*args, grid=grid, **current)
            except Exception as e:
                error = e
                raise
            finally:
                if self.post_hook is not None:
                    self.post_hook(whole, exception=error)
                for n, old in saved.items():
                    _fill(given[n], old)

        try:
            found = self.do_bench(call, quantiles=(0.5, 0.2, 0.8))
        except KernelError as e:
            if not isinstance(e.__cause__, AssertionError):
                raise
            return [math.inf] * 3, str(e)
        finally:
            if self.pre_hook is None:
                for n in self.reset_to_zero:
                    _fill(given.get(n), 0)
        times = [float(t) for t in found] if isinstance(found, (list, tuple)) else [float(found)]
        return times, ""


class _Records:
    """The records of one kernel for one value of its key."""

    def __init__(
        self,
        db: Database,
        tuner: Autotuner,
        values: tuple[Any, ...],
        args: Sequence[Any],
        grid: Any,
        named: dict[str, Any],
    ) -> None:
        kernel = None
        for config in tuner.configs:
            try:
                kernel = tuner.fn.warmup(*args, grid=grid, **{**named, **config.all_kwargs()})
                break
            except KernelError as e:
                if not isinstance(e.__cause__, AssertionError):
                    raise
        if kernel is None:
            raise ValueError(f"{tuner.fn!r}: no configuration can be compiled")
        self.db = db
        text = kernel.script()
        key = hashlib.sha256(json.dumps([text, [repr(v) for v in values]]).encode()).hexdigest()
        spec = ", ".join([f"{n}={v!r}" for n, v in zip(tuner.key, values, strict=False)])
        self.workload = db.add_workload(WorkloadRecord(key, text, kernel.name, spec))
        self.target = db.add_target(Target.of("native"))

    def times(self) -> dict[str, list[float]]:
        """Return the times on record, in milliseconds, by configuration."""
        return {
            json.dumps(dict(r.decisions), sort_keys=True): [t * 1e3 for t in r.times] if r.ok else [math.inf] * 3
            for r in self.db.records(self.workload, self.target)
            if r.codegen_version == CODEGEN_VERSION
        }

    def add(self, config: Config, times: Sequence[float], error: str) -> None:
        """Store what one configuration took."""
        self.db.add_record(TuningRecord(
            self.workload, self.target, _NO_TRACE, () if error else tuple([t / 1e3 for t in times]),
            "compile_error" if error else "ok", error, config.decisions(), "blocks",
            run_seconds=None if error else times[0] / 1e3, codegen_version=CODEGEN_VERSION,
        ))  # fmt: skip


def _copied(x: Any) -> Any:
    return x.copy() if isinstance(x, np.ndarray) else x.detach().clone()


def _fill(x: Any, value: Any) -> None:
    if x is None:
        return
    if isinstance(x, np.ndarray):
        x[...] = value
    else:
        x.detach().copy_(value) if not isinstance(value, int) else x.detach().fill_(value)


def autotune(
    configs: Sequence[Config], key: Sequence[str], prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None, restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., Any] | None = None, post_hook: Callable[..., Any] | None = None,
    do_bench: Callable[..., Any] | None = None, cache_results: bool = False, db: Any = None,
) -> Callable[[Any], Autotuner]:  # fmt: skip
    """Return a decorator of kernels that measures ``configs`` once for each value of the arguments in ``key``.

    Parameters
    ----------
    configs, key
        The choices, and the names of arguments with whose values (and the arrays' types) the choice is made anew.
    prune_configs_by
        ``early_config_prune(configs, arguments, **named)`` returns those to measure; ``perf_model(**arguments)`` predicts
        times, and the best ``top_k`` (a number, or a part of all) are measured.
    reset_to_zero, restore_value
        Names of arrays that are set to zero before each run, or get their values back after it, while configurations are measured.
    pre_hook, post_hook
        Called with all arguments before and after each measured run; ``post_hook`` also gets ``exception``.
    do_bench
        Measures a function: ``do_bench(fn, quantiles=…)`` returns milliseconds. Else :func:`triton.testing.do_bench`.
    db, cache_results
        A database or its path, where measurements are stored and looked up; ``cache_results`` takes the one of
        ``TILEWRIGHT_DB``, else ``tuning.db`` in the working directory.
    """
    if cache_results and db is None:
        db = os.environ.get("TILEWRIGHT_DB") or "tuning.db"

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(
            fn, configs, key, reset_to_zero or (), restore_value or (), pre_hook, post_hook, prune_configs_by or {}, do_bench, db
        )  # fmt: skip

    return decorate


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Return a decorator of kernels that computes constants; each function gets the other arguments as a dict."""
    return lambda fn: Heuristics(fn, values)


__all__ = ["Autotuner", "Config", "Heuristics", "autotune", "heuristics"]

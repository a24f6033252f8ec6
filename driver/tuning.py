"""Finds a schedule: searches, measures and records.

A search in a notebook shows its progress in the cell, drawn over again as candidates are measured.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from .. import tuner
from ..codegen import Target
from ..graph.graph import Graph
from ..pages import card, search_chart, seconds_text
from ..pages.messages import require_share
from ..tuner import FinalComparison, Progress, SearchEnded, SearchStarted, TuneResult
from ..tuner.example_sizes import typical_sizes, unknown_sizes
from ..tuning_db import Database, TuningRecord, open_database
from .any_size import SizesTuneResult, tune_sizes
from .building import Request, TuneError, in_order, is_scheduled, request, require_known
from .machine_report import known_report, library_versions, limits_of, measure_machine, model_of
from .models.model_building import is_model
from .models.model_tuning import ModelTuneOptions, ModelTuneResult, tune_model

log = logging.getLogger("tilewright")


@overload
def tune(
    inputs: Graph | os.PathLike[str],
    target: str | Target = "native",
    *,
    trials: int = 64,
    db: Database | str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
    callbacks: Sequence[Callable[[Any], None]] = (),
    **options: Any,
) -> ModelTuneResult: ...


@overload
def tune(
    inputs: Any,
    target: str | Target = "native",
    *,
    sizes: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    trials: int = 64,
    db: Database | str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
    callbacks: Sequence[Callable[[Any], None]] = (),
    **options: Any,
) -> SizesTuneResult: ...


@overload
def tune(
    inputs: Any,
    target: str | Target = "native",
    *,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    trials: int = 64,
    db: Database | str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
    callbacks: Sequence[Callable[[Any], None]] = (),
    **options: Any,
) -> TuneResult: ...


def tune(
    inputs: Any,
    target: str | Target = "native",
    *,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    trials: int = 64,
    db: Database | str | os.PathLike[str] | None = None,
    time_limit: float | None = None,
    callbacks: Sequence[Callable[[Any], None]] = (),
    sizes: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    **options: Any,
) -> Any:
    """Search for the fastest schedule of ``inputs`` on ``target``, measuring ``trials`` candidates.

    ``inputs``: a PrimFunc, te tensors (inputs first, outputs last), a workload or a spec; see :func:`.building.request`.
    Records go to ``db`` (nowhere when None), and the search uses the records that are there already. ``time_limit``:
    seconds; ``until``: end at this share of the roofline, above 0 and at most 1. ``callbacks`` are called with the progress; a notebook shows it in the cell. ``options`` (``seed`` and others) are those of
    :class:`~tilewright.tuner.TuneOptions`. What was measured of the machine earlier reaches the analytic model. Ctrl-C ends
    the search; what was measured is in the database. :class:`TuneError` when no schedule rule has a candidate; where
    all candidates fail, ``best`` is None and ``problem`` says why.

    A function of symbolic sizes is tuned at examples of them: ``sizes`` is a mapping from names to numbers or lists of
    numbers, all combinations of which are tuned, or a list of mappings to numbers. ``trials`` are those of each example.
    The result is a :class:`~.any_size.SizesTuneResult`, and :func:`build` makes one function of the few schedules that are
    best together.

    Of a graph or a model that a front end reads (``model.onnx``) the kernels are tuned, and the result is a
    :class:`~.models.model_tuning.ModelTuneResult`: ``trials`` are then those of one kernel at most, ``time_limit`` is for
    all of them and goes where the model gains most, a kernel is done at the share ``until`` of the roofline, and the
    options ``shapes``, ``constants`` and ``accuracy`` of :func:`build` are taken as well. With ``sizes`` (a mapping) its
    kernels are tuned at each combination of the numbers; :func:`build` takes the records as versions of the kernels, each up
    to one of the numbers, where ``bounds`` has the same numbers.
    """
    machine, args = in_order([target], None, args)
    if is_model(inputs):
        if args is not None:
            raise TypeError("args for a model, which takes none; shapes= gives the shapes of its inputs")
        if sizes is not None and not isinstance(sizes, Mapping):
            raise TypeError(
                'sizes of a model are a mapping from names to numbers or lists of numbers, {"n": [1, 8, 64]}'
            )
        until, accuracy = options.pop("until", None), options.pop("accuracy", None)
        asked_of_all = ModelTuneOptions(
            trials, time_limit, until, tuple(callbacks), options, accuracy, dict(sizes or {})
        )
        return tune_model(inputs, machine, db, asked_of_all)
    until = options.pop("until", None)
    require_known(options, tuner.TuneOptions, ("trials", "db", "time_limit", "callbacks", "args", "sizes"), "tune")
    if until is not None:
        require_share("until", until, "the roofline")
    asked = request(inputs, args)
    if sizes is not None:
        return _tune_at_sizes(asked, machine, sizes, until, trials, time_limit, db, callbacks, options)
    obstacle = not_measurable(asked, machine)
    if obstacle is not None:
        raise TuneError(f"cannot tune {asked.func.name}: {obstacle}")
    if asked.scheduled and is_scheduled(asked.func):
        raise TuneError(f"{asked.func.name} is scheduled already; tune the function as it was before")
    if until is not None and machine.is_gpu:
        raise TuneError(
            f"until={until}: the limits of {machine.kind} are not measured; enough_seconds= says when to stop"
        )
    report = measure_machine(machine) if until is not None else known_report(machine)
    options.setdefault("machine", model_of(report, machine))
    options.setdefault("versions", library_versions())
    if report is not None:
        options.setdefault("limits", limits_of(report, asked.func, machine))
    if until is not None and options["limits"]["roofline_seconds"]:
        options.setdefault("enough_seconds", options["limits"]["roofline_seconds"] / until)
    with open_database(db) if db is not None else contextlib.nullcontext() as opened:
        if opened is not None:
            opened.add_workload(asked.func, spec=asked.spec, name=asked.func.name)
        shown = [NotebookProgress(asked.spec or asked.func.name)] if in_notebook() else []
        result = tuner.tune(
            asked.func, machine, trials=trials, db=opened, callbacks=(*shown, *callbacks), time_limit=time_limit, **options
        )  # fmt: skip
    if result.best is None:
        if result.stopped == "exhausted" and not result.records:
            raise TuneError(f"{asked.func.name} on {machine}: {result.problem}")
        log.warning("%s on %s: %s", asked.func.name, machine, result.problem)
    return result


def _tune_at_sizes(
    asked: Request, machine: Target, sizes: Mapping[str, Any] | Sequence[Mapping[str, Any]], until: float | None,
    trials: int, time_limit: float | None, db: Database | str | os.PathLike[str] | None,
    callbacks: Sequence[Callable[[Any], None]], options: dict[str, Any],
) -> SizesTuneResult:  # fmt: skip
    """Tune a function of symbolic sizes at examples of them."""
    missing = machine.missing_here()
    if missing:
        raise TuneError(
            f"cannot tune {asked.func.name}: this machine cannot run code for {machine}: it has no {missing[0]}"
        )
    if machine.is_gpu:
        raise TuneError(f"cannot tune {asked.func.name}: symbolic sizes are tuned on processors, not on {machine.kind}")
    if asked.scheduled and is_scheduled(asked.func):
        raise TuneError(f"{asked.func.name} is scheduled already; tune the function as it was before")
    if until is not None:
        raise TypeError("until= with sizes=: what the machine allows differs from size to size")
    options.setdefault("machine", model_of(known_report(machine), machine))
    options.setdefault("versions", library_versions())
    shown = [NotebookProgress(asked.spec or asked.func.name)] if in_notebook() else []
    result = tune_sizes(
        asked.func, machine, sizes, trials=trials, time_limit=time_limit, db=db, callbacks=(*shown, *callbacks), **options
    )  # fmt: skip
    if result.best is None:
        raise TuneError(f"{asked.func.name} on {machine}: {next(iter(result.results.values())).problem}")
    return result


def not_measurable(asked: Request, target: Target) -> str | None:
    """Returns a sentence that says why runs of ``asked`` cannot be timed on this machine, or None."""
    missing = target.missing_here()
    if missing:
        return f"this machine cannot run code for {target}: it has no {missing[0]}"
    unknown = unknown_sizes(asked.func)
    if unknown is None:
        return None
    name = next((v.name for v in typical_sizes(asked.func)), None)
    if name is None:
        return f"{unknown}, and only functions of fixed sizes are measured; give numbers in their place"
    return f"{unknown}; give examples to measure: sizes={{{name!r}: [16, 256, 1024]}}, --size {name}=16,256,1024"


# progress in a notebook

_EVERY_SECONDS = 0.3


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return bool(shell) and "IPKernelApp" in getattr(shell, "config", {})


class NotebookProgress:
    """A callback of a search that draws its progress in the cell of a notebook. It shows trials, the best so far and
    the time left.

    ``title`` is what is tuned. It needs IPython alone, no widgets.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.records: list[TuningRecord] = []
        self._handle: Any = None
        self._last = 0.0

    def __call__(self, event: Progress) -> None:
        """Draw an event, at most three times a second; the last one always."""
        self.records += event.records
        now = time.monotonic()
        if now - self._last < _EVERY_SECONDS and not isinstance(event, (SearchStarted, FinalComparison, SearchEnded)):
            return
        self._last = now
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(self.html(event)), display_id=True)
        else:
            self._handle.update(HTML(self.html(event)))

    def html(self, event: Progress) -> str:
        """Returns what the cell shows at an event."""
        share = event.trials_done / max(event.trials_total, 1)
        bar = f'<progress value="{share:.3f}" style="width:16em"></progress>'
        words = [f"{event.trials_done} of {event.trials_total} trials", _doing(event)]
        if event.best_seconds < float("inf"):
            words.append(f"best {seconds_text(event.best_seconds)}")
        if event.failures:
            words.append(f"{event.failures} failed")
        if event.remaining_seconds < float("inf") and not isinstance(event, SearchEnded):
            words.append(f"{event.remaining_seconds:.0f} s left")
        times = [r.run_seconds if r.ok else None for r in self.records]
        return card(self.title, f"<div>{bar} {', '.join(words)}</div>", search_chart(times))


def _doing(event: Progress) -> str:
    if isinstance(event, SearchStarted):
        return "starting the workers"
    if isinstance(event, FinalComparison):
        return "comparing the best once more"
    return "done" if isinstance(event, SearchEnded) else "measuring"

"""``tilewright tune model.onnx``: searches for the kernels of a model, and says what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..pages import counted, seconds_text
from .exit_codes import CommandError
from .options import command_line, input_shapes
from .output import column, echo_json, echo_table
from .progress import ModelSearch

if TYPE_CHECKING:
    from ..codegen import Target
    from ..driver import ModelTuneResult

_SHOWN = 20
"""The most kernels that the table shows."""


def tune_model(spec: str, args: tuple[str, ...], machine: Target, as_json: bool, words: Mapping[str, Any]) -> int:
    """Tune the kernels of the model in the file ``spec``, and print what was found; ``words`` are the options."""
    from ..driver import ModelTuningInterrupted, tune
    from ..driver.machine_report import measure_machine
    from ..driver.models.model_files import load_model

    graph = load_model(spec, **({"shapes": input_shapes(args)} if args else {}))
    path, limit = words["db"], words["time_limit"]
    with ModelSearch(Path(spec).name, 0, limit) as search:
        if not machine.is_gpu:
            search.says("measuring the machine")
            measure_machine(machine)
        try:
            result = tune(
                graph, machine, trials=words["trials"], seed=words["seed"] or 0, db=path, time_limit=limit,
                until=words["until"], stop_early=not words["all_trials"], accuracy=words["accuracy"], callbacks=[search.show],
            )  # fmt: skip
        except ModelTuningInterrupted as interrupted:
            result = interrupted.result
    if as_json:
        echo_json(**result.as_dict(), spec=spec, db=path)
    else:
        _say(Path(spec).name, result, path)
    if result.stopped == "interrupted":
        again = command_line("tune", spec, args, **words)
        click.echo(f"stopped; what was measured is in {path}. Go on with: {again}", err=True)
        raise KeyboardInterrupt
    if result.kernels and not math.isfinite(min(k.seconds for k in result.kernels)):
        why = f"nothing could be measured: {result.kernels[0].why or result.why}"
        raise CommandError(why, f"`tilewright db failures --db {path}` shows why", code=4)
    return 0


def _say(name: str, result: ModelTuneResult, path: str) -> None:
    failed = sum(k.failures for k in result.kernels)
    trouble = f", {failed} failed" if failed else ""
    click.echo(f"{name}: {counted(result.trials, 'trial')} in {result.elapsed_seconds:.1f} s{trouble} -> {path}")
    rows = [vars(k) | {"whole": k.whole_seconds} for k in result.kernels[:_SHOWN]]
    columns = [
        column("kernel", lambda r: r["name"]),
        column("shapes", lambda r: _short(r["shapes"])),
        column("calls", lambda r: str(r["calls"]), True),
        column("default", lambda r: _time(r["default_seconds"]), True),
        column("tuned", lambda r: _time(r["seconds"]), True),
        column("of the model", lambda r: _part(r["whole"] / result.seconds if result.seconds else None), True),
        column("of roofline", lambda r: _part(r["share"]), True),
        column("trials", lambda r: str(r["trials"]), True),
        column("", lambda r: r["why"]),
    ]
    echo_table(rows, columns, "the model has no kernels")
    if len(result.kernels) > _SHOWN:
        rest = result.kernels[_SHOWN:]
        part = sum(k.whole_seconds for k in rest if math.isfinite(k.seconds)) / (result.seconds or 1.0)
        click.echo(f"and {len(rest)} more kernels, {_part(part)} of the model together")
    untuned = [k.name for k in result.kernels if not math.isfinite(k.seconds)]
    if untuned:
        names = ", ".join(untuned[:5]) + (f" and {len(untuned) - 5} more" if len(untuned) > 5 else "")
        click.echo(f"not measured: {names}; they run by default schedules, and their time is not in the sum")
    click.echo(f"all kernels: {seconds_text(result.seconds)}, {seconds_text(result.default_seconds)} by default")
    click.echo(f"ended: {result.why}", err=True)


_WIDE = 44
"""The letters that the shapes of a kernel may take in the table."""


def _short(shapes: str) -> str:
    """Returns the shapes as they fit: the first and the last ones."""
    if len(shapes) <= _WIDE:
        return shapes
    first, *_, last = shapes.split(", ")
    return f"{first}, …, {last}" if len(first) + len(last) + 5 <= _WIDE else f"{shapes[: _WIDE - 1]}…"


def _time(seconds: float) -> str:
    return seconds_text(seconds if math.isfinite(seconds) else None)


def _part(share: float | None) -> str:
    return "–" if share is None or not math.isfinite(share) else f"{share:.1%}"

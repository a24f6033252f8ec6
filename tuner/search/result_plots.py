"""Plots of a search as methods of its result, under the names that users of Optuna know. They need the extra ``viz``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...pages import improvements
from ...tuning_db import TuningRecord, record_table

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from .tune_result import TuneResult


def records_dataframe(result: TuneResult) -> pd.DataFrame:
    """Returns the records of the session as a table of pandas."""
    return record_table.records_dataframe(result.records, result.flops)


def plot_optimization_history(result: TuneResult) -> go.Figure:
    """Returns the seconds of each trial, and of the best so far."""
    records = result.records
    seconds = [r.run_seconds if r.ok else None for r in records]
    best = improvements(seconds)
    places, values = [n + 1 for n, _ in best], [s for _, s in best]
    if best:
        places, values = [*places, len(records)], [*values, values[-1]]
    trials = {
        "type": "scatter",
        "mode": "markers",
        "name": "trial",
        "x": _numbers(records),
        "y": seconds,
        "text": _words(records),
    }
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "best so far",
        "x": places,
        "y": values,
        "line": {"shape": "hv"},
    }
    return _figure([trials, line], "Optimization history", "trial", "seconds", log=True)


def plot_timeline(result: TuneResult) -> go.Figure:
    """Returns when each trial was recorded; colours are statuses."""
    records = result.records
    data = []
    for status in dict.fromkeys(r.status for r in records):
        mine = [(n, r) for n, r in enumerate(records, start=1) if r.status == status]
        data.append({
            "type": "scatter", "mode": "markers", "name": status, "x": [r.created for _, r in mine],
            "y": [n for n, _ in mine], "text": _words([r for _, r in mine]), "marker": {"symbol": "square"},
        })  # fmt: skip
    return _figure(data, "Timeline", "", "trial")


def plot_edf(result: TuneResult) -> go.Figure:
    """Returns the share of trials that are at least as fast as each time (the empirical distribution)."""
    records = result.records
    seconds = sorted(_seconds(records))
    share = [n / max(len(seconds), 1) for n in range(1, len(seconds) + 1)]
    data = {"type": "scatter", "mode": "lines", "x": seconds, "y": share, "line": {"shape": "hv"}}
    return _figure([data], "Empirical distribution", "seconds", "share of trials")


def plot_slice(result: TuneResult, params: Sequence[str] | None = None) -> go.Figure:
    """Returns the seconds over the values of each decision in ``params`` (default: all)."""
    records = result.records
    data, layout = [], {}
    names = _decisions(records, params)
    for number, name in enumerate(names, start=1):
        mine = [r for r in records if r.ok and name in r.decisions]
        axis = "" if number == 1 else str(number)
        data.append({
            "type": "scatter", "mode": "markers", "name": name, "x": [str(r.decisions[name]) for r in mine],
            "y": [r.run_seconds for r in mine], "xaxis": f"x{axis}", "yaxis": "y", "text": _words(mine),
        })  # fmt: skip
        width = 1 / len(names)
        layout[f"xaxis{axis}"] = {
            "title": name, "type": "category", "domain": [(number - 1) * width, number * width - 0.1 * width],
        }  # fmt: skip
    return _figure(data, "Slices", None, "seconds", log=True, **layout)


def plot_parallel_coordinate(result: TuneResult, params: Sequence[str] | None = None) -> go.Figure:
    """Returns a line for each trial through its seconds and its decisions."""
    records = result.records
    names = _decisions(records, params)
    mine = [r for r in records if r.ok and all(name in r.decisions for name in names)]
    seconds = [r.run_seconds for r in mine]
    dimensions: list[dict[str, Any]] = [{"label": "seconds", "values": seconds}]
    for name in names:
        values = sorted({r.decisions[name] for r in mine}, key=lambda v: (str(type(v)), v))
        places = [values.index(r.decisions[name]) for r in mine]
        dimensions.append(
            {
                "label": name,
                "values": places,
                "tickvals": list(range(len(values))),
                "ticktext": [str(v) for v in values],
            }
        )
    data = {"type": "parcoords", "dimensions": dimensions, "line": {"color": seconds, "showscale": True}}
    return _figure([data], "Parallel coordinates")


def plot_param_importances(result: TuneResult) -> go.Figure:
    """Returns how much of the variance of the logarithm of the seconds each decision explains alone."""
    records = result.records
    shares = sorted(importances(records).items(), key=lambda item: item[1])
    data = {"type": "bar", "orientation": "h", "x": [share for _, share in shares], "y": [name for name, _ in shares]}
    return _figure([data], "Importance of the decisions", "share of the variance explained", "")


def plot_predicted_against_measured(result: TuneResult) -> go.Figure:
    """Returns what the cost model expected beside what was measured."""
    records = result.records
    mine = [r for r in records if r.ok and r.predicted_seconds]
    data = {
        "type": "scatter", "mode": "markers", "x": [r.predicted_seconds for r in mine],
        "y": [r.run_seconds for r in mine], "text": _words(mine),
    }  # fmt: skip
    return _figure(
        [data],
        "Predicted against measured",
        "predicted seconds",
        "measured seconds",
        log=True,
        xaxis={"type": "log", "title": "predicted seconds"},
    )


def importances(records: Sequence[TuningRecord]) -> dict[str, float]:
    """Returns for each decision the share of the variance of log seconds between its values (eta squared), 0 to 1."""
    out = {}
    for name in _decisions(records, None):
        mine = [r for r in records if r.ok and name in r.decisions]
        logs = np.log([r.run_seconds or 1.0 for r in mine])
        total = float(((logs - logs.mean()) ** 2).sum()) if len(mine) else 0.0
        values = np.array([str(r.decisions[name]) for r in mine])
        between = sum((values == v).sum() * (logs[values == v].mean() - logs.mean()) ** 2 for v in set(values))
        out[name] = float(between) / total if total else 0.0
    return out


def _seconds(records: Sequence[TuningRecord]) -> list[float]:
    return [r.run_seconds for r in records if r.ok and r.run_seconds]


def _numbers(records: Sequence[TuningRecord]) -> list[int]:
    return list(range(1, len(records) + 1))


def _decisions(records: Sequence[TuningRecord], wanted: Sequence[str] | None) -> list[str]:
    """Returns the names of decisions that took several values, or those of ``wanted``; ValueError for one that no
    record has."""
    values: dict[str, list[Any]] = {}
    for record in records:
        for name, value in record.decisions.items() if record.ok else ():
            found = values.setdefault(name, [])
            found += [value] if value not in found else []
    for name in wanted or ():
        if name not in values:
            raise ValueError(f"no trial decided {name!r}; there are {', '.join(values) or 'none'}")
    return list(wanted) if wanted is not None else [name for name, found in values.items() if len(found) > 1]


def _words(records: Sequence[TuningRecord]) -> list[str]:
    return [
        f"{r.sketch or r.status}<br>{', '.join([f'{k}={v}' for k, v in r.decisions.items()])}{r.error[:120]}"
        for r in records
    ]


def _figure(
    data: Sequence[Mapping[str, Any]], title: str, x: str | None = "", y: str = "", log: bool = False, **layout: Any
) -> go.Figure:
    try:
        import plotly.graph_objects as graphs
    except ImportError as error:
        raise ImportError("plots need plotly: pip install 'tilewright[viz]'") from error
    described: dict[str, Any] = {"title": {"text": title}, "yaxis": {"title": y, "type": "log" if log else "-"}}
    if x is not None:
        described["xaxis"] = {"title": x}
    return graphs.Figure({"data": list(data), "layout": {**described, **layout}})

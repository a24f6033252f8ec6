"""Finds a runner by an address: ``local``, ``dask://host:8786``, or a scheme that an installed package offers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points

from ..measure.runner import LocalRunner, Runner

GROUP = "tilewright.runners"
"""The entry point group in which packages offer runners: a name is a scheme, the value a function of the address."""

_OWN = {"dask": "dask_runner:DaskRunner", "dask+tls": "dask_runner:DaskRunner"}


def runner_for(address: str | Runner) -> Runner:
    """Returns the runner of ``address``, or the runner that is given. ValueError when no package offers the scheme,
    TypeError for what is neither."""
    if isinstance(address, Runner):
        return address
    if not isinstance(address, str):
        made = f"; {address.__name__}() makes one" if isinstance(address, type) and issubclass(address, Runner) else ""
        raise TypeError(f"runner is an address such as 'dask://host:8786', or a tuner.Runner, not {address!r}{made}")
    scheme, found, _ = address.partition("://")
    if address == "local":
        return LocalRunner()
    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    if found and scheme in offered:
        return _made(offered[scheme].load(), address)
    if found and scheme in _OWN:
        module, name = _OWN[scheme].split(":")
        return _made(getattr(importlib.import_module(f".{module}", __package__), name), address)
    known = ", ".join(["local", *[f"{name}://…" for name in sorted({*_OWN, *offered})]])
    raise ValueError(f"runner {address!r}: no such runner; there are {known}")


def _made(factory: Callable[[str], object], address: str) -> Runner:
    runner = factory(address)
    if not isinstance(runner, Runner):
        raise ValueError(f"runner {address!r}: {type(runner).__name__} is no Runner")
    return runner

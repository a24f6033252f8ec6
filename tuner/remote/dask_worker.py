"""A worker of Dask.distributed offers this machine: threads to build, and one place to measure on its CPU."""

from __future__ import annotations

import asyncio
import importlib
import platform
from collections.abc import Callable
from typing import Any

from . import measuring
from .measuring import places


def offered() -> dict[str, int]:
    """Returns the resources of a worker on this machine. These are ``build``, how many candidates it has in hand at a
    time, and exactly one ``measure:<cpu>``."""
    return {"build": places(), f"measure:{measuring.cpu_name()}": 1}


def run_worker(address: str, *, started: Callable[[Any], object] = lambda nanny: None) -> None:
    """Serve the scheduler at ``address`` (``host:8786``, ``tls://host:8786``) until it ends or this process is
    interrupted. ImportError without Dask.distributed, OSError when no scheduler answers."""
    dask = importlib.import_module("distributed")
    asyncio.run(_serve(dask, address, started))


async def _serve(dask: Any, address: str, started: Callable[[Any], object]) -> None:
    name = f"{platform.node()}-{measuring.cpu_name()}-{id(started):x}"
    async with dask.Nanny(
        address, nthreads=places() + 1, resources=offered(), name=name, memory_limit=0, death_timeout=300, dashboard=False,
        preload=[measuring.__name__],
    ) as nanny:  # fmt: skip
        started(nanny)
        await nanny.finished()

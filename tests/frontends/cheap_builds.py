"""Builds for tests of many small models: what the front ends make of a model is tried, not how fast its kernels are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

from tilewright.driver import building
from tilewright.driver.models import kernel_building

_KEPT: dict[str, bytes] = {}


@contextmanager
def cheap_builds() -> Iterator[None]:
    """Kernels as they are written, compiled with little optimization in this process. Equal ones are compiled once."""

    def as_written(asked: Any, machine: Any, before: str = "") -> building.Plan:
        return building.Plan(asked, machine, "given", f"{before}not scheduled", asked.func)

    with ExitStack() as stack:
        for name, other in (
            ("plan_request", as_written),
            ("optimize_and_compile", partial(kernel_building.optimize_and_compile, opt_level=0)),
            ("find_object", _KEPT.get),
            ("keep_object", _KEPT.__setitem__),
        ):
            stack.enter_context(mock.patch.object(kernel_building, name, other))
        yield

"""The table of services: what other files do for functions and modules, by name. The name mostly is that of the method.

Files register themselves, so that :mod:`.module` imports none of them: :mod:`.bound_calls`, :mod:`.array_libraries`,
:mod:`.native_glue`, :mod:`.export`, :mod:`.weight_packing` and :mod:`..packing`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SERVICES: dict[str, Callable[..., Any]] = {}


def register_service(name: str, run: Callable[..., Any]) -> None:
    """Add a service to the table."""
    SERVICES[name] = run


def service(name: str) -> Callable[..., Any]:
    """Return a service; NotImplementedError when no file offers it."""
    if name not in SERVICES:
        raise NotImplementedError(f"no file that offers {name!r} was imported; import tilewright.codegen first")
    return SERVICES[name]


UNUSUAL = -(1 << 31)
"""The result of a quick call that did not call the function, because the careful path has to decide."""

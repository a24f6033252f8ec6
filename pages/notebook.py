"""Notebooks ask an object for ``_repr_html_``; views register themselves here for the classes that they show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

View = TypeVar("View", bound=Callable[[Any], str])


def shown_in_notebooks(shown: type) -> Callable[[View], View]:
    """Return a decorator that makes a function of an object, which returns HTML, the notebook's view of a class."""

    def register(view: View) -> View:
        shown._repr_html_ = view  # type: ignore[attr-defined]
        return view

    return register

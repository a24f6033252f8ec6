"""Notebooks ask an object for ``_repr_html_``; views register themselves here for the classes that they show."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

View = TypeVar("View", bound=Callable[[Any], str])


def shown_in_notebooks(shown: type) -> Callable[[View], View]:
    """Return a decorator that makes a function of an object, which returns HTML, the notebook's view of a class."""

    def register(view: View) -> View:
        shown._repr_html_ = view  # type: ignore[attr-defined]
        return view

    return register


_LIBRARY = str(Path(__file__).parent.parent)


def user_traceback(error: BaseException, kind: str) -> list[str]:
    """Returns the lines of a traceback without the frames of this library, and the message under the name ``kind``.

    IPython asks an exception for it by the method ``_render_traceback_``.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(_LIBRARY) and "IPython" not in Path(f.filename).parts]
    lines = "".join(["Traceback (most recent call last):\n", *traceback.format_list(own)]) if own else ""
    return [*lines.splitlines(), f"{kind}: {error}"]

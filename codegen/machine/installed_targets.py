"""This module loads what installed packages add to the kinds of targets and to the back ends."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.metadata import entry_points

GROUP = "tilewright.targets"
"""The group of entry points by which installed packages add targets."""


@cache
def load_installed() -> tuple[str, ...]:
    """Call the entry points of the group ``tilewright.targets``, once, and return their names.

    Each is a function without parameters of an installed package, which registers kinds of targets and back ends. It is
    called when a target or a file names what is not known yet. One that fails is a warning, and the others go on.
    """
    found = []
    for point in entry_points(group=GROUP):
        try:
            point.load()()
            found.append(point.name)
        except Exception as error:  # a stranger's code may raise anything
            warnings.warn(f"the entry point {point.name} = {point.value} of {GROUP} failed: {error}", stacklevel=2)
    return tuple(found)

"""A space holds the candidates of one function: sketches, each with a table of rows of decisions.

``sketch``: parts for a whole function, and the sensible rows of each. ``search_space``: the sketches that
schedule rules make, and the candidate that the prior thinks best.
"""

from .search_space import DefaultSchedule, Space, choose_default, default_schedule
from .sketch import Sketch

__all__ = [
    "DefaultSchedule",
    "Sketch",
    "Space",
    "choose_default",
    "default_schedule",
]

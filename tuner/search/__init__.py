"""A search asks for candidates and is told their times.

``strategy``: the interface, candidates, and a random baseline. ``model_guided``: the search that follows a cost model.
``warm_start``: what earlier records are worth. ``final_race``: the best few are timed once more.
``session``: the whole run, from a function to a ``TuneResult``.
"""

from .model_guided import ModelGuidedSearch
from .strategy import Candidate, RandomSearch, SearchStrategy

__all__ = ["Candidate", "ModelGuidedSearch", "RandomSearch", "SearchStrategy"]

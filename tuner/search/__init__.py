"""A search asks for candidates and is told their times.

``strategy``: the interface, candidates, a random baseline, and the search that follows a cost model.
``warm_start``: what earlier records are worth. ``session``: the whole run, from a function to a ``TuneResult``, with the
race of the best few at its end. ``tune_result``: the options of a run, its progress, and the result with its plots.
"""

from .strategy import Candidate, ModelGuidedSearch, RandomSearch, SearchStrategy

__all__ = ["Candidate", "ModelGuidedSearch", "RandomSearch", "SearchStrategy"]

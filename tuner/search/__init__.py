"""A search asks for candidates and is told their times.

``strategy``: the interface, candidates, a random baseline, and the search that follows a cost model.
``warm_start``: what earlier records are worth. ``session``: the whole run, from a function to a
``TuneResult``, with the race of the best few at its end. ``result_plots``: the plots of a result.
"""

from .strategy import Candidate, ModelGuidedSearch, RandomSearch, SearchStrategy

__all__ = ["Candidate", "ModelGuidedSearch", "RandomSearch", "SearchStrategy"]

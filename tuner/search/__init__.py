"""A search asks for candidates and is told their times.

``strategy``: the interface, candidates, a random baseline, and the search that follows a cost model.
``warm_start``: what earlier records are worth. ``run_request``: the options of a run. ``session``: the whole run, from a
function to a ``TuneResult`` (``tune_result``, with its plots), with the race of the best few at its end.
"""

from .strategy import Candidate, ModelGuidedSearch, RandomSearch, SearchStrategy

__all__ = ["Candidate", "ModelGuidedSearch", "RandomSearch", "SearchStrategy"]

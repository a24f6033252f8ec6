"""The primitives: one function each, registered by :func:`~tilewright.schedule.primitive.primitive`.

``query`` looks around; ``loops`` and ``order`` rewrite loop nests, ``kinds`` says how loops run; ``cache``,
``compute_at``, ``inline``, ``reduction`` and ``layout`` move computation and data; ``sampling`` and ``location`` decide.
A module is imported here so that its primitives are registered.
"""

from . import annotate, cache, compute_at, inline, kinds, layout, location, loops, order, query, reduction, sampling

__all__ = ["annotate", "cache", "compute_at", "inline", "kinds", "layout", "location", "loops", "order", "query", "reduction", "sampling"]

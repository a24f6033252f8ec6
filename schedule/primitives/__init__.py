"""The primitives: one function each, registered by :func:`~tilewright.schedule.primitive.primitive`.

``query`` looks around; ``loops`` and ``order`` rewrite loop nests, ``kinds`` says how loops run; a module is listed here so that its primitives are registered.
"""

from . import annotate, cache, compute_at, inline, kinds, loops, order, query, reduction

__all__ = ["annotate", "cache", "compute_at", "inline", "kinds", "loops", "order", "query", "reduction"]

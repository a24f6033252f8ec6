"""The primitives: one function each, registered by :func:`~tilewright.schedule.primitive.primitive`.

``query`` looks around, ``loops`` rewrites loop nests; a module is listed here so that its primitives are registered.
"""

from . import annotate, cache, compute_at, loops, query, reduction

__all__ = ["annotate", "cache", "compute_at", "loops", "query", "reduction"]

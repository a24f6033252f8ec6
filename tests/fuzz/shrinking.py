"""A failing chain with as few steps as it takes: delta debugging (Zeller and Hildebrandt, 2002) over the steps' numbers."""

from __future__ import annotations

from .chain import Chain, Failure, run_chain


def shrink(failure: Failure) -> Failure:
    """The failure of the smallest chain found that still fails in the same way."""
    best = failure
    size = max(1, len(best.chain.steps) // 2)
    while size:
        start, smaller = 0, False
        while start < len(best.chain.steps):
            candidate = _fails(best.chain.without(best.chain.steps[start : start + size]), failure.kind)
            if candidate is None:
                start += size
            else:
                best, smaller = candidate, True
        if not smaller or size > 1:
            size //= 2
    return best


def _fails(chain: Chain, kind: str) -> Failure | None:
    try:
        run_chain(chain)
    except Failure as failure:
        return failure if failure.kind == kind else None
    return None

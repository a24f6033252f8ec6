"""This module finds the minimum cut of a network, by Dinic's algorithm (1970): shortest paths are filled level by level."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator

SOURCE, SINK = "source", "sink"
INFINITE = 1e30


class Network:
    """Edges with capacities. ``sink_side`` is what a minimum cut separates from the source."""

    def __init__(self) -> None:
        self.ends: dict[Hashable, dict[Hashable, float]] = {SOURCE: {}, SINK: {}}

    def edge(self, a: Hashable, b: Hashable, capacity: float) -> None:
        """Add capacity from ``a`` to ``b``."""
        if a != b and capacity > 0:
            self.ends.setdefault(a, {})[b] = self.ends.get(a, {}).get(b, 0.0) + capacity
            self.ends.setdefault(b, {}).setdefault(a, 0.0)

    def sink_side(self) -> frozenset[Hashable]:
        """Returns the smallest part around the sink whose edges from the rest have the least capacity in all."""
        while (levels := self._levels()) is not None:
            iterators: dict[Hashable, Iterator[Hashable]] = {n: iter(list(edges)) for n, edges in self.ends.items()}
            while self._push(levels, iterators):
                pass
        found: set[Hashable] = {SINK}
        waiting: deque[Hashable] = deque([SINK])
        while waiting:
            node = waiting.popleft()
            for other in self.ends[node]:
                if other not in found and self.ends[other].get(node, 0.0) > _EPSILON:
                    found.add(other)
                    waiting.append(other)
        return frozenset(found)

    def _levels(self) -> dict[Hashable, int] | None:
        """Returns each node's distance from the source over edges that are not full; None when the sink has none."""
        levels: dict[Hashable, int] = {SOURCE: 0}
        waiting: deque[Hashable] = deque([SOURCE])
        while waiting:
            node = waiting.popleft()
            for other, left in self.ends[node].items():
                if left > _EPSILON and other not in levels:
                    levels[other] = levels[node] + 1
                    waiting.append(other)
        return levels if SINK in levels else None

    def _push(self, levels: dict[Hashable, int], iterators: dict[Hashable, Iterator[Hashable]]) -> bool:
        """Send flow along one path that goes a level down at each edge; returns whether there was one."""
        path: list[Hashable] = [SOURCE]
        while path[-1] != SINK:
            node = path[-1]
            for other in iterators[node]:
                if self.ends[node][other] > _EPSILON and levels.get(other) == levels[node] + 1:
                    path.append(other)
                    break
            else:
                if len(path) == 1:
                    return False
                levels[path.pop()] = -1
        pairs = list(zip(path, path[1:], strict=False))
        flow = min(self.ends[a][b] for a, b in pairs)
        for a, b in pairs:
            self.ends[a][b] -= flow
            self.ends[b][a] += flow
            iterators[a] = iter(list(self.ends[a]))
        return True


_EPSILON = 1e-15

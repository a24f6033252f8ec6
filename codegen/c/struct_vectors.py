"""Vectors in strict ISO C: a structure with an array of lanes, and inline functions that work lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...tir.expr import DType
from .inline_functions import Helpers, c_type, scalar_type

_SCRATCH = "static inline void *tw_scratch(int64_t bytes) { return malloc(bytes > 0 ? (size_t)bytes : 1); }"


class StructHelpers(Helpers):
    """The types and functions of a source file that needs no extension of the language. A bool is 0 or 1 in vectors,
    too."""

    def at(self, vector: str, index: object) -> str:
        return f"{vector}.v[{index}]"

    def literal(self, kind: str, lanes: Iterable[object]) -> str:
        return f"({kind}){{{{{', '.join(map(str, lanes))}}}}}"

    def vector(self, dtype: DType) -> str:
        if dtype.lanes == 1:
            return c_type(dtype)
        name = f"b8x{dtype.lanes}" if dtype.is_bool else c_type(dtype)
        self.lines.setdefault(name, f"typedef struct {{ {scalar_type(dtype.element)} v[{dtype.lanes}]; }} {name};")
        return name

    def stored(self, dtype: DType) -> str:
        return self.vector(dtype)

    def plain(self, name: str) -> str:
        if name == "scratch":
            self.lines.setdefault("tw_scratch", _SCRATCH)
            return "tw_scratch"
        return super().plain(name)

    def splat(self, dtype: DType) -> str:
        kind, base = self.vector(dtype), scalar_type(dtype.element)
        lane = self.at("r", "i")
        body = f"{kind} r; for (int i = 0; i < {dtype.lanes}; ++i) {lane} = x; return r;"
        return self.define(f"tw_splat_{kind}", kind, f"{base} x", body)

    def select(self, dtype: DType) -> str:
        def chosen(m: str, a: str, b: str) -> str:
            return f"{m} ? {a} : {b}"

        return self.each("select", dtype, [DType("bool").with_lanes(dtype.lanes), dtype, dtype], chosen)

    def each(self, word: str, to: DType, arguments: Sequence[DType], lane: Callable[..., str]) -> str:
        """Return a function that gives each lane of ``to`` the value that ``lane`` writes for the lanes of vectors."""
        result, types = self.vector(to), [self.vector(a) for a in arguments]
        names = "abcd"[: len(types)]
        value = lane(*[self.at(n, "i") for n in names])
        body = f"{result} r; for (int i = 0; i < {to.lanes}; ++i) {self.at('r', 'i')} = {value}; return r;"
        params = ", ".join(f"{t} {n}" for t, n in zip(types, names, strict=True))
        return self.define("_".join(["tw", word, result, *types]), result, params, body)

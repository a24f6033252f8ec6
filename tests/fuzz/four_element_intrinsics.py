"""Tensor intrinsics of the fuzzer's own: pieces of four elements, with an implementation that does them in another way."""

from __future__ import annotations

from tilewright.schedule import TensorIntrin
from tilewright.tir.parser import parse
from tilewright.tir.stmt import PrimFunc

_HEAD = """
@T.prim_func
def {name}({parameters}):
    T.func_attr({{"any_scope": True}})
    with T.block("root"):
        T.reads({reads})
        T.writes({writes})
"""

KINDS: dict[str, tuple[str, str, str, str, str]] = {
    "copy": (
        "AC",
        "A[0:4]",
        "C[0:4]",
        """
        for i in range(4):
            with T.block("step"):
                vi = T.axis.spatial(4, i)
                C[vi] = A[vi]
""",
        """
        for i in T.vectorized(4):
            C[i] = A[i]
""",
    ),
    "add": (
        "ABC",
        "A[0:4], B[0:4]",
        "C[0:4]",
        """
        for i in range(4):
            with T.block("step"):
                vi = T.axis.spatial(4, i)
                C[vi] = A[vi] + B[vi]
""",
        """
        for i in T.unroll(4):
            C[3 - i] = B[3 - i] + A[3 - i]
""",
    ),
    "dot": (
        "ABC",
        "C[0], A[0:4], B[0:4]",
        "C[0]",
        """
        for k in range(4):
            with T.block("step"):
                vk = T.axis.reduce(4, k)
                C[0] = C[0] + A[vk] * B[vk]
""",
        """
        C[0] = C[0] + (A[0] * B[0] + A[1] * B[1] + (A[2] * B[2] + A[3] * B[3]))
""",
    ),
    "sum": (
        "AC",
        "C[0], A[0:4]",
        "C[0]",
        """
        for k in range(4):
            with T.block("step"):
                vk = T.axis.reduce(4, k)
                C[0] = C[0] + A[vk]
""",
        """
        C[0] = A[0] + A[1] + (A[2] + A[3]) + C[0]
""",
    ),
    "fill": (
        "C",
        "",
        "C[0:4]",
        """
        for i in range(4):
            with T.block("step"):
                vi = T.axis.spatial(4, i)
                C[vi] = T.{dtype}(0)
""",
        """
        C[0:4] = T.Broadcast(T.{dtype}(0), 4)
""",
    ),
}
"""By name: the buffers, what is read and written, the description and the implementation."""


def intrinsic(kind: str, dtype: str) -> str:
    """The name of the intrinsic, which is registered now if it was not."""
    name = f"fuzz_{kind}_{dtype}"
    if TensorIntrin.get(name, allow_missing=True) is None:
        letters, reads, writes, described, done = KINDS[kind]
        ends = {b: 1 if b == "C" and kind in ("dot", "sum") else 4 for b in letters}
        parameters = ", ".join(f'{b}: T.Buffer(({n},), "{dtype}", offset_factor=1)' for b, n in ends.items())
        head = _HEAD.format(name=name, parameters=parameters, reads=reads, writes=writes)
        desc, impl = [parse(head + body.lstrip("\n").format(dtype=dtype)) for body in (described, done)]
        assert isinstance(desc, PrimFunc) and isinstance(impl, PrimFunc)
        TensorIntrin.register(name, desc, impl)
    return name

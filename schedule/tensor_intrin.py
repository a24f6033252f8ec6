"""This module defines tensor intrinsics: two programs for what a piece of hardware computes.

The *description* uses loops. The *implementation* uses whatever reaches the hardware (a dot-product instruction, a call
of a driver). :meth:`Schedule.tensorize` finds the first and puts the second in its place. Both are PrimFuncs with the
same parameters, and a root block without axes that declares what it reads and writes. The idea and the form are TVM's
(Feng et al., "TensorIR", ASPLOS 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..pages.messages import short_repr
from ..tir.expr import IntImm, structural_equal, to_numpy
from ..tir.expr.dtype import kept_as_bits, to_bits
from ..tir.interpret import interpret
from ..tir.stmt import Block, BlockRealize, Buffer, PrimFunc
from ..tir.verify import VerifyError, verify
from .errors import nearest
from .intrin import SHIPPED

_REGISTERED: dict[str, TensorIntrin] = {}
_ADDED: set[str] = set()


@dataclass(frozen=True, eq=False)
class TensorIntrin:
    """A ``TensorIntrin`` has a ``name``, the description ``desc`` and the implementation ``impl``.

    Buffers of a program stand for those of the description when data type and scope are the same; where the description
    has ``T.func_attr({"any_scope": True})``, the scope does not matter.

    >>> from tilewright.schedule import TensorIntrin
    >>> TensorIntrin.get("dot_16x4_vnni").desc.name
    'dot_16x4_u8i8i32_desc'
    """

    name: str
    desc: PrimFunc
    impl: PrimFunc

    __repr__ = short_repr("name", "desc", "impl")

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> None:
        """Register an intrinsic under ``name``.

        ValueError is raised when the name is taken (unless ``override``), and when the two do not fit together:
        different buffers, no root block, or an implementation that writes a buffer which the description only reads.
        :meth:`check` tests that they compute the same.
        """
        if not override and (name in _REGISTERED or name in SHIPPED):
            raise ValueError(f"there is a tensor intrinsic {name!r} already; override=True replaces it")
        _check_pair(name, desc, impl)
        _REGISTERED[name] = TensorIntrin(name, desc, impl)
        _ADDED.add(name)

    @staticmethod
    def added() -> frozenset[str]:
        """Return the names of the intrinsics that :meth:`register` added."""
        return frozenset(_ADDED)

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """Return the intrinsic of this name; ValueError (None with ``allow_missing``) when there is none."""
        found = _REGISTERED.get(name)
        if found is None and name in SHIPPED:
            found = _REGISTERED[name] = TensorIntrin(name, *SHIPPED[name]())
        if found is None and not allow_missing:
            raise ValueError(f"there is no tensor intrinsic {name!r}; {nearest(str(name), TensorIntrin.names())}")
        return found

    @property
    def any_scope(self) -> bool:
        """Return whether buffers may live in any storage scope."""
        return bool(self.desc.attrs.get("any_scope", False))

    @staticmethod
    def names() -> list[str]:
        """Return all names, those that come with the package included."""
        return sorted({*SHIPPED, *_REGISTERED})

    def check(self, rounds: int = 3, seed: int = 0, externs: Mapping[str, Callable[..., Any]] | None = None) -> None:
        """Run both programs in the interpreter on small integers; AssertionError when the results differ.

        ``rounds`` is the number of random inputs. ``externs`` gives the functions behind ``T.call_extern``. Sizes must
        be constants.
        """
        rng = np.random.default_rng(seed)
        for _ in range(rounds):
            arrays = [_numbers(b, rng) for b in self.desc.buffers]
            copies = [a.copy() for a in arrays]
            interpret(self.desc, *arrays)
            interpret(self.impl, *copies, externs=externs)
            for buffer, one, other in zip(self.desc.buffers, arrays, copies, strict=True):
                if not np.array_equal(one, other):
                    where = tuple(int(i[0]) for i in np.nonzero(one != other))
                    raise AssertionError(
                        f"tensor intrinsic {self.name!r}: the implementation gives {buffer.name}{list(where)} = "
                        f"{other[where]}, the description {one[where]}"
                    )


def _numbers(buffer: Buffer, rng: np.random.Generator) -> np.ndarray:
    shape = [int(e) for e in buffer.shape]  # type: ignore[call-overload]
    kind = buffer.dtype.element
    if kind.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    values = rng.integers(0 if (kind.kind == "uint") else -8, 8, shape)
    return np.asarray(to_bits(values, kind)) if kept_as_bits(kind) else values.astype(to_numpy(kind))


def _check_pair(name: str, desc: PrimFunc, impl: PrimFunc) -> None:
    def wrong(what: str) -> ValueError:
        return ValueError(f"tensor intrinsic {name!r}: {what}")

    for role, func in (("description", desc), ("implementation", impl)):
        if not isinstance(func, PrimFunc):
            raise TypeError(f"tensor intrinsic {name!r}: the {role} is a {type(func).__name__}, not a PrimFunc")
        try:
            verify(func)
        except VerifyError as error:
            raise wrong(f"the {role} is not well-formed: {error.message}") from None
        if not all(p in func.buffer_map for p in func.params):
            raise wrong(f"a parameter of the {role} is not a buffer")
        if not isinstance(func.body, BlockRealize) or func.body.block.iter_vars:
            raise wrong(f'the {role} has no root block; write `with T.block("root"):` around it')
        if func.body.block.init is not None:
            raise wrong(f"the root block of the {role} has an init")
    if len(desc.params) != len(impl.params):
        raise wrong(f"the description has {len(desc.params)} parameters, the implementation {len(impl.params)}")
    for a, b in zip(desc.buffers, impl.buffers, strict=True):
        if (a.dtype, a.scope) != (b.dtype, b.scope) or not structural_equal(a.shape, b.shape, map_free_vars=True):
            raise wrong(f"{a} of the description is {b} in the implementation")
        if not all(isinstance(e, IntImm) for e in a.shape):
            raise wrong(f"{a} has a size that is not a constant")
    outputs = _written(desc)
    for position in _written(impl) - outputs:
        raise wrong(f"the implementation writes {impl.buffers[position].name}, the description does not")


def _written(func: PrimFunc) -> set[int]:
    assert isinstance(func.body, BlockRealize)
    block: Block = func.body.block
    written = {r.buffer for r in block.writes}
    return {n for n, b in enumerate(func.buffers) if b in written}

"""Emits copies of whole rows (``cp.async.bulk``) and the mbarriers at which they arrive. The words are those of the PTX manual."""

from __future__ import annotations

import re

from ....tir.expr import BufferLoad, Call, Expr
from ...backend.emitter import EmitError
from ...llvm.llvm_scope import LlvmScope
from ..launch.asynchronous_copies import BULK_WAIT
from ..launch.bulk_copies import EXPECT, PIECE
from ..launch.bulk_instructions import COPY
from ..launch.start_bulk_copies import INIT

_FIRST = 90
"""The number of the first architecture with these instructions."""


def _pointer(em: LlvmScope, address: Expr, space: int) -> str:
    """Returns an address as a number of its space; EmitError for architectures without bulk copies."""
    known = re.match(r"sm_(\d+)", em.target.mcpu)
    if known is None or int(known[1]) < _FIRST:
        raise EmitError(f"bulk copies (cp.async.bulk) need -arch=sm_{_FIRST} or newer; the target has {em.target.mcpu}")
    load = address.args[0]  # type: ignore[attr-defined]
    assert isinstance(load, BufferLoad)
    text = em.fn.pure(f"addrspacecast ptr {em.address(load)} to ptr addrspace({space})")
    return em.fn.pure(f"ptrtoint ptr addrspace({space}) {text} to i64")


def _instruction(em: LlvmScope, text: str, *operands: str) -> str:
    constraints = ",".join(["l" if operand.startswith("i64") else "r" for operand in operands] + ["~{memory}"])
    em.fn.do(f'call void asm sideeffect "{text}", "{constraints}"({", ".join(operands)})')
    em.touch(*em.bases)
    return "0"


def _number(em: LlvmScope, e: Expr) -> str:
    return f"i32 {em.value(e.astype('int32'))}"


def _copy(em: LlvmScope, e: Call) -> str:
    to, of, size, arrivals = e.args
    for address in (to, of):
        load = address.args[0]  # type: ignore[attr-defined]
        offset = em.total(em.lane_offsets(load.buffer, load.indices).start)
        if em.alignment(load.buffer, offset, load.dtype) < PIECE:
            raise EmitError(
                f"a row of {load.buffer.name} does not begin at a multiple of {PIECE} bytes, as bulk copies need"
            )
    places = [_pointer(em, to, 3), _pointer(em, of, 1), _pointer(em, arrivals, 3)]
    return _instruction(em, "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $3, [$2];",
                        *[f"i64 {place}" for place in places], _number(em, size))  # fmt: skip


def _expect(em: LlvmScope, e: Call) -> str:
    place = f"i64 {_pointer(em, e.args[0], 3)}"
    return _instruction(em, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", place, _number(em, e.args[1]))


def _made(em: LlvmScope, e: Call) -> str:
    place = f"i64 {_pointer(em, e.args[0], 3)}"
    return _instruction(em, "mbarrier.init.shared::cta.b64 [$0], $1;", place, _number(em, e.args[1]))


def _wait(em: LlvmScope, e: Call) -> str:
    text = ("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1; @done bra arrived; bra again; "
            "arrived: }")  # fmt: skip
    return _instruction(em, text, f"i64 {_pointer(em, e.args[0], 3)}", _number(em, e.args[1]))


_EMITTERS = {COPY: _copy, EXPECT: _expect, INIT: _made, BULK_WAIT: _wait}
BULK_CALLS = {name.removeprefix("tir."): emitter for name, emitter in _EMITTERS.items()}
"""The emitters of calls that belong to copies in bulk."""

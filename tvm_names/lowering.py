"""``tvm.lower``: the program of a schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..driver.planning import request
from ..tir import IRModule


def lower(
    inputs: Any, args: Sequence[Any] | None = None, name: str = "main", simple_mode: bool = False
) -> IRModule:  # fmt: skip
    """Returns the module of one function that ``inputs`` computes, as scheduled. ``simple_mode`` changes nothing: the
    text is always short. ``tilewright.codegen.lower`` shows what code is made from."""
    func = request(inputs, args).func
    return IRModule({name: func.with_attr("global_symbol", name)})

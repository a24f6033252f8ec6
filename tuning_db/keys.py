"""This module turns the forms of a workload or a target (object, text, record or key) into keys and records."""

from __future__ import annotations

import re
from typing import Any, Protocol, Union

from ..tir.cost import count_bytes, count_flops
from ..tir.expr import IntImm
from ..tir.parser import parse
from ..tir.program_key import program_key, workload_key
from ..tir.stmt import PrimFunc
from .records import TargetRecord, WorkloadRecord


class TargetLike(Protocol):
    """The interface of a codegen Target that the database needs; ``Target(str(target))`` is an equal target."""

    @property
    def key(self) -> str:
        """Returns the fingerprint."""
        ...

    def describe(self) -> dict[str, Any]:
        """Returns the facts of a target: ``model``, ``features``, ``vector_bits``, ``num_cores``, as far as known."""
        ...


Workload = Union[PrimFunc, WorkloadRecord, str]
Target = Union[TargetLike, TargetRecord, str]

_KEY = re.compile(r"[0-9a-f]{64}")


def workload_key_of(workload: Workload) -> str:
    """Returns the key by which a workload in any of its forms is looked up. It is that of its structure, or of one
    stored program."""
    if isinstance(workload, WorkloadRecord):
        return workload.key
    if isinstance(workload, str):
        if _KEY.fullmatch(workload) or "\n" not in workload:
            return workload
        return workload_key(_function(workload))
    return workload_key(_function(workload))


def workload_record(workload: Workload) -> WorkloadRecord:
    """Returns the record of a workload, as the database stores it."""
    if isinstance(workload, WorkloadRecord):
        return workload
    if isinstance(workload, str) and "\n" not in workload:
        raise ValueError(f"a workload is added as a PrimFunc or its text, not as {workload!r}")
    func = _function(workload)
    shapes = tuple([
        {"name": b.name, "dtype": b.dtype, "shape": [e.value if isinstance(e, IntImm) else str(e) for e in b.shape]}
        for b in func.buffers
    ])  # fmt: skip
    return WorkloadRecord(
        program_key(func),
        func.script(),
        func.name,
        shapes=shapes,
        dtype=func.buffers[-1].dtype if func.buffers else "",
        flops=count_flops(func),
        bytes=count_bytes(func),
    )


def _function(workload: Any) -> PrimFunc:
    if isinstance(workload, str):
        workload = parse(workload)
    functions = getattr(workload, "functions", None)
    if functions is not None and len(functions) == 1:
        workload = next(iter(functions.values()))
    if not isinstance(workload, PrimFunc):
        raise TypeError(f"a workload is a PrimFunc, its text or its key, not {type(workload).__name__}")
    return workload


def target_key(target: Target) -> str:
    """Returns the key of a target in any of its forms; a text stays as it is."""
    if isinstance(target, str):
        return target
    return str(target.key)


def target_record(target: Target) -> TargetRecord:
    """Returns the record of a target, as the database stores it."""
    if isinstance(target, TargetRecord):
        return target
    if isinstance(target, str):
        raise TypeError(f"a target is added as a Target, whose key tells machines apart: pass Target({target!r})")
    facts = target.describe()
    return TargetRecord(
        target.key,
        str(target),
        cpu=str(facts.get("model", "")),
        features=",".join(facts.get("features", ())),
        vector_bits=facts.get("vector_bits"),
        num_cores=facts.get("num_cores"),
        llvm_cpu=str(facts.get("cpu", "")),
    )

"""This module brings the inputs of tune, build and bench into one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from .. import te
from ..codegen import Target
from ..codegen.symbol_names import symbol_problem
from ..pages import did_you_mean
from ..schedule import Schedule
from ..tir.annotations import is_for_code
from ..tir.expr import StringImm
from ..tir.stmt import Block, For, IRModule, PrimFunc
from ..tir.walk import pre_order
from ..tuner.measure.inputs import unknown_sizes
from .workloads import Workload, WorkloadCase, parse_spec


@dataclass(frozen=True)
class Request:
    """A request is a function to compile or tune. ``scheduled``: it is scheduled already. ``case``: the workload it
    came from."""

    func: PrimFunc
    scheduled: bool = False
    case: WorkloadCase | None = None

    @property
    def spec(self) -> str:
        """Returns its spec on the command line; empty for a request that does not come from a workload."""
        return self.case.spec if self.case is not None else ""


def request(what: Any, args: Sequence[Any] | Mapping[str, Any] | None = None, name: str | None = None) -> Request:
    """Returns ``what`` in one form.

    It may be a PrimFunc, an IRModule of one function, a :class:`~tilewright.schedule.Schedule`, a te stage schedule
    with its tensors as ``args``, a list of te tensors, a workload or a case of one, or a spec such as
    ``matmul:M=512,N=512,K=512`` (``args``: more parameters). TypeError for anything else, and for ``args`` that
    nothing uses.
    """
    if args is not None and not (isinstance(what, (str, Workload)) or _has_stages(what)):
        raise TypeError(
            f"args={args!r}: {type(what).__name__} takes none; args are the tensors of a te schedule, or parameters of a "
            "workload"
        )
    found = _request(what, args)
    if name is None or name == found.func.name:
        return found
    problem = symbol_problem(name)
    if problem and name != "main":
        raise ValueError(f"name: {problem}")
    return Request(found.func.with_attr("global_symbol", name), found.scheduled, found.case)


def _has_stages(what: Any) -> bool:
    """Returns whether ``what`` is a schedule of te stages, which makes a PrimFunc of its arguments."""
    return hasattr(what, "prim_func")


def _request(what: Any, args: Any) -> Request:
    if isinstance(what, str):
        return _case(parse_spec(what, args or {}))
    if isinstance(what, Workload):
        return _case(what.case(**dict(args or {})))
    if isinstance(what, WorkloadCase):
        return _case(what)
    if _has_stages(what):
        if args is None:
            raise TypeError("a te schedule needs its arguments as well: build(s, [A, B, C])")
        return Request(what.prim_func(list(args)), scheduled=True)
    if isinstance(what, Schedule):
        return Request(_one_of(what.mod), scheduled=True)
    if isinstance(what, Request):
        return what
    if isinstance(what, IRModule):
        what = _one_of(what)
    if isinstance(what, PrimFunc):
        return Request(what, scheduled=is_scheduled(what))
    if isinstance(what, (list, tuple)) and what:
        return Request(te.create_prim_func(list(what)))
    raise TypeError(
        "expected a PrimFunc, a Schedule, te tensors, a workload or a spec such as 'matmul:M=512,N=512,K=512', "
        f"not {type(what).__name__}{_way_in(what)}"
    )


def _way_in(what: Any) -> str:
    """Returns what to do with an object that is no program but belongs to one. It is empty when that is not known."""
    if isinstance(what, te.Tensor):
        return (
            f"; give a list, inputs first and outputs last: [{', '.join([t.name for t in (*_inputs_of(what), what)])}]"
        )
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(what).__mro__}
    if "torch.Module" in kinds:
        return (
            "; export it, tilewright.from_torch(torch.export.export(module, example_inputs)), or let PyTorch compile it with "
            'torch.compile(module, backend="tilewright")'
        )
    if "onnx.ModelProto" in kinds:
        return "; read it with tilewright.from_onnx(model)"
    if callable(what):
        return "; a function that returns te tensors becomes a workload by the decorator tilewright.workload"
    return ""


def _inputs_of(tensor: te.Tensor) -> list[te.Tensor]:
    """Returns the placeholders that a tensor depends on."""
    seen: dict[te.Tensor, None] = {}
    waiting = list(tensor.op.input_tensors)
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen[one] = None
            waiting += one.op.input_tensors
    return [one for one in reversed(seen) if not one.op.input_tensors]


def in_order(
    where: Sequence[Any], target: str | Target | None, args: Sequence[Any] | Mapping[str, Any] | None
) -> tuple[Target, Sequence[Any] | Mapping[str, Any] | None]:
    """Returns the target and the arguments of a call ``f(inputs, *where, target=…, args=…)``.

    The target comes second; where a list comes second, ``f(s, [A, B, C], target)``, it is ``args``. TypeError for what is
    given twice or is neither.
    """
    rest = list(where)
    if rest and isinstance(rest[0], (list, tuple)):
        if args is not None:
            raise TypeError("args are given twice: by position and by name")
        args = rest.pop(0)
    if rest and target is not None:
        raise TypeError(f"the target is given twice: {rest[0]!r} and {target!r}")
    target = rest.pop(0) if rest else "native" if target is None else target
    if rest or not isinstance(target, (str, Target, Mapping)):
        raise TypeError(f"{(rest or [target])[0]!r}: after the inputs comes the target, the rest goes by name")
    return Target.of(target), args


def require_known(given: Mapping[str, Any], options: type, others: Sequence[str], call: str) -> None:
    """Raise TypeError for the first name in ``given`` that is not a field of ``options``, with the nearest name."""
    names = [field.name for field in fields(options)]
    for name in given:
        if name not in names:
            raise TypeError(f"{call}() takes no {name!r}{did_you_mean(name, [*others, *names], listed=99)}")


def _one_of(module: IRModule) -> PrimFunc:
    if len(module.functions) != 1:
        raise TypeError(f"a module of one function is needed; this one has {sorted(module.functions)}")
    return next(iter(module.functions.values()))


def requests(what: Any) -> dict[str, Request] | None:
    """Returns the requests of a module of several functions, by name. The module is an IRModule, a Schedule of one, or
    a mapping of what :func:`request` takes. None for anything else."""
    if isinstance(what, Schedule) and len(what.mod.functions) > 1:
        return {name: Request(func, scheduled=True) for name, func in what.mod.items()}
    if isinstance(what, Mapping):
        return {str(name): request(one) for name, one in what.items()}
    if isinstance(what, IRModule) and len(what.functions) > 1:
        return {name: request(func) for name, func in what.items()}
    return None


def _case(case: WorkloadCase) -> Request:
    return Request(case.func, case=case)


def not_measurable(asked: Request, target: Target) -> str | None:
    """Returns a sentence that says why runs of ``asked`` cannot be timed on this machine, or None."""
    missing = target.missing_here()
    if missing:
        return f"this machine cannot run code for {target}: it has no {missing[0]}"
    unknown = unknown_sizes(asked.func)
    return (
        None
        if unknown is None
        else f"{unknown}, and only functions of fixed sizes are measured; give numbers in their place"
    )


def is_scheduled(func: PrimFunc) -> bool:
    """Returns whether the function is scheduled. It is when it has a loop that is not serial, an annotation on a loop,
    or one on a block that asks for code and does not describe the computation, as ``te.compute(attrs=)`` does."""
    for node in pre_order(func.body):
        if isinstance(node, For) and (node.kind != "serial" or node.annotations):
            return True
        if isinstance(node, Block) and any(
            is_for_code(key) and not isinstance(value, (str, StringImm)) for key, value in node.annotations.items()
        ):
            return True
    return False

"""What happens at ``build``: whatever says what to compute becomes compiled code, by the best schedule that is known.

What to compute is a function, several functions, a graph, or the file of a model. The steps of :func:`build`, in the order
in which they run:

1. :func:`in_order` tells the target from ``args``. A graph, or a model that a front end reads, goes on in
   :mod:`.models.model_building`, which makes kernels of it. Each kernel is built by the first of its records
   (:func:`recorded`) that applies. A kernel without one comes back to step 3, without a database.
2. :func:`request` (or :func:`requests`, for several functions) brings the inputs into one form, a :class:`Request` with a
   PrimFunc.
3. :func:`plan_request` makes a :class:`Plan` of it. Where there is a database, the fastest records (:func:`recorded`) are
   replayed one after the other, until one applies; for symbolic sizes, then those of examples of the sizes. Records of a
   function that its caller has scheduled come before the caller's schedule.
4. Without a record that applies, a function that its caller has scheduled stays as it is, and so does one for a target that
   takes programs as they are written, such as circuits. A function of symbolic sizes gets the analytic model's schedules for
   examples of the sizes (:func:`plan_by_example`). Any other function gets the record of a
   near size where there is a database and that is expected to be faster. Else it gets the model's best schedule
   (:func:`~tilewright.tuner.choose_default`): of all candidates that the schedule rules make, which
   ``tuner/space/search_space.py`` puts together, the one with the least predicted time of those that apply.
5. :meth:`Plan.compile` hands the scheduled function to ``codegen/compile.py``, and gives the module the plan's ``origin``,
   which says in words what was chosen.

Inputs and arguments that make no request are refused with TypeError; a name that cannot be used, and a spec of no known
workload or parameter, with ValueError.
:class:`BuildError` says that there is no schedule of the kind that ``require_tuned`` asks for. Without ``require_tuned`` a
record that does not apply is no error: the next one is tried, the first that fails is logged, and the origin says so if none
applies. Notebooks show a plan as where its schedule came from, its share of the roofline, and the program.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from .. import te, tuner
from ..codegen import CODEGEN_VERSION, Module, Target, compile
from ..codegen.late_tables import TARGET_KINDS
from ..codegen.lower.join_split_indices import is_one_stretch
from ..codegen.lower.loop_annotations import UNROLL_FACTOR
from ..codegen.lowered import size_vars, symbol_problem, usable_symbol
from ..codegen.machine.blas import told_calls
from ..graph.graph import Graph
from ..graph.value_dependent import ValueDependentGraph
from ..pages import card, code_html, did_you_mean, folded, seconds_text, share_text, table
from ..pages.messages import short_repr
from ..schedule import Schedule, ScheduleError, Trace, TraceError
from ..te.tensor import PlaceholderOp, ordered_operations
from ..tir.annotations import is_for_code
from ..tir.arith import Analyzer
from ..tir.expr import BufferLoad, Expr, FloorDiv, FloorMod, IntImm, IterVar, StringImm, Var, conjuncts, is_const_int
from ..tir.stmt import Block, BlockRealize, BufferStore, For, IRModule, PrimFunc, blocks_of
from ..tir.walk import pre_order, substitute, uses_var, vars_in
from ..tuner.canonical_form import split_axes_by_sizes
from ..tuner.example_sizes import (
    EXAMPLE,
    LARGER,
    ODD,
    USUAL,
    example_numbers,
    example_of,
    followed_in_whole_vectors,
    shown_sizes,
    typical_sizes,
    unknown_sizes,
    with_example,
)  # fmt: skip
from ..tuning_db import Database, TuningRecord, open_database
from .any_size import SizeTree, chosen_on_record, dispatched, shown
from .machine_report import bound_for, known_report
from .workloads import Workload, WorkloadCase, parse_spec

if TYPE_CHECKING:
    from .models.model import Model

log = logging.getLogger("tilewright")


class BuildError(RuntimeError):
    """The request cannot be built."""


class TuneError(RuntimeError):
    """The request cannot be tuned, or nothing could be measured."""


class NoRecordError(BuildError):
    """``require_tuned`` was asked for, and no database with a record of the workload on the target was given."""


@overload
def build(
    inputs: Graph | os.PathLike[str],
    target: str | Target = "native",
    *,
    name: str | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    **options: Any,
) -> Model: ...


@overload
def build(
    inputs: Any,
    target: str | Target = "native",
    *,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    name: str | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
) -> Module: ...


@overload
def build(
    inputs: te.Schedule,
    args: Sequence[te.Tensor | Var],
    target: str | Target = "native",
    *,
    name: str | None = None,
) -> Module: ...


def build(
    inputs: Any,
    *where: Any,
    target: str | Target | None = None,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    name: str | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    **options: Any,
) -> Any:
    """Compile ``inputs`` for ``target``; the result is callable on NumPy arrays, outputs last.

    ``build(inputs, target)``, and for a te schedule ``build(s, [A, B, C], target)``. ``inputs``: what
    :func:`request` takes; with a te schedule or a spec ``args`` are its tensors or parameters. Of a module of
    several functions, or a mapping of such inputs by name, all are built, and the result has them by name.

    A function gets the best schedule that ``db`` has for it; records that this code generator measured come before
    those of other versions. Else it keeps the schedule that its caller gave it. One that is not scheduled gets that of
    a near size, where it is expected to be faster, else the analytic model's best (:class:`~tilewright.tuner.Space`
    has all candidates). ``module.origin`` says which. With ``require_tuned`` only a record of the function itself, or
    of examples of its symbolic sizes, will do: :class:`NoRecordError` if there is none, :class:`BuildError` if none
    applies. ``name`` is the symbol of the compiled function.

    A :class:`~tilewright.graph.Graph`, and a model that a front end reads (``model.onnx``, or an ONNX model in memory),
    become a :class:`~.models.model.Model`, which takes inputs and returns outputs. ``options`` are for them: ``shapes``
    and ``constants`` of inputs by name, which front ends take, and those of :class:`~.models.model_building.GraphOptions`.
    One whose graph depends on values of inputs becomes a :class:`~.models.specializing.SpecializingModel`.

    >>> import numpy as np
    >>> f = build("relu:M=1,N=4")
    >>> x, y = np.array([[-1, 2, -3, 4]], np.float32), np.empty((1, 4), np.float32)
    >>> f(x, y)
    >>> y.tolist()
    [[0.0, 2.0, 0.0, 4.0]]
    """
    # models are built of kernels, which this module plans: it is loaded before theirs
    from .models.model_building import READING, GraphOptions, build_for_values, build_graph, is_model, read_model

    machine, args = in_order(where, target, args)
    if is_model(inputs):
        if args is not None:
            raise TypeError("args for a model, which takes none; shapes= gives the shapes of its inputs")
        reading = {key: options.pop(key) for key in READING if key in options}
        require_known(options, GraphOptions, READING, "build")
        graph = read_model(inputs, **reading)
        graph = graph if name is None else replace(graph, name=name)
        if isinstance(graph, ValueDependentGraph):
            return build_for_values(graph, machine, db=db, require_tuned=require_tuned, **options)
        return build_graph(graph, machine, db=db, require_tuned=require_tuned, **options)
    if options:
        unread = {key: value for key, value in options.items() if key not in READING}
        require_known(unread, GraphOptions, ("args", "db", "name", "target", *READING), "build")
        raise TypeError(f"build() takes {', '.join(options)} for models only, not for {type(inputs).__name__}")
    several = requests(inputs)
    if several is not None:
        if name is not None:
            raise ValueError(f"a name for {len(several)} functions; they keep their own")
        if args is not None:
            raise TypeError(f"args for {len(several)} functions, which take none")
        return _compile_together({key: plan_request(one, machine, db, require_tuned) for key, one in several.items()})
    made = plan_request(request(inputs, args, name), machine, db, require_tuned)
    log.info("%s: %s", made.request.func.name, made.origin)
    return made.compile()


def _compile_together(plans: Mapping[str, Plan]) -> Module:
    """Returns one module of several functions; its ``origin`` says where the schedule of each came from."""
    for name, made in plans.items():
        log.info("%s: %s", name, made.origin)
    target = next((made.target for made in plans.values()), "native")
    module = compile({name: made.scheduled for name, made in plans.items()}, target)
    module.origin = "; ".join([f"{name}: {made.origin}" for name, made in plans.items()])
    return module


def plan(
    inputs: Any,
    *where: Any,
    target: str | Target | None = None,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    name: str | None = None,
) -> Plan:
    """Returns the function that :func:`build` would compile, and why. TypeError for graphs, models and several functions,
    which have a plan for each kernel or function."""
    machine, args = in_order(where, target, args)
    return plan_request(request(inputs, args, name), machine, db, require_tuned)


# steps 1 and 2: what is asked


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
        inputs = [
            op.name for op in ordered_operations([what.op]) if isinstance(op, PlaceholderOp) and op is not what.op
        ]
        return f"; give a list, inputs first and outputs last: [{', '.join([*inputs, what.name])}]"
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


# steps 3 to 5: by which schedule it is computed

_RECORDS = 4
"""The number of records that are tried before the analytic model is asked."""


@dataclass(frozen=True)
class Plan:
    """A plan says how a function will be computed; it is made before compiling.

    ``kind``: ``tuned`` (a record's trace), ``default`` (the analytic model's choice, or the record of a near size: neither was
    measured for this size) or ``given`` (as the caller has it). ``origin`` says in words where the schedule comes from: which
    record, and whether another code generator measured it; or why records do not apply; and which blocks stay as written.
    ``scheduled`` is the function to compile; ``parts`` names those parts of the space that the analytic model chose;
    ``for_any_size``: chosen for large sizes, they serve small ones as well.
    """

    request: Request
    target: Target
    kind: str
    origin: str
    scheduled: PrimFunc
    record: TuningRecord | None = None
    trace: Trace | None = None
    parts: tuple[str, ...] = ()
    for_any_size: bool = False

    __repr__ = short_repr("kind", "origin", "target")

    def __post_init__(self) -> None:
        told = told_calls(self.scheduled, self.target)
        if not self.origin.endswith(told):
            object.__setattr__(self, "origin", self.origin + told)

    def _repr_html_(self) -> str:
        return plan_html(self)

    def shown(self, *before: str) -> str:
        """Returns the plan as HTML after other parts, for modules that were built by it."""
        return plan_html(self, *before)

    def compile(self) -> Module:
        """Returns the machine code; its ``origin`` is the plan's."""
        name = self.request.func.name
        symbol = usable_symbol(name)
        module = compile(self.scheduled, self.target, None if symbol == name else symbol)
        module.origin, module.plan = self.origin, self
        return module


def plan_request(
    asked: Request,
    machine: Target,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    before: str = "",
) -> Plan:
    """Returns how ``asked`` is computed on ``machine``: by a record, by the analytic model, or as the caller has it.
    ``before`` begins the origin of a plan without a record of its own size. If records failed, the reason of the first
    takes its place."""
    failed, elsewhere = "", ""
    with contextlib.nullcontext() if db is None else open_database(db, readonly=True) as opened:
        if opened is not None:
            made, failed = _tuned(opened, asked, machine)
            made = made or _tuned_at_sizes(opened, asked, machine)
            if made is not None:
                return made
            if not failed:
                elsewhere = other_targets(opened, asked.func)
        if require_tuned and failed:
            raise BuildError(failed)
        if require_tuned:
            where = "no database was given" if db is None else f"{getattr(db, 'path', db)} has no record of it"
            raise NoRecordError(f"{asked.spec or asked.func.name} on {machine}: {where}{elsewhere}; tune it first")
        return _untuned(asked, machine, f"{failed}; " if failed else before, elsewhere, opened)


@dataclass(frozen=True)
class Recorded:
    """The schedule of a record in the names of a function, and where it comes from. Where there is none, ``error`` says
    why."""

    record: TuningRecord
    origin: str
    trace: Trace | None
    error: str = ""


def recorded(db: Database, func: PrimFunc, machine: Target) -> Iterator[Recorded]:
    """Yields the fastest schedules on record, those of this code generator before others."""
    for record in db.fastest(func, machine, codegen_version=CODEGEN_VERSION, limit=_RECORDS):
        origin = f"record {record.id} of {db.path}"
        if record.codegen_version != CODEGEN_VERSION:
            other = (
                f"code generator {record.codegen_version}" if record.codegen_version else "an unknown code generator"
            )
            origin += f", measured with {other}, not {CODEGEN_VERSION}: tune it again"
        try:
            yield Recorded(record, origin, tuner.trace_for(db, record, func))
        except (ScheduleError, TraceError) as error:
            yield Recorded(record, origin, None, str(error))


def _tuned(db: Database, asked: Request, machine: Target) -> tuple[Plan | None, str]:
    """Returns the fastest record that applies, or a sentence that says why the first does not."""
    failed = ""
    for found in recorded(db, asked.func, machine):
        error = found.error
        if found.trace is not None:
            try:
                scheduled = tuner.replay(asked.func, found.trace).func
                return Plan(asked, machine, "tuned", found.origin, scheduled, found.record, found.trace), ""
            except (ScheduleError, TraceError) as raised:
                error = str(raised)
        failed = failed or does_not_apply(f"record {found.record.id} of {db.path}", asked.func, error)
    return None, failed


def _tuned_at_sizes(db: Database, asked: Request, machine: Target) -> Plan | None:
    """Returns the function of symbolic sizes that chooses between the schedules on record for examples of the sizes."""
    choice = None if unknown_sizes(asked.func) is None else chosen_on_record(db, asked.func, machine)
    if choice is None:
        return None
    count = len(choice.schedules)
    by = f", {count} schedules between which the sizes choose at the call" if count > 1 else ""
    at = "; ".join([shown(sizes) for sizes in choice.examples])
    return Plan(
        asked, machine, "tuned", f"records of {db.path} at {at}{by}", choice.program, None, choice.schedules[0].trace
    )


def does_not_apply(origin: str, func: PrimFunc, error: str) -> str:
    """Returns a sentence that says that a schedule does not apply to ``func``, and writes a warning."""
    log.warning("%s does not apply to %s: %s", origin, func.name, error)
    return f"{origin} does not apply to {func.name}: {error}".split("\n")[0]


def _untuned(asked: Request, machine: Target, before: str, elsewhere: str, db: Database | None) -> Plan:
    """Returns the function as its caller scheduled it, or by a near size's record in ``db`` or the analytic model.
    ``before`` and ``elsewhere`` go into the origin."""
    if asked.scheduled:
        return Plan(asked, machine, "given", f"{before}scheduled by the caller", asked.func)
    unknown = unknown_sizes(asked.func)
    if unknown is not None:
        made = plan_by_example(asked, machine, before)
        return made or Plan(asked, machine, "given", f"{before}not scheduled: {unknown}", asked.func)
    if machine.stays_as_written:
        return Plan(asked, machine, "given", f"{before}not scheduled", asked.func)
    space = tuner.Space(asked.func, machine)
    near = None if db is None else tuner.transferred(db, space)
    if near is not None and db is not None:
        sizes = ", ".join(["x".join(map(str, b.shape)) for b in near.program.buffers])
        origin = f"record {near.record.id} of {db.path}, of the nearest size ({sizes}), not tuned{elsewhere}"
        return Plan(asked, machine, "default", before + origin, near.schedule.func, None, near.schedule.trace)
    default = tuner.choose_default(space)
    origin = before + default.origin.replace("not tuned", f"not tuned{elsewhere}", 1)
    return Plan(asked, machine, "default", origin, default.schedule.func, None, default.schedule.trace)


def other_targets(db: Database, func: PrimFunc) -> str:
    """Returns a text such as `` (it has records for native -num-cores=1)``: the targets that have records of ``func``,
    or nothing."""
    texts = db.targets_of(func)
    return f" (it has records for {', '.join(texts)})" if texts else ""


# step 4 for symbolic sizes: schedules for examples of them

_SMALL_SIZES = ((16, 48), (4, 6), (1, 1))
"""Examples of small sizes, and the largest size for which the schedule for each is used: that for 16 up to 48, that for 4 up to
6, that for 1 for 1 alone. Larger ones stand first: a later, smaller limit is asked first."""

_LARGE_SIZE = (1024, 256)
"""An example of large sizes, and above which size its schedule is used, where that is of other parts."""

_ONE_RESULT = (1024, 512)
"""The same where one result is made of so many elements."""

_LONG_SCAN = (1024, 128)
"""The same for running sums along a size: long rows side by side may lie a power of two apart, and push each other out of the
caches, if there are many."""


def plan_by_example(asked: Request, machine: Target, before: str) -> Plan | None:
    """Returns a plan for symbolic sizes: by the analytic model's schedules for examples of them.

    A function of one size has schedules of its own where that is small, because tiles for larger ones are mostly empty
    there. Where the size ends in unrolled rows of sums alone, each number of rows has code of its own, and only the size 1
    has a schedule of its own. There is one for large sizes where the function reduces to one result, because partial
    results then fill several vectors, where it has running sums along the size, and where other parts are the best there,
    such as columns in place of rows. A schedule that divides by the size in each element stands aside, unless the usual one
    does so, too.
    On GPUs threads beyond the end of a size stop, so that one schedule is enough for element-wise stages and rows; the examples are
    odd there, as no tile of a product divides all sizes.
    Where none applies, the function stays as written, and the origin says why; on GPUs that is a :class:`BuildError`. None: no
    examples are known, or the target takes programs as they are written.
    """
    made = _plan_by_one_example(asked, machine, before)
    sizes = typical_sizes(asked.func)
    if made is None or made.kind != "default" or len(sizes) != 1 or EXAMPLE in asked.func.attrs:
        return made  # a function with an example says for what it is scheduled
    ((size, usual),) = sizes.items()
    assert made.trace is not None
    programs, traces, tree, said = [made.scheduled], [made.trace.dumps()], SizeTree(0), ""
    rows = not machine.is_gpu and _has_rows_of_sums(made.scheduled, size)
    divides = machine.is_gpu or _divides_by_sizes(made.scheduled)
    along = _LONG_SCAN if _scans_along(asked.func, size) else _ONE_RESULT if _reduces_to_one(asked.func, size) else None
    for example, end in (*_SMALL_SIZES, along or _LARGE_SIZE):
        large = example > end  # for sizes above ``end``; otherwise for those up to it
        func = with_example(asked.func, {size.name: example})
        if large and usual >= example:
            continue
        if not large and ((example > 1 and rows) or made.for_any_size):
            continue
        if (not large and usual <= end) or [*(example_numbers(func) or {}).values()] != [example]:
            continue
        less_by = (1,) if machine.is_gpu else (0, ODD if large else 1)
        other = _plan_by_one_example(Request(func), machine, "", less_by)
        if other is None or other.trace is None or (not divides and _divides_by_sizes(other.scheduled)):
            continue
        if large and not along and other.parts == made.parts:
            continue
        if (trace := other.trace.dumps()) not in traces:
            programs.append(other.scheduled)
            traces.append(trace)
        number = traces.index(trace)
        if large and number != tree.of({size.name: end + 1}):
            tree = SizeTree(0, size.name, end, tree, SizeTree(number))
            said += f", above {size.name} = {end} for {size.name} = {example}"
        elif not large and number != tree.of({size.name: end}):
            tree = SizeTree(0, size.name, end, SizeTree(number), tree)
            said += f", up to {size.name} = {end} for {size.name} = {example}"
    if len(programs) == 1:
        return made
    texts = [f"for {shown_sizes(asked.func, less)}" for less in _examples_less_by(asked.func, machine)]
    usually = next(text for text in texts if text in made.origin)
    origin = made.origin.replace(usually, usually + said, 1)
    return replace(made, origin=origin, scheduled=dispatched(asked.func, programs, tree))


def _has_rows_of_sums(func: PrimFunc, size: Var) -> bool:
    """Returns whether a scheduled function ends at a size only in unrolled rows of sums.

    Lowering makes code for each number of them, see ``codegen/lower/edge_parts.py``.
    """
    loops = {n.loop_var: n for n in pre_order(func.body) if isinstance(n, For)}
    if not any(UNROLL_FACTOR in loop.annotations for loop in loops.values()):
        return False
    if any(loop.kind == "vectorized" and size in vars_in(loop.extent) for loop in loops.values()):
        return False
    ends = [t for realize in blocks_of(func) for t in conjuncts(realize.predicate) if size in vars_in(t)]
    kinds = [{loops[v].kind for v in vars_in(t) & loops.keys()} for t in ends]
    return bool(ends) and all("unrolled" in found and "vectorized" not in found for found in kinds)


def _scans_along(func: PrimFunc, size: Var) -> bool:
    """Returns whether a block computes each element along a size of arrays from the one before."""
    axes = [iv for realize in blocks_of(func) for iv in realize.block.iter_vars]
    return size in size_vars(func) and any(iv.kind == IterVar.SCAN and size in vars_in(iv.dom.extent) for iv in axes)


def _reduces_to_one(func: PrimFunc, size: Var) -> bool:
    """Returns whether a block reduces along a size of arrays to one result, and no block goes along it twice."""
    if size not in size_vars(func):
        return False
    blocks = [realize.block for realize in blocks_of(func)]
    along = [[iv for iv in block.iter_vars if size in vars_in(iv.dom.extent)] for block in blocks]
    alone = [all(iv.kind == "reduce" or is_const_int(iv.dom.extent, 1) for iv in block.iter_vars) for block in blocks]
    return all(len(axes) <= 1 for axes in along) and any(map(all, zip(along, alone, strict=True)))


_UNDIVIDED = 1.5
"""How many times as long a schedule that divides by no size may take as the best one, by the model, at an example that suits
it. Beyond, vectors of another kind are the best, and a smaller example has them."""


def _plan_by_one_example(asked: Request, machine: Target, before: str, less_by: Sequence[int] = ()) -> Plan | None:
    """Returns a plan by the schedule for the example of the sizes, smaller by one of ``less_by``.

    It is the first that applies and divides by no size, else the first that applies; where none does, the best whose steps
    apply to all sizes. In place of one that divides by a size comes the best for the same example that does not, where the
    model expects it to take little longer.
    """
    if machine.stays_as_written:
        return None
    failed, divided = "", None
    base = Schedule(asked.func)
    split_axes_by_sizes(base)
    divides = _divides_by_sizes(base.func)
    for less in less_by or _examples_less_by(asked.func, machine):
        example = example_of(base.func, less)
        if example is None:
            break
        sizes = shown_sizes(asked.func, less)
        default = tuner.choose_default(tuner.Space(example, machine, of=base))
        schedule = base.copy()
        try:
            default.schedule.trace.apply_to_schedule(schedule)
        except (ScheduleError, TraceError) as error:
            failed = failed or f"the schedule for {sizes} does not apply: {error}"
            other = None if machine.is_gpu else _next_best(default, base)
            if other is not None and other.follower is not None:
                return _by_default(asked, machine, before, other, base, other.follower.schedule, f"for {sizes}")
            continue
        if problem := _without_code(schedule.func, machine):
            failed = failed or f"the schedule for {sizes} does not serve all sizes: {problem}"
            continue
        made = _by_default(asked, machine, before, default, base, schedule, f"for {sizes}")
        if machine.is_gpu or not _divides_by_sizes(schedule.func):
            return made
        divided = divided or made
        other = None if divides else _next_best(default, base)
        if other is not None and other.follower is not None:
            return _by_default(asked, machine, before, other, base, other.follower.schedule, f"for {sizes}")
    if divided is not None:
        return divided
    if not failed:
        return None
    less = _examples_less_by(asked.func, machine)[0]
    example = example_of(base.func, less)
    refused = partial(_without_code, machine=machine, partly=True)
    chosen = None if example is None else _followed(tuner.Space(example, machine, of=base), base, refused)
    if chosen is not None and chosen.follower is not None and not _without_code(chosen.follower.schedule.func, machine):
        text = f"for {shown_sizes(asked.func, less)} whose steps apply to all sizes"
        return _by_default(asked, machine, before, chosen, base, chosen.follower.schedule, text)
    reason = failed.split("\n")[0]
    if machine.is_gpu and not less_by:
        raise BuildError(f"{asked.func.name} has no schedule for {machine.kind} that serves all sizes: {reason}")
    return Plan(asked, machine, "given", f"{before}not scheduled: {reason}", asked.func)


def _examples_less_by(func: PrimFunc, machine: Target) -> tuple[int, ...]:
    """Returns by how much less the examples are than the sizes asked for, in the order of tries.

    On GPUs they are odd, and large where no size is known, so that the schedule pads its tiles as all sizes need it.
    """
    if not machine.is_gpu:
        return 0, ODD, LARGER
    sizes = example_numbers(func) or {}
    odd = 0 if all(n % 2 for n in sizes.values()) else 1
    known = EXAMPLE in func.attrs or any(n != USUAL for n in sizes.values())
    return (odd, ODD) if known else (LARGER, ODD)


def _without_code(func: PrimFunc, machine: Target, partly: bool = False) -> str:
    """Returns why a scheduled program has no code on a target, or nothing."""
    refuses = TARGET_KINDS[machine.kind].refuses if machine.kind in TARGET_KINDS else None
    return "" if refuses is None else refuses(func, machine, partly)


def _by_default(
    asked: Request,
    machine: Target,
    before: str,
    chosen: tuner.DefaultSchedule,
    base: Schedule,
    schedule: Schedule,
    text: str,
) -> Plan:
    """Returns the plan by what was chosen for example sizes, which ``text`` names.

    ``schedule`` is that of all sizes, made of ``base``. Where its tiles are as long as the example, its vectors are made
    for other sizes, too.
    """
    best = "the analytic model's best schedule"
    origin = before + chosen.origin.replace(best, f"{best} {text}", 1)
    if not machine.is_gpu:
        schedule = followed_in_whole_vectors(chosen.schedule, chosen.space.func, base) or schedule
    return Plan(
        asked, machine, "default", origin, schedule.func, None, schedule.trace, chosen.part_names, chosen.for_any_size
    )


def _followed(
    space: tuner.Space, base: Schedule, refused: Callable[[PrimFunc], str] = lambda func: ""
) -> tuner.DefaultSchedule | None:
    """Returns the best default schedule of example sizes whose steps ``base``, of all sizes, takes; None without parts."""
    try:
        chosen = tuner.choose_default(space, base, refused)
    except (ScheduleError, TraceError):
        return None
    return chosen if chosen.parts else None


def _next_best(default: tuner.DefaultSchedule, base: Schedule) -> tuner.DefaultSchedule | None:
    """Returns the best schedule for the same example whose steps ``base`` takes and that divides by no size.

    None where the model expects it to take much longer.
    """
    other = _followed(default.space, base, _refused)
    if other is None or len(other.left) > len(default.left) or other.seconds > _UNDIVIDED * default.seconds:
        return None
    return other


def _refused(func: PrimFunc) -> str:
    return "each element divides by a symbolic size" if _divides_by_sizes(func) else ""


def _divides_by_sizes(func: PrimFunc) -> bool:
    """Returns whether loops of symbolic sizes were fused and each element divides by them, for its place or its value.

    Quotients in the indices of loads alone do not count: where they go through one stretch of memory, none is left of them.
    Nor do those of a block whose vectors go through one stretch of each array that it reads or writes.
    """
    vectors = {n.body: n.loop_var for n in pre_order(func.body) if isinstance(n, For) and n.kind == "vectorized"}
    return any(_block_divides(realize, vectors.get(realize)) for realize in blocks_of(func))


def _block_divides(realize: BlockRealize, vector: Var | None) -> bool:
    """Returns whether a block, in a loop of vectors along ``vector`` alone, divides by a size for each element."""
    accesses = [n for n in pre_order(realize.block.body) if isinstance(n, (BufferLoad, BufferStore))]
    if any(isinstance(n, BufferStore) and _has_quotient(n.value) for n in accesses):
        return True
    bound = dict(zip([iv.var for iv in realize.block.iter_vars], realize.iter_values, strict=True))
    places = {var: v for var, v in bound.items() if _has_quotient(v)}
    along = [var for var, v in bound.items() if vector is not None and uses_var(v, vector)]
    if not places:
        return any(_lanes_divide(n, var) for n in accesses if isinstance(n, BufferLoad) for var in along)
    if vector is None or not all(uses_var(v, vector) for v in places.values()):
        return True
    simplify = Analyzer().simplify
    for access in accesses:
        if any(uses_var(i, var) for i in access.indices for var in places):
            pairs = zip(access.indices, access.buffer.element_strides(), strict=True)
            if _has_quotient(simplify(sum([substitute(i, places) * stride for i, stride in pairs]))):
                return True
    values = [n.value for n in accesses if isinstance(n, BufferStore)]
    return any(n in places for v in values for n in pre_order(v, lambda n: not isinstance(n, BufferLoad)))


def _lanes_divide(load: BufferLoad, axis: Var) -> bool:
    """Returns whether a load divides an axis by a size, and its elements lie in no one stretch of memory."""
    divided = any(
        isinstance(n, (FloorDiv, FloorMod)) and not isinstance(n.b, IntImm) and uses_var(n.a, axis)
        for i in load.indices for n in pre_order(i)
    )  # fmt: skip
    return divided and not is_one_stretch(load, axis, Analyzer().simplify)


def _has_quotient(e: Expr) -> bool:
    """Returns whether a value divides by a size, but for the indices of what it loads."""
    return any(
        isinstance(n, (FloorDiv, FloorMod)) and not isinstance(n.b, IntImm)
        for n in pre_order(e, lambda n: not isinstance(n, BufferLoad))
    )


# how notebooks show a plan


def plan_html(plan: Plan, *before: str) -> str:
    """Returns where a schedule comes from, its time beside the roofline's, and the schedule, as HTML after ``before``."""
    rows = [("schedule", plan.origin), ("target", str(plan.target)), *_share(plan)]
    steps = code_html(plan.trace.as_python(), fold=False) if plan.trace is not None else ""
    program = folded("the scheduled program", code_html(plan.scheduled.script()))
    parts = [*before, table(("", ""), rows), program, folded("its steps", steps)]
    return card(plan.request.func.name, *parts, note=plan.kind)


def _share(plan: Plan) -> list[tuple[str, str]]:
    """Returns rows about the time on record and the roofline of a machine that was measured earlier."""
    rows = []
    taken = plan.record.run_seconds if plan.record is not None else None
    if taken:
        rows.append(("measured", seconds_text(taken)))
    report = known_report(plan.target)
    bound = bound_for(report, plan.request.func, plan.target) if report is not None else None
    if bound is not None and bound.seconds:
        share = f"; the record reaches {share_text(bound.seconds / taken)} of it" if taken else ""
        rows.append(("roofline", f"{seconds_text(bound.seconds)}, limited by {bound.limit}{share}"))
    return rows

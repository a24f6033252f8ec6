"""These dataclasses are the rows of the database: workloads, targets, sessions and records of measurements.

A record is text and numbers. Times are in seconds; moments are ISO 8601 text in UTC.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Protocol, Union

from ..pages import seconds_text
from ..pages.messages import short_repr
from ..tir.cost import count_bytes, count_flops
from ..tir.expr import IntImm
from ..tir.parser import parse
from ..tir.program_key import program_key, workload_key
from ..tir.stmt import PrimFunc

STATUSES: Mapping[str, str] = {
    "ok": "compiled, ran, and its result agreed with the reference",
    "schedule_error": "the trace does not apply to the workload",
    "compile_error": "lowering or code generation failed",
    "run_error": "the compiled function reported an error",
    "wrong_result": "ran, but its result differs from the reference",
    "memory_damaged": "wrote outside its outputs",
    "timeout": "compiling or running took longer than its limit",
    "crash": "the worker process died",
    "out_of_memory": "the worker ran into its memory limit",
    "skipped": "the time was up before it was measured",
}
"""The statuses that the tuner writes; another tuner may write other words of this form."""


class DatabaseError(Exception):
    """The database cannot be used as asked: damaged, foreign, from a newer version, locked, or read-only.

    The message names the file and what to try. A file for which this is raised has not been changed.
    """


_STATUS = re.compile(r"[a-z][a-z0-9_]{0,39}")


def utc_now() -> str:
    """Returns the present moment as ISO 8601 text in UTC, to the microsecond."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")


@dataclass(frozen=True, slots=True)
class WorkloadRecord:
    """A workload is a computation: a PrimFunc as text.

    ``key`` is the SHA-256 (hex) of the canonical text; ``shapes`` lists the arguments as
    ``{"name", "dtype", "shape"}``; ``flops`` and ``bytes`` are what one run computes and must at least move (None:
    not known); ``spec`` is what the command line calls it, where it came from there.
    """

    key: str
    text: str = field(repr=False)
    name: str = ""
    spec: str = ""
    shapes: tuple[Mapping[str, Any], ...] = ()
    dtype: str = ""
    flops: float | None = None
    bytes: float | None = None
    created: str = field(default_factory=utc_now)

    __repr__ = short_repr()


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A target record is a machine as code generation sees it. ``key`` identifies it, ``text`` is what ``Target(text)`` accepts."""

    key: str
    text: str
    cpu: str = ""
    features: str = ""
    vector_bits: int | None = None
    num_cores: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    created: str = field(default_factory=utc_now)
    llvm_cpu: str = ""


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session is one run of a tuner. ``status``: running, done, interrupted, failed or killed; ``trials``: how many were asked for.
    ``pid`` is its process on ``host``, ``heartbeat`` the moment of its last record, ``ended`` why it ended, in words.
    ``peak_flops`` and ``bandwidth`` (per second) are what the machine was measured to do, ``roofline_seconds`` the least
    time that they allow, and ``limited_by`` names which of them (``peak``, or a memory)."""

    id: str
    workload: str | None = None
    target: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    trials: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    status: str = "running"
    started: str = field(default_factory=utc_now)
    finished: str | None = None
    pid: int | None = None
    heartbeat: str | None = None
    ended: str = ""
    peak_flops: float | None = None
    bandwidth: float | None = None
    roofline_seconds: float | None = None
    limited_by: str = ""

    __repr__ = short_repr()


@dataclass(frozen=True, slots=True, repr=False)
class TuningRecord:
    """A tuning record is one candidate with its result.

    ``workload``, ``target`` and ``session`` are keys; ``trace`` is the schedule's trace as JSON text; ``decisions``
    the row of numbers it was made from; ``times`` all timings in seconds. ``run_seconds`` is the figure that counts
    (the median of ``times`` unless given) and None when nothing was timed. ``status`` is one of :data:`STATUSES`;
    ``error`` says more when it is not ``ok``. ``predicted_seconds`` is what the cost model expected. ``machine`` says where
    it was measured, when that was not here: host, CPU, frequency, load, versions.
    """

    workload: str
    target: str
    trace: str
    times: tuple[float, ...] = ()
    status: str = "ok"
    error: str = ""
    decisions: Mapping[str, Any] = field(default_factory=dict)
    sketch: str = ""
    session: str | None = None
    trial: int | None = None
    run_seconds: float | None = None
    compile_seconds: float | None = None
    predicted_seconds: float | None = None
    codegen_version: int = 0
    created: str = field(default_factory=utc_now)
    machine: Mapping[str, Any] = field(default_factory=dict)
    id: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "times", tuple([float(t) for t in self.times]))
        if not _STATUS.fullmatch(self.status):
            raise ValueError(f"{self.status!r} is not a status; write one of {', '.join(STATUSES)}")
        if not all(math.isfinite(t) and t > 0 for t in self.times):
            raise ValueError(f"times are seconds, finite and above zero, not {self.times}")
        if self.status == "ok" and not self.times:
            raise ValueError("a record with status 'ok' has at least one time")
        if self.run_seconds is None and self.times:
            object.__setattr__(self, "run_seconds", median(self.times))

    def __repr__(self) -> str:
        number = "" if self.id is None else f"{self.id}: "
        return f"TuningRecord({number}{self.status}, {seconds_text(self.run_seconds)}, {self.sketch or 'no sketch'})"

    @property
    def ok(self) -> bool:
        """Returns whether the candidate ran and was right."""
        return self.status == "ok"

    def digest(self) -> str:
        """Returns the identity of the record in every database: the SHA-256 (hex) of its content without its ``id``."""
        content = asdict(self)
        del content["id"]
        if not content["machine"]:  # records that older versions wrote keep their digests
            del content["machine"]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=_plain)
        return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Convert NumPy's and other numbers to Python's; TypeError for anything else."""
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"{type(value).__name__} does not go into a record: text and numbers only")


def from_json(text: str) -> Any:
    """The value of JSON text; ValueError also for the words NaN and Infinity, which are no JSON."""
    return json.loads(text, parse_constant=_no_number)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


def to_json(value: Any) -> str:
    """Returns ``value`` as JSON text, one line; TypeError when it holds more than text and numbers."""
    return json.dumps(value, default=_plain, separators=(",", ":"), allow_nan=False)


_NOTHING = type(None)
_NUMBERS = (
    "flops", "bytes", "run_seconds", "compile_seconds", "predicted_seconds", "trial", "seed", "trials",
    "vector_bits", "num_cores", "codegen_version", "pid", "peak_flops", "bandwidth", "roofline_seconds",
)  # fmt: skip
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("times", "shapes"), (list,)),
    **dict.fromkeys(("decisions", "config", "versions", "machine"), (dict,)),
    **dict.fromkeys(_NUMBERS, (int, float, _NOTHING)),
    "id": (int, str),
    **dict.fromkeys(("session", "workload", "target", "finished", "heartbeat"), (str, _NOTHING)),
}
"""The types that fields of records have as they are read; a field that is not named is text."""


def check_fields(values: Mapping[str, Any]) -> None:
    """Raise ValueError unless the values that were read from a file are of the kinds that their fields have. A field is
    known by its name."""
    wrong = [
        name
        for name, value in values.items()
        if type(value) not in _KINDS.get(name, (str,)) or (type(value) is float and not math.isfinite(value))
    ]
    if wrong:
        raise ValueError(f"{wrong[0]} cannot be {str(values[wrong[0]])[:40]!r}")


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

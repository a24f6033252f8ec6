"""Builds the kernels of a model: object files, which stay on the disk, many side by side.

A kernel's symbol is made of what it depends on, so that models share the kernels that earlier ones left on the disk. LLVM runs
one build at a time in a process, and Python one thread, so that other cores need other processes. A worker is
``python -m tilewright.driver.models.kernel_building PARENT_PID MEMORY_BYTES``, with messages on stdin and stdout: each
request is a job, each answer the kernel, or why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ... import tuner
from ...codegen import Target, lower
from ...codegen.llvm.emit import emit
from ...codegen.llvm.jit import optimize_and_compile
from ...codegen.machine.blas import told_calls
from ...codegen.machine.cpu import available_cores
from ...codegen.object_cache import find_object, keep_object, object_key
from ...codegen.packing import LAYOUT_FREE, split_packing
from ...graph.kernels import Kernel
from ...schedule import ScheduleError, Trace, TraceError
from ...tir.expr import array_bytes
from ...tir.parser import collection_paused, parse
from ...tir.program_key import workload_key
from ...tir.stmt import PrimFunc
from ...tuner.example_sizes import EXAMPLE, with_example
from ...tuner.measure.process import Message, MessageReader, WorkerDied, WorkerProcess, encode, serve
from ..building import Plan, Request, does_not_apply, plan_request
from ..graph_services import choices_key, signature_key


@dataclass(frozen=True)
class PackedWeight:
    """A constant in the layout of a kernel: the function ``symbol(original, packed)`` makes it."""

    symbol: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Returns its size in bytes."""
        return array_bytes(self.shape, self.dtype)


@dataclass(frozen=True)
class KernelJob:
    """A kernel to build, its target, and the schedules on record for it. These are what tells its function as text
    (only when it is built), and pairs of origin and trace, best first."""

    text: Callable[[], str] = field(repr=False)
    target: str
    key: str
    traces: Sequence[tuple[str, str]] = ()

    @property
    def symbol(self) -> str:
        """Returns the C symbol of the kernel."""
        return f"tw_{self.key[:24]}"


_MESSAGE = "kernel with the texts of its assertions"
"""What a kept kernel holds; it changes with :meth:`BuiltKernel.as_message`."""


@dataclass(frozen=True)
class BuiltKernel:
    """A compiled kernel: its symbol, its object file, and how it was planned (see :class:`..building.Plan`). It also
    has the scheduled function as text, what is packed ahead, by the number of the parameter, and which of the job's
    traces it follows. ``assertions``: the messages of what it asserts, the first being that of the return value 1."""

    symbol: str
    kind: str
    origin: str
    scheduled: str
    object: bytes = field(repr=False)
    packs: Mapping[int, PackedWeight]
    applied: int | None = None
    assertions: Sequence[str] = ()

    def as_message(self) -> tuple[dict[str, Any], list[bytes]]:
        """Returns plain values and bytes, for a file or another process."""
        packs = [[n, p.symbol, list(p.shape), p.dtype] for n, p in self.packs.items()]
        header = {"symbol": self.symbol, "kind": self.kind, "origin": self.origin, "scheduled": self.scheduled}
        return {**header, "packs": packs, "applied": self.applied, "assertions": [*self.assertions]}, [self.object]

    @staticmethod
    def of_message(header: Mapping[str, Any], blobs: Sequence[bytes]) -> BuiltKernel:
        """Returns the kernel of which :meth:`as_message` made these."""
        packs = {int(n): PackedWeight(symbol, tuple(shape), dtype) for n, symbol, shape, dtype in header["packs"]}
        texts = {name: header[name] for name in ("symbol", "kind", "origin", "scheduled", "applied", "assertions")}
        return BuiltKernel(object=blobs[0], packs=packs, **texts)


def job_for(
    kernel: Kernel, target: Target, traces: Sequence[tuple[str, str]] = (), examples: Mapping[str, int] | None = None
) -> KernelJob:
    """Returns the job of a kernel, with the key of everything that its result depends on. ``examples``: the sizes to
    schedule for, by the names of symbolic sizes."""
    signature = signature_key(kernel)
    what = ["signature", signature] if signature is not None else []
    if signature is None:
        func = with_example(kernel.func, examples or {})
        free = [str(int(n)) for n in func.attrs.get(LAYOUT_FREE, ())]
        sizes = [f"{name}={size}" for name, size in func.attrs.get(EXAMPLE, {}).items()]
        what = ["workload", workload_key(func), *free, *sizes]
    key = object_key([*choices_key(target), _MESSAGE, *what, "traces", *[text for _, text in traces]])
    return KernelJob(lambda: with_example(kernel.func, examples or {}).script(), str(target), key, tuple(traces))


def kept_kernel(job: KernelJob) -> BuiltKernel | None:
    """Returns the kernel that an earlier build left on the disk."""
    data = find_object(job.key)
    if data is None:
        return None
    reader = MessageReader()
    reader.feed(data)
    message = reader.next()
    if message is None:
        return None
    built = BuiltKernel.of_message(*message)
    if built.applied is None:
        return built
    scheduled = parse(built.scheduled)
    assert isinstance(scheduled, PrimFunc)
    return replace(built, origin=job.traces[built.applied][0] + told_calls(scheduled, Target(job.target)))


def build_kernel(job: KernelJob) -> BuiltKernel:
    """Plan and compile a kernel, and keep it on the disk."""
    with collection_paused(collect=True):
        return _built(job)


def _built(job: KernelJob) -> BuiltKernel:
    func, target = parse(job.text()), Target(job.target)
    assert isinstance(func, PrimFunc)
    if target.missing_here():  # nothing could pack weights here
        func = func.without_attr(LAYOUT_FREE)
    plan, applied = _planned(func, target, job.traces)
    split = split_packing(plan.scheduled.with_attr("global_symbol", job.symbol))
    functions = {job.symbol: split.main}
    packs: dict[int, PackedWeight] = {}
    for n, pack in split.packs.items():
        made = pack.buffer_map[pack.params[1]]
        packs[n] = PackedWeight(f"{job.symbol}_pack{n}", tuple([int(e) for e in made.shape]), str(made.dtype))  # type: ignore[call-overload]
        functions[packs[n].symbol] = pack
    code, said = (b"", ()) if target.is_c_only else _machine_code(functions, target)
    built = BuiltKernel(job.symbol, plan.kind, plan.origin, plan.scheduled.script(), code, packs, applied, said)
    keep_object(job.key, b"".join(bytes(part) for part in encode(*built.as_message())))
    return built


def _machine_code(functions: Mapping[str, PrimFunc], target: Target) -> tuple[bytes, Sequence[str]]:
    """Returns the object file of the functions, and what the first one asserts."""
    lowered = [lower(one, target, symbol) for symbol, one in functions.items()]
    texts = [emit(one) for one in lowered]
    code = optimize_and_compile(texts[0], target, link=tuple(texts[1:]), cache=False).object
    return code, [s.message for s in lowered[0].assertions()]


def _planned(func: PrimFunc, target: Target, traces: Sequence[tuple[str, str]]) -> tuple[Plan, int | None]:
    """Returns the plan of the first schedule that applies, with its number, or of the analytic model."""
    failed = ""
    for n, (origin, text) in enumerate(traces):
        try:
            trace = Trace.from_json(text)
            return Plan(Request(func), target, "tuned", origin, tuner.replay(func, trace).func, None, trace), n
        except (ScheduleError, TraceError) as error:
            failed = failed or does_not_apply(origin, func, str(error))
    return plan_request(Request(func), target, before=f"{failed}; " if failed else ""), None


WORKER = "tilewright.driver.models.kernel_building"
_FEWEST = 4
"""The fewest kernels for which a process is started, which takes about as long as building one."""
_MOST = 8


def build_kernels(
    jobs: Sequence[KernelJob], *, processes: int | None = None, note: Callable[[int, int], object] | None = None
) -> dict[str, BuiltKernel]:
    """Returns the kernels by the keys of their jobs; those on the disk are not built again.

    ``processes``: how many build besides this one, by default one for each further core. ``note(done, total)`` is
    called after each kernel.
    """
    done: dict[str, BuiltKernel] = {}
    waiting: dict[str, KernelJob] = {}
    for job in jobs:
        kept = kept_kernel(job) if job.key not in waiting and job.key not in done else None
        if kept is not None:
            done[job.key] = kept
        elif job.key not in done:
            waiting.setdefault(job.key, job)
    count = min(_MOST, available_cores()) - 1 if processes is None else processes
    count = count if len(waiting) >= _FEWEST else 0
    with _Team(min(count, len(waiting) - 1)) as team:
        total = len(done) + len(waiting)
        queue = list(waiting.values())[::-1]
        while queue or team.busy:
            team.hand_out(queue)
            if queue:
                job = queue.pop()
                done[job.key] = build_kernel(job)
            for job, built in team.collect(wait=not queue):
                done[job.key] = build_kernel(job) if built is None else built
            if note is not None:
                note(len(done), total)
    return done


class _Team:
    """Worker processes, and the job that each works on."""

    def __init__(self, count: int) -> None:
        self.workers = [WorkerProcess(module=WORKER) for _ in range(max(0, count))]
        self.busy: dict[WorkerProcess, KernelJob] = {}

    def __enter__(self) -> _Team:
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.kill()

    def hand_out(self, queue: list[KernelJob]) -> None:
        """Give each idle worker a job of the end of ``queue``; the last job stays."""
        for worker in list(self.workers):
            if worker in self.busy or len(queue) < 2:
                continue
            job = queue.pop()
            try:
                worker.send(request_of(job))
                self.busy[worker] = job
            except WorkerDied:
                self.workers.remove(worker)
                queue.append(job)

    def collect(self, wait: bool) -> list[tuple[KernelJob, BuiltKernel | None]]:
        """Returns the jobs that are done, with None for those that failed; ``wait``: at least one."""
        out: list[tuple[KernelJob, BuiltKernel | None]] = []
        for worker, job in list(self.busy.items()):
            try:
                message = worker.receive(_PATIENCE_SECONDS) if wait and not out else worker.poll()
            except (WorkerDied, TimeoutError):
                worker.kill()
                self.workers.remove(worker)
                del self.busy[worker]
                out.append((job, None))
                continue
            if message is not None:
                del self.busy[worker]
                ok = message.header["status"] == "ok"
                out.append((job, BuiltKernel.of_message(message.header, message.blobs) if ok else None))
        return out


_PATIENCE_SECONDS = 600.0


def request_of(job: KernelJob) -> dict[str, Any]:
    """Returns the request for a job."""
    return {"func": job.text(), "target": job.target, "key": job.key, "traces": [list(trace) for trace in job.traces]}


def _job_of(header: Mapping[str, Any]) -> KernelJob:
    traces = [(origin, text) for origin, text in header["traces"]]
    text: str = header["func"]
    return KernelJob(lambda: text, header["target"], header["key"], traces)


def _answer(message: Message) -> tuple[dict[str, Any], list[Any]]:
    try:
        header, blobs = build_kernel(_job_of(message.header)).as_message()
    except Exception as error:  # the parent builds the kernel once more, and shows where it fails
        return {"status": "failed", "error": f"{type(error).__name__}: {error}"}, []
    return {"status": "ok", **header}, list(blobs)


if __name__ == "__main__":
    serve(_answer)

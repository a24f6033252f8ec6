"""Builds many kernels side by side: in this process, and in worker processes on the other cores.

LLVM runs one build at a time in a process, and Python one thread, so that other cores need other processes. A worker is
``python -m tilewright.driver.models.kernel_workers PARENT_PID MEMORY_BYTES``, with messages on stdin and stdout: each
request is a job, each answer the kernel, or why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...codegen.machine.cpu import available_cores
from ...tuner.measure.process import WorkerDied, WorkerProcess
from ...tuner.measure.protocol import Message
from ...tuner.measure.serving import serve
from .kernel_building import BuiltKernel, KernelJob, build_kernel, kept_kernel

WORKER = "tilewright.driver.models.kernel_workers"
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

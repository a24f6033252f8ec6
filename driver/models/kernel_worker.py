"""The worker process builds kernels: each request is a job, each answer the kernel, or why there is none.

``python -m tilewright.driver.models.kernel_worker PARENT_PID MEMORY_BYTES``, messages on stdin and stdout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tuner.measure.protocol import Message
from ...tuner.measure.serving import serve
from .kernel_building import KernelJob, build_kernel


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

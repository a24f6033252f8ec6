"""This module runs an ONNX model in ONNX Runtime, where that is installed, as a rival to compare with."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...pages.written_files import utf8_text

Results = list[Any]


def rival(what: Any, threads: int) -> tuple[str, Callable[[Sequence[Any]], Results]] | None:
    """Returns ONNX Runtime's version, and a function of the inputs in order that returns the outputs.

    ``what``: the file of a model, or a model of the package onnx. All optimizations are on. None for other models, and
    where ONNX Runtime is not installed.
    """
    source = _source(what)
    if source is None:
        return None
    try:
        ort = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    return f"ONNX Runtime {ort.__version__}", lambda arrays: list(
        session.run(None, dict(zip(names, arrays, strict=True)))
    )


def _source(what: Any) -> str | bytes | None:
    if isinstance(what, (str, os.PathLike)):
        if Path(what).suffix.lower() != ".onnx":
            return None
        path = os.fspath(what)
        return path if utf8_text(path) == path else Path(path).read_bytes()  # ONNX Runtime takes names in UTF-8 only
    made = getattr(what, "SerializeToString", None)
    return bytes(made()) if made is not None else None

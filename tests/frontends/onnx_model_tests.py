"""ONNX's own tests of whole models, with their models and data read in.

They lie in the package ``onnx``: "simple" ones, models that PyTorch wrote ("pytorch-converted", "pytorch-operator"), and
the light models ("real"), known networks whose weights the file computes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("simple", "pytorch-converted", "pytorch-operator", "real")
"""The kinds of tests, by the names that ONNX gives them."""


def model_cases(kind: str) -> Iterator[Any]:
    """Yields the tests of one kind, each with its model and its data."""
    import onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = load_model_tests(kind=kind)
    for case in sorted(found, key=lambda c: c.name):
        if case.model_dir is None:
            path = Path(onnx.__file__).parent.parent / case.url
            model = onnx.load(path)
            yield replace(case, model=model, data_sets=[([dummy(i) for i in _free_inputs(model)], _stored(path))])
        else:
            folder = Path(case.model_dir)
            model = onnx.load(folder / "model.onnx")
            yield replace(
                case, model=model, data_sets=[_data(model, f) for f in sorted(folder.glob("test_data_set_*"))]
            )


def dummy(item: Any) -> Any:
    """Returns the data of an input for which ONNX's light models store the results: a ramp from 0 to 1."""
    shape = [d.dim_value or 1 for d in item.type.tensor_type.shape.dim]
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


def _free_inputs(model: Any) -> list[Any]:
    given = {t.name for t in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in given]


def _stored(path: Path) -> list[Any]:
    return [_tensor(p) for p in _by_number(path.parent, f"{path.stem}_output_")]


def _data(model: Any, folder: Path) -> tuple[list[Any], list[Any]]:
    """Returns inputs and outputs; what is no tensor is None, as its test is skipped."""
    items = [*_free_inputs(model), *model.graph.output]
    paths = [*_by_number(folder, "input_"), *_by_number(folder, "output_")]
    read = [_tensor(p) if i.type.HasField("tensor_type") else None for i, p in zip(items, paths, strict=False)]
    count = len(_free_inputs(model))
    return read[:count], read[count:]


def _by_number(folder: Path, start: str) -> list[Path]:
    return sorted(folder.glob(f"{start}*.pb"), key=lambda p: int(p.stem.removeprefix(start)))


def _tensor(path: Path) -> Any:
    import onnx

    return onnx.numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))

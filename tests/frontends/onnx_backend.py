"""Runs ONNX's own tests against compiled graphs.

``python -m tests.frontends.onnx_backend`` runs all node tests with tensors of the supported types and the tests of whole
models, and prints a table by operator and what fails; ``--markdown FILE`` writes that of whole models into the page of operators.
``--kind KIND`` runs one kind, ``--only TEXT`` those whose name contains the text, ``--every N`` each N-th.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import signal
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from tilewright.driver.models.model_building import build_graph
from tilewright.frontends.onnx import from_onnx
from tilewright.frontends.onnx.call import CODED_DTYPES, DTYPES, SMALL_DTYPES, OnnxError, holding
from tilewright.graph.value_dependent import ValueDependentGraph
from tilewright.tir.expr import to_numpy
from tilewright.tir.expr.dtype import kept_as_bits

from .onnx_model_tests import KINDS, model_cases

PAGE = "docs/reference/onnx-operators.md"

HEAD = f"""# Operators of ONNX

`python -m tilewright.tests.frontends.onnx_plain_door rows.jsonl --markdown {PAGE}` runs ONNX's own node tests as a
user would, `tw.build(tw.from_onnx(model))` with all inputs given at the call, and writes the table by operator.
`python -m tests.frontends.onnx_backend --markdown {PAGE}` writes the table of whole models. A test with an
expanded body computes the operator by others, as ONNX defines it. What fails, and why, is in [Models](../guides/models.md).
"""


def written_page(old: str, first: str, outcomes: list[Outcome]) -> str:
    """Returns the page of operators with a new table of operators, or of kinds of models, and the other one as it is."""
    sections = dict(re.findall(r"^## By ([^\n]+)\n(.*?)(?=^## |\Z)", old, re.MULTILINE | re.DOTALL))
    sections[first] = f"\n{table(outcomes, first)}"
    order = ("operator", "kind of model")
    return "\n".join([HEAD, *[f"## By {name}\n{sections[name]}" for name in order if name in sections]])


@dataclass
class Outcome:
    """The result of one test: ``ok``, ``failed`` with a reason, or ``skipped`` for types that are not supported."""

    name: str
    operator: str
    status: str
    reason: str = ""


@functools.cache
def cases() -> tuple[Any, ...]:
    """Returns ONNX's node tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return tuple(load_model_tests(kind="node"))


def imported(model: Any, inputs: list[Any], sized: bool = False) -> tuple[Any, list[Any]]:
    """Returns the graph and the inputs that are left. An input that says shapes or axes is built in as a constant;
    ``sized``: the inputs say all sizes."""
    names = [i.name for i in model.graph.input]
    constants: dict[str, Any] = {}
    shapes = {n: x.shape for n, x in zip(names, inputs, strict=False)} if sized else {}
    while True:
        graph = from_onnx(model, shapes=shapes, constants=constants)
        if isinstance(graph, ValueDependentGraph):
            asked = graph.question
            small = [n for n in asked.inputs if _says_a_shape(inputs[names.index(n)])]
            if not small:
                raise OnnxError(asked.reason)
            constants.update({n: inputs[names.index(n)] for n in small})
            continue
        return graph, [x for name, x in zip(names, inputs, strict=False) if name not in constants]


def _says_a_shape(data: Any) -> bool:
    array = _array(data)
    return array.dtype.kind in "iub" or array.size <= 8


def _array(data: Any) -> Any:
    """Returns test data as an array; the tests of narrow floats have it as a tensor of ONNX."""
    from onnx import numpy_helper

    return numpy_helper.to_array(data) if isinstance(data, TensorProto) else np.asarray(data)


def _typed(x: Any, dtype: Any) -> Any:
    array = np.asarray(x, order="C")
    name = array.dtype.name
    bits = name in DTYPES.values() and kept_as_bits(name)
    return array.view(dtype) if bits else array.astype(dtype, copy=False)


def check(case: Any) -> None:
    """Raise an error unless the compiled graph computes what the test says."""
    for inputs, outputs in case.data_sets:
        graph, given = imported(case.model, [_array(x) for x in inputs], case.kind != "node")
        typed = [_typed(x, to_numpy(v.dtype)) for x, v in zip(given, graph.inputs, strict=True)]
        made = build_graph(graph)(*typed)
        for got, want in zip(made if isinstance(made, tuple) else (made,), outputs, strict=False):
            compare(got, _array(want), case.rtol, case.atol)


def compare(got: Any, want: Any, rtol: float, atol: float) -> None:
    """Raise AssertionError unless an array has the shape, the type and the numbers of another one; narrow floats may be bits."""
    if want.dtype.name in DTYPES.values() and kept_as_bits(want.dtype.name) and got.dtype != want.dtype:
        got = got.view(want.dtype)
    if want.dtype.name in SMALL_DTYPES.values() and got.dtype == holding(want.dtype.name):
        want = want.astype(got.dtype)
    if want.dtype.name in CODED_DTYPES.values() and got.dtype == holding(want.dtype.name):
        got = got.view(want.dtype)
    assert (got.shape, got.dtype) == (want.shape, want.dtype), f"{got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if want.dtype.kind == "b":
        np.testing.assert_array_equal(got, want)
    else:
        loose = want.dtype.itemsize == 2 and want.dtype.kind not in "iu"
        step = 2.0**-6 if want.dtype.name == "bfloat16" else 0.0  # four units in the last of its eight bits
        np.testing.assert_allclose(
            got.astype(np.float64),
            want.astype(np.float64),
            rtol=max(rtol, step),
            atol=1e-3 if loose else max(atol, 1e-6),
        )


def is_supported(model: Any) -> bool:
    """Returns whether all inputs and outputs are tensors of types that we have."""
    items = [*model.graph.input, *model.graph.output]
    return all(i.type.HasField("tensor_type") and i.type.tensor_type.elem_type in DTYPES for i in items)


@contextlib.contextmanager
def limited(seconds: int) -> Any:
    """Raise TimeoutError in the block after so many seconds."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(case: Any, seconds: int = 60) -> Outcome:
    """Returns the outcome of one test; what counts as its operator is the kind of a test of a whole model."""
    operator = case.model.graph.node[0].op_type if "_expanded" not in case.name else "(expanded bodies)"
    if case.kind != "node":
        operator = case.kind
    if not is_supported(case.model):
        return Outcome(case.name, operator, "skipped")
    try:
        with limited(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(case)
    except Exception as error:  # whatever it is, it is the reason in the table
        return Outcome(case.name, operator, "failed", f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
    return Outcome(case.name, operator, "ok")


def table(outcomes: list[Outcome], first: str = "operator") -> str:
    """Returns a table by operator, or by kind, in Markdown."""
    ok = Counter(o.operator for o in outcomes if o.status == "ok")
    run = Counter(o.operator for o in outcomes if o.status != "skipped")
    rows = [f"| {name} | {ok[name]} | {count} |" for name, count in sorted(run.items())]
    total = f"{sum(ok.values())} of {sum(run.values())} tests pass ({100 * sum(ok.values()) / max(sum(run.values()), 1):.1f} %)."
    return "\n".join([total, "", f"| {first} | pass | of |", "|---|---|---|", *rows]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frontends.onnx_backend", description=__doc__)
    parser.add_argument("--kind", choices=("node", *KINDS))
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--markdown", type=Path)
    given = parser.parse_args()
    for first, kinds in (("operator", ("node",)), ("kind of model", KINDS)):
        start = time.monotonic()
        asked = [k for k in kinds if given.kind in (None, k)]
        if not asked:
            continue
        found = [c for k in asked for c in (cases() if k == "node" else model_cases(k)) if given.only in c.name]
        outcomes = [outcome(case, 60 if case.kind == "node" else 300) for case in found[:: given.every]]
        for o in outcomes:
            if o.status != "ok" and (o.status == "failed" or first != "operator"):
                print(f"{o.name}: {o.reason or 'types that are not supported'}")
        print(f"{table(outcomes, first).splitlines()[0]} {time.monotonic() - start:.0f} s", flush=True)
        if given.markdown is not None and first != "operator":
            given.markdown.write_text(written_page(given.markdown.read_text(), first, outcomes))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

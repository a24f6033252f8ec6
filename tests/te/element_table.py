"""What is made of the table of element-wise operators: its page, and the signatures that editors and type checkers read.

``python -m tests.te.element_table`` writes docs/reference/element-operators.md and te/ops/__init__.pyi.
"""

from __future__ import annotations

import ast
from pathlib import Path

from tilewright.te.ops.elements import ELEMENTS, REQUIRED, ElementOperator

ROOT = Path(__file__).resolve().parents[2]
PAGE, STUB = ROOT / "docs/reference/element-operators.md", ROOT / "te/ops/__init__.pyi"

HEAD = """# Element-wise operators

`python -m tests.te.element_table` writes this page from the rows of `te/ops/elements.py`. A row is
an operator of `te.ops` and of graphs. Readers convert the operators of these names to it, lazy arrays have the name of the array API, and graphs
replace the forms that programs write out. `NAME(p=…)` has another default there. Further operators, of which a reader makes several, are in the
tables of [ONNX](onnx-operators.md), [PyTorch](torch-operators.md) and [JAX](jax-operators.md).

| operator | ONNX | ATen | StableHLO | array API | written out |
|---|---|---|---|---|---|
"""


def page() -> str:
    """Returns the text of the page."""
    return HEAD + "".join([_line(ELEMENTS[name]) for name in sorted(ELEMENTS)])


def _line(row: ElementOperator) -> str:
    told = [p if d is REQUIRED else f"{p}={_number(d)}" for p, d in row.parameters.items()]
    cells = [f"`{row.name}({', '.join([*row.operand_names, *told])})`"]
    for system in ("onnx", "aten", "hlo", "array_api"):
        names = []
        for name, defaults in row.names(system):
            other = [f"{p}={_number(v)}" for p, v in defaults.items() if v != row.parameters[p]]
            names.append(f"`{name}({', '.join(other)})`" if other else f"`{name}`")
        cells.append(" ".join(names))
    forms = [f if isinstance(f, str) else f[0] for f in row.forms]
    cells.append("<br>".join([f"`{f}`" for f in forms]))
    return "| " + " | ".join(cells) + " |\n"


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def stub() -> str:
    """Returns the types of the names of ``te.ops``: its imports, and a signature for each row."""
    lines = ['"""The types of the ready operators; ``python -m tests.te.element_table`` writes this file."""', ""]
    lines += ["from typing import Any", "", "from ..tensor import Tensor"]
    others = []
    for node in ast.parse((ROOT / "te/ops/__init__.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module != "elements":
            names = ", ".join([f"{a.name} as {a.asname or a.name}" for a in node.names])
            lines.append(f"from .{node.module} import {names}")
        elif isinstance(node, ast.ImportFrom) and node.names[0].name != "*":
            lines.append("from .elements import ELEMENTS as ELEMENTS")
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            others.append(ast.unparse(node))
    lines.append("")
    for name in sorted(ELEMENTS):
        row = ELEMENTS[name]
        kind = "Tensor" if row.operands == 1 else "Any"
        told = [
            f"{p}: {type(d).__name__} = ..." if d is not REQUIRED else f"{p}: float" for p, d in row.parameters.items()
        ]
        given = [f"{o}: {kind}" for o in row.operand_names]
        lines.append(f"def {name}({', '.join([*given, *told, 'name: str = ...'])}) -> {kind}: ...")
    return "\n".join([*lines, "", *others, "", "__all__: list[str]", ""])


if __name__ == "__main__":
    PAGE.write_text(page())
    STUB.write_text(stub())

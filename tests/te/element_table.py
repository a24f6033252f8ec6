"""Writes the page of element-wise operators: ``python -m tests.te.element_table > docs/reference/element-operators.md``."""

from __future__ import annotations

from tilewright.te.ops.elements import ELEMENTS, REQUIRED, ElementOperator

HEAD = """# Element-wise operators

`python -m tests.te.element_table > docs/reference/element-operators.md` writes this page from the rows of `te/ops/elements.py`. A row is
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


if __name__ == "__main__":
    print(page(), end="")

"""The examples in README.md and docs/ run: blocks of Python, and ``>>>`` lines, whose output has to be as printed."""

import ast
import doctest
import json
import re
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from unittest import SkipTest

import pytest

sybil = pytest.importorskip("sybil", reason="Sybil runs the examples of the pages: pip install '.[test]'")
from sybil.document import Document  # noqa: E402
from sybil.parsers.myst import CodeBlockParser, PythonCodeBlockParser, SkipParser  # noqa: E402

from tilewright.codegen import Target  # noqa: E402
from tilewright.codegen.late_tables import BACKENDS  # noqa: E402
from tilewright.graph.graph_operators import OPERATORS  # noqa: E402
from tilewright.schedule.primitive import REGISTRY as PRIMITIVES  # noqa: E402
from tilewright.schedule.tensor_intrin import _REGISTERED as INTRINSICS  # noqa: E402

ROOT = Path(__file__).parents[2]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "\n```python\n" in page.read_text(encoding="utf-8")
]


@pytest.fixture
def registries_as_before():
    """What the examples register is taken out again."""
    before = [(table, dict(table)) for table in (BACKENDS, INTRINSICS, OPERATORS, PRIMITIVES)]
    yield
    for table, entries in before:
        table.clear()
        table.update(entries)


def write_c(example):
    """A block of C that begins with ``/* NAME */`` is written to that file, for the examples after it."""
    if named := re.match(r"/\* (\S+\.c) \*/", example.parsed):
        Path(named[1]).write_text(example.parsed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples(page, tmp_path, monkeypatch, registries_as_before):
    if page.name == "compiled-code.md" and Target("native").arch != "x86_64":
        pytest.skip("it shows x86-64 assembly")
    monkeypatch.chdir(tmp_path)
    parsers = [PythonCodeBlockParser(doctest_optionflags=FLAGS), CodeBlockParser("c", write_c), SkipParser()]
    document = Document.parse(str(page), *parsers)
    document.namespace |= {"__name__": "__main__", "installed": lambda name: find_spec(name) is not None}
    for example in document.examples():
        with suppress(SkipTest):  # <!-- skip: next if(not installed("onnx"), reason="…") --> above an example
            example.evaluate()


def test_every_page_is_found():
    assert len(PAGES) >= 12


def test_links_of_the_readme():
    """The site's own links are checked when it is built."""
    links = re.findall(r"\]\((?!http)([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(links) > 15 and [link for link in links if not (ROOT / link).exists()] == []


def test_notebook(tmp_path, monkeypatch):
    """Its cells run in order, and show what they show in the notebook: HTML."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((ROOT / "docs" / "start" / "notebook.ipynb").read_text(encoding="utf-8"))
    namespace, shown = {}, []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop()
        assert isinstance(last, ast.Expr) and cell["outputs"], "each cell ends with what it shows, and was executed"
        exec(compile(tree, "a cell", "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), "a cell", "eval"), namespace)
        shown.append(value._repr_html_())
    assert len(shown) == 4 and all("<" in text for text in shown)

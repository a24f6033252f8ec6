"""The house rules that a program can check, against the budgets of :mod:`.budgets`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import tilewright

from . import budgets
from .sources import LAYERS, circle, depth, floors, import_graph, inside, length, library, parameters

FILES = library(Path(tilewright.__file__).parent)
GRAPH = import_graph(FILES)
FOLDERS = sorted({source.folder for source in FILES.values()})


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_circle(folder):
    assert circle(inside(folder, FILES, GRAPH)) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_floors(folder):
    found = floors(inside(folder, FILES, GRAPH))
    assert len(found) <= budgets.FLOORS, found


@pytest.mark.parametrize("layer", LAYERS)
def test_lines_of_a_layer(layer):
    assert sum(s.lines for s in FILES.values() if s.place.startswith(layer + "/")) <= budgets.LINES[layer]


def test_lines_of_a_file():
    limits = budgets.LONGER_FILES
    assert [s.place for s in FILES.values() if s.lines > limits.get(s.place, budgets.LONGEST_FILE)] == []


def test_file_names_are_unique():
    names = Counter(s.path.name for s in FILES.values() if not s.is_front_page)
    assert sorted(name for name, count in names.items() if count > 1) == sorted(budgets.SHARED_NAMES)


@pytest.mark.parametrize(
    ("measure", "limit", "budget"),
    [(length, 60, budgets.LONG_FUNCTIONS), (depth, 4, budgets.DEEP_FUNCTIONS)],
    ids=["length", "depth"],
)
def test_form_of_functions(measure, limit, budget):
    found = [f"{s.place}:{f.lineno} {f.name}: {measure(f)}" for s in FILES.values() for f in s.functions() if measure(f) > limit]  # fmt: skip
    assert len(found) <= budget, found


def test_functions_with_many_parameters_have_a_reason():
    found = [f"{s.place} {f.name}" for s in FILES.values() for f in s.functions() if parameters(f) > 7]
    assert sorted(found) == sorted(budgets.MANY_PARAMETERS)


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert circle({"a": {"b"}, "b": set()}) == []


def test_floors_are_counted():
    assert floors({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == [["c"], ["b"], ["a"]]

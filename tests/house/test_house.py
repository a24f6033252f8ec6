"""No circle of imports: neither among the files of a folder nor among the folders in it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright

from .sources import circle, import_graph, inside, library

FILES = library(Path(tilewright.__file__).parent)
GRAPH = import_graph(FILES)
FOLDERS = sorted({source.folder for source in FILES.values()})


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_circle(folder):
    assert circle(inside(folder, FILES, GRAPH)) == []


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert circle({"a": {"b"}, "b": set()}) == []

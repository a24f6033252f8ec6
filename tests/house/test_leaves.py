"""Leaves are imported by tables alone, and each module outside of the rings has one place in the tables of :mod:`.leaves`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

import tilewright

from .leaves import LEAVES, LISTS, PARTS, SHARED
from .ring import OUTER_RING, RING, TABLES, kept, needs
from .sources import library

FILES = library(Path(tilewright.__file__).parent)
OUTSIDE = {
    name: source
    for name, source in FILES.items()
    if name not in kept(FILES, RING, OUTER_RING) and not source.is_front_page and name not in TABLES
}
IMPORTERS: dict[str, set[str]] = defaultdict(set)
"""The modules that import each one; tables do not count."""
for _name, _source in FILES.items():
    if not _source.is_front_page and _name not in TABLES and _name not in LISTS:
        for _other in needs(_source, FILES):
            IMPORTERS[_other].add(_name)


def floors_in(folder):
    """The modules in a folder of leaves that are a floor below leaves."""
    return {f"{folder.replace('/', '.')}.{name}" for names in LEAVES[folder] for name in names.split()}


def part_of(name):
    """The part that a module belongs to, or None."""
    folder = FILES[name].folder
    if folder in LEAVES or folder in SHARED:
        return None
    around = [part for part in PARTS if (folder + "/").startswith(part + "/")]
    return max(around, key=len, default=None)


def test_each_folder_has_one_place():
    folders = {source.folder for source in OUTSIDE.values()}
    unknown = {name for name in OUTSIDE if FILES[name].folder not in {*LEAVES, *SHARED} and part_of(name) is None}
    assert not unknown
    assert not LEAVES.keys() & SHARED.keys() and not (LEAVES.keys() | SHARED.keys()) & PARTS.keys()
    assert {*LEAVES, *SHARED} <= folders
    assert LISTS.keys() <= FILES.keys()


@pytest.mark.parametrize("folder", LEAVES)
def test_nothing_but_tables_imports_a_leaf(folder):
    floors = floors_in(folder)
    here = {name for name, source in OUTSIDE.items() if source.folder == folder} - LISTS.keys()
    assert {leaf: sorted(IMPORTERS[leaf]) for leaf in here - floors if IMPORTERS[leaf]} == {}


@pytest.mark.parametrize("folder", LEAVES)
def test_the_floors_below_leaves_are_imported(folder):
    assert {name for name in floors_in(folder) if name not in OUTSIDE or not IMPORTERS[name]} == set()


@pytest.mark.parametrize("folder", SHARED)
def test_what_is_shared_is_imported(folder):
    here = {name for name, source in OUTSIDE.items() if source.folder == folder} - LISTS.keys()
    assert {name for name in here if not IMPORTERS[name]} == set()


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_other_parts_as_its_row_says(part):
    inside = [name for name in OUTSIDE if part_of(name) == part]
    found = {part_of(other) for name in inside for other in needs(FILES[name], FILES) if other in OUTSIDE}
    assert found - {None, part} == PARTS[part]


@pytest.mark.parametrize("part", PARTS)
def test_a_layer_stands_without_its_parts(part):
    """Modules of the same layer that are outside of a part name it in tables alone."""
    inside = {name for name in OUTSIDE if part_of(name) == part}
    layer = part.split("/")[0]
    users = {user for name in inside for user in IMPORTERS[name] if user not in inside}
    assert {user for user in users if user.split(".")[0] == layer} == set()

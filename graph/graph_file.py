"""This module writes graphs to files and reads them.

A file is a zip archive of the text, and of each constant as an ``.npy`` file.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .graph import Graph, GraphError
from .text import named_constants, parse, script

SUFFIX = ".twgraph"
"""The suffix of the files."""

_TEXT = "graph.txt"


def save_graph(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph with its constants to ``path``, a file of the suffix ``.twgraph``; :func:`load_graph` reads it.

    ValueError for another suffix. A file that is there is replaced when the new one is complete.
    """
    place = Path(path)
    if place.suffix != SUFFIX:
        raise ValueError(f"{place}: the file of a graph ends in {SUFFIX}")
    partial = place.with_name(place.name + ".partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_TEXT, script(graph))
            for name, data in named_constants(graph).items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asarray(data, order="C"), allow_pickle=False)
        partial.replace(place)
    finally:
        partial.unlink(missing_ok=True)


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """Returns the graph that :func:`save_graph` wrote. GraphError for a file that is none."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read(_TEXT).decode()
            for name in archive.namelist():
                if name != _TEXT:
                    with archive.open(name) as file:
                        found[name.removesuffix(".npy")] = np.lib.format.read_array(file, allow_pickle=False)
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise GraphError(f"{os.fspath(path)} is no graph that save_graph wrote: {error}") from error
    return parse(text, found)

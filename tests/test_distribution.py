"""What is installed is the library: no tests, benchmarks, examples or pages; and type checkers find its types."""

from importlib import metadata

import pytest


def test_installed_files():
    listings = [[str(path) for path in d.files or ()] for d in metadata.distributions(name="tilewright")]
    files = next((files for files in listings if "tilewright/__init__.py" in files), None)
    if files is None:
        pytest.skip("not installed, or installed in editable mode")
    folders = {path.split("/")[1] for path in files if path.count("/") > 1 and path.startswith("tilewright/")}
    assert not folders & {"benchmarks", "build", "docs", "examples", "tests"}
    assert "tilewright/py.typed" in files and "tilewright/setup.py" not in files

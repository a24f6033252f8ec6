"""``program``: a test with this argument runs once per program of corpus.py."""

import importlib.util
import sys
from pathlib import Path

import pytest


def _load(name):
    path = Path(__file__).parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"tir_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


CORPUS = _load("corpus")


@pytest.fixture(scope="session")
def corpus():
    """The module corpus.py."""
    return CORPUS


def pytest_generate_tests(metafunc):
    if "program" in metafunc.fixturenames:
        metafunc.parametrize("program", list(CORPUS.PROGRAMS.values()), ids=list(CORPUS.PROGRAMS))

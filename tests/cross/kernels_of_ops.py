"""The kernels that the tests of te.ops make, with their inputs and results, collected once into a file."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.codegen as codegen

from .kernel_on_machine import Kernel

TESTS = Path(__file__).parents[1] / "te"


class Collector:
    """A plugin of pytest under which calls of compiled functions are recorded."""

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []
        self.test = ""
        self.load = tilewright.build  # loads what imports the function that is replaced now
        self.plain, codegen.compile = codegen.compile, self.compile  # before the tests import it

    def pytest_runtest_setup(self, item: Any) -> None:
        self.test = item.name

    def compile(self, func: Any, *rest: Any, **named: Any) -> Any:
        """Return the compiled function, which records its first call."""
        module = self.plain(func, *rest, **named)

        def call(*arrays: Any) -> None:
            before = [np.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
            module(*arrays)
            after = [np.array(a) if isinstance(a, np.ndarray) else a for a in arrays]
            self.kernels.append(Kernel(self.test, func.script(), before, after))

        return call


def kernels_of_ops(file: Path) -> list[Kernel]:
    """Return the kernels in ``file``, which the tests make when it is not there. RuntimeError when a test fails."""
    if not file.exists():
        collector = Collector()
        code = pytest.main(["-q", *map(str, sorted(TESTS.glob("test_ops_*.py")))], plugins=[collector])
        codegen.compile = collector.plain
        if code:
            raise RuntimeError("a test of te.ops fails on this machine")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(pickle.dumps(collector.kernels))
    return list(pickle.loads(file.read_bytes()))

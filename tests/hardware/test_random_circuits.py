"""Random loops, whose accesses overlap in all ways, as pipelines: what iterations need of each other is kept."""

import random

import pytest

import tilewright as tw

from .test_circuits import agree, simulated

BUFFERS = {"A": (40, "int8"), "B": (34, "uint8"), "C": (29, "int16")}


class Programs:
    """Texts of programs, drawn from a seed."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.loops = {v: self.draw.choice([1, 2, 3, 5, 7]) for v in "ijk"[: self.draw.randint(1, 3)]}

    def index(self, buffer):
        """An index inside a buffer: linear, backwards, or with a number from memory."""
        most = self.draw.randint(0, 4)
        terms = [str(most)]
        for v, extent in self.loops.items():
            factor = self.draw.choice([0, 1, 1, 2, 3])
            if most + factor * (extent - 1) < BUFFERS[buffer][0]:
                most += factor * (extent - 1)
                terms.append(f"{v} * {factor}")
        text = " + ".join(terms)
        if self.draw.random() < 0.1:
            return f"({text} + T.Cast('int32', B[{most % 34}])) % {BUFFERS[buffer][0]}"
        return f"{most} - ({text})" if self.draw.random() < 0.2 else text

    def value(self, dtype, depth=0):
        if depth > 2 or self.draw.random() < 0.4:
            buffer = self.draw.choice(list(BUFFERS))
            return f"T.Cast('{dtype}', {buffer}[{self.index(buffer)}])"
        parts = [self.value(dtype, depth + 1) for _ in range(2)]
        return f"({parts[0]} {self.draw.choice(['+', '+', '-', '*', '//', '%'])} {parts[1]})"

    def statement(self, indent):
        if self.draw.random() < 0.25:
            test = f"{self.value('int8', 2)} < {self.value('int8', 2)}"
            return f"{indent}if {test}:\n{self.statement(indent + '    ')}"
        buffer = self.draw.choice(list(BUFFERS))
        return f"{indent}{buffer}[{self.index(buffer)}] = {self.value(BUFFERS[buffer][1])}\n"

    def text(self):
        parameters = ", ".join([f"{name}: T.Buffer(({n},), '{dtype}')" for name, (n, dtype) in BUFFERS.items()])
        text, indent = f"@T.prim_func\ndef main({parameters}):\n", "    "
        pipeline = self.draw.choice(list(self.loops))
        for v, extent in self.loops.items():
            wishes = f", annotations={{'pragma_pipeline': 0, 'pragma_array_partition': [['A', 0, {self.draw.randint(1, 3)}]]}}"
            text += f"{indent}for {v} in T.serial({extent}{wishes if v == pipeline else ''}):\n"
            indent += "    "
        return text + "".join([self.statement(indent) for _ in range(self.draw.randint(1, 4))])


@simulated
@pytest.mark.parametrize("seed", range(12))
def test_random_pipelines(seed):
    func = tw.tir.parse(Programs(seed).text())
    agree(func, seed=seed)

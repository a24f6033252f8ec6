"""Annotations: which loops unrolling by steps chooses, and warnings of keys that nothing reads."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import warnings
from pathlib import Path

import pytest

from tilewright import tir
from tilewright.codegen.lower import PASSES, lower, pipeline, run_passes
from tilewright.codegen.machine.target import Target
from tilewright.schedule import Schedule
from tilewright.tir.annotations import ANNOTATIONS
from tilewright.tir.parser import parse
from tilewright.tir.walk import pre_order

sys.path.insert(0, str(Path(__file__).parent))
from test_lower import AVX512, check  # noqa: E402

SUMS = """
@T.prim_func
def main(A: T.Buffer((13, 17, 5), "float32"), B: T.Buffer((13, 17), "float32")):
    for i, j, k in T.grid(13, 17, 5):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                B[vi, vj] = T.float32(0)
            B[vi, vj] = B[vi, vj] + A[vi, vj, vk]
"""


def kinds_of(sch: Schedule) -> dict[str, str]:
    """The loops of each name after loops to unroll were chosen."""
    names = [p.name for p in PASSES]
    func = run_passes(sch.func, Target(AVX512), PASSES[: names.index("choose_unrolled") + 1])
    return {n.loop_var.name: n.kind for n in pre_order(func.body) if isinstance(n, tir.For)}


@pytest.mark.parametrize(
    "most, explicit, unrolled",
    [
        (0, 1, ""),
        (4, 1, ""),
        (5, 1, "k"),  # one store in each of five trips
        (101, 1, "k"),  # 17 * (1 + 5) are 102
        (102, 1, "jk"),
        (1325, 1, "jk"),  # 13 * 17 * 6 are 1326
        (1326, 1, "ijk"),
        (1326, 0, ""),
    ],
)
def test_unrolling_by_steps(most, explicit, unrolled):
    sch = Schedule(parse(SUMS))
    i = sch.get_loops("B")[0]
    sch.annotate(i, "pragma_auto_unroll_max_step", most)
    sch.annotate(i, "pragma_unroll_explicit", explicit)
    kinds = kinds_of(sch)
    assert "".join(sorted(n for n, kind in kinds.items() if kind == "unrolled")) == unrolled
    check(sch.func, AVX512)


def test_unrolling_by_steps_inside_other_loops():
    """The pragma of an inner loop counts there; parallel and long loops stay; a vector counts as one store."""
    sch = Schedule(parse(SUMS))
    i, j, k = sch.get_loops("B")
    jo, ji = sch.split(j, [None, 8])
    sch.reorder(i, jo, k, ji)
    sch.parallel(i)
    sch.vectorize(ji)
    sch.annotate(i, "pragma_auto_unroll_max_step", 1000)
    sch.annotate(jo, "pragma_auto_unroll_max_step", 4)
    assert kinds_of(sch)["k"] == "serial"
    sch.unannotate(jo, "pragma_auto_unroll_max_step")
    kinds = kinds_of(sch)
    assert kinds["k"] == "unrolled" and kinds["i"] == "parallel" and "vectorized" in kinds.values()
    check(sch.func, AVX512)


def test_a_block_may_ask_for_what_is_inside_it():
    sch = Schedule(parse(SUMS))
    sch.annotate(sch.blockize(sch.get_loops("B")[1]), "pragma_auto_unroll_max_step", 102)
    assert {n for n, kind in kinds_of(sch).items() if kind == "unrolled"} == {"j_init", "j", "k"}


def test_a_pragma_outlives_its_loop_of_one_trip():
    sch = Schedule(parse(SUMS))
    one, _ = sch.split(sch.get_loops("B")[2], [1, None])
    sch.annotate(one, "pragma_auto_unroll_max_step", 5)
    assert kinds_of(sch)["k_1"] == "unrolled"


def test_steps_are_a_whole_number():
    sch = Schedule(parse(SUMS))
    sch.annotate(sch.get_loops("B")[0], "pragma_auto_unroll_max_step", "many")
    with pytest.raises(ValueError, match="pragma_auto_unroll_max_step of loop i is 'many'; it is a whole number"):
        lower(sch.func, AVX512)


@pytest.mark.parametrize("key", [key for key in ANNOTATIONS if key.startswith("pragma_")])
@pytest.mark.parametrize("value", [None, -1, 1.5, "x", "threadIdx.x", [[]], ["A", 3], {"A": "x"}, {"A": -1}], ids=str)
def test_senseless_values_are_refused_or_have_no_effect(key, value):
    """No error of Python comes out, only a ValueError that names the pragma."""
    for of_block in (False, True):
        sch = Schedule(parse(SUMS))
        sch.annotate("B" if of_block else sch.get_loops("B")[1], key, value)
        try:
            lower(sch.func, AVX512)
        except ValueError as error:
            assert key in str(error)


@pytest.fixture
def warned(monkeypatch):
    """What lowering warns of, and nothing said before."""
    monkeypatch.setattr(pipeline, "_warned", set())

    def words(sch: Schedule) -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            lower(sch.func, AVX512)
        return [str(w.message) for w in found]

    return words


def test_keys_that_nothing_reads_are_warned_of_once(warned):
    sch = Schedule(parse(SUMS))
    i, j, k = sch.get_loops("B")
    sch.annotate(i, "software_pipeline_stage", [0, 1])
    sch.annotate(j, "pragma_unrol_factor", 2)
    sch.annotate(k, "pragma_unrol_factor", 2)
    sch.annotate("B", "buffer_dim_aling", [])
    sch.annotate("B", "axis", 1)  # a fact about the computation
    assert sorted(warned(sch)) == [
        "nothing reads the annotation 'buffer_dim_aling' (main, block 'B'); did you mean buffer_dim_align?",
        "nothing reads the annotation 'pragma_unrol_factor' (main, loop j); did you mean pragma_unroll_factor?",
        "nothing reads the annotation 'software_pipeline_stage' (main, loop i); register_annotation makes one of your "
        "own known",
    ]
    assert warned(sch) == []


def test_a_registered_key_is_known(warned, monkeypatch):
    monkeypatch.setattr("tilewright.tir.annotations.ANNOTATIONS", dict(ANNOTATIONS))
    sch = Schedule(parse(SUMS))
    sch.annotate(sch.get_loops("B")[0], "my_pass.width", 4)
    tir.register_annotation("my_pass.width", "loop: how wide my pass makes it")
    assert warned(sch) == []


def test_every_key_that_a_pass_reads_is_known():
    package, found = sys.modules["tilewright.codegen.lower"], set()
    for module in pkgutil.iter_modules(package.__path__):
        for value in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values():
            if isinstance(value, str) and re.fullmatch(r"pragma_\w+|tir\.horizontal_\w+|buffer_dim_\w+", value):
                found.add(value)
    assert len(found) >= 8 and found <= set(ANNOTATIONS)
    documented = (Path(__file__).parents[2] / "docs" / "reference" / "compiled-code.md").read_text()
    assert all(f"`{key}:" in documented for key in found if key != "buffer_dim_align")

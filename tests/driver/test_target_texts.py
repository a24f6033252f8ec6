"""Targets may be texts, and databases paths, wherever the library takes them."""

import importlib
import inspect

import pytest

import tilewright as tw
from tilewright import codegen, te, tuner
from tilewright.te import ops
from tilewright.tuning_db import Database

lowering = importlib.import_module("tilewright.codegen.lower")  # the package; codegen.lower is its function

TEXT = "llvm -mcpu=x86-64-v2 -num-cores=1"

RUNNERS = {"LocalRunner.open", "Runner.open"}  # the session has made a Target of the text
MADE_BY_LOWERING = {"LoweredFunc", "LoweredFunc.of"}


def relu():
    x = te.placeholder((4, 16), name="x")
    return te.create_prim_func([x, ops.relu(x)])


CALLS = {
    "Space": lambda func, target: tuner.Space(func, target).machine.vector_bytes,
    "default_schedule": lambda func, target: tuner.default_schedule(func, target).func.script(),
    "MachineModel.of": lambda func, target: tuner.MachineModel.of(target),
    "TuningSession": lambda func, target: tuner.TuningSession(func, target).target,
    "lower": lambda func, target: codegen.lower(func, target).script(),
    "run_passes": lambda func, target: lowering.run_passes(func, target).script(),
    "compile": lambda func, target: codegen.compile(func, target).get_source("ll"),
    "build": lambda func, target: tw.build(func, target).get_source("ll"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_text_is_the_target_it_describes(call):
    assert CALLS[call](relu(), TEXT) == CALLS[call](relu(), tw.Target(TEXT))


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_text_says_so(call):
    with pytest.raises(codegen.TargetError, match="no such kind; did you mean native"):
        CALLS[call](relu(), "nativ")


def test_the_tuner_takes_a_text_and_a_path(tmp_path):
    path = tmp_path / "t.db"
    result = tuner.tune(relu(), "native -num-cores=1", trials=1, db=path)
    with Database(path) as db:
        assert db.best(relu(), "native -num-cores=1").run_seconds == result.best_seconds


@pytest.mark.parametrize("package", ["tilewright", "tilewright.codegen", "tilewright.codegen.lower", "tilewright.tuner",
                                     "tilewright.tuning_db", "tilewright.driver"])  # fmt: skip
def test_no_signature_asks_for_a_target_object(package):
    front_page = importlib.import_module(package)
    callers = []
    for name in front_page.__all__:
        made = getattr(front_page, name)
        found = [(name, made)]
        if inspect.isclass(made):
            results = "__dataclass_fields__" in vars(made)  # made by the library
            found = [(f"{name}.{k}", f) for k, f in inspect.getmembers(made, callable) if not k.startswith("_")]
            found += [] if results else [(name, made.__init__)]
        for called, function in found:
            if called in RUNNERS | MADE_BY_LOWERING or not (inspect.isfunction(function)):
                continue
            target = inspect.signature(function).parameters.get("target")
            if target is not None and target.annotation == "Target" and "tuning_db" not in function.__module__:
                callers.append(called)
    assert callers == []

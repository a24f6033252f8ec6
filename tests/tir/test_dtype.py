"""Data types are texts that know their parts."""

import copy
import json
import pickle

import numpy as np
import pytest

from tilewright.tir import Buffer, Call, Cast, IntImm, Var
from tilewright.tir.expr import DType, max_value, min_value, promote, to_numpy


@pytest.mark.parametrize(
    ("text", "kind", "bits", "lanes", "size"),
    [
        ("float32", "float", 32, 1, 4), ("bfloat16", "bfloat", 16, 1, 2), ("bool", "bool", 1, 1, 1),
        ("int8x16", "int", 8, 16, 16), ("uint4", "uint", 4, 1, 1), ("handle", "handle", 64, 1, 8),
        ("void", "void", 0, 1, 0), ("bfloat16x8", "bfloat", 16, 8, 16), ("boolx4", "bool", 1, 4, 4),
    ],
)  # fmt: skip
def test_parts(text, kind, bits, lanes, size):
    t = DType(text)
    assert t == text and str(t) == text and hash(t) == hash(text) and f"{t}" == text
    assert (t.kind, t.bits, t.lanes, t.bytes) == (kind, bits, lanes, size)
    assert t.element == text.partition("x")[0] and t.element.lanes == 1
    assert t.is_float == (kind in ("float", "bfloat")) and t.is_int == (kind in ("int", "uint"))
    assert t.is_signed == (kind == "int") and t.is_bool == (kind == "bool")


def test_there_is_one_object_for_each_text():
    t = DType("float32x16")
    assert DType("float32x16") is t and DType(t) is t
    assert t.with_lanes(16) is t and t.with_lanes(1) is t.element is DType("float32")
    assert t.element.with_lanes(16) is t
    assert pickle.loads(pickle.dumps(t)) is t and copy.deepcopy(t) is t
    assert json.dumps([t]) == '["float32x16"]'


@pytest.mark.parametrize("text", ["", "float33", "int", "bool8", "float32x0", "bfloat16x", "double", 5, None])
def test_what_is_no_data_type(text):
    if text == "int":
        assert DType(text).bits == 32
    else:
        with pytest.raises(ValueError):
            DType(text)


def test_nodes_hold_data_types_whatever_they_are_given():
    x = Var("x", "int64")
    for node in (x, IntImm(1, "uint8"), Cast("int16x4", x), Call("tir.exp", (x,), "float32"), Buffer("B", (), "int8")):
        assert type(node.dtype) is DType
    with pytest.raises(ValueError, match="not a data type"):
        Var("x", "in32")


def test_limits_and_numpy():
    assert (min_value("int8"), max_value("int8"), max_value("uint8"), max_value("bool")) == (-128, 127, 255, 1)
    assert to_numpy("bfloat16") == np.uint16 and to_numpy(DType("int32")) == np.int32
    assert np.zeros(3, DType("float64")).dtype == np.float64


@pytest.mark.parametrize(
    ("a", "b", "out"),
    [
        ("int32", "int32", "int32"), ("int8", "uint32", "int32"), ("int64", "float16", "float16"), ("bool", "int8", "int8"),
        ("int32x4", "int64", "int64x4"), ("bfloat16", "float16", "float16"), ("uint8", "int8", "int8"),
    ],
)  # fmt: skip
def test_promotion(a, b, out):
    assert promote(a, b) is promote(b, a) is DType(out)

"""pad_before_offset: what it makes is what the stage made, for all values; what it refuses."""

import numpy as np
import pytest

from tilewright.schedule import Schedule, ScheduleError, Trace
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse


def stage(value, dtype="uint8", z="uint8"):
    """A stage that chooses between ``value``, at the element ``vj - 1`` of a row, and another number."""
    return parse(f"""
@T.prim_func
def main(X: T.Buffer((4, 8), "{dtype}"), z: T.Buffer((1,), "{z}"), zs: T.Buffer((4,), "{z}"), zj: T.Buffer((10,), "{z}"), P: T.Buffer((4, 10), "int32")):
    for i, j in T.grid(4, 10):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            P[vi, vj] = {value}
""")


ELEMENT = 'T.cast(X[vi, vj - 1], "int32")'


def inside(value, other="0"):
    return f"T.if_then_else(1 <= vj and vj < 9, {value}, {other})"


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    "value",
    [f"{ELEMENT} - 7", f"{ELEMENT} + (-127)", f'{ELEMENT} - T.cast(z[0], "int32")', f'{ELEMENT} - T.cast(zs[vi], "int32")', ELEMENT],
)  # fmt: skip
def test_the_result_is_the_same(dtype, value):
    func = stage(inside(value), dtype, dtype)
    sch = Schedule(func)
    padded = sch.pad_before_offset("P")
    assert sch.get(padded).writes[0].buffer.dtype == dtype
    again = Schedule(func)
    Trace.from_json(sch.trace.as_json()).apply_to_schedule(again)
    info = np.iinfo(dtype)
    rng = np.random.default_rng(0)
    for seen in (info.min, info.max, None):
        x, z, zs, zj = (
            rng.integers(info.min, info.max, n, endpoint=True).astype(dtype) for n in [(4, 8), (1,), (4,), (10,)]
        )
        if seen is not None:
            z[:], zs[:] = seen, seen
        less = 7 if "7" in value and "127" not in value else 127 if "127" in value else 0
        less = z.astype("int32") if "z[0]" in value else zs.astype("int32")[:, None] if "zs" in value else less
        want = np.pad(x.astype("int32") - less, [(0, 0), (1, 1)])
        for made in (sch, again):
            got = np.full((4, 10), 77, "int32")
            interpret(made.func, x, z, zs, zj, got)
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (stage(inside(f"{ELEMENT} - 256")), "not less any number of uint8"),
        (stage(inside(f"{ELEMENT} + 1")), "not less any number of uint8"),
        (stage(inside(f"{ELEMENT} - 129", other="0"), "int8"), "not less any number of int8"),
        (stage(inside(f'{ELEMENT} - T.cast(z[0], "int32")'), z="int8"), "not less any number of uint8"),
        (stage(inside(f'{ELEMENT} - T.cast(z[0], "int32")'), z="int16"), "not less any number of uint8"),
        (stage(inside(f'{ELEMENT} - T.cast(zj[vj], "int32")')), "is no element"),
        (stage(inside(f"{ELEMENT} - 7", other="1")), "does not pad with zeros"),
        (stage('T.cast(X[vi, T.min(vj, 7)], "int32") - 7'), "does not pad with zeros"),
        (stage(inside(f"{ELEMENT} - 7"), "int32"), "does not hold more"),
        (stage(inside(f"{ELEMENT} * 2 - 7")), "is no element"),
    ],
)
def test_what_it_refuses(func, reason):
    with pytest.raises(ScheduleError, match=reason):
        Schedule(func).pad_before_offset("P")

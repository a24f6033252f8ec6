"""Wrong calls, each of which mypy --strict must find; the comment names the error's code."""

from __future__ import annotations

import tilewright as tw
from tilewright import te

A = te.placeholder((4, 4), name="A")
B = te.compute((4, 4), lambda i, j: A[i, j] + 1.0, name="B")
sch = tw.Schedule(te.create_prim_func([A, B]))
block = sch.get_block("B")
i, j = sch.get_loops(block)

te.placeholder((4, 4), name=3)  # arg-type
te.placeholder((4, "n"))  # arg-type
te.compute((4, 4), 5)  # call-overload
te.compute((4,), lambda i: A[i, 0], nam="B")  # call-overload
te.create_prim_func(5)  # arg-type
te.create_prim_fun([A])  # attr-defined
sch.splitt(i, [2, 2])  # attr-defined
sch.split(block, [2, 2])  # arg-type
sch.split(i, ["a", 2])  # list-item
sch.split(i, factor="a")  # arg-type
sch.vectorize("j")  # arg-type
sch.vectorize(i, j)  # call-arg
sch.compute_at(block)  # call-arg
sch.reorder(block, i)  # arg-type
x = sch.parallel(i)  # func-returns-value
sch.get_block(3)  # arg-type
sch.trace.as_pyton()  # attr-defined
tw.biuld([A, B])  # attr-defined
tw.build([A, B], 5)  # call-overload
tw.build([A, B], trials=3)  # call-overload
tw.build([A, B]).get_sorce()  # attr-defined
tw.tune([A, B], trials="many")  # call-overload
tw.tune([A, B]).best_second  # attr-defined
tw.Database(3)  # arg-type

"""This package has networks of operators, which front ends make of models and which are divided into kernels.

>>> from tilewright.graph import Builder
>>> b = Builder("net")
>>> x = b.input("x", (2, 3))
>>> print(b.graph([b.op("relu", b.op("add", x, b.constant(1.0)))]))
def net(x: float32[2, 3]):
    c: float32[()] = constant(1.0)
    add: float32[2, 3] = add(x, c)
    relu: float32[2, 3] = relu(add)
    return relu

:class:`Graph`, :class:`Node` and :class:`Value` are the parts (:mod:`.graph`), :func:`register_operator` adds an
operator made of tensor expressions (:mod:`.graph_operators`), :func:`parse` reads the text (:mod:`.text`),
:func:`verify` checks a graph, :func:`evaluate` computes it operator by operator (:mod:`.reference`),
:data:`.passes.PASSES` rewrite it, and :func:`fuse` divides it into kernels (:mod:`.kernels`), which
:func:`order_kernels` puts in an order and whose results :func:`plan_memory` places. :func:`add_scan` adds a loop over
steps, :func:`add_while` one that goes on as long as a condition holds (:mod:`.builder`).
:func:`add_computed_size` makes a number that the network computes a symbolic size (:mod:`.computed_sizes`).

What passes ask of the layers above (running a function, predicting its time) is handed in as ``Services``, which
``driver/graph_services.py`` makes. ``graph/algebra.py`` and ``graph/patterns.py`` hold rewrite rules.
"""

from .builder import Builder, add_cond, add_scan, add_while
from .computed_sizes import add_computed_size
from .graph import Graph, GraphError, Node, Value, specialize
from .graph_file import load_graph, save_graph
from .graph_operators import register_operator
from .kernels import Division, Kernel, Services, fuse, unfused
from .memory_plan import MemoryPlan, order_kernels, plan_memory
from .passes import PASSES, GraphPass, PassTimes, prepare, register_pass, register_rule
from .reference import evaluate, verify
from .text import named_constants, parse

__all__ = [
    "Builder", "Division", "Graph", "GraphError", "GraphPass", "Kernel", "MemoryPlan", "Node", "PASSES", "PassTimes",
    "Services", "Value", "add_computed_size", "add_cond", "add_scan", "add_while", "evaluate", "fuse", "load_graph", "named_constants", "order_kernels", "parse", "plan_memory", "prepare", "register_operator", "register_pass",
    "register_rule", "save_graph", "specialize", "unfused", "verify",
]  # fmt: skip

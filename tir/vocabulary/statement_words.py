"""This module defines the words for statements, blocks and declarations, which only the parser understands."""

from __future__ import annotations

from typing import Any, NoReturn


class Word:
    """Represents a name in ``T`` that is valid inside a ``@T.prim_func`` only. A call elsewhere raises an
    explanation."""

    def __init__(self, name: str, doc: str) -> None:
        self.name = name
        self.__doc__ = doc

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"T.{self.name} has a meaning only inside a function decorated with @T.prim_func")

    def __repr__(self) -> str:
        return f"T.{self.name}"


class BufferWord(Word):
    """Represents ``T.Buffer((16, 16), "float32")``, the type of a parameter. Python evaluates annotations, so it is
    callable.

    ``T.Buffer[(16, 16), "float32"]``, the older spelling, means the same.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    def __getitem__(self, key: Any) -> Any:
        return self


_DOCS = {
    "grid": "for i, j in T.grid(16, 16): nested serial loops from 0",
    "serial": "for i in T.serial(16) or T.serial(start, stop), annotations={...}: a loop in order",
    "parallel": "for i in T.parallel(16): iterations in any order, by several threads",
    "vectorized": "for i in T.vectorized(16): all iterations at once, in the lanes of vectors",
    "unroll": "for i in T.unroll(4): the body repeated",
    "thread_binding": 'for i in T.thread_binding(4, thread="threadIdx.x"): one iteration per thread of the axis',
    "block": 'with T.block("C"): a unit of computation with axes of its own',
    "init": "with T.init(): what runs when all reduction axes are at their start",
    "where": "T.where(condition): the block runs where the condition holds",
    "reads": "T.reads(A[i, 0:4], ...): what the block reads; found out when left out",
    "writes": "T.writes(C[i, j]): what the block writes; found out when left out",
    "block_attr": "T.block_attr({...}): annotations of the block",
    "alloc_buffer": 'B = T.alloc_buffer((16,), "float32", scope="local"): a buffer that lives in the block',
    "match_buffer": "A = T.match_buffer(a, (n, 16)): the buffer of a parameter; or another view of a region, in a block",
    "decl_buffer": "B = T.decl_buffer((16,)), or with ... as B: a buffer that lives in what follows",
    "allocate": 'p = T.allocate([16], "float32", "global"): the pointer of a buffer that lives in what follows; older TVM',
    "local_scalar": "x = T.local_scalar(T.int32): x will be a name for a value; newer TVM",
    "comm_reducer": "T.comm_reducer(lambda x, y: x + y, [T.float32(0)]): what combines two values, and what changes none",
    "target": "T.target({...}): a target among a function's attributes, kept as it is written",
    "func_attr": "T.func_attr({...}): attributes of the function",
    "LetStmt": "with T.LetStmt(value) as x: a name for a value; x: T.int32 = value says the same to the end of the body",
    "attr": "T.attr(node, key, value): a remark about what follows, or with T.attr(...): about the body",
    "Assert": "with T.Assert(condition, message): the body runs when the condition holds, else the program stops",
    "evaluate": "T.evaluate(x): x for its effect",
    "buffer_store": "T.buffer_store(A, value, [i, j]): A[i, j] = value",
    "launch_thread": 'with T.launch_thread("threadIdx.x", 4) as tx: the threads of an axis',
    "env_thread": 'tx = T.env_thread("threadIdx.x"): the variable of a thread axis',
    "iter_var": 'T.iter_var(v, T.Range(0, 4), "thread", "threadIdx.x"): an axis, in T.attr',
    "Range": "T.Range(start, stop): a half-open interval",
    "Let": "T.Let(body, where={x: value}): an expression with a name for a value",
    "meta_var": "x = T.meta_var(value): x stands for the value itself, no variable is made",
    "var": 'n = T.var("int32"): a size, as n = T.int32()',
    "axis.remap": 'vi, vk = T.axis.remap("SR", [i, k]): axes over the very ranges of the loops i and k',
    "axis.spatial": "vi = T.axis.spatial(16, value): an axis whose iterations are independent",
    "axis.reduce": "vk = T.axis.reduce(16, value): an axis that is reduced over",
    "axis.opaque": "v = T.axis.opaque(16, value): an axis about which nothing is known",
    "axis.scan": "v = T.axis.scan(16, value): an axis whose iterations must run in order",
}

WORDS: dict[str, Word] = {name: Word(name, doc) for name, doc in _DOCS.items()}
"""The words, by the name after ``T.``; :data:`ALIASES` are other spellings."""

WORDS["Buffer"] = BufferWord("Buffer", 'A: T.Buffer((16, 16), "float32"): the type of a buffer parameter')

ALIASES = {
    "sblock": "block", "sblock_alloc_buffer": "alloc_buffer", "sblock_attr": "block_attr", "unrolled": "unroll",
    "let": "LetStmt", "bind": "LetStmt", "Bind": "LetStmt", "allocate_buffer": "decl_buffer", "vectorize": "vectorized",
}  # fmt: skip

for _other, _name in ALIASES.items():
    WORDS[_other] = WORDS[_name]


class Axis:
    """Represents ``T.axis``, which binds the axes of a block. ``S`` and ``R`` are short for ``spatial`` and
    ``reduce``."""

    remap = WORDS["axis.remap"]
    spatial = S = WORDS["axis.spatial"]
    reduce = R = WORDS["axis.reduce"]
    opaque = O = WORDS["axis.opaque"]  # noqa: E741
    scan = C = WORDS["axis.scan"]

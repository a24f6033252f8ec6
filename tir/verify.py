"""This module checks the invariants that every program satisfies between any two steps.

 1. A variable is defined before it is used, and used only where its definition holds: in the loop, block, let or
    function that defines it. Sizes in the shapes of parameters' buffers are defined by them.
 2. No variable and no buffer is defined twice.
 3. A buffer is a parameter's, or allocated or matched around its use; where there are no blocks, it may also be a view,
    another shape of the memory of such a buffer. An allocated buffer has a pointer of its own.
 4. An access has one integer index per dimension; vectors among them have the same lanes. A predicate is bool, with
    the lanes of the access.
 5. A stored value has the buffer's data type, with the lanes of the access.
 6. Operands of a binary operation have one data type; conditions and their connectives are bool; the lanes of all
    parts of a vector operation agree; a constant fits its type. No operation computes on a storage type.
 7. A loop variable, its start and its extent are integers of one type; a thread axis is named where the loop is bound
    to one, and nowhere else.
 8. A block has one value of the right type per axis. Its predicate is bool.
 9. A block with axes uses these, not the variables of loops around it.
10. A block other than the root declares the buffers that it writes, and those that it reads (its own output aside).
    One without axes that declares nothing holds blocks, and accesses nothing outside of these. A declared region holds
    each access that is always made and whose distance from the region is a known number (:mod:`.analysis.regions`);
    other accesses, and those through a pointer, are not checked.
11. A matched buffer has the data type and the scope of its source, and no more dimensions.
12. A sequence holds two statements at least, none of them a sequence.
13. A program with blocks is one block without axes, its root.
14. Nothing of te is left: no reduction or tensor inside an expression.
15. A call names an operation of :mod:`.expr.intrinsics`, with as many arguments as it takes, of types that fit it and give
    the type of the call.

A call of :func:`verify` checks all of them in one walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .analysis.regions import undeclared_access
from .expr import (
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    Expr,
    FloatImm,
    IntImm,
    IterVar,
    Let,
    LogicalOp,
    Not,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Var,
    max_value,
    min_value,
)
from .expr.deep_recursion import with_room
from .expr.intrinsics import OPERATIONS
from .expr.node import declared_fields, marked_text
from .expr.op import refuse_storage
from .stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IRModule,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
)

_AXIS_KINDS = ("spatial", "reduce", "opaque", "scan", "thread")


class VerifyError(ValueError):
    """Raised for a program that breaks an invariant; it says which one, and where in the text."""

    def __init__(self, message: str, func: PrimFunc, node: Any) -> None:
        self.message = message
        self.node = node
        text = marked_text(func, {node: "here"} if node is not None else ())
        super().__init__(f"function {func.name} is not well-formed: {message}\n{text}")


@with_room
def verify(program: PrimFunc | IRModule) -> None:
    """Raise :class:`VerifyError` unless every invariant of this module's list holds."""
    functions = program.functions.values() if isinstance(program, IRModule) else (program,)
    for func in functions:
        _Verifier(func).run()


class _Verifier:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.spot: Any = None
        self.known: set[Any] = set()  # variables and buffers in scope now
        self.order: list[Any] = []  # the same in order of definition: leaving a scope removes only its end
        self.ever: set[Any] = set()  # everything defined so far
        self.definitions = 0
        self.hidden: dict[Var, str] = {}  # loop variables that the innermost block with axes must not use
        self.loops: list[Var] = []
        self.blocks: list[tuple[Block, set[Buffer], set[Buffer]]] = []
        self.root = func.body.block if isinstance(func.body, BlockRealize) else None
        self.checked: dict[Expr, bool] = {}  # expressions that are right in this scope; statements share many
        self.level: dict[Buffer, int] = {}  # how many blocks were open around a buffer's declaration

    def fail(self, message: str) -> VerifyError:
        return VerifyError(message, self.func, self.spot)

    def check(self, condition: bool, message: str) -> None:
        if not condition:
            raise self.fail(message)

    # Definitions

    def enter(self, item: Any) -> None:
        self.known.add(item)
        self.order.append(item)

    def leave(self, mark: int) -> None:
        """Remove from the scope everything that was defined after the first ``mark`` items."""
        if len(self.order) > mark:
            self.known.difference_update(self.order[mark:])
            del self.order[mark:]
            self.checked = {}

    def define(self, var: Var) -> None:
        if not isinstance(var, Var):
            raise self.fail(f"{var!r} is defined as if it were a variable")
        if var in self.ever:
            raise self.fail(f"variable `{var.name}` is defined twice")
        self.ever.add(var)
        self.definitions += 1
        self.enter(var)

    def declare(self, buffer: Buffer, symbols: bool = False) -> None:
        if buffer in self.ever:
            raise self.fail(f"buffer `{buffer.name}` is defined twice")
        self.ever.add(buffer)
        self.definitions += 1
        for e in (*buffer.shape, *buffer.strides, buffer.elem_offset):
            if symbols:
                self.symbols(e)
            self.expr(e)
            self.check(e.dtype.is_int and e.dtype.lanes == 1, f"a size of buffer `{buffer.name}` is {e.dtype}")
        self.enter(buffer)
        self.level[buffer] = len(self.blocks)
        if buffer.data not in self.known:
            self.enter(buffer.data)

    def allocate(self, buffer: Buffer) -> None:
        self.check(buffer.data not in self.known, f"`{buffer.name}` is allocated but has the pointer of another buffer")
        self.declare(buffer)

    def symbols(self, e: Expr) -> None:
        if isinstance(e, Var):
            if e not in self.known:
                self.define(e)
        else:
            for child in e.children():
                self.symbols(child)  # type: ignore[arg-type]

    # Function

    def run(self) -> None:
        f = self.func
        for p in f.params:
            self.define(p)
        for p in f.params:
            if p in f.buffer_map:
                self.check(p.dtype == "handle", f"parameter `{p.name}` stands for a buffer but is {p.dtype}")
                self.spot = f.buffer_map[p]
                self.declare(f.buffer_map[p], symbols=True)
        self.spot = f
        stray = [p.name for p in f.buffer_map if p not in set(f.params)]
        self.check(not stray, f"buffer_map names {', '.join(stray)}, no parameters")
        self.stmt(f.body)

    # Statements

    def stmt(self, s: Any) -> None:
        outer_spot, self.spot = self.spot, s
        if type(s) not in _STATEMENTS:
            raise self.fail(f"{type(s).__name__} is not a statement of a program")
        _STATEMENTS[type(s)](self, s)
        self.spot = outer_spot

    def parts(self, n: Any) -> None:
        """Check the parts of an object in the order of its declaration, that of scopes, then leave its scope."""
        mark = len(self.order)
        for role, name, many in declared_fields(type(n)):
            item = getattr(n, name)
            for x in item if many == "tuple" else () if item is None else (item,):
                if role == "binds":
                    self.define(x)
                elif role == "declares":
                    self.allocate(x)
                else:
                    (self.stmt if isinstance(x, Stmt) else self.expr)(x)
        self.leave(mark)

    def sequence(self, s: SeqStmt) -> None:
        self.check(len(s.seq) > 1, "a sequence of fewer than two statements")
        for item in s.seq:
            if type(item) is SeqStmt:
                raise self.fail("a sequence inside a sequence")
            self.stmt(item)

    def store(self, s: BufferStore) -> None:
        lanes = self.access(s.buffer, s.indices, s.predicate)
        self.expr(s.value)
        want, have = s.buffer.dtype, s.value.dtype
        if (have.kind, have.bits, have.lanes) != (want.kind, want.bits, want.lanes * lanes):
            raise self.fail(
                f"{s.value.dtype} is stored to {lanes} element{'s' * (lanes > 1)} of `{s.buffer.name}`, "
                f"which is {s.buffer.dtype}"
            )
        if self.blocks:
            self.touched(s.buffer, write=True)

    def let(self, s: LetStmt | Let) -> None:
        self.check(s.var.dtype == s.value.dtype, f"`{s.var.name}` is {s.var.dtype}, its value {s.value.dtype}")
        self.parts(s)

    def attribute(self, s: AttrStmt) -> None:
        mark = len(self.order)
        if isinstance(s.node, IterVar):
            if s.node.var not in self.known:
                self.define(s.node.var)
        elif isinstance(s.node, Expr):
            self.expr(s.node)
        self.parts(s)
        self.leave(mark)

    def conditional(self, s: IfThenElse | While | AssertStmt) -> None:
        self.condition(s.condition)
        self.parts(s)

    def not_realized(self, s: Block) -> None:
        raise self.fail(f"block `{s.name_hint}` is not realized")

    def loop(self, s: For) -> None:
        v = s.loop_var
        self.check(v.dtype.is_int and v.dtype.lanes == 1, f"loop variable `{v.name}` is {v.dtype}")
        self.check(
            s.min.dtype == v.dtype == s.extent.dtype,
            f"loop `{v.name}` is {v.dtype}, from {s.min.dtype}, over {s.extent.dtype}",
        )
        bound = s.kind == "thread_binding"
        self.check(
            bound == bool(s.thread_binding), f"loop `{v.name}` is {s.kind}, its thread axis {s.thread_binding!r}"
        )
        self.loops.append(v)
        self.parts(s)
        self.loops.pop()

    def realize(self, s: BlockRealize) -> None:
        b = s.block
        if not self.blocks and (s is not self.func.body or b.iter_vars):
            self.spot = self.func
            raise self.fail("it has blocks, and no root block around them")
        self.check(
            len(s.iter_values) == len(b.iter_vars),
            f"block `{b.name_hint}` has {len(b.iter_vars)} axes and {len(s.iter_values)} values",
        )
        for axis, value in zip(b.iter_vars, s.iter_values, strict=True):
            self.expr(value)
            self.check(
                value.dtype == axis.var.dtype and value.dtype.is_int,
                f"axis `{axis.var.name}` of block `{b.name_hint}` is {axis.var.dtype}, its value {value.dtype}",
            )
        self.condition(s.predicate)
        mark, hidden, loops = len(self.order), self.hidden, self.loops
        for axis in b.iter_vars:
            self.check(axis.kind in _AXIS_KINDS, f"axis `{axis.var.name}` is of kind {axis.kind!r}")
            self.expr(axis.dom.min)
            self.expr(axis.dom.extent)
            self.check(
                axis.dom.min.dtype == axis.var.dtype == axis.dom.extent.dtype,
                f"axis `{axis.var.name}` is {axis.var.dtype}, its domain {axis.dom.extent.dtype}",
            )
        if b.iter_vars:
            self.hidden = {**hidden, **{v: b.name_hint for v in loops}}
            self.loops = []
        for axis in b.iter_vars:
            self.define(axis.var)
        sources = {m.source.buffer for m in b.match_buffers}
        reads, writes = {r.buffer for r in b.reads}, {r.buffer for r in b.writes}
        if b.iter_vars:
            missing = sources - reads - writes
            self.check(not missing, f"block `{b.name_hint}` matches {_names(missing)}, neither read nor written by it")
        self.blocks.append((b, reads, writes))
        self.checked = {}
        for region in (*b.reads, *b.writes):  # what their indices read counts as accesses of the block
            self.region(region)
        for buffer in b.alloc_buffers:
            self.allocate(buffer)
        for m in b.match_buffers:
            self.region(m.source)
            left, right = m.buffer, m.source.buffer
            self.check(
                (left.dtype, left.scope) == (right.dtype, right.scope) and left.ndim <= right.ndim,
                f"`{left.name}` ({left.dtype}, {left.ndim}-d, {left.scope}) does not match a region of "
                f"`{right.name}` ({right.dtype}, {right.ndim}-d, {right.scope})",
            )
            self.declare(m.buffer, symbols=True)
        if b.init is not None:
            self.stmt(b.init)
        self.stmt(b.body)
        self.blocks.pop()
        if self.blocks:
            found = undeclared_access(b)
            self.check(found is None, "" if found is None else _leaves_out(b, *found))
        self.hidden, self.loops, self.checked = hidden, loops, {}
        self.leave(mark)

    def region(self, region: BufferRegion) -> None:
        b = region.buffer
        self.in_scope(b)
        self.check(
            len(region.region) == b.ndim, f"a region of `{b.name}` has {len(region.region)} of {b.ndim} dimensions"
        )
        for r in region.region:
            self.expr(r.min)
            self.expr(r.extent)
            self.check(r.min.dtype.is_int and r.extent.dtype.is_int, f"a region of `{b.name}` is not of integers")

    def touched(self, buffer: Buffer, write: bool) -> None:
        for block, reads, writes in self.blocks[self.level.get(buffer, 0) :]:
            if block is self.root or not (block.iter_vars or reads or writes) and block is not self.blocks[-1][0]:
                continue
            if buffer not in writes and (write or buffer not in reads):
                verb, clause = ("writes", "T.writes") if write else ("reads", "T.reads")
                raise self.fail(f"block `{block.name_hint}` {verb} `{buffer.name}`, which its {clause} leaves out")

    def in_scope(self, buffer: Buffer) -> None:
        if buffer not in self.known:
            if not self.blocks and buffer not in self.ever and buffer.data in self.known:
                return  # a view
            known = "is used outside of its scope" if buffer in self.ever else "is not declared"
            raise self.fail(f"buffer `{buffer.name}` {known}")

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], predicate: Expr | None) -> int:
        """Check an access; return the number of its lanes."""
        if buffer not in self.known:
            self.in_scope(buffer)
        if (indices or buffer.shape) and len(indices) != len(buffer.shape):
            raise self.fail(f"`{buffer.name}` has {buffer.ndim} dimensions, indexed with {len(indices)}")
        lanes = 1
        for index in indices:
            if index not in self.checked:
                self.expr(index)
            dtype = index.dtype
            if not dtype.is_int:
                raise self.fail(f"`{buffer.name}` is indexed with {dtype}")
            if dtype.lanes == 1:
                continue
            if lanes not in (1, dtype.lanes):
                widths = sorted({i.dtype.lanes for i in indices} - {1})
                raise self.fail(f"the indices of `{buffer.name}` have {widths} lanes")
            lanes = dtype.lanes
        if predicate is not None:
            self.expr(predicate)
            self.check(
                predicate.dtype.is_bool and predicate.dtype.lanes == lanes,
                f"the predicate of {lanes} lanes of `{buffer.name}` is {predicate.dtype}",
            )
        return lanes

    # Expressions

    def condition(self, e: Expr) -> None:
        self.expr(e)
        if e.dtype != "bool":
            raise self.fail(f"the condition `{e}` is {e.dtype}")

    def expr(self, e: Any) -> None:
        if e in self.checked:
            return
        defined = self.definitions
        (_EXPRESSIONS[type(e)] if type(e) in _EXPRESSIONS else _Verifier.operation)(self, e)
        if self.definitions == defined:  # an expression that defines variables stands in one place only
            self.checked[e] = True

    def variable(self, e: Var) -> None:
        if e not in self.known:
            raise self.fail(
                f"variable `{e.name}` is {'used outside of its scope' if e in self.ever else 'not defined'}"
            )
        if e in self.hidden:
            raise self.fail(f"block `{self.hidden[e]}` uses the loop variable `{e.name}` from outside of it")

    def integer(self, e: IntImm) -> None:
        low, high = (0, 1) if e.dtype.is_bool else (min_value(e.dtype), max_value(e.dtype))
        if e.dtype.lanes != 1 or not low <= e.value <= high:
            raise self.fail(f"{e.value} is no {e.dtype}")

    def load(self, e: BufferLoad) -> None:
        self.access(e.buffer, e.indices, e.predicate)
        if self.blocks:
            self.touched(e.buffer, write=False)

    def operation(self, e: Any) -> None:
        rule = TYPE_RULES[type(e)] if type(e) in TYPE_RULES else None
        if rule is None and not isinstance(e, BinaryOp):
            raise self.fail(f"{type(e).__name__} `{e}` is left in the program")
        for child in e.children():
            if child not in self.checked:
                self.expr(child)
        if rule is not None:
            problem = rule(e)
        else:
            fits = e.a.dtype is e.b.dtype and not e.a.dtype.is_storage
            problem = "" if fits and not isinstance(e, LogicalOp) else type_problem(e)
        if problem:
            raise self.fail(f"`{e}`: {problem}")


_STATEMENTS: dict[type, Callable[[_Verifier, Any], None]] = {
    For: _Verifier.loop,
    LetStmt: _Verifier.let,
    AttrStmt: _Verifier.attribute,
    AssertStmt: _Verifier.conditional,
    IfThenElse: _Verifier.conditional,
    While: _Verifier.conditional,
    SeqStmt: _Verifier.sequence,
    BufferStore: _Verifier.store,
    BlockRealize: _Verifier.realize,
    Block: _Verifier.not_realized,
    Allocate: _Verifier.parts,
    Evaluate: _Verifier.parts,
}


_EXPRESSIONS: dict[type, Callable[[_Verifier, Any], None]] = {
    BufferLoad: _Verifier.load,
    IntImm: _Verifier.integer,
    Let: _Verifier.let,
    Var: _Verifier.variable,
}


def _leaves_out(block: Block, buffer: Buffer, verb: str) -> str:
    region = next(r for r in (block.reads if verb == "reads" else block.writes) if r.buffer is buffer)
    return f"block `{block.name_hint}` {verb} `{buffer.name}` outside of {region}, which its T.{verb} declares"


def _names(buffers: Iterable[Buffer]) -> str:
    return ", ".join(sorted(f"`{b.name}`" for b in buffers))


def type_problem(e: Expr) -> str:
    """Return what is wrong with the types of the parts of ``e``; "" when they fit."""
    rule = TYPE_RULES.get(type(e))
    if rule is not None:
        return rule(e)
    return _operands(e) if isinstance(e, BinaryOp) else ""


def _operands(e: BinaryOp) -> str:
    a, b = e.a.dtype, e.b.dtype
    if a != b:
        return f"the operands are {a} and {b}"
    if a.is_storage:
        return str(refuse_storage(a, "an operation"))
    return f"the operands are {a}, not bool" if isinstance(e, LogicalOp) and not a.is_bool else ""


def _select(e: Select) -> str:
    if e.true_value.dtype != e.false_value.dtype:
        return f"the sides are {e.true_value.dtype} and {e.false_value.dtype}"
    lanes = e.condition.dtype.lanes
    if not e.condition.dtype.is_bool or lanes not in (1, e.dtype.lanes):
        return f"the condition is {e.condition.dtype}"
    return ""


def _ramp(e: Ramp) -> str:
    if e.base.dtype != e.stride.dtype or not e.base.dtype.is_int or e.base.dtype.lanes != 1 or e.lanes < 2:
        return f"a ramp of {e.lanes} lanes from {e.base.dtype} in steps of {e.stride.dtype}"
    return ""


def _call(e: Call) -> str:
    if e.op not in OPERATIONS:
        return f"{e.op} is not an operation; register_operation adds one"
    try:
        OPERATIONS[e.op].result_type(e.args, e.dtype)
    except (TypeError, ValueError) as problem:
        return str(problem)
    return ""


def _shuffle(e: Shuffle) -> str:
    if len({v.dtype for v in e.vectors}) != 1:
        return "the vectors have different types"
    count = sum(v.dtype.lanes for v in e.vectors)
    return "" if all(0 <= i < count for i in e.indices) else f"an index is outside of {count} lanes"


TYPE_RULES: dict[type, Callable[[Any], str]] = {
    StringImm: lambda e: "",
    FloatImm: lambda e: "" if e.dtype.is_float and e.dtype.lanes == 1 else f"a fraction of type {e.dtype}",
    Not: lambda e: "" if e.dtype.is_bool else f"`not` of {e.dtype}",
    Select: _select,
    Cast: lambda e: "" if e.dtype.lanes == e.value.dtype.lanes else f"{e.value.dtype} converted to {e.dtype}",
    Ramp: _ramp,
    Broadcast: lambda e: "" if e.value.dtype.lanes == 1 else f"a broadcast of {e.value.dtype}",
    Call: _call,
    Shuffle: _shuffle,
}
"""The rules of the expressions that a program holds, except binary operations, loads, lets, variables and integers."""

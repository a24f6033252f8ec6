"""The words of hardware: expressions become nets, statements become the blocks, loops and branches of a circuit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..codegen.backend.emitter import EXPRESSIONS, STATEMENTS, Emitter, EmitterTables, Unit
from ..codegen.lower.loop_annotations import PIPELINE, interval_of
from ..codegen.lowered import LoweredFunc
from ..tir.expr import DType, Expr, Range
from ..tir.expr import nodes as E
from ..tir.expr.intrinsics.number_operations import FIXED_POINT, fixed_point_steps
from ..tir.stmt import Allocate, AssertStmt, AttrStmt, Buffer, For, IfThenElse, Stmt, While
from ..tir.walk import pre_order, statements
from .blocks import (
    Bank,
    BankedMemory,
    Branch,
    CircuitLoop,
    Counter,
    HardwareError,
    Load,
    OperationBlock,
    Pipeline,
    Region,
    Register,
    Store,
    Write,
    banked,
    memory_of,
)
from .nets import LinearNets, Net, Nets, ends_of

# Collects the blocks of a function while it is emitted: its registers, its loads and stores in their order.


class CircuitBuilder:
    """The circuit so far. ``regions`` is the sequence that is being built."""

    def __init__(self) -> None:
        self.nets = Nets()
        self.linear = LinearNets()
        self.regions: list[Region] = []
        self.registers: list[Register] = []
        self.predicates: list[Net] = []
        """The conditions around the statement, each of which contains those before it."""
        self.before_block_ends: list[Callable[[], None]] = []
        self._history: dict[Bank, list[Net | Store]] = {}
        self._words: dict[Net, Net] = {}
        """What a load found, with the stores before it that it need not wait for."""
        self._made_in: dict[Net, OperationBlock] = {}
        self._kept: dict[Net, Register] = {}
        self._block = OperationBlock()
        self._names: set[str] = set()

    # -- names and registers -----------------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """Return a name that nothing else has."""
        base = "".join([ch if ch.isascii() and (ch.isalnum() or ch == "_") else "_" for ch in hint]) or "x"
        if not base[0].isalpha() or re.match(r"(net|block|copy)\d", base):
            base = f"x{base}"
        name, n = base, 1
        while name in self._names:
            name, n = f"{base}_{n}", n + 1
        self._names.add(name)
        return name

    def reserve(self, *names: str) -> None:
        """Take names."""
        self._names.update(names)

    def register(self, hint: str, low: int, high: int) -> Register:
        """Return a new register."""
        made = Register(self.fresh(hint), low, high)
        self.registers.append(made)
        return made

    def stable(self, register: Register) -> Net:
        """Return what a register holds that does not change while a block runs."""
        return self.nets.leaf("stable", register, register.low, register.high)

    # -- blocks ------------------------------------------------------------------------------------------------------

    def end_block(self) -> OperationBlock:
        """End the block, which becomes the next region of the sequence unless nothing is in it."""
        for end in self.before_block_ends:
            end()
        block = self._block
        block.items.extend(self.nets.new_block())
        for item in block.items:
            if isinstance(item, Net):
                self._made_in[item] = block
        if block.items:
            self.regions.append(block)
        self._block, self._history = OperationBlock(), {}
        return block

    def usable(self, net: Net) -> Net:
        """Return a net for use in this block; one of another block is kept in a register."""
        block = self._made_in.get(net)
        return net if block is None else self.stable(self.kept(net))

    def kept(self, net: Net) -> Register:
        """Return the register that keeps a net until blocks after its own."""
        found = self._kept.get(net)
        if found is None:
            found = self._kept[net] = self.register("kept", net.low, net.high)
            write = Write(found, net)
            block = self._made_in.get(net)
            (self.nets.made if block is None else block.items).append(write)
        return found

    def write(self, register: Register, value: Net) -> None:
        """Give a register its next value at the end of the block."""
        self.nets.made.append(Write(register, value))

    # -- memory ------------------------------------------------------------------------------------------------------

    def load(self, bank: Bank, address: Net) -> Net:
        """Return the word at an address. It comes from a store or a load before, where one is known to have it, or from
        the memory."""
        choices: list[tuple[Net, Net]] = []
        after: list[Store] = []
        found: Net | None = None
        for entry in reversed(self._history.get(bank, [])):
            same = self.linear.same(address, entry.detail.address if isinstance(entry, Net) else entry.address)
            if isinstance(entry, Store) and same is not False:
                if same is None or after:
                    after.append(entry)
                elif entry.predicate.value:
                    found = entry.value
                    break
                else:
                    choices.append((entry.predicate, entry.value))
            elif isinstance(entry, Net) and same and not after:
                found = self._words[entry]
                break
        loaded = None
        if found is None:
            found = loaded = self.nets.load(Load(bank, address, after), bank.low, bank.high)
            self._history.setdefault(bank, []).append(found)
        for predicate, value in reversed(choices):
            found = self.nets.select(predicate, value, found)
        if loaded is not None:
            self._words[loaded] = found
        return found

    def store(self, bank: Bank, address: Net, value: Net, predicate: Net) -> None:
        """Write a word where ``predicate`` holds. A store before to the same word, which nothing reads, is left out."""
        if predicate.value == 0:
            return
        history = self._history.setdefault(bank, [])
        made = Store(bank, address, value, predicate)
        later: list[Load] = []
        for entry in reversed(list(history)):
            if isinstance(entry, Net):
                later.append(entry.detail)
                if self.linear.same(address, entry.detail.address) is not False:
                    made.loads.append(entry)
                continue
            same = self.linear.same(address, entry.address)
            if same and not made.stores and not any([entry in load.after for load in later]):
                made.value = self.nets.select(made.predicate, made.value, entry.value)
                made.predicate = self.nets.either(made.predicate, entry.predicate)
                history.remove(entry)
                self.nets.made.remove(entry)
                made.loads += entry.loads
                made.stores += entry.stores
                break
            if same is not False:
                made.stores.append(entry)
        history.append(made)
        self.nets.made.append(made)


# The words of hardware: expressions become nets, statements become the blocks, loops and branches of a circuit.

_COMPARISONS: dict[type, tuple[str, bool, bool]] = {E.EQ: ("equal", False, False), E.NE: ("equal", False, True), E.LT: ("less", False, False),
                E.GE: ("less", False, True), E.GT: ("less", True, False), E.LE: ("less", True, True)}  # fmt: skip
"""The operation on nets, whether its operands change places, and whether its result is negated."""
_DIVISIONS = {E.FloorDiv: "floordiv", E.FloorMod: "floormod", E.TruncDiv: "truncdiv", E.TruncMod: "truncmod",
              E.Div: "truncdiv"}  # fmt: skip
_INDEX = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "floormod", "min": "minimum", "max": "maximum"}


class CircuitEmitter(Emitter[Net]):
    """An emitter of one function as a circuit. A value is a net."""

    form, error = "Verilog", HardwareError

    def __init__(self, lowered: LoweredFunc, partition: Mapping[str, Mapping[int, int]]) -> None:
        super().__init__(Unit(lowered, EmitterTables(STATEMENTS, EXPRESSIONS, CALLS)))
        self.circuit = CircuitBuilder()
        self.nets = self.circuit.nets
        self.circuit.before_block_ends.append(self._write_registers)
        self.partition = partition
        self.memories: dict[E.Var, BankedMemory] = {}
        self._own: dict[Buffer, tuple[Register, Net]] = {}

    # -- nets ------------------------------------------------------------------------------------------------------

    def lookup(self, var: E.Var) -> Net:
        """Return the net of a variable, for use in this block."""
        return self.circuit.usable(super().lookup(var))

    def refuse(self, what: str) -> HardwareError:
        """Return an error about a part of the function."""
        return HardwareError(f"{self.unit.name}: {what} has no meaning in hardware")

    @property
    def predicate(self) -> Net:
        """The condition under which the statement runs."""
        return self.circuit.predicates[-1] if self.circuit.predicates else self.nets.const(1)

    # -- values ------------------------------------------------------------------------------------------------------

    def widened(self, value: Net, dtype: DType) -> Net:
        return value

    def index_operation(self, operation: str, a: Net, b: Net) -> Net:
        if operation in (">>", "&"):
            assert b.value is not None
            if operation == ">>":
                return self.nets.shifted_right(a, b.value)
            return self.nets.floormod(a, self.nets.const(b.value + 1))
        return getattr(self.nets, _INDEX[operation])(a, b)

    def integer(self, value: int, dtype: DType) -> Net:
        return self.nets.const(int(value))

    def floating(self, value: float, dtype: DType) -> Net:
        raise self.refuse(f"the constant {value} of {dtype}")

    def arithmetic(self, op: type, a: Net, b: Net, dtype: DType) -> Net:
        if not dtype.is_int or dtype.lanes > 1:
            raise self.refuse(f"{op.__name__} of {dtype}")
        exact = getattr(self.nets, op.__name__.lower())(a, b)
        return self.nets.cut(exact, dtype)

    def quotient(self, e: Any, a: Net, b: Net, dtype: DType) -> Net:
        exact = getattr(self.nets, _DIVISIONS[type(e)])(a, b)
        return self.nets.cut(exact, dtype)

    def extreme(self, e: Any) -> Net:
        choose = self.nets.maximum if isinstance(e, E.Max) else self.nets.minimum
        return choose(self.value(e.a), self.value(e.b))

    def comparison(self, op: type, a: Net, b: Net, dtype: DType) -> Net:
        name, turned, negated = _COMPARISONS[op]
        found = getattr(self.nets, name)(*((b, a) if turned else (a, b)))
        return self.nets.no(found) if negated else found

    def logical(self, e: Any) -> Net:
        join = self.nets.both if isinstance(e, E.And) else self.nets.either
        return join(self.value(e.a), self.value(e.b))

    def negation(self, a: Net, dtype: DType) -> Net:
        return self.nets.no(a)

    def choice(self, test: Net, yes: Net, no: Net, dtype: DType, tested: DType) -> Net:
        return self.nets.select(test, yes, no)

    def conversion(self, e: E.Expr, to: DType) -> Net:
        net = self.value(e)
        if to.is_bool:
            return self.nets.no(self.nets.equal(net, self.nets.const(0)))
        return self.nets.cut(net, to)

    def splat(self, value: Net, dtype: DType, lanes: int) -> Net:
        raise self.refuse(f"a vector of {lanes} {dtype}")

    def ramp(self, e: Any) -> Net:
        raise self.refuse(f"the vector {e}")

    def shuffle(self, e: E.Shuffle) -> Net:
        raise self.refuse(f"the vector {e}")

    def library_call(self, symbol: str, e: E.Call) -> Net:
        raise self.refuse(f"{e.op} of {e.dtype}")

    def call(self, e: E.Call) -> Net:
        if e.op.removeprefix("tir.") not in CALLS:
            raise self.refuse(f"{e.op} of {e.dtype}")
        return super().call(e)

    def named(self, var: E.Var, value: E.Expr, is_index: bool) -> Net:
        net = self.index(value) if is_index else self.value(value)
        if net.op == "register":  # which may get its next value before this one is used
            net = self.nets.make("copy", (net,), net.low, net.high)
        return net

    # -- memory ------------------------------------------------------------------------------------------------------

    def memory(self, buffer: Buffer, outside: bool = False, ports: tuple[bool, bool] = (True, True)) -> str:
        """Make the memory of a buffer, and return its name."""
        name = self.circuit.fresh(buffer.name)
        made = self.memories[buffer.data] = memory_of(buffer, name, self.partition, outside, ports)
        for bank in made.banks.values():
            words = ("read_address", "read_data", "write_address", "write_data", "write_enable")
            self.circuit.reserve(*[f"{bank.name}_{word}" for word in words])
        return name

    def _places(self, buffer: Buffer, indices: tuple[Expr, ...]) -> list[tuple[Any, Net, Net]]:
        """Return the banks where an element may be: the bank, the address in it, and whether it is there."""
        memory = self.memories[buffer.data]
        numbers, address = banked(memory, buffer, indices, self.analyzer)
        at = self.index(address)
        asked = [n if isinstance(n, int) else self.index(n) for n in numbers]
        found = []
        for key, bank in memory.banks.items():
            there = self.nets.const(1)
            for number, wanted in zip(asked, key, strict=True):
                here = number if isinstance(number, Net) else self.nets.const(number)
                there = self.nets.both(there, self.nets.equal(here, self.nets.const(wanted)))
            if there.value != 0:
                found.append((bank, at, there))
        return found

    def load(self, e: E.BufferLoad) -> Net:
        if e.dtype.lanes > 1:
            raise self.refuse(f"the vector {e}")
        found: Net | None = None
        for bank, address, there in self._places(e.buffer, e.indices):
            word = self.circuit.load(bank, address)
            found = word if found is None else self.nets.select(there, word, found)
        assert found is not None
        return found

    def store(
        self, buffer: Buffer, indices: tuple[Expr, ...], value: Net, dtype: DType, predicate: Expr | None
    ) -> None:
        if dtype.lanes > 1 or predicate is not None:
            raise self.refuse(f"a store of {dtype}")
        for bank, address, there in self._places(buffer, indices):
            self.circuit.store(bank, address, value, self.nets.both(self.predicate, there))

    def new_register(self, buffer: Buffer) -> Net:
        dtype = buffer.dtype
        if dtype.lanes > 1 or not (dtype.is_int or dtype.is_bool):
            raise self.refuse(f"a register of {dtype} ({buffer.name})")
        low, high = ends_of(dtype)
        register = self.circuit.register(buffer.name, low, high)
        kept = self.nets.leaf("register", register, low, high)
        self._own[buffer] = register, kept
        return kept

    def set_register(self, buffer: Buffer, value: Net) -> None:
        old = self.registers[buffer]
        self.registers[buffer] = self.nets.select(self.predicate, value, old)

    def _write_registers(self) -> None:
        """Give the registers that were set in this block their values."""
        for buffer, value in self.registers.items():
            register, kept = self._own[buffer]
            if value is not kept:
                self.circuit.write(register, value)
                self.registers[buffer] = kept

    def stack_memory(self, buffer: Buffer, elements: int) -> str:
        return self.memory(buffer)

    def scratch_memory(self, buffer: Buffer, elements: int | None) -> str:
        return self.memory(buffer)

    def free(self, pointer: str) -> None:
        pass

    # -- control -----------------------------------------------------------------------------------------------------

    def sequence(self, body: Stmt) -> list[Region]:
        """Return the regions of a statement, which begins and ends with a block of its own."""
        outer, self.circuit.regions = self.circuit.regions, []
        self.stmt(body)
        self.circuit.end_block()
        made, self.circuit.regions = self.circuit.regions, outer
        return made

    def counter(self, s: For) -> Counter:
        """Return the counter of a loop; ends that are not constants are kept in registers."""
        nets = self.nets
        low, extent = self.index(s.min), self.index(s.extent)
        last = nets.sub(nets.add(low, extent), nets.const(1))
        register = self.circuit.register(s.loop_var.name, min(low.low, last.low), max(low.high, last.high))
        self.analyzer.bind(s.loop_var, Range(s.min, s.extent))
        if low.value is not None and last.value is not None:
            return Counter(register, low.value, last.value)
        empty = self.circuit.kept(nets.less(last, low))
        begin, end = [n.value if n.value is not None else self.circuit.kept(n) for n in (low, last)]
        return Counter(register, begin, end, empty)

    def serial_loop(self, s: For) -> None:
        if s.kind == "thread_binding":
            raise self.refuse(f"loop {s.loop_var.name}, which is bound to {s.thread_binding},")
        if PIPELINE in s.annotations:
            self._pipeline(s)
            return
        counter = self.counter(s)
        self.circuit.end_block()
        self.vars[s.loop_var] = self.circuit.stable(counter.register)
        self.indices.add(s.loop_var)
        body = self.sequence(s.body)
        if body:
            self.circuit.regions.append(CircuitLoop(counter, body))

    def _pipeline(self, s: For) -> None:
        """Emit the loops that stand directly inside each other from ``s`` on as one pipeline."""
        loops, body = [s], self._opened(s.body)
        while isinstance(body, For):
            loops.append(body)
            body = self._opened(body.body)
        inside = [n.loop_var.name for n in statements(body) if isinstance(n, For)]
        if inside:
            raise HardwareError(
                f"{self.unit.name}: loop {s.loop_var.name} cannot be a pipeline, since {inside[0]} stands in it beside "
                f"other statements; unroll {inside[0]}, or make {inside[0]} the pipeline"
            )
        counters = [self.counter(loop) for loop in loops]
        if len(loops) > 1 and any(c.empty is not None for c in counters):
            names = ", ".join([loop.loop_var.name for loop in loops])
            raise HardwareError(f"{self.unit.name}: the loops {names} are no pipeline together: their extents change")
        self.circuit.end_block()
        for loop, counter in zip(loops, counters, strict=True):
            r = counter.register
            self.vars[loop.loop_var] = self.nets.leaf("counter", r, r.low, r.high)
            self.indices.add(loop.loop_var)
        made = self.sequence(body)
        if made:
            (block,) = made
            interval = interval_of(s)
            names = ", ".join([loop.loop_var.name for loop in loops])
            self.circuit.regions.append(Pipeline(counters, block, interval, names))  # type: ignore[arg-type]

    def _opened(self, s: Stmt) -> Stmt:
        """Return what stands in attributes and allocations, whose buffers are made."""
        while isinstance(s, (AttrStmt, Allocate)):
            if isinstance(s, Allocate):
                if s.buffer.scope == "register":
                    self.registers[s.buffer] = self.new_register(s.buffer)
                else:
                    self.bases[s.buffer.data] = self.memory(s.buffer)
            s = s.body
        return s

    def branch(self, s: IfThenElse) -> None:
        test = self.value(s.condition)
        cases = [case for case in (s.then_case, s.else_case) if case is not None]
        if any(isinstance(n, For) for case in cases for n in statements(case)):
            kept = self.circuit.kept(test)
            self.circuit.end_block()
            sides = [self.sequence(s.then_case), self.sequence(s.else_case) if s.else_case is not None else []]
            self.circuit.regions.append(Branch(kept, *sides))
            return
        for case, holds in zip(cases, (test, self.nets.no(test)), strict=False):
            self.circuit.predicates.append(self.nets.both(self.predicate, holds))
            self.stmt(case)
            self.circuit.predicates.pop()

    def while_loop(self, s: While) -> None:
        raise self.refuse(f"the loop while {s.condition}, whose iterations nothing counts,")

    def assertion(self, holds: Net, s: AssertStmt, number: int) -> None:
        raise self.refuse(f"the assertion {s.message!r}")


def emitted(lowered: LoweredFunc, partition: Mapping[str, Mapping[int, int]]) -> tuple[CircuitEmitter, list[Region]]:
    """Returns the emitter of a function, which has its memories and registers, and the regions of its circuit."""
    em = CircuitEmitter(lowered, partition)
    em.circuit.reserve(*KEYWORDS, lowered.name)
    body = lowered.func.body
    for p in lowered.params:
        if p.kind == "size":
            raise HardwareError(
                f"{lowered.name}: the size {p.name} is not known; memories and counters in hardware have constant sizes"
            )
    read = {n.buffer.data for s in statements(body) for n in pre_order(s) if isinstance(n, E.BufferLoad)}
    for p in lowered.params:
        if p.buffer is not None:
            em.bases[p.buffer.data] = em.memory(p.buffer, True, (p.buffer.data in read, p.writes))
            continue
        dtype = p.dtype
        if not (dtype.is_int or dtype.is_bool):
            raise em.refuse(f"the parameter {p.name} of {dtype}")
        low, high = ends_of(dtype)
        port = Register(em.circuit.fresh(p.name), low, high)
        em.vars[p.var] = em.circuit.stable(port)
    return em, em.sequence(body)


def _binary(name: str) -> Any:
    def emit(em: CircuitEmitter, e: E.Call) -> Net:
        a, b = [em.value(arg) for arg in e.args]
        return em.nets.bitwise(name, a, b, e.dtype)

    return emit


def _shift(left: bool) -> Any:
    def emit(em: CircuitEmitter, e: E.Call) -> Net:
        a, n = [em.value(arg) for arg in e.args]
        return em.nets.moved(a, n, e.dtype, left)

    return emit


def _absolute(em: CircuitEmitter, e: E.Call) -> Net:
    a, zero = em.value(e.args[0]), em.nets.const(0)
    return em.nets.cut(em.nets.select(em.nets.less(a, zero), em.nets.sub(zero, a), a), e.dtype)


def _if_then_else(em: CircuitEmitter, e: E.Call) -> Net:
    test, yes, no = [em.value(arg) for arg in e.args]
    return em.nets.select(test, yes, no)


def _inverted(em: CircuitEmitter, e: E.Call) -> Net:
    minus = em.nets.sub(em.nets.const(-1), em.value(e.args[0]))
    return em.nets.cut(minus, e.dtype)


def _bits_of(em: CircuitEmitter, e: E.Call) -> list[Net]:
    a = em.value(e.args[0])
    return [em.nets.bit(a, index) for index in range(e.args[0].dtype.bits)]


def _ones(em: CircuitEmitter, e: E.Call) -> Net:
    total = em.nets.const(0)
    for bit in _bits_of(em, e):
        total = em.nets.add(total, bit)
    return total


def _leading_zeros(em: CircuitEmitter, e: E.Call) -> Net:
    bits = _bits_of(em, e)
    found = em.nets.const(len(bits))
    for index, bit in enumerate(bits):
        found = em.nets.select(bit, em.nets.const(len(bits) - 1 - index), found)
    return found


CALLS: dict[str, Any] = {
    "abs": _absolute,
    "bitwise_and": _binary("and"),
    "bitwise_not": _inverted,
    "bitwise_or": _binary("or"),
    "bitwise_xor": _binary("xor"),
    "clz": _leading_zeros,
    "if_then_else": _if_then_else,
    "likely": lambda em, e: em.value(e.args[0]),
    "popcount": _ones,
    "prefetch": lambda em, e: em.nets.const(0),
    "reinterpret": lambda em, e: em.conversion(e.args[0], e.dtype),
    "shift_left": _shift(True),
    "shift_right": _shift(False),
    **{op.removeprefix("tir."): lambda em, e: em.value(fixed_point_steps(e)) for op in FIXED_POINT},
}
"""Writers by the operation's name."""

KEYWORDS = (
    "always and assign begin buf bufif0 bufif1 case casex casez cmos deassign default defparam disable edge else end "
    "endcase endfunction endmodule endprimitive endspecify endtable endtask event for force forever fork function if "
    "initial inout input integer join large medium module nand negedge nmos nor not notif0 notif1 or output parameter "
    "pmos posedge primitive pull0 pull1 pulldown pullup real realtime reg release repeat rnmos rpmos scalared signed "
    "small specify specparam strong0 strong1 supply0 supply1 table task time tran tri tri0 tri1 triand trior trireg "
    "unsigned vectored wait wand weak0 weak1 while wire wor xnor xor bit byte logic int shortint longint do this "
    "clk rst start done state"
).split()
"""Words of Verilog and SystemVerilog, and the ports that every module has."""

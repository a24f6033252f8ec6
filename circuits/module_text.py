"""Writes circuits as modules of Verilog-2005: nets as expressions, loops and branches as a state machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..codegen.lowered import LoweredFunc
from .blocks import (
    Bank,
    BankedMemory,
    Branch,
    CircuitLoop,
    Counter,
    HardwareError,
    OperationBlock,
    Pipeline,
    Region,
    Register,
    Store,
    Write,
)
from .circuit_emitter import CircuitEmitter, emitted
from .nets import LEAVES, LinearNets, Net, width_of
from .stages import Obstacle, Stages, balanced, carried_by, live, placed

# Writes nets as expressions of Verilog. Operands are names of wires, or constants.


def constant(value: int, width: int, signed: bool = False) -> str:
    """Returns a constant of so many bits."""
    return f"{width}'{'s' if signed else ''}h{value & ((1 << width) - 1):x}"


def widened(net: Net, name: str, width: int) -> str:
    """Returns the lowest ``width`` bits of a number, extended by its sign."""
    if net.value is not None:
        return constant(net.value, width)
    return extended(name, net.width, net.signed, width)


def extended(name: str, own: int, signed: bool, width: int) -> str:
    """Returns the lowest ``width`` bits of what has ``own`` wires, extended by its sign."""
    if own >= width:
        return name if own == width else f"{name}[{width - 1}:0]"
    extra = width - own
    return f"{{{{{extra}{{{name}[{own - 1}]}}}}, {name}}}" if signed else f"{{{extra}'d0, {name}}}"


def _number(net: Net, name: str, signed: bool) -> str:
    """Returns a number as an operand of an operation, all of whose operands are signed or none."""
    if net.value is not None:
        return constant(net.value, net.width + (signed and not net.signed), signed)
    if not signed:
        return name
    return f"$signed({name})" if net.signed else f"$signed({{1'b0, {name}}})"


def _infix(symbol: str) -> Callable[[Net, list[str]], str]:
    """Returns the writer of an operation whose operands are extended to the width of the result."""

    def write(net: Net, names: list[str]) -> str:
        signed = net.signed or any([a.signed for a in net.args])
        a, b = [_number(arg, name, signed) for arg, name in zip(net.args, names, strict=True)]
        return f"{a} {symbol} {b}"

    return write


def _compared(symbol: str) -> Callable[[Net, list[str]], str]:
    def write(net: Net, names: list[str]) -> str:
        signed = any([a.signed for a in net.args])
        a, b = [_number(arg, name, signed) for arg, name in zip(net.args, names, strict=True)]
        return f"{a} {symbol} {b}"

    return write


def _divided(symbol: str) -> Callable[[Net, list[str]], str]:
    def write(net: Net, names: list[str]) -> str:
        signed = any([a.signed for a in net.args])
        width = max(net.width, *[a.width + (signed and not a.signed) for a in net.args])
        a, b = [_number(arg, name, signed) for arg, name in zip(net.args, names, strict=True)]
        divisor = net.args[1]
        if divisor.low <= 0 <= divisor.high:
            # a choice between a signed and an unsigned operand would make the division unsigned
            zero = constant(0, width, signed)
            return f"{b} == {constant(0, divisor.width + 1, signed)} ? {zero} : {a} {symbol} {b}"
        return f"{a} {symbol} {b}"

    return write


def _bits(symbol: str) -> Callable[[Net, list[str]], str]:
    def write(net: Net, names: list[str]) -> str:
        a, b = [widened(arg, name, net.width) for arg, name in zip(net.args, names, strict=True)]
        return f"{a} {symbol} {b}"

    return write


def _chosen(net: Net, names: list[str]) -> str:
    yes, no = [widened(arg, name, net.width) for arg, name in zip(net.args[1:], names[1:], strict=True)]
    return f"{names[0]} ? {yes} : {no}"


def _lowest(net: Net, names: list[str]) -> str:
    return widened(net.args[0], names[0], net.width)


def _right(net: Net, names: list[str]) -> str:
    a = net.args[0]
    if net.detail >= a.width:
        return f"{{{net.width}{{{names[0]}[{a.width - 1}]}}}}"
    return f"{names[0]}[{a.width - 1}:{net.detail}]"


def _move_right(net: Net, names: list[str]) -> str:
    a = net.args[0]
    wide = widened(a, names[0], net.width)
    return f"$signed({wide}) >>> {names[1]}" if a.signed else f"{wide} >> {names[1]}"


WRITERS: dict[str, Callable[[Net, list[str]], str]] = {
    "add": _infix("+"),
    "sub": _infix("-"),
    "mul": _infix("*"),
    "quotient": _divided("/"),
    "remainder": _divided("%"),
    "less": _compared("<"),
    "equal": _compared("=="),
    "and": lambda net, names: f"{names[0]} & {names[1]}",
    "not": lambda net, names: f"~{names[0]}",
    "copy": lambda net, names: names[0],
    "select": _chosen,
    "cut": _lowest,
    "low_bits": _lowest,
    "shifted_left": lambda net, names: f"{{{names[0]}, {net.detail}'d0}}",
    "shifted_right": _right,
    "move_left": lambda net, names: f"{widened(net.args[0], names[0], net.detail)} << {names[1]}",
    "move_right": _move_right,
    "bits_and": _bits("&"),
    "bits_or": _bits("|"),
    "bits_xor": _bits("^"),
}
"""Writers of expressions from the names of the operands."""


# Writes loops and branches as a state machine: what happens at the clock's edge in each state.

Lines = list[Any]
"""Lines of text, and lists of them, which are indented."""


@dataclass(slots=True)
class BlockStages:
    """The stages of a block, and the names that it has. A block that is no pipeline has a state for each stage."""

    number: int
    stages: Stages
    states: list[int] = field(default_factory=list)
    pipeline: Pipeline | None = None
    state: int = 0
    """The state of a pipeline."""

    @property
    def prefix(self) -> str:
        """The prefix of the names of the block's wires."""
        return f"block{self.number}"


def register_width(register: Register) -> int:
    """Returns the bits of a register."""
    return width_of(register.low, register.high)


def end_text(counter: Counter, end: int | Register) -> str:
    """Returns an end of a loop with the width of its counter."""
    width = register_width(counter.register)
    if isinstance(end, int):
        return constant(end, width)
    return extended(end.name, register_width(end), end.low < 0, width)


class StateMachine:
    """The states of a circuit; state 0 waits for the start."""

    def __init__(self, blocks: Mapping[OperationBlock, BlockStages]) -> None:
        self.blocks = blocks
        self.states: list[tuple[str, Lines]] = [("waits", [])]

    def build(self, regions: Sequence[Region]) -> None:
        """Make the states of all regions."""
        first = self.sequence(regions, ["done <= 1'b1;", "state <= 0;"])
        self.states[0] = ("waits", ["if (start) begin", ["done <= 1'b0;", *first], "end"])

    def state(self, title: str, lines: Lines) -> int:
        self.states.append((title, lines))
        return len(self.states) - 1

    def sequence(self, regions: Sequence[Region], after: Lines) -> Lines:
        """Make the states of regions; return what is done at the edge that leads into the first. ``after`` is done at
        the edge that leaves the last."""
        for region in reversed(regions):
            after = _RULES[type(region)](self, region, after)
        return after

    def block(self, block: OperationBlock, after: Lines) -> Lines:
        made = self.blocks[block]
        for stage in reversed(range(made.stages.depth)):
            made.states.insert(0, self.state(f"stage {stage} of block {made.number}", after))
            after = [f"state <= {made.states[0]};"]
        return after

    def loop(self, loop: CircuitLoop, after: Lines) -> Lines:
        counter, name = loop.counter, loop.counter.register.name
        begin: Lines = []
        if isinstance(counter.low, int) and isinstance(counter.last, int) and counter.last < counter.low:
            return after
        again = [
            f"if ({name} == {end_text(counter, counter.last)}) begin", after,
            "end else begin", [f"{name} <= {name} + 1'b1;", begin], "end",
        ]  # fmt: skip
        into = self.sequence(loop.body, again)
        if into is again:
            return after
        begin.extend(into)
        return self.entered(counter, [f"{name} <= {end_text(counter, counter.low)};", *into], after)

    def entered(self, counter: Counter, into: Lines, after: Lines) -> Lines:
        """Return what leads into a loop; one whose extent is not constant may have no iterations."""
        if counter.empty is None:
            return into
        test = [f"if ({counter.empty.name}) begin", after, "end else begin", into, "end"]
        return [f"state <= {self.state(f'begins the loop {counter.register.name}', test)};"]

    def pipeline(self, region: Pipeline, after: Lines) -> Lines:
        made = self.blocks[region.block]
        p, depth, interval = made.prefix, made.stages.depth, made.stages.interval
        if not depth:
            return after
        step: Lines = [f"{p}_issue <= 1'b0;"]
        for counter in region.counters:  # from the outermost to the one that runs fastest
            name = counter.register.name
            step = [
                f"if ({name} == {end_text(counter, counter.last)}) begin",
                [f"{name} <= {end_text(counter, counter.low)};", *step],
                f"end else {name} <= {name} + 1'b1;",
            ]
        if interval > 1:
            wide = max(1, (interval - 1).bit_length())
            step = [f"if ({p}_phase == {interval - 1}) begin", [f"{p}_phase <= {constant(0, wide)};", *step],
                    f"end else {p}_phase <= {p}_phase + 1'b1;"]  # fmt: skip
        lines = [f"if ({p}_issue) begin", step, "end", f"if ({p}_last{depth - 1}) begin", after, "end"]
        made.state = self.state(f"the pipeline of {region.name}", lines)
        into = [f"{c.register.name} <= {end_text(c, c.low)};" for c in region.counters]
        into += [f"{p}_issue <= 1'b1;", f"state <= {made.state};"]
        if interval > 1:
            into.append(f"{p}_phase <= 0;")
        return self.entered(region.counters[0], into, after)

    def branch(self, region: Branch, after: Lines) -> Lines:
        sides = [self.sequence(side, after) for side in (region.yes, region.no)]
        lines = [f"if ({region.test.name}) begin", sides[0], "end else begin", sides[1], "end"]
        return [f"state <= {self.state('branches', lines)};"]

    def text(self) -> list[str]:
        """Return the case statement."""
        out = ["case (state)"]
        for number, (title, lines) in enumerate(self.states):
            out += [f"  {number}: begin // {title}", *indented(lines, 4), "  end"]
        return [*out, "  default: state <= 0;", "endcase"]


_RULES: dict[type, Any] = {
    OperationBlock: StateMachine.block,
    CircuitLoop: StateMachine.loop,
    Pipeline: StateMachine.pipeline,
    Branch: StateMachine.branch,
}


def indented(lines: Lines, depth: int) -> list[str]:
    """Returns lines, those of lists inside indented by two more."""
    out: list[str] = []
    for line in lines:
        out += indented(line, depth + 2) if isinstance(line, list) else [" " * depth + line]
    return out


# Writes the circuit of a function as a module of Verilog-2005.


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """What became of a pipeline: its loops, its interval and the stages of an iteration."""

    loops: str
    interval: int
    stages: int


@dataclass(frozen=True, slots=True, eq=False)
class Circuit:
    """A function as a module: its text, its memories outside in the order of the parameters, and its pipelines."""

    lowered: LoweredFunc
    text: str
    memories: tuple[BankedMemory, ...]
    pipelines: tuple[PipelineFacts, ...]
    states: int
    scalars: tuple[tuple[str, int], ...]
    """The ports of numbers, and their widths."""


def circuit_of(lowered: LoweredFunc, partition: dict[str, dict[int, int]]) -> Circuit:
    """Returns the circuit of a lowered function. HardwareError for what a circuit cannot be."""
    em, regions = emitted(lowered, partition)
    return _Module(em, lowered, regions).circuit()


def blocks_in(regions: Sequence[Region]) -> list[tuple[OperationBlock, Pipeline | None]]:
    """Returns all blocks, those of pipelines with them."""
    found: list[tuple[OperationBlock, Pipeline | None]] = []
    for region in regions:
        if isinstance(region, OperationBlock):
            found.append((region, None))
        elif isinstance(region, Pipeline):
            found.append((region.block, region))
        else:
            for side in [region.body] if isinstance(region, CircuitLoop) else [region.yes, region.no]:
                found += blocks_in(side)
    return found


def pipelined(region: Pipeline, em: CircuitEmitter, name: str) -> Stages:
    """Returns the stages of a pipeline. HardwareError, which says what interval is possible, when the one that was asked
    for is not."""
    items = region.block.items
    counters = [em.nets.leaf("counter", c.register, c.register.low, c.register.high) for c in region.counters]
    extents = [
        c.last - c.low + 1 if isinstance(c.last, int) and isinstance(c.low, int) else 1 << 30 for c in region.counters
    ]
    carried = carried_by(items, counters, extents, LinearNets())
    wanted = max(region.interval, 1)
    alone = placed(items)
    most = max(wanted, alone.depth if isinstance(alone, Stages) else 1)  # iterations do not overlap any more
    first: Obstacle | None = None
    for interval in range(wanted, most + 1):
        found = placed(items, interval, carried)
        if isinstance(found, Stages):
            if first is None or not region.interval:
                return found
            break
        first = first or found
    assert first is not None
    possible = f"{interval} is possible" if isinstance(found, Stages) else "none is possible"
    raise HardwareError(
        f"{name}: the pipeline of {region.name} cannot start an iteration every {wanted} "
        f"cycle{'s' if wanted > 1 else ''}: {first.text}; {possible}"
    )


class _Module:
    def __init__(self, em: CircuitEmitter, lowered: LoweredFunc, regions: list[Region]) -> None:
        self.em, self.lowered, self.regions = em, lowered, regions
        self.blocks: dict[OperationBlock, BlockStages] = {}
        for number, (block, pipeline) in enumerate(blocks_in(regions)):
            block.items = balanced(live(block.items), em.nets)
            stages = placed(block.items) if pipeline is None else pipelined(pipeline, em, lowered.name)
            assert isinstance(stages, Stages)
            self.blocks[block] = BlockStages(number, stages, [], pipeline)
        self.machine = StateMachine(self.blocks)
        self.machine.build(regions)
        self.reads: dict[Bank, list[tuple[str, str]]] = {}
        self.writes: dict[Bank, list[tuple[str, str, str]]] = {}

    def circuit(self) -> Circuit:
        wires, updates = [], []
        for made in self.blocks.values():
            wires += [*self.stage_wires(made), *self.net_wires(made)]
            updates += self.updates(made)
        banks = [bank for memory in self.em.memories.values() for bank in memory.banks.values()]
        state = max(1, (len(self.machine.states) - 1).bit_length())
        body = [
            f"reg [{state - 1}:0] state;",
            *self.registers(), *[line for bank in banks for line in self.inside(bank)], *wires,
            *[line for bank in banks for line in self.ports(bank)],
            "always @(posedge clk) begin", *[f"  {line}" for line in updates], "end",
            "always @(posedge clk) begin",
            "  if (rst) begin", "    state <= 0;", "    done <= 1'b0;",
            *[f"    {name} <= 1'b0;" for name in self.valid_bits()],
            "  end else begin",
            *[f"    {line}" for line in self.shifts()],
            *[f"    {line}" for line in self.machine.text()],
            "  end", "end",
        ]  # fmt: skip
        head = [
            *self.comment(),
            f"module {self.lowered.name} (",
            ",\n".join([f"  {port}" for port in self.header(banks)]),
            ");",
        ]
        text = "\n".join([*head, *[f"  {line}" for line in body], "endmodule"]) + "\n"
        outside = [self.em.memories[p.buffer.data] for p in self.lowered.params if p.buffer is not None]
        facts = tuple(self.facts())
        return Circuit(self.lowered, text, tuple(outside), facts, len(self.machine.states), tuple(self.scalars()))

    def scalars(self) -> list[tuple[str, int]]:
        nets = [self.em.vars[p.var] for p in self.lowered.params if p.buffer is None]
        return [(net.detail.name, net.width) for net in nets]

    def facts(self) -> list[PipelineFacts]:
        found = [b for b in self.blocks.values() if b.pipeline is not None]
        return [PipelineFacts(b.pipeline.name, b.stages.interval, b.stages.depth) for b in found if b.pipeline]

    def comment(self) -> list[str]:
        lines = [
            f"// {self.lowered.name}: made by Tilewright. Raise start for a cycle; done is 1 when the results are there."
        ]
        lines.append(
            "// A memory answers a read_address with read_data in the next cycle, with the word before a write in the same one."
        )
        return lines + [
            f"// The loops {f.loops} start an iteration every {f.interval} cycles; it takes {f.stages}."
            for f in self.facts()
        ]

    # -- declarations --------------------------------------------------------------------------------------------------

    def header(self, banks: list[Bank]) -> list[str]:
        ports = ["input wire clk", "input wire rst", "input wire start", "output reg done"]
        ports += [f"input wire [{width - 1}:0] {name}" for name, width in self.scalars()]
        for bank in banks:
            if bank.outside:
                ports += [f"{way} wire [{width - 1}:0] {name}" for way, width, name in port_wires(bank)]
        return ports

    def registers(self) -> list[str]:
        lines = [f"reg [{register_width(r) - 1}:0] {r.name};" for r in self.em.circuit.registers]
        for made in self.blocks.values():
            p, depth, interval = made.prefix, made.stages.depth, made.stages.interval
            for net in made.stages.ready:
                names = [self.copy(made, net, k) for k in range(1, made.stages.copies(net) + 1)]
                lines += [f"reg [{net.width - 1}:0] {name};" for name in names]
            if made.pipeline is not None and depth:
                lines.append(f"reg {p}_issue;")
                lines += [f"reg [{max(1, (interval - 1).bit_length()) - 1}:0] {p}_phase;"] if interval > 1 else []
        return lines + [f"reg {name};" for name in self.valid_bits()]

    def valid_bits(self) -> list[str]:
        return [name for name, _ in self._valid()]

    def shifts(self) -> list[str]:
        return [f"{name} <= {value};" for name, value in self._valid()]

    def _valid(self) -> list[tuple[str, str]]:
        """Return the registers that say that a stage of a pipeline runs, and that it runs for the last time."""
        found = []
        for made in self.blocks.values():
            if made.pipeline is not None:
                for k in range(1, made.stages.depth):
                    for word in ("s", "last"):
                        found.append((f"{made.prefix}_{word}{k}", f"{made.prefix}_{word}{k - 1}"))
        return found

    def inside(self, bank: Bank) -> list[str]:
        """Return the memory of a bank inside the module, and the wires of its ports."""
        if bank.outside:
            return []
        lines = [f"reg [{bank.width - 1}:0] {bank.name} [0:{bank.words - 1}];"]
        for way, width, name in port_wires(bank):
            lines.append(f"{'reg ' if way == 'input' else 'wire'} [{width - 1}:0] {name};")
        return [
            *lines, "always @(posedge clk) begin",
            f"  if ({bank.name}_write_enable) {bank.name}[{bank.name}_write_address] <= {bank.name}_write_data;",
            f"  {bank.name}_read_data <= {bank.name}[{bank.name}_read_address];", "end",
        ]  # fmt: skip

    # -- wires -----------------------------------------------------------------------------------------------------------

    def stage_wires(self, made: BlockStages) -> list[str]:
        p = made.prefix
        if made.pipeline is None:
            return [f"wire {p}_s{k} = state == {state};" for k, state in enumerate(made.states)]
        if not made.stages.depth:
            return []
        phase = f" && {p}_phase == 0" if made.stages.interval > 1 else ""
        last = [f"{c.register.name} == {end_text(c, c.last)}" for c in made.pipeline.counters]
        return [
            f"wire {p}_s0 = state == {made.state} && {p}_issue{phase};",
            f"wire {p}_last0 = {' && '.join([f'{p}_s0', *last])};",
        ]

    def net_wires(self, made: BlockStages) -> list[str]:
        lines = []
        for item in made.stages.items:
            if isinstance(item, Store):
                stage = made.stages.at[item]
                address, value, predicate = [
                    (net, self.name(made, net, stage)) for net in (item.address, item.value, item.predicate)
                ]
                enable = f"{made.prefix}_s{stage}" + ("" if item.predicate.value else f" & {predicate[1]}")
                bank = item.bank
                self.writes.setdefault(bank, []).append(
                    (enable, widened(*address, bank.address_width), widened(*value, bank.width))
                )
            elif isinstance(item, Net):
                stage = made.stages.at[item]
                names = [self.name(made, net, stage) for net in item.args]
                if item.op == "load":
                    bank = item.detail.bank
                    address_text = widened(item.args[0], names[0], bank.address_width)
                    self.reads.setdefault(bank, []).append((f"{made.prefix}_s{stage}", address_text))
                text = f"{item.detail.bank.name}_read_data" if item.op == "load" else WRITERS[item.op](item, names)
                lines.append(f"wire [{item.width - 1}:0] {item.name} = {text};")
        return lines

    def name(self, made: BlockStages, net: Net, stage: int) -> str:
        """Return what holds a net in a stage."""
        if net.value is not None:
            return constant(net.value, net.width)
        if net.op == "stable":
            return str(net.detail.name)
        copies = -(-(stage - made.stages.ready[net]) // made.stages.interval)
        return self.copy(made, net, copies)

    def copy(self, made: BlockStages, net: Net, number: int) -> str:
        if number <= 0:
            return str(net.detail.name) if net.op in LEAVES and net.op != "load" else net.name
        return f"copy{number}_{made.number}_{net.name}"

    def updates(self, made: BlockStages) -> list[str]:
        """Return what happens to registers of data at the clock's edge."""
        lines = []
        for net, ready in made.stages.ready.items():
            for k in range(made.stages.copies(net)):
                stage = ready + k * made.stages.interval
                lines.append(f"if ({made.prefix}_s{stage}) {self.copy(made, net, k + 1)} <= {self.copy(made, net, k)};")
        for item in made.stages.items:
            if isinstance(item, Write):
                stage = made.stages.at[item]
                value = widened(item.value, self.name(made, item.value, stage), register_width(item.register))
                lines.append(f"if ({made.prefix}_s{stage}) {item.register.name} <= {value};")
        return lines

    def ports(self, bank: Bank) -> list[str]:
        """Return what drives the ports of a bank."""
        name, lines = bank.name, []
        if bank.reads or not bank.outside:
            reads = self.reads.get(bank, []) or [("", constant(0, bank.address_width))]
            chain = "".join([f"{active} ? {address} : " for active, address in reads[:-1]]) + reads[-1][1]
            lines.append(f"assign {name}_read_address = {chain};")
        if bank.writes or not bank.outside:
            writes = self.writes.get(bank, []) or [
                ("1'b0", constant(0, bank.address_width), constant(0, bank.width)),
            ]
            enables = [enable for enable, _, _ in writes]
            for word, place in (("address", 1), ("data", 2)):
                chain = "".join([f"{w[0]} ? {w[place]} : " for w in writes[:-1]]) + writes[-1][place]
                lines.append(f"assign {name}_write_{word} = {chain};")
            lines.append(f"assign {name}_write_enable = {' | '.join([f'({e})' for e in enables])};")
        return lines


def port_wires(bank: Bank) -> list[tuple[str, int, str]]:
    """Returns the direction, the width and the name of each port of a bank, as its user sees them."""
    found = []
    if bank.reads or not bank.outside:
        found += [
            ("output", bank.address_width, f"{bank.name}_read_address"),
            ("input", bank.width, f"{bank.name}_read_data"),
        ]
    if bank.writes or not bank.outside:
        found += [("output", bank.address_width, f"{bank.name}_write_address"),
                  ("output", bank.width, f"{bank.name}_write_data"), ("output", 1, f"{bank.name}_write_enable")]  # fmt: skip
    return found

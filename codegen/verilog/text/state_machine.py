"""Writes loops and branches as a state machine: what happens at the clock's edge in each state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..circuit.blocks import Block, Branch, Counter, Loop, Pipeline, Region, Register
from ..circuit.nets import width_of
from ..timing.stages import Stages
from .net_text import constant, extended

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

    def __init__(self, blocks: Mapping[Block, BlockStages]) -> None:
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

    def block(self, block: Block, after: Lines) -> Lines:
        made = self.blocks[block]
        for stage in reversed(range(made.stages.depth)):
            made.states.insert(0, self.state(f"stage {stage} of block {made.number}", after))
            after = [f"state <= {made.states[0]};"]
        return after

    def loop(self, loop: Loop, after: Lines) -> Lines:
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
    Block: StateMachine.block,
    Loop: StateMachine.loop,
    Pipeline: StateMachine.pipeline,
    Branch: StateMachine.branch,
}


def indented(lines: Lines, depth: int) -> list[str]:
    """Returns lines, those of lists inside indented by two more."""
    out: list[str] = []
    for line in lines:
        out += indented(line, depth + 2) if isinstance(line, list) else [" " * depth + line]
    return out

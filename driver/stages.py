"""This module shows a program or a model at each stage of its compilation.

:func:`model_text` prints a model at one stage. :func:`stage_page` writes a page with a function at each stage beside its machine code.

Lines that belong together are linked: from tensor expressions to blocks, loops, lowered code and instructions.

It asks llvm-mca, where it is installed, how many cycles the innermost loop of a compiled function takes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from ..codegen import Module, Target, compile, lower
from ..codegen.lowered import REGISTER_SCOPE, usable_symbol
from ..graph.computed_sizes import bounds_with_computed
from ..graph.graph import Graph
from ..graph.kernels import Division, fuse
from ..graph.memory_plan import order_kernels, plan_memory
from ..pages import COLOURS, LISTING_STYLE, Listing, seconds_text, share_text, side_by_side
from ..pages.written_files import utf8_text
from ..te import Tensor
from ..tir.cost import count_flops
from ..tir.expr import BufferLoad, Var
from ..tir.expr.node import IRNode
from ..tir.parser import parse
from ..tir.printer import script_lines
from ..tir.stmt import Allocate, Block, BlockRealize, Buffer, BufferStore, For, PrimFunc, Stmt
from ..tir.walk import pre_order
from ..tuner.example_sizes import Bounds
from ..tuning_db import Database
from .building import BuildError, Plan, Request
from .graph_services import prepared
from .machine_report import bound_for, known_report
from .mlir_modules import to_mlir
from .models.model import Version
from .models.model_building import bounds_of, build_graph, representatives

_LOOP_LABEL = re.compile(r"^(\.?[\w$.]+):")
_JUMP = re.compile(r"^\s+(?:j[a-z]+|b\.?[a-z]*|cbn?z|tbn?z)\s+(?:.*[\s,])?(\.?L[\w$.]+)\s*(?:#.*)?$")
_ARITHMETIC = re.compile(r"^\s+(?:vfn?m|vmul|vadd|vpdp|vpmadd|mul|fml|fmul|fadd)")


def innermost_loop(assembly: str) -> list[str]:
    """Returns the instructions of the innermost loop that has the most multiplications and additions. Where no loop has
    any, it is the longest one. The list is empty for code without loops.

    >>> innermost_loop(".LBB0_1:\\n\\tvmulps\\t%ymm0, %ymm1, %ymm2\\n\\tjne\\t.LBB0_1\\n")
    ['vmulps\\t%ymm0, %ymm1, %ymm2', 'jne\\t.LBB0_1']
    """
    lines = assembly.splitlines()
    places: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        label, jump = _LOOP_LABEL.match(line), _JUMP.match(line)
        if label:
            places[label.group(1)] = number
        elif jump and jump.group(1) in places:
            loops.append((places[jump.group(1)], number))
    inner = [(a, b) for a, b in loops if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in loops)]
    found = [_instructions(lines[a : b + 1]) for a, b in inner]
    return max(
        found, key=lambda body: (sum(bool(_ARITHMETIC.match("\t" + one)) for one in body), len(body)), default=[]
    )


def _instructions(lines: Sequence[str]) -> list[str]:
    plain = [line.split("#")[0].strip() for line in lines if line[:1].isspace()]
    return [line for line in plain if line and not line.startswith(".")]


def throughput_report(assembly: str, cpu: str, triple: str) -> str:
    """Returns what llvm-mca says of the innermost loop. BuildError: it is not installed, does not know the CPU, or the code
    has no loop."""
    program = shutil.which("llvm-mca")
    if program is None:
        raise BuildError("llvm-mca is not installed; it is part of LLVM (apt install llvm, brew install llvm)")
    body = innermost_loop(assembly)
    if not body:
        raise BuildError("the machine code has no loop to analyse")
    text = "\n".join([line for line in body if not _JUMP.match("\t" + line)]) + "\n"
    words = [program, f"-mtriple={triple}", f"-mcpu={cpu}", "-iterations=100"]
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=60, check=False)
    unknown = "is not a recognized processor" in done.stderr
    if done.returncode or unknown:
        first = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise BuildError(f"llvm-mca -mcpu={cpu}: {first}")
    return f"# the innermost loop, {len(body)} instructions\n{text}\n{done.stdout}"


_STYLE = (
    COLOURS
    + "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:1.5rem auto;max-width:110rem;padding:0 1rem}"
    "h1{font-size:1.4rem;margin:0;overflow-wrap:anywhere}.note{color:var(--soft)}.head{margin:0 0 .8rem}.head p{margin:.15rem 0;overflow-wrap:anywhere}"
    "details{margin:1rem 0}summary{cursor:pointer;color:var(--accent)}pre{font:12px/1.45 ui-monospace,'SF Mono',Menlo,Consolas,monospace;background:var(--raised);border-radius:6px;padding:.6rem .8rem;overflow-x:auto}"
    + LISTING_STYLE
)


def stage_page(plan: Plan, tensors: Sequence[Tensor | Var] = ()) -> str:
    """Returns the page of a plan; ``tensors``: the arguments of the computation as te declares it, for the first stage."""
    passes: list[tuple[str, PrimFunc]] = []
    name = usable_symbol(plan.request.func.name)
    lowered = lower(plan.scheduled, plan.target, name, seen=lambda step, func: passes.append((step, func)))
    module = compile(lowered, plan.target)
    code, text = module.with_line_tables()
    target = LoweredLines(lowered.func)
    programs = [_tensor_stage(tensors, target)] if tensors else []
    programs += [
        _stage("tir", "The loops as the computation states them.", plan.request.func, target),
        _stage("scheduled", "The loops after the schedule's steps, before lowering.", plan.scheduled, target),
    ]
    programs += _pass_stages(plan.scheduled, passes, target)
    programs.append(
        Listing("lowered", "The program after all passes, from which LLVM IR is written. Its lines are those that line "
                "tables name.", *own_lines(text, target.places))
    )  # fmt: skip
    chosen = len(programs) - 1
    programs.append(Listing("LLVM IR", "As Tilewright writes it.", *ir_lines(code.ir), plain=True))
    optimized = Listing("LLVM IR, optimized", "After LLVM's passes.", *ir_lines(code.optimized_ll()), plain=True)
    machine = Listing(
        "machine code", f"Assembly for {plan.target.llvm_cpu}, {plan.target.triple}.", *assembly_lines(code.asm()),
        plain=True,
    )  # fmt: skip
    body = side_by_side(programs, [machine, optimized], chosen) + _throughput(module, plan)
    title = plan.request.spec or name
    return utf8_text(
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>{_head(title, plan)}{body}</body></html>\n"
    )


def _head(title: str, plan: Plan) -> str:
    words = [str(plan.target), plan.origin]
    taken = plan.record.run_seconds if plan.record is not None else None
    report = known_report(plan.target)
    bound = bound_for(report, plan.request.func, plan.target) if report is not None else None
    if taken:
        share = f", {share_text(bound.seconds / taken)} of the roofline" if bound is not None and bound.seconds else ""
        words.append(f"{seconds_text(taken)}{share}")
    lines = "".join([f'<p class="note">{escape(word)}</p>' for word in words if word])
    help_ = "A line under the pointer marks what belongs to it on the other side; a click keeps the marks and scrolls there, Esc ends that. A green number: the line is new since the stage before."
    return f'<div class="head"><h1>{escape(title)}</h1>{lines}<p class="note">{help_}</p></div>'


def declared_lines(args: Sequence[Tensor | Var]) -> list[tuple[str, str]]:
    """Returns how te declares a computation: the name and the line of each scalar and tensor, inputs first.

    ``args``: the arguments of the function; the tensors between inputs and outputs are found from the outputs.
    """
    found: dict[Tensor | Var, None] = {}
    waiting = list(reversed(args))
    while waiting:
        one = waiting[-1]
        before = [] if isinstance(one, Var) else [t for t in one.op.input_tensors if t not in found]
        if before:
            waiting += reversed(before)
        else:
            found[waiting.pop()] = None
    return [(one.name, _declared(one)) for one in found]


def _declared(one: Tensor | Var) -> str:
    if isinstance(one, Var):
        return f"{one.name}: {one.dtype}"
    body = getattr(one.op, "body", None)
    said = f" = {', '.join(map(str, body))}" if body else ""
    return f"{one.name}: {one.dtype}[{', '.join(map(str, one.shape))}]{said}"


def _tensor_stage(args: Sequence[Tensor | Var], target: LoweredLines) -> Listing:
    declared = declared_lines(args)
    links = [tensor_links(name, target) for name, _ in declared]
    return Listing("te", "The tensors that declare the computation.", [line for _, line in declared], links)


def _stage(title: str, note: str, func: PrimFunc, target: LoweredLines) -> Listing:
    return Listing(title, note, *linked_lines(func, target))


def _pass_stages(scheduled: PrimFunc, passes: Sequence[tuple[str, PrimFunc]], target: LoweredLines) -> list[Listing]:
    """Returns the passes that change the text, without the last one, whose result is the lowered program."""
    found: list[Listing] = []
    text = scheduled.script()
    for name, func in passes:
        after = func.script()
        if after != text:
            found.append(_stage(name, f"After the pass {name}.", func, target))
        text = after
    return found[:-1] if found else []


def _throughput(module: Module, plan: Plan) -> str:
    """Returns what llvm-mca says, as a part that opens; a sentence why not where it says nothing."""
    try:
        said = throughput_report(module.get_source("asm"), plan.target.llvm_cpu, plan.target.triple)
    except BuildError as error:
        return f'<p class="note">No estimate by llvm-mca: {escape(str(error))}.</p>'
    return f"<details><summary>What llvm-mca says of the innermost loop</summary><pre>{escape(said)}</pre></details>"


Key = tuple[str, str]


class LoweredLines:
    """The lines of a lowered program, by nodes and by what they write or repeat; ``first``: the lines above it."""

    def __init__(self, func: PrimFunc, above: int = 0) -> None:
        self.func = func
        text, places = script_lines(func)
        self.text = text
        self.places = {node: [above + n for n in found] for node, found in places.items()}
        self.of: dict[Key, set[int]] = {}
        for node in statements_in(func.body):
            for key in keys(node):
                self.of.setdefault(key, set()).update(self.places.get(id(node), ()))

    def linked(self, node: IRNode) -> set[int]:
        """Return the lines that belong to a statement of an earlier stage."""
        exact = self.places.get(id(node))
        if exact is not None:
            return set(exact)
        for key in keys(node):
            if self.of.get(key):
                return self.of[key]
        if isinstance(node, Allocate | BufferStore):
            return set()
        return self.inside(node.children())

    def inside(self, nodes: Iterable[IRNode]) -> set[int]:
        """Return the lines that belong to the stores in some statements."""
        found: set[int] = set()
        for node in nodes:
            for inner in statements_in(node):
                if isinstance(inner, BufferStore):
                    found |= self.linked(inner)
        return found


def statements_in(node: IRNode) -> Iterable[IRNode]:
    """Returns the statements and blocks below a node, itself among them."""
    return [n for n in pre_order(node) if isinstance(n, Stmt | Block)]


def keys(node: IRNode) -> list[Key]:
    """Returns what a statement is followed by through lowering, the closest first."""
    if isinstance(node, For):
        return [("for", node.loop_var.name)]
    if isinstance(node, Allocate):
        return [("allocate", memory_name(node.buffer))]
    if isinstance(node, BufferStore):
        name = memory_name(node.buffer)
        again = any(isinstance(n, BufferLoad) and memory_name(n.buffer) == name for n in pre_order(node.value))
        return [("update" if again else "first", name), ("store", name)]
    return []


def memory_name(buffer: Buffer) -> str:
    """Returns the name of the array to which a buffer belongs; register values have a number behind it."""
    if buffer.scope == REGISTER_SCOPE:
        return re.sub(r"_\d+$", "", buffer.name)
    return buffer.data.name


def linked_lines(func: PrimFunc, lowered: LoweredLines) -> tuple[list[str], list[set[int]]]:
    """Returns the lines of a program, and for each the lines of the lowered program that belong to it."""
    text, places = script_lines(func)
    lines = text.splitlines()
    links: list[set[int]] = [set() for _ in lines]
    for node in statements_in(func.body):
        # a block's own line comes with the statement that realizes it
        whole = node.block.body if isinstance(node, BlockRealize) else node
        found = lowered.linked(whole) if not isinstance(node, Block | BlockRealize) else lowered.inside([whole])
        for number in places.get(id(node), ()):
            links[number - 1] |= found
    return lines, links


def tensor_links(name: str, lowered: LoweredLines) -> set[int]:
    """Returns the lines that write the array of a tensor."""
    found: set[int] = set()
    for kind in ("store", "first", "update"):
        found |= lowered.of.get((kind, name), set())
    return found


def own_lines(text: str, places: Mapping[int, list[int]]) -> tuple[list[str], list[set[int]]]:
    """Returns the lines of the lowered program itself; those where a statement begins are linked to themselves."""
    numbers = {n for found in places.values() for n in found}
    lines = text.splitlines()
    return lines, [{n} if n in numbers else set() for n in range(1, len(lines) + 1)]


_LOC = re.compile(r"^\s+\.loc\s+\d+\s+(\d+)")
_LABEL = re.compile(r"^[\w.$@]+:")
_OWN_LABEL = re.compile(r"^\.?L?(tmp|func_|BB_END|sec_|debug|info|line_|cu_)|^\.L(tmp|func_|sec_|debug|info|line|cu)")
_LOCATION = re.compile(r"^(!\d+) = !DILocation\(line: (\d+)")
_ATTACHED = re.compile(r", !dbg (!\d+|!DILocation\(line: (\d+), scope: !\d+\))")
_SUBPROGRAM = re.compile(r" !dbg !\d+(?= \{)")

Lines = tuple[list[str], list[list[int]]]
"""Lines of text, and for each of them the lines of the program from which it comes."""


def assembly_lines(text: str) -> Lines:
    """Returns labels and instructions with the lines of the last ``.loc`` above them; directives are left out.

    >>> assembly_lines("f:\\n\\t.loc\\t1 7 0\\n\\tretq\\n.Lfunc_end0:\\n\\t.section\\t.debug_line\\n\\tnop\\n")
    (['f:', '    retq'], [[], [7]])
    """
    lines: list[str] = []
    links: list[list[int]] = []
    current: list[int] = []
    code = True
    for line in text.splitlines():
        located = _LOC.match(line)
        if located:
            current = [int(located[1])] if int(located[1]) else []
        elif re.match(r"\s+\.(text|section)\b", line):
            code = ".text" in line
        elif _LABEL.match(line):
            name = line.split(":")[0]
            if code and not _OWN_LABEL.match(name):
                current = current if name.startswith(".") else []
                lines.append(line.expandtabs(4).rstrip())
                links.append([])
        elif code and line[:1] == "\t" and line[1:2] not in ("", ".", "#"):
            lines.append(re.sub(r"^\t(\S+)\t", lambda found: f"    {found[1]:<12} ", line).expandtabs(4).rstrip())
            links.append(current)
    return lines, links


def ir_lines(text: str) -> Lines:
    """Returns the functions of LLVM IR without metadata, with the lines that their instructions name.

    >>> ir_lines("  ret i32 0, !dbg !3\\n!3 = !DILocation(line: 7, scope: !2)\\n")
    (['  ret i32 0'], [[7]])
    """
    places = {found[1]: int(found[2]) for line in text.splitlines() if (found := _LOCATION.match(line))}
    lines: list[str] = []
    links: list[list[int]] = []
    for line in text.splitlines():
        if line.startswith("!"):
            continue
        found = _ATTACHED.search(line)
        number = 0 if found is None else int(found[2]) if found[2] else places.get(found[1], 0)
        lines.append(_SUBPROGRAM.sub("", _ATTACHED.sub("", line)))
        links.append([number] if number else [])
    while lines and not lines[-1].strip():
        lines.pop()
        links.pop()
    return lines, links


_CODE = ("scheduled", "lowered", "mlir", "ll", "asm", "c")
STAGES = ("graph", "fused", "kernels", "memory", "tir", "linalg", *_CODE)
"""The stages: the graph as read, and after the passes; the kernels in order; the memory plan; the distinct kernels before
and after scheduling, lowered, and as code."""


def model_text(
    graph: Graph,
    stage: str,
    target: Target,
    db: Database | str | os.PathLike[str] | None = None,
    bounds: Bounds | None = None,
) -> str:
    """Returns the text of a model at one of :data:`STAGES`. ``bounds``: the largest values of symbolic sizes."""
    if stage == "graph":
        return str(graph)
    if stage in _CODE:
        steps = reversed(build_graph(graph, target, db=db, bounds=bounds or {}).steps)
        built = {v.built.symbol: (step.name, v) for step in steps for v in reversed(step.versions)}
        return "\n".join([_code(name, version, stage, target) for name, version in reversed(built.values())])
    after = prepared(graph, target)
    if stage == "fused":
        return str(after)
    division = order_kernels(fuse(after))
    if stage == "linalg":
        return str(to_mlir(after))
    if stage == "memory":
        given = bounds_of(graph, {**graph.bounds, **(bounds or {})})
        return plan_memory(division, bounds_with_computed(division.graph, given)).describe()
    if stage == "tir":
        return "\n".join([k.func.script() for k in dict.fromkeys(representatives(division).values())])
    return _kernels(division)


def kernel_plan(
    graph: Graph,
    name: str | None,
    target: Target,
    db: Database | str | os.PathLike[str] | None = None,
    bounds: Bounds | None = None,
) -> Plan:
    """Returns how a kernel of the model is computed, by its name in the stage ``kernels``. None asks for the one with
    the most arithmetic. BuildError lists the names for another one."""
    steps = build_graph(graph, target, db=db, bounds=bounds or {}).steps
    chosen = [step for step in steps if name in (None, step.name, step.built.symbol)]
    if not chosen:
        raise BuildError(f"{graph.name} has no kernel {name!r}; there are {', '.join([step.name for step in steps])}")
    step = max(chosen, key=lambda one: count_flops(one.func) or 0)
    scheduled = parse(step.built.scheduled)
    assert isinstance(scheduled, PrimFunc)
    origin = f"{step.name} of {graph.name}: {step.built.origin}"
    origin += "; the model packs weights ahead of the call, this page inside of it" if step.built.packs else ""
    func = step.func.with_attr("global_symbol", step.name)
    return Plan(Request(func), target, step.built.kind, origin, scheduled)


def _code(name: str, version: Version, stage: str, target: Target) -> str:
    """Returns a kernel at a stage after scheduling, under a line that says where its schedule comes from."""
    text = version.built.scheduled
    if stage != "scheduled":
        func = parse(text)
        assert isinstance(func, PrimFunc)
        text = compile(func, target, version.built.symbol).get_source(stage)
    comment = {"ll": ";", "c": "//"}.get(stage, "#")
    return f"{comment} {name}: {version.built.origin}\n{text}"


def _kernels(division: Division) -> str:
    """Returns a line for each kernel: its name, its operators, what it reads and writes, and its first equal."""
    lines = []
    for kernel, first in representatives(division).items():
        reads, writes = ", ".join(map(str, kernel.inputs)), ", ".join(map(str, kernel.outputs))
        like = f"  (as {first.name})" if first is not kernel else ""
        lines.append(f"{kernel.name}({reads}) -> {writes}{like}")
    return "\n".join(lines)

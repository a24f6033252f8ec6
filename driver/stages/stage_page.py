"""This module writes the page of a program at each stage of compilation beside its machine code, with linked lines."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ...codegen import Module, compile, lower
from ...codegen.symbol_names import usable_symbol
from ...pages import COLOURS, LISTING_STYLE, Listing, seconds_text, share_text, side_by_side
from ...pages.written_files import utf8_text
from ...te import Tensor
from ...tir.expr import Var
from ...tir.stmt import PrimFunc
from ..machine_report import known_report
from ..planning import BuildError, Plan
from ..roofline import bound_for
from ..throughput import throughput_report
from .code_lines import assembly_lines, ir_lines
from .program_links import LoweredLines, linked_lines, own_lines, tensor_links

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

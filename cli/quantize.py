"""``tilewright quantize``: a model with quantized products, and what they cost in accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .options import (
    WholeNumber,
    apply,
    arg_option,
    cores_option,
    input_shapes,
    require_here,
    spec_argument,
    target_option,
    target_text,
)
from .output import CommandError, clear_sign, echo_json, first_sign, json_option

_KINDS = ("int8", "int8-weights", "int4-weights")


@click.command("quantize")
@apply(spec_argument, arg_option, target_option, json_option)
@click.option("--kind", type=click.Choice(_KINDS), default="int8-weights", show_default=True,
              help="int8: data and weights; else the weights of matrix products.")  # fmt: skip
@click.option("--calibration", metavar="FILE.npz", help="Inputs that the model will see, an array for each by its name; "
              "with one dimension more than the input they are several samples.")  # fmt: skip
@click.option(
    "-o", "--output", metavar="FILE.twgraph", help="Write the quantized model, which build, bench and tune take."
)
@click.option(
    "--group", type=WholeNumber(0), help="Weights that share a scale, 0 for a whole column.  [0, or 32 for 4 bits]"
)
@click.option("--activations", type=click.Choice(("int8", "float32")), default="int8", show_default=True,
              help="Whether building may round the data of products with quantized weights.")  # fmt: skip
@click.option("--keep", multiple=True, metavar="NAME", help="A result whose product stays as it is; may be repeated.")
@cores_option
def command(
    spec: str,
    args: tuple[str, ...],
    target: str | None,
    as_json: bool,
    kind: str,
    calibration: str | None,
    output: str | None,
    group: int | None,
    activations: str,
    keep: tuple[str, ...],
    num_cores: int | None,
) -> int:
    """Quantize the model SPEC, such as model.onnx, and print what that costs in accuracy.

    That is how its outputs differ from those of the float model, and which products cost most. The samples of --calibration are what both models run on; without it random numbers. --kind int8 needs it. --arg
    x=1,3,224,224 gives the shape of the input x.
    """
    first_sign(spec, lasting=True)
    from ..codegen import Target
    from ..driver.models.model_building import is_model, load_model
    from ..driver.quantizing import quantization_report
    from ..graph.graph_file import SUFFIX, save_graph

    if not is_model(spec):
        raise CommandError(f"{spec} is no model; quantize takes files such as model.onnx", code=2)
    if output is not None and Path(output).suffix != SUFFIX:
        raise CommandError(f"--output: {output} has to end in {SUFFIX}", code=2)
    if output is not None and not Path(output).resolve().parent.is_dir():
        raise CommandError(f"--output: there is no folder {Path(output).parent}", code=2)
    machine = Target(target_text(target, num_cores))
    require_here(machine)
    graph = load_model(spec, **({"shapes": input_shapes(args)} if args else {}))
    samples = None if calibration is None else _read(calibration, {v.name: v.ndim for v in graph.inputs})
    if kind == "int8" and samples is None:
        raise CommandError("--kind int8 needs --calibration: its samples give the ranges of the data", code=2)
    report = quantization_report(
        graph, kind, calibration=samples, group=group, activations=activations, keep=keep, target=machine
    )  # fmt: skip
    if output is not None:
        save_graph(report.graph, output)
    if as_json:
        echo_json(**report.as_dict(), output=output)
        return 0
    clear_sign()
    click.echo(str(report))
    what = (
        "random inputs; --calibration gives real ones"
        if samples is None
        else f"{report.samples} sample{'' if report.samples == 1 else 's'}"
    )
    click.echo(f"\nCompared with the float model on {what}.")
    if output is not None:
        click.echo(f"Wrote {output}. `tilewright bench {output}` times it.")
    return 0


def _read(path: str, ranks: dict[str, int]) -> list[dict[str, Any]]:
    """Returns the samples in a file of arrays by the names of the inputs, whose numbers of dimensions are ``ranks``."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError) as error:
        raise CommandError(f"--calibration: {path} is no file of arrays (.npz): {error}", code=2) from error
    if set(found) != set(ranks):
        raise CommandError(
            f"--calibration: {path} has {', '.join(found) or 'nothing'}; the model takes {', '.join(ranks)}", code=2
        )
    several = {name for name, array in found.items() if array.ndim == ranks[name] + 1}
    counts = {len(found[name]) for name in several}
    wrong = [name for name, array in found.items() if name not in several and array.ndim != ranks[name]]
    if wrong or len(counts) > 1 or (several and several != set(ranks)):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in found.items())
        raise CommandError(
            f"--calibration: {shapes}: each has the input's dimensions, or one more for the samples", code=2
        )
    if not several:
        return [found]
    return [{name: array[n] for name, array in found.items()} for n in range(counts.pop())]

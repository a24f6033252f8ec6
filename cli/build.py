"""``tilewright build``: a workload as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .options import (
    accuracy_option,
    apply,
    arg_option,
    bounds_option,
    command_line,
    cores_option,
    database_path,
    db_option,
    input_shapes,
    output_file,
    output_folder,
    size_bounds,
    spec_argument,
    target_option,
    target_text,
)
from .output import CommandError, clear_sign, echo_json, first_sign, json_option


@click.command("build")
@apply(spec_argument, arg_option, target_option, db_option, json_option)
@click.option(
    "-o",
    "--output",
    "output",
    required=True,
    metavar="FILE",
    help="FILE.so, .o, .c, .ll or .s; for a model FILE.so, .a, .c or a folder.",
)
@click.option("--name", help="The symbol of the function (the workload's name otherwise).")
@click.option(
    "-g",
    "--debug-info",
    is_flag=True,
    help="Add line tables, and write the program that they refer to beside the code, as FILE.tir.",
)
@click.option("--package-version", help="The version of a library, which pkg-config and CMake see.")
@cores_option
@bounds_option
@accuracy_option
@click.option("--require-tuned", is_flag=True, help="Fail (exit code 3) when the database has no record.")
def command(
    spec: str,
    args: tuple[str, ...],
    target: str | None,
    db_path: str | None,
    as_json: bool,
    output: str,
    name: str | None,
    debug_info: bool,
    package_version: str | None,
    num_cores: int | None,
    bounds: str | None,
    accuracy: float | None,
    require_tuned: bool,
) -> int:
    """Compile SPEC to a file that needs no Python: a library, an object file, C, LLVM IR or assembly.

    Headers for C and C++ are written beside code, packages for pkg-config and CMake beside libraries. The schedule is the best one in the database, else the default. A model, such as
    model.onnx, becomes a shared or static library, .so or .a, or a C file, .c; in a folder the one that the target makes. --arg x=1,3,224,224
    gives the shape of its input x, and --bounds n=32 the largest value of a size n that the model leaves open.
    """
    first_sign(spec)
    from ..codegen import Module, Target
    from ..codegen.lowered import symbol_problem
    from ..driver import NoRecordError, build, parse_spec
    from ..driver.models.model import Model
    from ..driver.models.model_building import is_model

    problem = symbol_problem(name) if name is not None else ""
    if problem:
        raise CommandError(f"--name: {problem}", code=2)
    model, path = is_model(spec), Path(output)
    in_folder = _checked_output(output, model)
    if bounds is not None and not model:
        raise CommandError("--bounds is for models", code=2)
    if accuracy is not None and not model:
        raise CommandError("--accuracy is for models", code=2)
    if debug_info and path.suffix == ".c":
        raise CommandError("-g: C has no line tables", code=2)
    if package_version is not None:
        _check_version(package_version, path, in_folder)
    models_own: dict[str, Any] = {"bounds": size_bounds(bounds), "accuracy": accuracy} if model else {}
    try:
        module = build(
            spec if model else parse_spec(spec, args),
            target=Target(target_text(target, num_cores)),
            db=database_path(db_path, needed=require_tuned or db_path is not None),
            require_tuned=require_tuned,
            name=name,
            **({"shapes": input_shapes(args)} if model and args else {}),
            **models_own,
        )
    except NoRecordError as error:
        again = command_line("tune", spec, args, target=target, num_cores=num_cores, db=db_path)
        raise CommandError(str(error), again, code=3) from error
    built = module if isinstance(module, Model) else None
    if in_folder and built is not None:
        path = path / f"{built.symbol}{'.c' if built.target.kind == 'c' else '.so'}"
    options: dict[str, Any] = {"debug_info": True} if debug_info else {}
    options |= {"version": package_version} if package_version is not None else {}
    files = [str(file) for file in module.export(path, **options)]
    symbols = list(module) if isinstance(module, Module) else [module.symbol]
    if as_json:
        sizes: dict[str, int] = (
            {"constant_bytes": built.constant_bytes, "workspace_bytes": built.workspace_bytes} if built else {}
        )
        echo_json(files=files, origin=module.origin, target=str(module.target), symbols=symbols, **sizes)
    else:
        clear_sign()
        click.echo(f"{', '.join(files)}: {module.origin}")
        if built is not None:
            click.echo(f"constants {built.constant_bytes:,} bytes, workspace {built.workspace_bytes:,} bytes")
    return 0


def _check_version(version: str, path: Path, in_folder: bool) -> None:
    """Raise CommandError where the file that is written has no version, or for what is none."""
    from ..codegen.runtime.packages import checked_version

    if not in_folder and path.suffix not in (".so", ".a"):
        raise CommandError("--package-version: libraries, .so and .a, have one", code=2)
    try:
        checked_version(version)
    except ValueError as error:
        raise CommandError(f"--package-version: {error}", code=2) from None


def _checked_output(output: str, model: bool) -> bool:
    """Returns whether files go into a folder, which is made. CommandError for what cannot be written."""
    path = Path(output)
    if model and (path.is_dir() or not path.suffix):
        output_folder(output)
        return True
    if path.suffix not in (".so", ".o", ".c", ".ll", ".s", *([".a"] if model else [])):
        raise CommandError(f"{output}: the suffix says what to write: .so, .o, .c, .ll or .s", code=2)
    output_file(output)
    if model and path.suffix not in (".so", ".a", ".c"):
        raise CommandError(f"{output}: a model becomes a shared or static library, .so or .a, or a C file, .c", code=2)
    return False

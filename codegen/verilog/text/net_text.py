"""Writes nets as expressions of Verilog. Operands are names of wires, or constants."""

from __future__ import annotations

from collections.abc import Callable

from ..circuit.nets import Net


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

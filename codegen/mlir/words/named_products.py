"""This module defines named operations of linalg that xDSL lacks, or does not treat as structured: batched products, reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xdsl.dialects import builtin as B
from xdsl.dialects.linalg import ops as _linalg_ops
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation, NamedOperation
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir import Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.irdl import ParsePropInAttrDict, SameVariadicOperandSize, irdl_op_definition, prop_def
from xdsl.parser import Parser
from xdsl.printer import Printer

_PARALLEL, _REDUCTION = IteratorTypeAttr.parallel(), IteratorTypeAttr.reduction()


@irdl_op_definition
class BatchMatmulOp(NamedOperation):  # type: ignore[misc]
    """Multiplies matrices with the same leading index."""

    name = "linalg.batch_matmul"
    PRINT_ATTRS_IN_FRONT: ClassVar[bool] = True

    def __init__(self, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> None:
        super().__init__(
            inputs, outputs, [o.type for o in outputs], hidden_region=self.get_hidden_region(inputs, outputs)
        )

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        """Returns the body, which is that of a product."""
        return _linalg_ops.MatmulOp.get_hidden_region(inputs, outputs)

    def get_default_indexing_maps(self) -> Sequence[AffineMap]:
        """Returns the maps of both operands and of the result."""
        b, i, j, k = (AffineExpr.dimension(n) for n in range(4))
        return tuple([AffineMap(4, 0, indices) for indices in ((b, i, k), (b, k, j), (b, i, j))])

    def get_iterator_types(self) -> B.ArrayAttr[IteratorTypeAttr]:
        """Returns the kinds of the loops."""
        return B.ArrayAttr([_PARALLEL, _PARALLEL, _PARALLEL, _REDUCTION])


@irdl_op_definition
class ReduceOp(LinalgStructuredOperation):  # type: ignore[misc]
    """Combines the elements along dimensions; the loops over the others come first."""

    name = "linalg.reduce"
    irdl_options = (SameVariadicOperandSize(), ParsePropInAttrDict())
    dimensions = prop_def(B.DenseArrayBase)

    @classmethod
    def of(cls, source: SSAValue, start: SSAValue, dimensions: Sequence[int], body: Region) -> Any:
        """Returns the reduction of one tensor."""
        along: Any = B.DenseArrayBase.from_list(B.i64, list(dimensions))
        return cls.create(
            operands=[source, start], result_types=[start.type], properties={"dimensions": along}, regions=[body]
        )

    def get_indexing_maps(self) -> B.ArrayAttr[B.AffineMapAttr]:
        """Returns the maps of the operand and of the result."""
        along = self.dimensions.get_values()
        kind: Any = self.inputs[0].type
        rank = len(kind.get_shape())
        kept = [d for d in range(rank) if d not in along]
        place = {d: n for n, d in enumerate([*kept, *along])}
        source = tuple([AffineExpr.dimension(place[d]) for d in range(rank)])
        result = tuple([AffineExpr.dimension(n) for n in range(len(kept))])
        return B.ArrayAttr([B.AffineMapAttr(AffineMap(rank, 0, indices)) for indices in (source, result)])

    def get_iterator_types(self) -> B.ArrayAttr[IteratorTypeAttr]:
        """Returns the kinds of the loops."""
        kind: Any = self.inputs[0].type
        along = len(self.dimensions.get_values())
        return B.ArrayAttr([_PARALLEL] * (len(kind.get_shape()) - along) + [_REDUCTION] * along)

    def print(self, printer: Printer) -> None:
        """Print ``ins(%x : …) outs(%y : …) dimensions = [1] (%a: f32, %b: f32) {…}``."""
        for word, value in (("ins", self.inputs[0]), ("outs", self.outputs[0])):
            printer.print_string(f" {word}(")
            printer.print_ssa_value(value)
            printer.print_string(" : ")
            printer.print_attribute(value.type)
            printer.print_string(")")
        printer.print_string(f" dimensions = {list(self.dimensions.get_values())} (")
        printer.print_list(self.body.blocks[0].args, printer.print_block_argument)
        printer.print_string(") ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> Any:
        """Returns what :meth:`print` printed."""
        values = []
        for word in ("ins", "outs"):
            parser.parse_characters(word)
            parser.parse_punctuation("(")
            name = parser.parse_unresolved_operand()
            parser.parse_punctuation(":")
            values.append(parser.resolve_operand(name, parser.parse_type()))
            parser.parse_punctuation(")")
        parser.parse_keyword("dimensions")
        parser.parse_punctuation("=")
        along = parser.parse_comma_separated_list(Parser.Delimiter.SQUARE, parser.parse_integer)
        arguments = parser.parse_comma_separated_list(Parser.Delimiter.PAREN, parser.parse_argument)
        return cls.of(values[0], values[1], along, parser.parse_region(arguments))

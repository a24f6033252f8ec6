"""This module defines operations that xDSL lacks, or has for scalars only: comparisons, choices, gathers of vectors.

They have the names, operands and texts that MLIR gives them. :func:`context` knows them in place of xDSL's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xdsl.context import Context
from xdsl.dialects import affine, arith, cf, func, linalg, math, memref, scf, tensor, vector
from xdsl.dialects import builtin as B
from xdsl.dialects.linalg import ops as _linalg_ops
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation, NamedOperation
from xdsl.dialects.linalg.attrs import IteratorType, IteratorTypeAttr
from xdsl.ir import Attribute, Dialect, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    SameVariadicOperandSize,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

# Defines named operations of linalg that xDSL lacks, or does not treat as structured: batched products, reductions.

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


# Defines operations that xDSL lacks, or has for scalars only: comparisons, choices, gathers of vectors.

CMPI_WORDS = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
CMPF_WORDS = (
    "false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true",
)  # fmt: skip
"""MLIR's words for comparisons, by their numbers."""


def mask_of(kind: Attribute) -> Attribute:
    """Returns the type of a truth value for each lane of a type."""
    return B.VectorType(B.i1, kind.get_shape()) if isinstance(kind, B.VectorType) else B.i1


@irdl_op_definition
class RemFOp(IRDLOperation):  # type: ignore[misc]
    """Represents the remainder of floats, with the sign of the left operand."""

    name = "arith.remf"
    _T: ClassVar = VarConstraint("T", AnyAttr())
    lhs = operand_def(_T)
    rhs = operand_def(_T)
    result = result_def(_T)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($result)"


class _Cast(IRDLOperation):  # type: ignore[misc]
    """A conversion of a number, or of each lane of a vector."""

    @classmethod
    def of(cls, value: SSAValue, kind: Attribute) -> Any:
        """Returns the conversion of a value to a type."""
        return cls.create(operands=[value], result_types=[kind])

    def print(self, printer: Printer) -> None:
        """Print ``%x : i32 to f32``."""
        printer.print_string(" ")
        printer.print_ssa_value(self.operands[0])
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operands[0].type)
        printer.print_string(" to ")
        printer.print_attribute(self.results[0].type)

    @classmethod
    def parse(cls, parser: Parser) -> Any:
        """Returns what :meth:`print` printed."""
        name = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        source = parser.parse_type()
        parser.parse_keyword("to")
        operands = parser.resolve_operands([name], [source], parser.pos)
        return cls.create(operands=operands, result_types=[parser.parse_type()], attributes=attributes)


def _cast(word: str, meaning: str) -> type[Any]:
    """Returns the class of a conversion."""
    fields = {
        "__doc__": f"Converts {meaning}.", "name": f"arith.{word}", "value": operand_def(), "result": result_def(),
        "traits": traits_def(Pure()), "__module__": __name__,
    }  # fmt: skip
    return irdl_op_definition(type(word, (_Cast,), fields))


ExtFOp, TruncFOp = _cast("extf", "a float to a wider one"), _cast("truncf", "a float to a narrower one")
SIToFPOp, UIToFPOp = _cast("sitofp", "an integer with sign to a float"), _cast("uitofp", "one without sign to a float")
FPToSIOp, FPToUIOp = _cast("fptosi", "a float to an integer with sign"), _cast("fptoui", "a float to one without sign")
ExtSIOp, ExtUIOp = (
    _cast("extsi", "an integer with sign to a wider one"),
    _cast("extui", "one without sign to a wider one"),
)
TruncIOp = _cast("trunci", "an integer to a narrower one")
CASTS = (ExtFOp, TruncFOp, SIToFPOp, UIToFPOp, FPToSIOp, FPToUIOp, ExtSIOp, ExtUIOp, TruncIOp)


class _Comparison(IRDLOperation):  # type: ignore[misc]
    """A comparison of numbers, or of each lane of vectors, prints its predicate as a word."""

    WORDS: ClassVar[tuple[str, ...]] = ()
    predicate = prop_def(B.IntegerAttr)
    lhs = operand_def()
    rhs = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    @classmethod
    def of(cls, word: str, a: SSAValue, b: SSAValue) -> Any:
        """Returns the comparison by a word."""
        number: Attribute = B.IntegerAttr(cls.WORDS.index(word), 64)
        return cls.create(operands=[a, b], result_types=[mask_of(a.type)], properties={"predicate": number})

    @property
    def word(self) -> str:
        """The predicate's word."""
        return self.WORDS[self.properties["predicate"].value.data]

    def print(self, printer: Printer) -> None:
        """Print ``slt, %a, %b : i32``."""
        printer.print_string(f" {self.word}, ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.operands[0].type)

    @classmethod
    def parse(cls, parser: Parser) -> Any:
        """Returns what :meth:`print` printed."""
        word = parser.parse_identifier()
        if word not in cls.WORDS:
            parser.raise_error(f"{cls.name} has no predicate {word}")
        parser.parse_punctuation(",")
        names = [parser.parse_unresolved_operand()]
        parser.parse_punctuation(",")
        names.append(parser.parse_unresolved_operand())
        if parser.parse_optional_keyword("fastmath") is not None:
            parser.parse_punctuation("<")
            while parser.parse_optional_punctuation(">") is None:
                parser.parse_optional_identifier() or parser.parse_punctuation(",")
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kind = parser.parse_type()
        made = cls.of(word, *parser.resolve_operands(names, [kind, kind], parser.pos))
        made.attributes.update(attributes)
        return made


@irdl_op_definition
class CmpiOp(_Comparison):
    """Compares integers, or vectors of integers."""

    name = "arith.cmpi"
    WORDS: ClassVar[tuple[str, ...]] = CMPI_WORDS


@irdl_op_definition
class CmpfOp(_Comparison):
    """Compares floats, or vectors of floats."""

    name = "arith.cmpf"
    WORDS: ClassVar[tuple[str, ...]] = CMPF_WORDS


@irdl_op_definition
class SelectOp(IRDLOperation):  # type: ignore[misc]
    """Chooses between two values, lane by lane where the condition is a vector."""

    name = "arith.select"
    cond = operand_def()
    lhs = operand_def()
    rhs = operand_def()
    result = result_def()
    traits = traits_def(Pure())

    def print(self, printer: Printer) -> None:
        """Print ``%c, %a, %b : f32``."""
        printer.print_string(" ")
        printer.print_list(self.operands, printer.print_ssa_value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        if self.cond.type != B.i1:
            printer.print_attribute(self.cond.type)
            printer.print_string(", ")
        printer.print_attribute(self.result.type)

    @classmethod
    def parse(cls, parser: Parser) -> Any:
        """Returns what :meth:`print` printed."""
        names = [parser.parse_unresolved_operand()]
        for _ in range(2):
            parser.parse_punctuation(",")
            names.append(parser.parse_unresolved_operand())
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kinds: list[Attribute] = [B.i1, parser.parse_type()]
        if parser.parse_optional_punctuation(","):
            kinds = [kinds[1], parser.parse_type()]
        operands = parser.resolve_operands(names, [kinds[0], kinds[1], kinds[1]], parser.pos)
        return cls.create(operands=operands, result_types=[kinds[1]], attributes=attributes)


class _Indexed(IRDLOperation):  # type: ignore[misc]
    """An access of a vector whose elements lie anywhere prints ``%base[%i][%lanes], %mask, %value : types``."""

    def print(self, printer: Printer) -> None:
        """Print the access with its types."""
        base, *rest = self.operands
        printer.print_string(" ")
        printer.print_ssa_value(base)
        with printer.in_square_brackets():
            printer.print_list(rest[:-3], printer.print_ssa_value)
        with printer.in_square_brackets():
            printer.print_ssa_value(rest[-3])
        for value in rest[-2:]:
            printer.print_string(", ")
            printer.print_ssa_value(value)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_list([base, *rest[-3:]], lambda value: printer.print_attribute(value.type))
        if self.results:
            printer.print_string(" into ")
            printer.print_attribute(self.results[0].type)

    @classmethod
    def parse(cls, parser: Parser) -> Any:
        """Returns what :meth:`print` printed."""
        names = [parser.parse_unresolved_operand()]
        names += parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        parser.parse_punctuation("[")
        names.append(parser.parse_unresolved_operand())
        parser.parse_punctuation("]")
        for _ in range(2):
            parser.parse_punctuation(",")
            names.append(parser.parse_unresolved_operand())
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        kinds = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
        results = [parser.parse_type()] if parser.parse_optional_keyword("into") else []
        all_kinds = [kinds[0], *[B.IndexType()] * (len(names) - 4), *kinds[1:]]
        operands = parser.resolve_operands(names, all_kinds, parser.pos)
        return cls.create(operands=operands, result_types=results, attributes=attributes)


@irdl_op_definition
class GatherOp(_Indexed):
    """Reads a vector of elements: lane i lies ``lanes[i]`` elements behind the place that the indices name."""

    name = "vector.gather"
    values = var_operand_def()
    result = result_def()


@irdl_op_definition
class ScatterOp(_Indexed):
    """Writes a vector of elements, as :class:`GatherOp` reads them."""

    name = "vector.scatter"
    values = var_operand_def()


class GenericOp(_linalg_ops.GenericOp):  # type: ignore[misc]
    """A ``linalg.generic`` whose text may have several results."""

    @classmethod
    def parse(cls, parser: Parser) -> Any:
        """Returns what xDSL prints."""
        given = parser.parse_optional_attr_dict()
        for key in ("indexing_maps", "iterator_types"):
            if not isinstance(given.get(key), B.ArrayAttr):
                parser.raise_error(f"linalg.generic has no {key}")
        kinds: Any = given.pop("iterator_types")
        types = [IteratorTypeAttr(IteratorType(t.data)) if isinstance(t, B.StringAttr) else t for t in kinds.data]
        operands: list[Any] = []
        for word in ("ins", "outs"):
            values: Any = ()
            if parser.parse_optional_keyword(word):
                parser.parse_punctuation("(")
                names = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_unresolved_operand)
                parser.parse_punctuation(":")
                value_types = parser.parse_comma_separated_list(parser.Delimiter.NONE, parser.parse_type)
                parser.parse_punctuation(")")
                values = parser.resolve_operands(names, value_types, parser.pos)
            operands.append(values)
        extra = parser.parse_optional_attr_dict() if parser.parse_optional_keyword("attrs") and parser.parse_punctuation("=") else {}  # fmt: skip
        body = parser.parse_region()
        results: Any = ()
        if parser.parse_optional_punctuation("->"):
            results = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
            results = [parser.parse_type()] if results is None else results
        made = _linalg_ops.GenericOp(*operands, body, given.pop("indexing_maps"), types, results, given.pop("doc", None), given.pop("library_call", None))  # fmt: skip
        made.attributes.update({**given, **extra})
        return made


_OWN = (*CASTS, GenericOp, BatchMatmulOp, ReduceOp, RemFOp, CmpiOp, CmpfOp, SelectOp, GatherOp, ScatterOp)


def context() -> Context:
    """Returns a context with the dialects that are read."""
    known = Context()
    for dialect in (B.Builtin, func.Func, arith.Arith, math.Math, scf.Scf, cf.Cf, tensor.Tensor, memref.MemRef,
                    vector.Vector, affine.Affine, linalg.Linalg):  # fmt: skip
        own = [op for op in _OWN if op.name.startswith(f"{dialect.name}.")]
        theirs = [op for op in dialect.operations if op.name not in {mine.name for mine in own}]
        known.load_dialect(Dialect(dialect.name, [*theirs, *own], list(dialect.attributes)))
    return known

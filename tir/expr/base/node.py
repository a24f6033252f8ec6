"""This module defines what a node of the IR is: an immutable object that declares its parts.

A class names in ``parts`` what its objects hold, in the order of evaluation, which is also the order of scopes: a
definition holds in the parts behind it. Fields that are not named there are plain values: names, kinds, attributes.

>>> from tilewright.tir import For
>>> For.parts
(('nodes', 'min'), ('nodes', 'extent'), ('binds', 'loop_var'), ('nodes', 'body'))

From this declaration :mod:`.node_methods` makes the methods of the class when they are called first. Walks, copies,
comparisons and the verifier use these alone, so that a new class (te adds one) is treated like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .node_methods import changed, fast_constructor, install

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """Return a decorator of decorators that changes nothing; type checkers use the real one."""
        return lambda decorator: decorator


P = TypeVar("P", bound="Part")
C = TypeVar("C", bound=type)
Parts = tuple[tuple[str, str], ...]


def _text(node: Any, words: str | None = None, marks: Mapping[Any, str] | Iterable[Any] = ()) -> str:
    from ...printer.printer import node_text  # the printer prints nodes

    return node_text(node, words, marks)


def marked_text(node: Any, marks: Mapping[Any, str] | Iterable[Any] = ()) -> str:
    """Return the text of a node with some of its parts underlined, as :func:`tilewright.tir.printer.script` does."""
    return _text(node, None, marks)


def nodes(*names: str) -> Parts:
    """Declare fields that hold expressions or statements: one, None, or a tuple of them."""
    return tuple([("nodes", name) for name in names])


def counts(*names: str) -> Parts:
    """Declare fields like :func:`nodes`, with integers that count: indices, sizes, starts and extents."""
    return tuple([("counts", name) for name in names])


def holds(*names: str) -> Parts:
    """Declare fields that hold other parts: a range, axes, regions. Their nodes count as nodes of this object."""
    return tuple([("holds", name) for name in names])


def apart(*names: str) -> Parts:
    """Declare fields like :func:`holds`, the nodes of which walks leave alone; their definitions hold here."""
    return tuple([("apart", name) for name in names])


def binds(*names: str) -> Parts:
    """Declare fields with variables that the object defines, for the parts behind them."""
    return tuple([("binds", name) for name in names])


def uses(*names: str) -> Parts:
    """Declare fields with buffers that the object accesses."""
    return tuple([("uses", name) for name in names])


def declares(*names: str) -> Parts:
    """Declare fields with buffers that the object defines, for the parts behind them."""
    return tuple([("declares", name) for name in names])


def matches(*names: str) -> Parts:
    """Declare fields like :func:`declares`; variables in the sizes of these buffers are defined with them."""
    return tuple([("matches", name) for name in names])


@dataclass_transform(eq_default=False, frozen_default=True)
def record(cls: C) -> C:
    """Decorate a class: its annotated names become fields of immutable objects that identity compares."""
    made: Any = dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)(cls)
    made.__init__ = fast_constructor(made)
    made.__setstate__ = lambda self, state: self.__init__(*state)
    return made


@dataclass_transform(eq_default=False, frozen_default=True)
def node(cls: C) -> C:
    """Decorate a class of parts, which is a :func:`record`."""
    return record(cls)


class Mapper:
    """Rebuilds programs part by part; a subclass says what it does with parts of some roles."""

    def visit(self, n: Any) -> Any:
        """Return what takes the place of an expression or a statement."""
        return n.map_parts(self)

    def index(self, e: Any) -> Any:
        """Return what takes the place of an index, a size, a start or an extent."""
        return self.visit(e)

    def bind(self, var: Any) -> Any:
        """Return the variable that is defined in place of ``var``."""
        return var

    def use(self, buffer: Any) -> Any:
        """Return the buffer that is accessed in place of ``buffer``."""
        return buffer

    def declare(self, buffer: Any) -> Any:
        """Return the buffer that is defined in place of ``buffer``."""
        return self.use(buffer)

    def match(self, buffer: Any) -> Any:
        """Return the buffer that is defined, with the variables of its sizes, in place of ``buffer``."""
        return self.declare(buffer)


class Part:
    """The base class of everything that programs are made of: nodes, and the ranges, axes and regions inside them."""

    __slots__ = ()
    parts: ClassVar[Parts] = ()
    names: ClassVar[tuple[str, ...]] = ()
    """Fields with names that have no meaning for equality."""
    identity: ClassVar[str] = ""
    """The method of a comparison for objects that are equal only where they correspond: ``var`` or ``buffer``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "parts" in cls.__dict__:
            for name in _MADE:
                setattr(cls, name, _maker(name))

    def children(self) -> tuple[Any, ...]:
        """Return the nodes directly below, in the order in which they are evaluated."""
        return ()

    def map_children(self: P, f: Callable[[Any], Any]) -> P:
        """Return the object with ``f`` applied to each child; the same object when no child changed."""
        return self

    def map_parts(self: P, mapper: Mapper) -> P:
        """Return the object with each part replaced by what the mapper's method for its role returns. Parts come in the
        order of the declaration; the object stays the same when no part changed."""
        return self

    def bound_vars(self) -> tuple[Any, ...]:
        """Return the variables that the object defines."""
        return ()

    def declared_buffers(self) -> tuple[Any, ...]:
        """Return the buffers that the object defines."""
        return ()

    def used_buffers(self) -> tuple[Any, ...]:
        """Return the buffers that the object accesses itself, not those that nodes below it access."""
        return ()

    def with_(self: P, **changes: Any) -> P:
        """Return the object with the named fields changed."""
        return changed(self, changes)

    def same_as(self, other: object) -> bool:
        """Return whether both are the same object."""
        return self is other

    def __repr__(self) -> str:
        fields = [f"{name}={getattr(self, name)!r}" for name in type(self).__dataclass_fields__]  # type: ignore[attr-defined]
        return f"{type(self).__name__}({', '.join(fields)})"


_MADE = ("children", "map_children", "map_parts", "bound_vars", "declared_buffers", "used_buffers")


def _maker(name: str) -> Any:
    """Return a method that makes itself from the declaration, for the class that declares, at its first call."""

    def method(self: Part, *args: Any) -> Any:
        install(next(c for c in type(self).__mro__ if "parts" in c.__dict__), name)
        return getattr(self, name)(*args)

    return method


class Node(Part):
    """The base class of expressions, statements and functions."""

    __slots__ = ()

    def script(self, *, words: str | None = None) -> str:
        """Return the node as TVMScript text; a PrimFunc's text parses back to an equal function. ``words="sblock"``
        spells blocks as TVM 0.27 does, see :func:`tilewright.tir.printer.script`."""
        return _text(self, words)

    def show(self, *, words: str | None = None) -> None:
        """Print :meth:`script`."""
        print(self.script(words=words))

    def __repr__(self) -> str:
        return _text(self)

    __str__ = __repr__

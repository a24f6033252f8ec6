"""This module defines what a node of the IR is: an immutable object that declares its parts.

It also makes the methods of such a class, as Python source that is compiled once, and has :class:`Reason`, the answer of
an analysis of nodes that cannot do what was asked.

A class names in ``parts`` what its objects hold, in the order of evaluation, which is also the order of scopes: a
definition holds in the parts behind it. Fields that are not named there are plain values: names, kinds, attributes.

>>> from tilewright.tir import For
>>> For.parts
(('nodes', 'min'), ('nodes', 'extent'), ('binds', 'loop_var'), ('nodes', 'body'))

From this declaration the methods of the class are made when they are called first. Walks, copies,
comparisons and the verifier use these alone, so that a new class (te adds one) is treated like the others. A field's
type says how much it holds: ``tuple[…]`` several, ``Mapping[…]`` several by key, ``… | None`` one or none. The methods
that rebuild an object return the same object when nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from operator import is_
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .dtype import BOOL, DType, accessed_type


def map_tuple(items: tuple[Any, ...], f: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Apply ``f`` to each item of a tuple; return the same tuple when nothing changed."""
    out = [f(item) for item in items]
    for new, old in zip(out, items, strict=True):
        if new is not old:
            return tuple(out)
    return items


def _map_values(items: Mapping[Any, Any], f: Callable[[Any], Any], g: Callable[[Any], Any]) -> Mapping[Any, Any]:
    out = {f(key): g(value) for key, value in items.items()}
    return items if all(map(is_, (*out, *out.values()), (*items, *items.values()))) else out


def install(cls: Any, name: str) -> None:
    """Put the method ``name``, made from the declaration of ``cls``, into that class."""
    setattr(cls, name, _compiled(name, _SOURCES[name](cls), {}))


def fast_constructor(cls: Any) -> Any:
    """Return an ``__init__`` for a dataclass that fills the slots directly, which takes half the time of the usual
    one. A field of type ``DType`` may be given as a text. A class with ``typed`` gets its data type from that text."""
    names: dict[str, Any] = {"MISSING": MISSING, "DType": DType, "BOOL": BOOL, "accessed_type": accessed_type}
    parameters, lines, defaults = [], [], []
    for f in cls.__dataclass_fields__.values():
        value = f.name if f.type != "DType" else f"{f.name} if type({f.name}) is DType else DType({f.name})"
        names[f"set_{f.name}"] = getattr(cls, f.name).__set__
        parameters.append(f.name)
        if f.default is not MISSING:
            defaults.append(f.default)
        elif f.default_factory is not MISSING:
            names[f"new_{f.name}"] = f.default_factory
            defaults.append(MISSING)
            value = f"new_{f.name}() if {f.name} is MISSING else {f.name}"
        lines.append(f" set_{f.name}(self, {value})")
    if hasattr(cls, "typed"):
        names["set_dtype"] = cls.dtype.__set__
        lines.append(f" set_dtype(self, {cls.typed})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    source = f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(lines)
    return _compiled("__init__", source, names, tuple(defaults))


def changed(record: Any, changes: dict[str, Any]) -> Any:
    """Return a record with the named fields changed."""
    cls = type(record)
    made = _CHANGED.get(cls)
    if made is None:
        names = list(cls.__dataclass_fields__)
        values = ", ".join([f"record.{name} if {name} is MISSING else {name}" for name in names])
        source = f"def changed(record, {', '.join(names)}):\n return type(record)({values})"
        made = _CHANGED[cls] = _compiled("changed", source, {"MISSING": MISSING}, (MISSING,) * len(names))
    return made(record, **changes)


_CHANGED: dict[type, Callable[..., Any]] = {}


def _compiled(name: str, source: str, names: dict[str, Any], defaults: tuple[Any, ...] = ()) -> Any:
    """Return the function that ``source`` defines; no module is executed, also when a method is made while data is
    parsed."""
    names.update(map_tuple=map_tuple, map_values=_map_values)
    module = compile(source, f"<{name} made from a declaration>", "exec")
    code = next(c for c in module.co_consts if isinstance(c, CodeType))
    return FunctionType(code, names, name, defaults)


_DECLARED: dict[type, list[tuple[str, str, str]]] = {}


def declared_fields(cls: Any) -> list[tuple[str, str, str]]:
    """Return role, name and multiplicity of each declared part."""
    out = _DECLARED.get(cls)
    if out is not None:
        return out
    out = _DECLARED[cls] = []
    for role, name in cls.parts:
        text = cls.__dataclass_fields__[name].type
        many = "map" if text.startswith("Mapping[") else "tuple" if text.startswith("tuple[") else "one"
        out.append((role, name, "maybe" if text.endswith("| None") else many))
    return out


def plain_fields(cls: Any) -> list[str]:
    """Return the fields that hold plain values with a meaning: no parts, and no names."""
    declared = {name for _, name in cls.parts}
    return [name for name in cls.__dataclass_fields__ if name not in declared and name not in cls.names]


def _collector(roles: tuple[str, ...], below: str) -> Callable[[Any], str]:
    """Return a maker of methods that collect the fields with ``roles`` and what ``below`` gives of the parts held."""
    inside = ("holds", "apart") if below != "children" else ("holds",)

    def source(cls: Any) -> str:
        items = []
        for role, name, many in declared_fields(cls):
            it = f"self.{name}"
            if role in roles:
                items.append({"one": it, "tuple": f"*{it}", "map": f"*{it}.values()",
                              "maybe": f"*(() if {it} is None else ({it},))"}[many])  # fmt: skip
            elif role in inside:
                items.append(f"*{it}.{below}()" if many == "one" else f"*[x for p in {it} for x in p.{below}()]")
        whole = items[0][1:] if len(items) == 1 and items[0].startswith("*self.") and "(" not in items[0] else ""
        return f"def {below}(self):\n return {whole or '(' + ''.join([item + ', ' for item in items]) + ')'}"

    return source


_METHODS = {
    "nodes": "visit",
    "counts": "index",
    "binds": "bind",
    "uses": "use",
    "declares": "declare",
    "matches": "match",
}


def _mapper(name: str) -> Callable[[Any], str]:
    """Return a maker of ``map_children`` or of ``map_parts``."""
    everything = name == "map_parts"
    argument = "mapper" if everything else "visit"

    def source(cls: Any) -> str:
        lines, changed = [], []
        for role, field, many in declared_fields(cls):
            if role in ("holds", "apart"):
                f = f"lambda p: p.{name}({argument})"
                one = f"self.{field}.{name}({argument})"
            else:
                f = f"mapper.{_METHODS[role]}" if everything else "visit"
                one = f"{f}(self.{field})"
            if not everything and role not in ("nodes", "counts", "holds"):
                continue
            value = {"one": one, "tuple": f"map_tuple(self.{field}, {f})",
                     "maybe": f"None if self.{field} is None else {one}",
                     "map": f"map_values(self.{field}, mapper.visit, {f})"}[many]  # fmt: skip
            lines.append(f" {field} = {value}")
            changed.append(field)
        made = "self.rebuilt" if hasattr(cls, "rebuilt") else "type(self)"
        test = " and ".join([f"{field} is self.{field}" for field in changed])
        values = [field if field in changed else f"self.{field}" for field in cls.__dataclass_fields__]
        lines += [f" if {test}:\n  return self"] if changed else [" return self"]
        return "\n".join([f"def {name}(self, {argument}):", *lines, f" return {made}({', '.join(values)})"])

    return source


_SOURCES: dict[str, Callable[[Any], str]] = {
    "children": _collector(("nodes", "counts"), "children"),
    "map_children": _mapper("map_children"),
    "map_parts": _mapper("map_parts"),
    "bound_vars": _collector(("binds",), "bound_vars"),
    "declared_buffers": _collector(("declares", "matches"), "declared_buffers"),
    "used_buffers": _collector(("uses",), "used_buffers"),
}


if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        """Return a decorator of decorators that changes nothing; type checkers use the real one."""
        return lambda decorator: decorator


P = TypeVar("P", bound="NodePart")
C = TypeVar("C", bound=type)
Parts = tuple[tuple[str, str], ...]


def _text(node: Any, words: str | None = None, marks: Mapping[Any, str] | Iterable[Any] = ()) -> str:
    from ..printer import node_text

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


class NodePart:
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

    def method(self: NodePart, *args: Any) -> Any:
        install(next(c for c in type(self).__mro__ if "parts" in c.__dict__), name)
        return getattr(self, name)(*args)

    return method


class IRNode(NodePart):
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


@dataclass(frozen=True, slots=True, eq=False)
class Reason:
    """A ``Reason`` says in one clause why an analysis has no result. ``nodes`` are the parts of the program that it
    means.

    ``hint`` says what would help. Analyses return it instead of raising, so that a caller may go on; a primitive makes an error of it.

    >>> str(Reason("the loop has no constant trip count"))
    'the loop has no constant trip count'
    """

    text: str
    nodes: tuple[Any, ...] = ()
    hint: str = ""

    def __str__(self) -> str:
        return self.text

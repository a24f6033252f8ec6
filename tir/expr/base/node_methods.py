"""This module makes the methods of a class of parts from its declaration, as Python source that is compiled once.

A field's type says how much it holds: ``tuple[…]`` several, ``Mapping[…]`` several by key, ``… | None`` one or none. The
methods that rebuild an object return the same object when nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING
from operator import is_
from types import CodeType, FunctionType
from typing import Any

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

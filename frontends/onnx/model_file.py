"""This module reads model files and the data of their tensors; nothing outside of a model's folder is opened.

Large weights stay in their file: :func:`without_large_data` takes them out of the bytes that protobuf parses, which would
copy them, and they are mapped like data beside the model.
"""

from __future__ import annotations

import heapq
import math
import mmap
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...graph.graph import MappedFile
from ...tir.expr import array_bytes, to_numpy
from ...tir.expr.dtype import kept_as_bits
from ..common.graph_call import UnsupportedOperators
from .call import HELD_DTYPES, LARGEST, OUTSIDE, SMALL_DTYPES, OnnxError, bits_of, shown, stored_dtype

_REMARKS = {"doc_string", "producer_name", "producer_version", "metadata_props"}
"""Fields of a model that nothing reads."""


def read_model(onnx: Any, model: Any) -> tuple[Any, Path | None]:
    """Returns a model and the folder of its file, None for one in memory; OnnxError for what cannot be read."""
    if isinstance(model, onnx.ModelProto):
        return _checked(model, "the model"), None
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _parsed(onnx, bytes(model), "the model"), None
    path = Path(model)
    if not path.is_file():
        raise OnnxError(f"there is no file {shown(path)}")
    try:
        with path.open("rb") as file:
            if path.stat().st_size < LARGE_BYTES or not _is_beside_itself(path):
                data = file.read()
            else:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
                    data = without_large_data(view, path.name)
    except (OSError, ValueError) as error:
        raise OnnxError(f"{shown(path)} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return _parsed(onnx, data, shown(path)), path.parent


def _is_beside_itself(path: Path) -> bool:
    """Returns whether :func:`_inside` finds the file by its name: it is no link to another folder."""
    try:
        return _inside(path.parent, path.name, "") == path.resolve()
    except OnnxError:
        return False


LARGE_BYTES = 1 << 20
"""Weights of at least so many bytes stay in the model's file."""

_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL_DATA, _LOCATION = 7, 5, 9, 13, 14
"""The numbers of protobuf's fields on the way to a tensor's bytes, and of those that say where its data are."""


def without_large_data(data: memoryview, name: str) -> bytes:
    """Returns the bytes of a model whose large initializers are external data of the file ``name``. There they are at the
    place where they stand in ``data``. Bytes that do not follow protobuf's form are returned as they are, for the parser to refuse."""
    try:
        return b"".join(_model_pieces(data, name))
    except (IndexError, OverflowError):
        return bytes(data)


def _model_pieces(data: memoryview, name: str) -> Iterator[bytes | memoryview]:
    for field, start, first, end in _fields(data, 0, len(data)):
        if field != _GRAPH:
            yield data[start:end]
            continue
        inner: list[bytes | memoryview] = []
        for number, at, value, stop in _fields(data, first, end):
            moved = (
                _located(data, value, stop, name) if number == _INITIALIZER and stop - value >= LARGE_BYTES else None
            )
            inner.append(data[at:stop] if moved is None else _message(_INITIALIZER, moved))
        yield _message(_GRAPH, b"".join(inner))


def _located(data: memoryview, start: int, end: int, name: str) -> bytes | None:
    """Returns a tensor that says where its bytes are in the file. None: they are not one large field."""
    out: list[bytes | memoryview] = []
    place: tuple[int, int] | None = None
    for field, at, value, stop in _fields(data, start, end):
        if field in (_EXTERNAL_DATA, _LOCATION) or (field == _RAW_DATA and place is not None):
            return None
        if field == _RAW_DATA:
            place = value, stop - value
        else:
            out.append(data[at:stop])
    if place is None or place[1] < LARGE_BYTES:
        return None
    entries = (("location", name), ("offset", str(place[0])), ("length", str(place[1])))
    words = [_message(1, key.encode()) + _message(2, text.encode()) for key, text in entries]
    return b"".join([*out, *[_message(_EXTERNAL_DATA, word) for word in words], bytes([_LOCATION << 3, 1])])


def _fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields number, start, start of the value, and end of each field of a message. IndexError where
    it breaks protobuf's form."""
    while at < end:
        start = at
        tag, at = _varint(data, at)
        value, kind = at, tag & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 2:
            length, value = _varint(data, at)
            at = value + length
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise IndexError(f"wire type {kind}")
        if at > end:
            raise IndexError(f"a field ends at {at}, behind {end}")
        yield tag >> 3, start, value, at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Returns the number at a place, and the place behind it."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
        if shift > 63:
            raise IndexError("a number of more than 64 bits")


def _message(field: int, content: bytes) -> bytes:
    """Returns a field of bytes: its number, its length and ``content``."""
    return _number_bytes(field << 3 | 2) + _number_bytes(len(content)) + content


def _number_bytes(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _parsed(onnx: Any, data: bytes, what: str) -> Any:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:  # the classes of protobuf's errors differ between its implementations
        raise OnnxError(f"{what} is not a readable ONNX model: {shown(error)}") from error
    if not proto.HasField("graph"):
        raise OnnxError(f"{what} is not a readable ONNX model: it has no graph")
    return _checked(proto, what)


def _checked(proto: Any, what: str) -> Any:
    """Returns a message, or raises OnnxError when a name in it is not UTF-8. Protobuf gives such a name as bytes in
    place of a text."""
    waiting = [proto]
    while waiting:
        message = waiting.pop()
        for field, value in message.ListFields():
            if field.name in _REMARKS or field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
                continue
            values = [value] if isinstance(value, (str, bytes)) or hasattr(value, "ListFields") else value
            if field.type == field.TYPE_MESSAGE:
                waiting.extend(values)
            elif any(isinstance(v, bytes) for v in values):
                text = next(v for v in values if isinstance(v, bytes)).decode("ascii", "backslashreplace")
                raise OnnxError(f"{what}: the {field.name} {shown(text)} of a {message.DESCRIPTOR.name} is not UTF-8")
    return proto


def require_distinct_names(graph: Any) -> None:
    """Raise OnnxError when two nodes, or a node and a constant, provide a value of the same name."""
    names = [*[t.name for t in graph.initializer], *[name for node in graph.node for name in node.output if name]]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise OnnxError(f"{shown(twice[0])} is provided twice")


def names_read(node: Any) -> Iterator[str]:
    """Yields the names that a node reads, those that the graphs inside it take from outside included."""
    yield from [name for name in node.input if name]
    for a in node.attribute:
        for graph in (a.g, *a.graphs) if a.type in (a.GRAPH, a.GRAPHS) else ():
            own = {*[i.name for i in graph.input], *[t.name for t in graph.initializer]}
            own.update(name for inner in graph.node for name in inner.output)
            read = [name for inner in graph.node for name in names_read(inner)]
            yield from [name for name in (*read, *[o.name for o in graph.output]) if name not in own]


def in_order(nodes: Sequence[Any], known: Container[str]) -> list[Any]:
    """Returns the nodes so that each stands behind those whose results it reads; otherwise they keep their order.

    ``known``: the names that have values before. Names that no node provides are left to the reader. OnnxError names the
    nodes of a cycle.
    """
    made = {name: n for n, node in enumerate(nodes) for name in node.output if name}
    needs = [{made[name] for name in names_read(node) if name in made and name not in known} for node in nodes]
    if all(first < n for n, before in enumerate(needs) for first in before):
        return list(nodes)
    readers: list[list[int]] = [[] for _ in nodes]
    for n, before in enumerate(needs):
        for first in before:
            readers[first].append(n)
    missing = [len(before) for before in needs]
    ready = [n for n, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for n in readers[order[-1]]:
            missing[n] -= 1
            if not missing[n]:
                heapq.heappush(ready, n)
    if len(order) < len(nodes):
        raise OnnxError(f"the nodes {_cycle(nodes, needs, set(order))} read each other's results in a cycle")
    return [nodes[n] for n in order]


def _cycle(nodes: Sequence[Any], needs: Sequence[set[int]], done: set[int]) -> str:
    """Returns the names of the nodes of one cycle, among those that are not done."""
    path = [next(n for n in range(len(nodes)) if n not in done)]
    while path[-1] not in path[:-1]:
        path.append(min(needs[path[-1]] - done))
    circle = [label_of(nodes[n]) for n in path[path.index(path[-1]) + 1 :]]
    return ", ".join(circle[:8]) + (f" and {len(circle) - 8} more" if len(circle) > 8 else "")


def tensor_data(onnx: Any, tensor: Any, folder: Path | None, label: str) -> tuple[Any, str]:
    """Returns the array of a tensor and its data type; bfloat16 and float8 as bits, few bits as 8.

    ``label`` names it in errors.

    The sizes are checked before anything is allocated. Data outside of the file is mapped from a file in ``folder``.
    """
    dtype = stored_dtype(tensor.data_type, label)
    shape, small = tuple(tensor.dims), HELD_DTYPES.get(tensor.data_type)
    if any(d < 0 for d in shape):
        raise OnnxError(f"{label} has a negative size: {shape}")
    if math.prod(shape) > LARGEST:
        raise OnnxError(f"{label} of the shape {shape} is too large")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if small is None:
            return _external(tensor, folder, label, shape, dtype), dtype
        count = math.prod(shape)
        packed = _external(tensor, folder, label, (-(-count * bits_of(small) // 8),), "uint8")
        return unpacked(packed, bits_of(small), dtype)[:count].reshape(shape), dtype
    if tensor.HasField("segment"):
        raise OnnxError(f"{label}: data in segments is not supported")
    size = array_bytes(shape, dtype) if small is None else -(-math.prod(shape) * bits_of(small) // 8)
    if tensor.HasField("raw_data") and len(tensor.raw_data) != size:
        raise OnnxError(f"{label}: the shape {shape} of {dtype} needs {size} bytes, there are {len(tensor.raw_data)}")
    try:
        array = onnx.numpy_helper.to_array(tensor)
    except Exception as error:  # damaged or hostile data
        raise OnnxError(f"{label} cannot be read: {shown(error)}") from error
    if small is not None:
        return (array.astype(dtype) if small in SMALL_DTYPES.values() else array.view(dtype)), dtype
    return (array.view(to_numpy(dtype)) if kept_as_bits(dtype) else array), dtype


def unpacked(packed: Any, bits: int, dtype: str) -> Any:
    """Returns the numbers of 2, 4 or 8 bits that the bytes of an array hold along its last axis. The lowest bits
    come first.

    >>> unpacked(np.array([0xF1], np.uint8), 4, "int8"), unpacked(np.array([0xF1], np.uint8), 4, "uint8")
    (array([ 1, -1], dtype=int8), array([ 1, 15], dtype=uint8))
    """
    places = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> places) & np.uint8((1 << bits) - 1)
    flat = numbers.reshape(*packed.shape[:-1], packed.shape[-1] * len(places))
    if not dtype.startswith("uint") and bits < 8:
        flat = (flat ^ np.uint8(1 << (bits - 1))) - np.uint8(1 << (bits - 1))  # the highest bit is the sign
    return flat.view(dtype)


def _external(tensor: Any, folder: Path | None, label: str, shape: tuple[int, ...], dtype: str) -> Any:
    """Returns data in a file beside the model, mapped."""
    entries = {e.key: e.value for e in tensor.external_data}
    path = _inside(folder, entries.get("location", ""), label)
    offset, kind = _number(entries, "offset", 0, label), to_numpy(dtype)
    size = array_bytes(shape, dtype)
    length = _number(entries, "length", size, label)
    if length != size:
        raise OnnxError(f"{label}: the shape {shape} of {dtype} needs {size} bytes, its external data has {length}")
    if offset + size > path.stat().st_size:
        raise OnnxError(f"{label}: its external data ends behind the end of {shown(path.name)}")
    if not size:
        return np.empty(shape, kind)
    return MappedFile.of(path, kind, offset, shape)


def _number(entries: dict[str, str], key: str, default: int, label: str) -> int:
    text = entries.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise OnnxError(f"{label}: the {key} of its external data is {shown(text)}, not a number")
    return int(text)


def _inside(folder: Path | None, location: str, label: str) -> Path:
    """Returns the file that ``location`` names, after links, in ``folder`` or below it."""
    if folder is None:
        raise OnnxError(f"{label}: its external data can only be read with a model that is given as a path")
    parts = location.replace("\\", "/").split("/")
    if not location or "\0" in location or Path(location).is_absolute() or ".." in parts or ":" in parts[0]:
        raise OnnxError(f"{label}: its external data {shown(location)} lies outside of the model's folder")
    try:
        home = folder.resolve(strict=True)
        path = (home / location).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise OnnxError(f"{label}: there is no file {shown(location)} for its external data") from error
    if not path.is_relative_to(home) or not path.is_file():
        raise OnnxError(f"{label}: its external data {shown(location)} lies outside of the model's folder")
    return path


def attributes(onnx: Any, node: Any, tensor: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns the attributes by name: texts as ``str``, lists as tuples, tensors as ``tensor`` reads them."""
    kinds = onnx.AttributeProto
    out: dict[str, Any] = {}
    for a in node.attribute:
        value = onnx.helper.get_attribute_value(a)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif a.type == kinds.TENSOR:
            value = tensor(value)
        elif isinstance(value, (list, tuple)) or a.type in (kinds.INTS, kinds.FLOATS):
            value = tuple([v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value])
        out[a.name] = value
    return out


def bind(onnx: Any, node: Any, given: Mapping[str, Any]) -> None:
    """Put the function's attributes in the place of references to them, also in the graphs inside the node."""
    kept = []
    for a in node.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name not in given:
                continue
            actual = onnx.AttributeProto()
            actual.CopyFrom(given[a.ref_attr_name])
            actual.name = a.name
            a = actual
        kept.append(a)
    copies = [type(a).FromString(a.SerializeToString()) for a in kept]
    for a in copies:
        for graph in (a.g, *a.graphs) if a.type in (a.GRAPH, a.GRAPHS) else ():
            for inner in graph.node:
                bind(onnx, inner, given)
    del node.attribute[:]
    node.attribute.extend(copies)


STRING_OPERATORS = frozenset("CategoryMapper RegexFullMatch StringConcat StringNormalizer StringSplit".split())
"""Operators that work on strings. They are refused by name."""


class UnsupportedOnnxOperators(UnsupportedOperators, OnnxError):
    """Raised when operators of a model have no converter; ``operators`` has their nodes by domain and operator."""

    what, adder = "model", "tilewright.frontends.onnx.register_onnx_operator"

    def __init__(self, operators: Mapping[str, Sequence[str]]) -> None:
        strings = any(name.split(".")[-1] in STRING_OPERATORS for name in operators)
        super().__init__(operators, f"; {OUTSIDE}" if strings else "")


def missing_operators(
    nodes: Iterable[Any], functions: Mapping[tuple[str, str], Any], is_known: Callable[[Any], bool]
) -> dict[str, list[str]]:
    """Returns the operators that are not known, with their nodes: also those in branches, loops and functions."""
    out: dict[str, list[str]] = {}
    waiting = [(nodes, "")]
    seen: set[tuple[str, str]] = set()
    while waiting:
        some, place = waiting.pop()
        for node in some:
            key = (node.domain, node.op_type)
            if key in functions and key not in seen:
                seen.add(key)
                waiting.append((functions[key].node, f" in the function {shown(node.op_type)}"))
            elif key not in functions and not is_known(node):
                domain = "" if node.domain in ("", "ai.onnx") else node.domain + "."
                out.setdefault(shown(domain + node.op_type, quoted=False), []).append(label_of(node) + place)
            for a in node.attribute:
                inner = [a.g, *a.graphs] if a.type in (a.GRAPH, a.GRAPHS) else []
                waiting += [(g.node, f" in {label_of(node)}") for g in inner]
    return out


def label_of(node: Any) -> str:
    """Returns the node as it is called in messages: its operator, and its name or its output's."""
    name = node.name or (node.output[0] if node.output else "")
    return f"{shown(node.op_type, quoted=False)} {shown(name)}"

"""Messages between the tuner and its workers are a JSON header and raw bytes; nothing is pickled.

A message is ``b"TWM1"``, the header's length as a little-endian ``uint32``, the header (UTF-8 JSON, an object whose
``blobs`` lists the lengths of the raw parts), then the raw parts. Arrays travel as raw parts with dtype and shape in
the header, so a worker's answer can never run code in the tuner.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO, NamedTuple

_MAGIC = b"TWM1"
_PREFIX = struct.Struct("<4sI")
_MAX_HEADER = 64 << 20
_MAX_BLOB = 64 << 30

Header = dict[str, Any]


class ProtocolError(Exception):
    """The received bytes are not a message of this protocol."""


class Message(NamedTuple):
    """A header and the raw parts that came with it."""

    header: Header
    blobs: tuple[bytes, ...]


def encode(header: Header, blobs: Sequence[Any] = ()) -> list[Any]:
    """Returns the chunks to be written, in order; ``blobs`` are bytes-like and are not copied."""
    views = [memoryview(b).cast("B") if memoryview(b).nbytes else memoryview(b"") for b in blobs]
    text = json.dumps({**header, "blobs": [v.nbytes for v in views]}, separators=(",", ":")).encode()
    if len(text) > _MAX_HEADER:
        raise ProtocolError(f"a header of {len(text)} bytes; the limit is {_MAX_HEADER}")
    return [_PREFIX.pack(_MAGIC, len(text)), text, *views]


def write_message(stream: BinaryIO, header: Header, blobs: Sequence[Any] = ()) -> None:
    """Write one message and flush."""
    for chunk in encode(header, blobs):
        stream.write(chunk)
    stream.flush()


def read_message(stream: BinaryIO) -> Message | None:
    """Returns the next message, waiting for it; None at the end of the stream."""
    reader = MessageReader()
    while True:
        need = reader.missing
        data = stream.read(need)
        if not data:
            if reader.empty:
                return None
            raise ProtocolError("the stream ended inside a message")
        reader.feed(data)
        message = reader.next()
        if message is not None:
            return message


class MessageReader:
    """A MessageReader assembles messages from the chunks of bytes that arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def empty(self) -> bool:
        """Returns whether no part of a message is waiting."""
        return not self._buffer

    @property
    def missing(self) -> int:
        """Returns how many bytes may be read without reaching beyond the current message; at least 1."""
        return max(1, self._needed() - len(self._buffer))

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._buffer += data

    def next(self) -> Message | None:
        """Returns the first complete message, or None."""
        total = self._needed()
        if len(self._buffer) < total or total == _PREFIX.size:
            return None
        header, start, lengths = self._header()
        blobs = []
        for length in lengths:
            blobs.append(bytes(memoryview(self._buffer)[start : start + length]))
            start += length
        del self._buffer[:total]
        return Message(header, tuple(blobs))

    def _needed(self) -> int:
        """The number of bytes of the current message, as far as it is known."""
        if len(self._buffer) < _PREFIX.size:
            return _PREFIX.size
        magic, length = _PREFIX.unpack_from(self._buffer)
        if magic != _MAGIC or length > _MAX_HEADER:
            raise ProtocolError(f"{bytes(self._buffer[:16])!r} does not begin a message")
        if len(self._buffer) < _PREFIX.size + length:
            return _PREFIX.size + int(length)
        _, start, lengths = self._header()
        return start + sum(lengths)

    def _header(self) -> tuple[Header, int, list[int]]:
        end = _PREFIX.size + _PREFIX.unpack_from(self._buffer)[1]
        try:
            header = json.loads(bytes(self._buffer[_PREFIX.size : end]))
            lengths = header.pop("blobs")
            sane = all(isinstance(n, int) and 0 <= n <= _MAX_BLOB for n in lengths)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ProtocolError(f"a damaged header: {error}") from None
        if not sane:
            raise ProtocolError(f"impossible lengths {lengths}")
        return header, end, lengths

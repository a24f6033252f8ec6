"""Messages between tuner and workers: what is sent arrives, whatever the pieces; what makes no sense is refused."""

import io

import numpy as np
import pytest

from tilewright.tuner.measure.process import MessageReader, ProtocolError, encode, read_message, write_message


def text_of(header, blobs=()):
    return b"".join(bytes(chunk) for chunk in encode(header, blobs))


def test_a_message_arrives_with_its_raw_parts():
    stream = io.BytesIO()
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_message(stream, {"command": "run", "job": 3}, [array, b"", b"xyz"])
    write_message(stream, {"command": "quit"})
    stream.seek(0)
    first, second = read_message(stream), read_message(stream)
    assert first.header == {"command": "run", "job": 3}
    assert np.array_equal(np.frombuffer(first.blobs[0], np.float32).reshape(3, 4), array)
    assert first.blobs[1:] == (b"", b"xyz")
    assert second.header == {"command": "quit"}
    assert read_message(stream) is None


@pytest.mark.parametrize("size", [1, 7, 13, 1000])
def test_messages_are_put_together_from_pieces(size):
    data = text_of({"n": 1}, [b"a" * 100]) + text_of({"n": 2})
    reader, seen = MessageReader(), []
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
        while (message := reader.next()) is not None:
            seen.append((message.header["n"], len(message.blobs)))
    assert seen == [(1, 1), (2, 0)]
    assert reader.empty


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"hello, world", "does not begin a message"),
        (b"TWM1\x05\x00\x00\x00[1,2]", "damaged header"),
        (b"TWM1\x10\x00\x00\x00" + b'{"blobs": [-12]}', "impossible lengths"),
    ],
)
def test_nonsense_is_refused(data, words):
    reader = MessageReader()
    with pytest.raises(ProtocolError, match=words):
        reader.feed(data)
        reader.next()


def test_a_stream_that_ends_inside_a_message():
    with pytest.raises(ProtocolError, match="ended inside"):
        read_message(io.BytesIO(text_of({"n": 1}, [b"abc"])[:-1]))

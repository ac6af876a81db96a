"""Length-framed messages over pipes and sockets, cut at every place."""

import os
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from enginecore.framing import FrameReader, FramingError, framed

MESSAGES = [b"", b"a", b"bc" * 500, bytes(range(256)), b""]


def reader_of(*pieces: bytes | None, limit: int = 1 << 20) -> FrameReader:
    """A reader of a stream that arrives in these pieces; None: nothing yet."""
    coming: Iterator[bytes | None] = iter(pieces)

    def read(size: int) -> bytes:
        piece = next(coming, b"")
        if piece is None:
            raise BlockingIOError
        return piece

    return FrameReader(read, limit)


def all_of(reader: FrameReader) -> list[bytes]:
    messages = []
    while (message := reader.receive()) is not None:
        messages.append(message)
    return messages


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 64, 10_000])
def test_messages_arrive_whole_however_the_stream_is_cut(size: int) -> None:
    stream = b"".join(map(framed, MESSAGES))
    reader = reader_of(*(stream[start : start + size] for start in range(0, len(stream), size)))
    assert all_of(reader) == MESSAGES
    assert reader.has_ended


def test_nothing_now_is_none_and_no_end() -> None:
    stream = framed(b"whole")
    reader = reader_of(stream[:2], None, stream[2:6], None, stream[6:], None)
    assert reader.receive() is None
    assert reader.receive() is None
    assert reader.receive() == b"whole"
    assert not reader.has_ended
    assert reader.receive() is None
    assert not reader.has_ended
    assert reader.receive() is None
    assert reader.has_ended


def test_part_of_a_message_before_the_end_is_lost() -> None:
    reader = reader_of(framed(b"one") + framed(b"two")[:-1])
    assert all_of(reader) == [b"one"]
    assert reader.has_ended


def test_a_length_over_the_limit_is_refused_before_its_bytes_are_read() -> None:
    reader = reader_of(framed(b"x" * 8), framed(b"y" * 9)[:4], limit=8)
    assert reader.receive() == b"x" * 8
    for _ in range(2):
        with pytest.raises(FramingError, match="a message of 9 bytes is announced, and at most 8 are read"):
            reader.receive()


def test_a_connection_that_breaks_has_ended() -> None:
    def read(size: int) -> bytes:
        raise ConnectionResetError

    reader = FrameReader(read)
    assert reader.receive() is None
    assert reader.has_ended


def test_a_reader_that_was_closed_still_gives_what_had_arrived() -> None:
    reader = reader_of(framed(b"one") + framed(b"two"), None)
    reader.read_available()
    reader.close()
    assert all_of(reader) == [b"one", b"two"]


def test_a_read_that_waits_makes_receive_wait() -> None:
    reading, writing = socket.socketpair()
    with reading, writing:
        reader = FrameReader(reading.recv)
        for message in MESSAGES:
            writing.sendall(framed(message))
        assert [reader.receive() for _ in MESSAGES] == MESSAGES
        writing.close()
        assert reader.receive() is None
        assert reader.has_ended


def test_all_that_has_arrived_can_be_read_at_once() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    reader = FrameReader(partial(os.read, reading))
    os.write(writing, framed(b"one") + framed(b"two"))
    reader.read_available()
    assert not reader.has_ended
    os.close(writing)
    reader.read_available()
    assert reader.has_ended
    assert all_of(reader) == [b"one", b"two"]
    os.close(reading)

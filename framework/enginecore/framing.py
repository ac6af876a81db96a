"""Length-framed messages: whole messages over a stream of bytes, such as a pipe or a connected
socket.

A message is written as its length, four bytes in network order, and its bytes.
"""

from collections.abc import Callable

from enginecore.errors import EngineCoreError

LONGEST_FRAME = (1 << 32) - 1
"""Bytes of a message at most, whatever limit a reader sets."""

_HEADER = 4
_CHUNK = 1 << 18  # bytes to read at once


class FramingError(EngineCoreError):
    """A message that is longer than its reader or the header allows."""


def framed(data: bytes) -> bytes:
    """The message with its length before it, to be written as it is.

    Raises:
        FramingError: it has more than `LONGEST_FRAME` bytes.
    """
    if len(data) > LONGEST_FRAME:
        raise FramingError(f"a message of {len(data)} bytes is too long: at most {LONGEST_FRAME} can be framed")
    return len(data).to_bytes(_HEADER, "big") + data


class FrameReader:
    """Reads framed messages from a stream, however the stream cuts them.

    `receive` waits if `read` waits, and returns None at once if `read` raises BlockingIOError
    instead.

    Attributes:
        has_ended: Whether the end of the stream has been read. Whole messages that came before it
            can still be received; part of one is lost.
    """

    def __init__(self, read: Callable[[int], bytes], limit: int = LONGEST_FRAME) -> None:
        """A reader at the start of a message.

        Args:
            read: Reads up to so many bytes, as `socket.recv` does; no bytes, or an OSError: the
                stream has ended.
            limit: Bytes of a message at most. A longer one is refused when its length is read, so
                that no memory is spent on a length that is not one.
        """
        self.has_ended = False
        self._read = read
        self._limit = limit
        self._buffer = bytearray()

    def receive(self) -> bytes | None:
        """The next message; None: it has not all arrived, or the stream has ended.

        Raises:
            FramingError: a message over the limit is announced; nothing can be read any more.
        """
        while (message := self._take()) is None:
            if not self._fill():
                return None
        return message

    def read_available(self) -> None:
        """Read all that has arrived, and keep it for `receive`. Only where `read` does not wait."""
        while self._fill():
            pass

    def close(self) -> None:
        """Read nothing more; messages that have arrived can still be received."""
        self.has_ended = True

    def _fill(self) -> bool:
        """Whether there was something to read."""
        if self.has_ended:
            return False
        try:
            data = self._read(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self.has_ended = not data
        self._buffer += data
        return bool(data)

    def _take(self) -> bytes | None:
        if len(self._buffer) < _HEADER:
            return None
        size = int.from_bytes(self._buffer[:_HEADER], "big")
        if size > self._limit:
            raise FramingError(f"a message of {size} bytes is announced, and at most {self._limit} are read")
        end = _HEADER + size
        if len(self._buffer) < end:
            return None
        message = bytes(memoryview(self._buffer)[_HEADER:end])
        del self._buffer[:end]
        return message

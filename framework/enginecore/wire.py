"""What front end and engine core say to each other across processes, and how it is written as frames.

One msgspec struct per kind of message, told apart by an integer tag. The first frame is the message; arrays inside it
(NumPy's) follow as frames of their own, uncopied. Nothing is pickled: what has no plain form is refused by the sender.
"""

import enum
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, get_args

import msgspec

from enginecore import messages, sampling
from enginecore.errors import EngineCoreError

Frame = bytes | bytearray | memoryview
"""A piece of a message. A sender never changes one that it has sent."""

_ARRAY = 1  # msgpack extension type


class WireError(EngineCoreError):
    """A message that cannot be written or read.

    Attributes:
        request_id: The request that it is about, if that much could be read.
        call_id: The utility call that it is about, if that much could be read.
    """

    def __init__(self, message: str, *, request_id: str | None = None, call_id: int | None = None) -> None:
        super().__init__(message)
        self.request_id = request_id
        self.call_id = call_id


# -- front end -> engine core --------------------------------------------------------------------------


class Hello(messages.Message, tag=1):
    """A front end's first message. `schema` is its `SCHEMA`."""

    schema: str


class Add(messages.Message, tag=2):
    """A request. The engine core stamps it with the client that sent it."""

    request: messages.EngineCoreRequest


class Abort(messages.Message, tag=3):
    """End these requests."""

    request_ids: list[str]


class Call(messages.Message, tag=4):
    """A control call, to be answered by a `Reply` of the same id."""

    call_id: int
    name: str
    args: list[Any]


class Bye(messages.Message, tag=5):
    """This front end leaves: end its requests."""


# -- engine core -> front end --------------------------------------------------------------------------


class Welcome(messages.Message, tag=1):
    """Answer to `Hello`."""

    client_index: int
    info: messages.EngineInfo


class Refused(messages.Message, tag=2):
    """The engine core could not read a message of this front end, or does not know it. It says nothing more to it."""

    reason: str


class Outputs(messages.Message, tag=3):
    """One step's outputs."""

    outputs: messages.EngineCoreOutputs


class Idle(messages.Message, tag=4):
    """Everything is said: nothing is left of the first `num_added` requests that this front end sent."""

    num_added: int


class Failure(enum.IntEnum):
    """How a control call failed."""

    INVALID = 0
    """The call itself was wrong: no such utility, or wrong arguments."""
    FAILED = 1
    """The utility failed."""
    DEAD = 2
    """The engine core is dead."""


class Reply(messages.Message, tag=5):
    """Answer to a `Call`.

    Attributes:
        call_id: Of the call.
        value: What it returned.
        failure: What kind of failure it was, if it failed.
        error: How it failed.
        traceback: Of the failure.
    """

    call_id: int
    value: Any = None
    failure: Failure | None = None
    error: str = ""
    traceback: str = ""


class Dead(messages.Message, tag=6):
    """The last message: the engine core has ended.

    Attributes:
        reason: Why, in a sentence.
        traceback: Of the failure, if one it was.
    """

    reason: str
    traceback: str = ""


ClientMessage = Hello | Add | Abort | Call | Bye
ServerMessage = Welcome | Refused | Outputs | Idle | Reply | Dead


def _schema() -> str:
    """Changes whenever a message does."""
    structs = [*get_args(ClientMessage), *get_args(ServerMessage)]
    structs += [s for m in (messages, sampling) for s in vars(m).values() if isinstance(s, type)]
    shapes = [
        (s.__name__, [(field.name, str(field.type)) for field in msgspec.structs.fields(s)])
        for s in structs
        if issubclass(s, msgspec.Struct)
    ]
    return hashlib.blake2b(repr(sorted(shapes)).encode(), digest_size=8).hexdigest()


SCHEMA = _schema()
"""Front end and engine core must have the same one."""

_client_messages = msgspec.msgpack.Decoder(ClientMessage)
_server_messages = msgspec.msgpack.Decoder(ServerMessage)
_encoder = msgspec.msgpack.Encoder()


def encode(message: ClientMessage | ServerMessage) -> list[Frame]:
    """The frames of a message. Each call makes new ones: nothing that was sent is written to again.

    Raises:
        WireError: it holds something that has no plain form.
    """
    frames: list[Frame] = [b""]

    def lift(value: Any) -> Any:
        if type(value).__module__ != "numpy" or not hasattr(value, "tobytes") or value.dtype.hasobject:
            raise TypeError(f"a value of type {type(value).__name__} has no plain form")
        import numpy as np

        if isinstance(value, np.generic):
            return value.item()
        frames.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        return msgspec.msgpack.Ext(_ARRAY, _encoder.encode((value.dtype.str, value.shape, len(frames) - 1)))

    try:
        # a hook only where one may be needed: it costs what a step's outputs cost without it
        lifting = isinstance(message, Call | Reply)
        frames[0] = (msgspec.msgpack.Encoder(enc_hook=lift) if lifting else _encoder).encode(message)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise WireError(f"cannot be sent to another process: {error}") from error
    return frames


def decode_client_message(frames: Sequence[Frame]) -> ClientMessage:
    """What a front end sent.

    Raises:
        WireError: it makes no sense; says why, and whom it is about if that can be read.
    """
    message: ClientMessage = _decode(_client_messages, frames)
    return message


def decode_server_message(frames: Sequence[Frame]) -> ServerMessage:
    """What the engine core sent.

    Raises:
        WireError: it makes no sense; says why.
    """
    message: ServerMessage = _decode(_server_messages, frames)
    return message


def _decode(decoder: "msgspec.msgpack.Decoder[Any]", frames: Sequence[Frame]) -> Any:
    if not frames:
        raise WireError("a message without frames")
    try:
        if len(frames) == 1:
            return decoder.decode(frames[0])
        return msgspec.msgpack.Decoder(decoder.type, ext_hook=_ArrayReader(frames)).decode(frames[0])
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError, RecursionError, IndexError) as error:
        raise _explained(frames[0], error) from error


class _ArrayReader:
    """Makes arrays of the frames that extension values name."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = frames

    def __call__(self, code: int, data: memoryview) -> Any:
        import numpy as np

        if code != _ARRAY:
            raise ValueError(f"unknown extension type {code}")
        dtype, shape, index = msgspec.msgpack.decode(data, type=tuple[str, tuple[int, ...], int])
        return np.frombuffer(self._frames[index], np.dtype(dtype)).reshape(shape)


def _explained(frame: Frame, error: Exception) -> WireError:
    """The error, with whatever can still be read of whom the message is about."""
    with suppress(msgspec.DecodeError, ValueError, RecursionError):
        match msgspec.msgpack.decode(frame):
            case [2, [str() as request_id, *_], *_]:
                return WireError(str(error), request_id=request_id)
            case [4, int() as call_id, *_]:
                return WireError(str(error), call_id=call_id)
    return WireError(str(error))

"""What front end and engine core say to each other across processes, and how it is written as frames.

One msgspec struct per kind of message, told apart by an integer tag. The first frame is the message; arrays of numbers
inside it (NumPy's) follow as frames of their own, uncopied, in the order in which they stand there. Nothing is pickled:
what has no plain form is refused by the sender.
"""

import enum
import hashlib
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from enginecore import messages, sampling
from enginecore.errors import EngineCoreError

Frame = bytes | bytearray | memoryview
"""A piece of a message. A sender never changes one that it has sent."""

_ARRAY = 1  # msgpack extension type
_NUMBERS = "biufc"  # kinds of NumPy's types that arrays may have
_DTYPE = re.compile(rf"[<>|][{_NUMBERS}][0-9]{{1,2}}")  # nothing else is shown to NumPy, which evaluates some names
_LONGEST_ERROR = 1000  # characters: an error may quote what it is about, and that may be large


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
    """A front end's first message.

    Attributes:
        schema: Its `SCHEMA`.
        key: Known to the front end that started the engine core, which alone may end it.
    """

    schema: str
    key: str = ""


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


class Shutdown(messages.Message, tag=6):
    """Shut down; what was sent before is still taken in. From the front end that started the engine core."""


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


ClientMessage = Hello | Add | Abort | Call | Bye | Shutdown
ServerMessage = Welcome | Refused | Outputs | Idle | Reply | Dead


def schema_of(types: Iterable[type]) -> str:
    """A word that changes whenever one of these structs and enums does: a default too, since defaults are not sent."""
    shapes = {
        (kind.__name__, repr(kind.__struct_config__.tag), *map(_field, msgspec.structs.fields(kind)))
        if issubclass(kind, msgspec.Struct)
        else (kind.__name__, *(f"{member.name} = {member.value!r}" for member in kind))
        for kind in types
        if issubclass(kind, msgspec.Struct | enum.Enum)
    }
    return hashlib.blake2b(repr(sorted(shapes)).encode(), digest_size=8).hexdigest()


def _field(field: msgspec.structs.FieldInfo) -> str:
    return f"{field.name}: {field.type} = {field.default!r} or {field.default_factory!r}"


SCHEMA = schema_of(
    kind
    for names in (globals(), vars(messages), vars(sampling))
    for kind in list(names.values())
    if isinstance(kind, type)
)
"""Front end and engine core must have the same one."""

_encoder = msgspec.msgpack.Encoder()


def encode(message: ClientMessage | ServerMessage) -> list[Frame]:
    """The frames of a message. Each call makes new ones: nothing that was sent is written to again.

    Raises:
        WireError: it holds something that has no plain form.
    """
    frames: list[Frame] = [b""]

    def lift(value: Any) -> Any:
        kind = type(value).__name__
        if type(value).__module__ == "numpy":
            import numpy as np

            if isinstance(value, np.generic) and isinstance(plain := value.item(), int | float | str | bytes):
                return plain
            if type(value) is np.ndarray:
                kind = f"{kind} of {value.dtype}"
                if value.dtype.kind in _NUMBERS:
                    frames.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
                    return msgspec.msgpack.Ext(_ARRAY, _encoder.encode((value.dtype.str, value.shape)))
        raise TypeError(f"a value of type {kind} has no plain form")

    try:
        # a hook only where one may be needed: it costs what a step's outputs cost without it
        lifting = isinstance(message, Call | Reply)
        frames[0] = (msgspec.msgpack.Encoder(enc_hook=lift) if lifting else _encoder).encode(message)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise WireError(f"cannot be sent to another process: {error}") from error
    return frames


class _ArrayReader:
    """Makes arrays of the frames after the first, one by one."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = iter(frames)

    def __call__(self, code: int, data: memoryview) -> Any:
        if code != _ARRAY:
            raise ValueError(f"unknown extension type {code}")
        dtype, shape = msgspec.msgpack.decode(data, type=tuple[str, tuple[int, ...]])
        if not _DTYPE.fullmatch(dtype):
            raise ValueError(f"an array of {dtype[:20]!r}: only numbers travel in arrays")
        if min(shape, default=0) < 0:
            raise ValueError(f"an array of shape {shape}")
        frame = next(self._frames, None)
        if frame is None:
            raise ValueError("fewer frames than arrays")
        import numpy as np

        return np.frombuffer(frame, np.dtype(dtype)).reshape(shape)

    def check_used_up(self) -> None:
        """Raise ValueError if a frame is left."""
        if next(self._frames, None) is not None:
            raise ValueError("more frames than arrays")


_no_arrays = _ArrayReader(())
_client_messages = msgspec.msgpack.Decoder(ClientMessage, ext_hook=_no_arrays)
_server_messages = msgspec.msgpack.Decoder(ServerMessage, ext_hook=_no_arrays)


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
        arrays = _ArrayReader(frames[1:])
        message = msgspec.msgpack.Decoder(decoder.type, ext_hook=arrays).decode(frames[0])
        arrays.check_used_up()
        return message
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise _explained(frames[0], error) from error


def _explained(frame: Frame, error: Exception) -> WireError:
    """The error, with whatever can still be read of whom the message is about."""
    text = str(error)[:_LONGEST_ERROR]
    with suppress(msgspec.DecodeError, ValueError, RecursionError):
        match msgspec.msgpack.decode(frame):
            case [2, [str() as request_id, *_], *_]:
                return WireError(text, request_id=request_id)
            case [4, int() as call_id, *_] if not isinstance(call_id, bool):
                return WireError(text, call_id=call_id)
    return WireError(text)

"""Messages between a front end and an engine core in another process, and how they are written as
bytes.

One msgspec struct per kind of message, told apart by an integer tag; each is written as one frame.
Nothing is pickled: what has no plain form is refused by the sender.
"""

import enum
import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from enginecore import messages, sampling
from enginecore.errors import EngineCoreError

Frame = bytes | bytearray | memoryview
"""A piece of a message. A sender never changes one that it has sent."""

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


# -- front end -> engine core ----------------------------------------------------------------------


class Hello(messages.Message, tag=1):
    """A front end's first message.

    Attributes:
        schema: The front end's `SCHEMA`.
        key: A secret of the front end that started the engine core, which alone may shut it down.
    """

    schema: str
    key: str = ""


class AddRequest(messages.Message, tag=2):
    """Add a request. The engine core sets its `client_index`."""

    request: messages.EngineCoreRequest


class AbortRequests(messages.Message, tag=3):
    """End these requests."""

    request_ids: list[str]


class UtilityCall(messages.Message, tag=4):
    """A control call, to be answered by a `UtilityReply` of the same id."""

    call_id: int
    name: str
    args: list[Any]


class Bye(messages.Message, tag=5):
    """This front end leaves: end its requests."""


class Shutdown(messages.Message, tag=6):
    """Shut down, after what was sent before. For the front end that started the engine core."""


# -- engine core -> front end ----------------------------------------------------------------------


class Welcome(messages.Message, tag=1):
    """Answer to `Hello`."""

    client_index: int
    info: messages.EngineInfo


class Rejected(messages.Message, tag=2):
    """The engine core could not read a message of this front end, or does not know it, and answers
    it no more.
    """

    reason: str


class StepOutputs(messages.Message, tag=3):
    """One step's outputs."""

    outputs: messages.EngineCoreOutputs


class Idle(messages.Message, tag=4):
    """All outputs were sent: nothing is left of the first `num_added` requests that this front end
    sent.
    """

    num_added: int


class UtilityFailure(enum.IntEnum):
    """Failure of a control call."""

    INVALID = 0
    """The call itself was wrong: no such utility, or wrong arguments."""
    FAILED = 1
    """The utility failed."""
    DEAD = 2
    """The engine core is dead."""


class UtilityReply(messages.Message, tag=5):
    """Answer to a `UtilityCall`.

    Attributes:
        call_id: Id of the call.
        value: Return value of the utility.
        failure: How the call failed; None: it did not.
        error: Message of the failure.
        traceback: Traceback of the failure.
    """

    call_id: int
    value: Any = None
    failure: UtilityFailure | None = None
    error: str = ""
    traceback: str = ""


class Dead(messages.Message, tag=6):
    """The last message: the engine core has ended.

    Attributes:
        reason: Why, in a sentence.
        traceback: Traceback of the failure; empty after an orderly end.
    """

    reason: str
    traceback: str = ""


ClientMessage = Hello | AddRequest | AbortRequests | UtilityCall | Bye | Shutdown
ServerMessage = Welcome | Rejected | StepOutputs | Idle | UtilityReply | Dead


def schema_of(types: Iterable[type]) -> str:
    """A digest that changes whenever one of these structs and enums does. Defaults count: they are
    not sent.
    """
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
"""A digest of all message types, which front end and engine core must share."""


def encode(message: ClientMessage | ServerMessage) -> list[Frame]:
    """The frames of a message, of which there is one. Each call makes a new one: what was sent is
    never written again.

    Raises:
        WireError: it holds something that has no plain form.
    """
    try:
        # a hook only where one may be needed: it costs what a step's outputs cost without it
        encoder = _open_encoder if isinstance(message, UtilityCall | UtilityReply) else _encoder
        return [encoder.encode(message)]
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise WireError(f"cannot be sent to another process: {error}") from error


def _plain(value: Any) -> int | float | str | bytes:
    """A number or text of NumPy's as Python's own."""
    if type(value).__module__ == "numpy":
        import numpy as np

        if isinstance(value, np.generic) and isinstance(plain := value.item(), int | float | str | bytes):
            return plain
    raise TypeError(f"a value of type {type(value).__name__} has no plain form")


_encoder = msgspec.msgpack.Encoder()
_open_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)


def _refuse_extension(code: int, data: memoryview) -> Any:
    raise ValueError(f"unknown extension type {code}")


_client_messages = msgspec.msgpack.Decoder(ClientMessage, ext_hook=_refuse_extension)
_server_messages = msgspec.msgpack.Decoder(ServerMessage, ext_hook=_refuse_extension)


def decode_client_message(frames: Sequence[Frame]) -> ClientMessage:
    """Decode a message of a front end.

    Raises:
        WireError: it cannot be read; says why, and names the request or call if that much can be
            read.
    """
    message: ClientMessage = _decode(_client_messages, frames)
    return message


def decode_server_message(frames: Sequence[Frame]) -> ServerMessage:
    """Decode a message of the engine core.

    Raises:
        WireError: it cannot be read; says why.
    """
    message: ServerMessage = _decode(_server_messages, frames)
    return message


def _decode(decoder: "msgspec.msgpack.Decoder[Any]", frames: Sequence[Frame]) -> Any:
    if len(frames) != 1:
        raise WireError(f"a message of {len(frames)} frames: each has one")
    try:
        return decoder.decode(frames[0])
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise _explained(frames[0], error) from error


def _explained(frame: Frame, error: Exception) -> WireError:
    """The error, with the id of the request or call that the message is about if it is legible."""
    text = str(error)[:_LONGEST_ERROR]
    with suppress(msgspec.DecodeError, ValueError, RecursionError):
        match msgspec.msgpack.decode(frame):
            case [2, [str() as request_id, *_], *_]:
                return WireError(text, request_id=request_id)
            case [4, int() as call_id, *_] if not isinstance(call_id, bool):
                return WireError(text, call_id=call_id)
    return WireError(text)

"""Reports of an engine core's process to its parent, over a pipe of their own, apart from the transport."""

from typing import Any

import msgspec

from enginecore.messages import Message


class Started(Message, tag=1):
    """The engine core is ready. `address`: where clients find it."""

    address: dict[str, Any]


class NotStarted(Message, tag=2):
    """The engine core did not start.

    Attributes:
        kind: Name of the error's class in `enginecore.errors`.
        message: Why.
        traceback: Where, if the error came from code.
    """

    kind: str
    message: str
    traceback: str = ""


class Ended(Message, tag=3):
    """The engine core was ready and has ended. `reason`: why, in a sentence; `traceback`: of a failure."""

    reason: str
    traceback: str = ""


Report = Started | NotStarted | Ended
report_decoder = msgspec.msgpack.Decoder(Report)

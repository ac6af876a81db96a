"""What an engine core's process reports to its parent, over a pipe of their own, whatever the transport does."""

from typing import Any

import msgspec

from enginecore.messages import Message


class Started(Message, tag=1):
    """It is ready. `address`: where front ends find it."""

    address: dict[str, Any]


class NotStarted(Message, tag=2):
    """It will not be ready.

    Attributes:
        kind: Name of the error's class in `enginecore.errors`.
        message: Why.
        traceback: Where, if the error came from code.
    """

    kind: str
    message: str
    traceback: str = ""


class Ended(Message, tag=3):
    """It was ready and has ended. `reason`: why, in a sentence; `traceback`: of the failure, if one it was."""

    reason: str
    traceback: str = ""


Report = Started | NotStarted | Ended
report_decoder = msgspec.msgpack.Decoder(Report)

"""The events and messages in the two queues between the busy loop and its IO threads."""

from dataclasses import dataclass, field
from queue import SimpleQueue

from enginecore.messages import LoopStats
from enginecore.wire import ClientMessage, ServerMessage, WireError


@dataclass(frozen=True, slots=True)
class FromPeer:
    """A message of a client."""

    peer: bytes
    message: ClientMessage


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A peer sent a message that cannot be read."""

    peer: bytes
    error: WireError


@dataclass(frozen=True, slots=True)
class PeerGone:
    """A peer has closed its end."""

    peer: bytes


@dataclass(frozen=True, slots=True)
class Unsendable:
    """An output of this request could not be sent; its client got a terminal output instead."""

    peer: bytes
    request_id: str


@dataclass(frozen=True, slots=True)
class FatalError:
    """The executor or an IO thread cannot go on."""

    what: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Wakes the busy loop: a shutdown was requested."""


Event = FromPeer | Unreadable | PeerGone | Unsendable | FatalError | Wakeup


@dataclass(frozen=True, slots=True)
class ToPeer:
    """A message to a client."""

    peer: bytes
    message: ServerMessage


@dataclass(frozen=True, slots=True)
class Forget:
    """Answer to `Unsendable`: no more outputs of this request will come."""

    peer: bytes
    request_id: str


@dataclass(slots=True)
class Activity:
    """Shows that IO hides behind the forward pass. Each counter has one writer.

    Attributes:
        stepping: Whether a step runs.
        stats: Counters since the last report.
    """

    stepping: bool = False
    stats: LoopStats = field(default_factory=LoopStats)


@dataclass(frozen=True, slots=True)
class Queues:
    """The two queues. `SimpleQueue` since a signal handler may put into it while the loop takes from it.

    Attributes:
        inbox: To the busy loop.
        outbox: From the busy loop; None ends the output thread.
        activity: Counters of the threads.
    """

    inbox: "SimpleQueue[Event]" = field(default_factory=SimpleQueue)
    outbox: "SimpleQueue[ToPeer | Forget | None]" = field(default_factory=SimpleQueue)
    activity: Activity = field(default_factory=Activity)

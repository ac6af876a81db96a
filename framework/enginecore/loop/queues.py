"""What stands in the two queues between the busy loop and its IO threads."""

from dataclasses import dataclass, field
from queue import SimpleQueue

from enginecore.messages import LoopStats
from enginecore.wire import ClientMessage, ServerMessage, WireError


@dataclass(frozen=True, slots=True)
class FromPeer:
    """A front end said something."""

    peer: bytes
    message: ClientMessage


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A peer sent what makes no sense."""

    peer: bytes
    error: WireError


@dataclass(frozen=True, slots=True)
class PeerGone:
    """A peer has ended."""

    peer: bytes


@dataclass(frozen=True, slots=True)
class Unsendable:
    """An output of this request could not be sent, and its front end was told of its end."""

    peer: bytes
    request_id: str


@dataclass(frozen=True, slots=True)
class FatalError:
    """The executor or an IO thread cannot go on."""

    what: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Look around: somebody asked for the shutdown."""


Event = FromPeer | Unreadable | PeerGone | Unsendable | FatalError | Wakeup


@dataclass(frozen=True, slots=True)
class ToPeer:
    """To be said to a front end."""

    peer: bytes
    message: ServerMessage


@dataclass(frozen=True, slots=True)
class Forget:
    """Answer to `Unsendable`: no more of this request will come."""

    peer: bytes
    request_id: str


@dataclass(slots=True)
class Activity:
    """Shows that IO hides behind the forward pass. Each counter has one writer.

    Attributes:
        stepping: Whether a step runs.
        stats: What was counted.
    """

    stepping: bool = False
    stats: LoopStats = field(default_factory=LoopStats)


@dataclass(frozen=True, slots=True)
class Queues:
    """The two queues. `SimpleQueue` since a signal handler may put into it while the loop takes from it.

    Attributes:
        inbox: To the busy loop.
        outbox: From the busy loop; None ends the output thread.
        activity: What the threads have counted.
    """

    inbox: "SimpleQueue[Event]" = field(default_factory=SimpleQueue)
    outbox: "SimpleQueue[ToPeer | Forget | None]" = field(default_factory=SimpleQueue)
    activity: Activity = field(default_factory=Activity)

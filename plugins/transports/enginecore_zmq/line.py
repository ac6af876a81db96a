"""The engine core's way out to one front end."""

import time
from contextlib import suppress

import zmq

from enginecore_zmq.keys import KeyPair
from enginecore_zmq.places import Place
from enginecore_zmq.sockets import Context, Monitor, make_socket, use_as_server

_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED


class Line:
    """A PUSH, bound for one peer alone.

    Any process that finds the endpoint may connect; with keys, only the peer is given the key to
    it. The line is tied to the first connection whose handshake succeeds, and its end is the
    line's. If it cannot be said which connection that is, or a second one gets in, the line ends.

    Attributes:
        socket: Belongs to the receiving thread until the line is open, then to the sending one.
        monitor: Events of the socket.
        name: Name of its endpoint.
        since: When it was made.
        is_open: Whether its peer was informed that it is.
        has_ended: Whether its peer is gone.
    """

    def __init__(self, context: Context, place: Place, pair: KeyPair | None, limit: int) -> None:
        """Make a line that waits for its peer.

        Raises:
            zmq.ZMQError: there are too many open files, or the like.
        """
        self._place = place
        self._attempts: set[int] = set()  # connections, by file descriptor
        self._connection: int | None = None
        self.since = time.monotonic()
        self.is_open = self.has_ended = False
        self.socket = make_socket(context, zmq.PUSH, place.base, limit)
        try:
            if pair is not None:
                use_as_server(self.socket, pair)
            self.monitor = Monitor(self.socket, _EVENTS)
            try:
                self.name = place.bind(self.socket, next(place.others))
            except BaseException:
                self.monitor.close()
                raise
        except BaseException:
            self.socket.close()
            raise

    @property
    def is_connected(self) -> bool:
        """Whether its peer has connected."""
        return self._connection is not None

    def read_events(self) -> None:
        """Take in what has happened."""
        for event, value in self.monitor.read():
            match event:
                case zmq.EVENT_ACCEPTED:
                    self._attempts.add(value)
                case zmq.EVENT_HANDSHAKE_SUCCEEDED if self._connection is None and len(self._attempts) == 1:
                    (self._connection,) = self._attempts
                case zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self.has_ended = True
                case zmq.EVENT_DISCONNECTED:
                    self._attempts.discard(value)
                    self.has_ended |= value == self._connection

    def open(self) -> None:
        """Inform the peer, by an empty message. From here on the socket belongs to the sending
        thread.
        """
        with suppress(zmq.Again):  # it is gone already; an event will say so
            self.socket.send(b"", zmq.NOBLOCK)
        self._place.hide(self.name)
        self.is_open = True

    def close(self) -> None:
        """Release everything at once."""
        self.monitor.close()
        self.socket.close()
        self._place.hide(self.name)

    def close_slowly(self, linger: float) -> None:
        """Let what was sent leave, for so many seconds; `wait` waits for that.

        A peer that ends meanwhile need not shorten it: ZMQ may keep what was meant for it to the
        last.
        """
        self.socket.close(round(linger * 1000))
        self._place.hide(self.name)

    def wait(self, deadline: float) -> None:
        """Wait until the socket has really ended, but not for ever."""
        self.monitor.wait_until_stopped(deadline)
        self.monitor.close()

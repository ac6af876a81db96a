"""Opening a front end's channel: the other side of what `ZmqServerChannel` does."""

import time

import zmq

from enginecore_zmq.client import TRIED_AGAIN, ZmqChannel
from enginecore_zmq.keys import ClientKeys
from enginecore_zmq.places import split_endpoint
from enginecore_zmq.sockets import OPEN, Monitor, Socket, make_context, make_socket, milliseconds_until, use_as_client

_MAX_SOCKETS = 16
_LONGEST_ANSWER = 4096
_COPIED = 1 << 20  # bytes up to which a copy costs less than the thread that pyzmq keeps for frames that are not copied
_RETRY = 0.1  # seconds
_RECONNECT = 1000  # milliseconds

_DEALER_EVENTS = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_DISCONNECTED | TRIED_AGAIN
_PULL_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED


def open_channel(endpoint: str, keys: ClientKeys | None, timeout: float) -> ZmqChannel:
    """Connect to the engine core that listens at `endpoint`.

    Raises:
        ConnectionError: no engine core there accepts us within `timeout` seconds; says why, if that
            is known.
    """
    opening = _Opening(endpoint, keys, timeout)
    try:
        opening.start()
        while (channel := opening.attempt()) is None:
            time.sleep(_RETRY)
        return channel
    except zmq.ZMQError as error:
        opening.abandon()
        raise ConnectionError(f"cannot connect to {endpoint}: {error}") from error
    except BaseException:
        opening.abandon()
        raise


class _Opening:
    def __init__(self, endpoint: str, keys: ClientKeys | None, timeout: float) -> None:
        self._endpoint, self._keys, self._timeout = endpoint, keys, timeout
        self._deadline = time.monotonic() + timeout
        self._context = make_context(_MAX_SOCKETS)
        self._dealer = make_socket(self._context, zmq.DEALER, endpoint, _LONGEST_ANSWER)
        self._dealer.copy_threshold = _COPIED
        self._dealer.reconnect_ivl = _RECONNECT
        self._dealer_events = Monitor(self._dealer, _DEALER_EVENTS)
        self._pull_events: Monitor | None = None

    def start(self) -> None:
        """Begin to connect."""
        if self._keys is not None:
            use_as_client(self._dealer, self._keys.server, self._keys.own)
        self._dealer.connect(self._endpoint)

    def attempt(self) -> ZmqChannel | None:
        """The channel; None: its line was lost before it was open.

        Raises:
            ConnectionError: it is too late, or the engine core refuses.
        """
        self._dealer.send(OPEN)
        name, key, limit = self._answer()
        pull = make_socket(self._context, zmq.PULL, self._endpoint, limit)
        pull.rcvhwm = 0  # a slow front end keeps what it has not read, not the engine core
        # never -1: ZMQ would drop what has arrived and was not read when the line ends
        pull.reconnect_ivl = _RECONNECT
        if self._keys is not None:
            use_as_client(pull, key, self._keys.own)
        self._pull_events = Monitor(pull, _PULL_EVENTS)
        pull.connect(split_endpoint(self._endpoint)[0] + name)
        if pull in self._wait(pull, self._pull_events.socket):
            pull.recv()
            return ZmqChannel(self._dealer, self._dealer_events, pull, self._pull_events, limit)
        self._pull_events.close()
        pull.close()
        return None

    def abandon(self) -> None:
        """Release everything."""
        for monitor in (self._dealer_events, self._pull_events):
            if monitor is not None:
                monitor.close()
        self._context.destroy(linger=0)

    def _answer(self) -> tuple[str, bytes, int]:
        """The engine core's answer to OPEN: name and key of our line, and the largest message."""
        while self._dealer not in self._wait(self._dealer, self._dealer_events.socket):
            if any(event == zmq.EVENT_HANDSHAKE_FAILED_AUTH for event, _ in self._dealer_events.read()):
                raise ConnectionError(f"the engine core at {self._endpoint} does not allow this front end's key")
        name, *rest = self._dealer.recv_multipart()
        if not name:
            raise ConnectionError(f"the engine core at {self._endpoint} refuses: {b' '.join(rest).decode()}")
        key, limit = rest
        return name.decode(), key, int(limit)

    def _wait(self, *sockets: Socket) -> list[Socket]:
        """Wait for the sockets; returns those that hold something, of which there is one at least.

        Raises:
            ConnectionError: none does in time.
        """
        ready = zmq.zmq_poll([(socket, zmq.POLLIN) for socket in sockets], milliseconds_until(self._deadline))
        if not ready:
            keys = "" if self._keys is None else ", or none that has the keys that this front end expects"
            raise ConnectionError(f"no engine core answers at {self._endpoint} within {self._timeout:g} seconds{keys}")
        return [socket for socket in sockets if any(socket is one for one, _ in ready)]

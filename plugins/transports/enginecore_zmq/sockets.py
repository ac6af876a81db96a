"""ZMQ sockets: how they are made, how messages pass through them, and how what happens to them is
seen.
"""

import ctypes
import secrets
import selectors
import struct
import time
from collections.abc import Sequence
from typing import cast

import zmq

from enginecore.errors import ConfigurationError, InvalidRequestError
from enginecore.interfaces import Frame
from enginecore_zmq.keys import ZAP_DOMAIN, KeyPair

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]

OPEN = b"enginecore-zmq 1: open"
"""The first message of a front end."""

LARGE = 64 << 10
"""Bytes from which on a frame is not copied."""

_ENVELOPE = 64  # bytes, more than encryption adds to a frame
_NOBLOCK = int(zmq.NOBLOCK)
_SEND_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENT = struct.Struct("=Hi")


# -- making ----------------------------------------------------------------------------------------


def make_context(max_sockets: int) -> Context:
    """A context of its own, never the process's shared one: it can be ended at any time."""
    context = Context(io_threads=1)
    context.max_sockets = max_sockets
    return context


def make_socket(context: Context, kind: int, endpoint: str, limit: int) -> Socket:
    """A socket that never makes its sender wait, and closes at once.

    Args:
        context: Context of the socket.
        kind: zmq.PUSH and so on.
        endpoint: Where it will be bound or connected.
        limit: Bytes of a frame that it takes at most; a peer that sends a larger one is
            disconnected.
    """
    socket = context.socket(kind)
    socket.linger = 0
    socket.sndhwm = 0
    socket.maxmsgsize = limit + _ENVELOPE
    socket.copy_threshold = LARGE
    if endpoint.startswith("tcp:"):
        socket.ipv6 = "[" in endpoint
        # a machine that vanishes sends nothing: keep-alive makes its end visible
        socket.tcp_keepalive, socket.tcp_keepalive_idle = 1, 30
        socket.tcp_keepalive_intvl, socket.tcp_keepalive_cnt = 10, 3
    return socket


def make_peers_unpredictable() -> None:
    """Let the next ROUTER number its peers from a number that cannot be guessed.

    Otherwise they are the same in every process, since ZMQ takes the C library's unseeded `rand`. A
    front end that gives itself a number which another one gets later makes ZMQ abort the process.
    """
    ctypes.CDLL(None).srand(secrets.randbits(32))


def use_as_server(socket: Socket, pair: KeyPair) -> None:
    """Accept only peers that know the public key and that the context's gatekeeper accepts."""
    socket.curve_secretkey = pair.secret
    socket.curve_server = True
    socket.zap_domain = ZAP_DOMAIN.encode()
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # without a gatekeeper no peer is accepted, rather than every peer


def use_as_client(socket: Socket, server_key: bytes, pair: KeyPair) -> None:
    """Connect to a server that has the secret of `server_key`, and to no other."""
    socket.curve_serverkey = server_key
    socket.curve_publickey, socket.curve_secretkey = pair.public, pair.secret


def make_selector() -> selectors.EpollSelector:
    """Waits for sockets, and can itself be waited for.

    Raises:
        ConfigurationError: there is nothing of that kind here.
    """
    selector = selectors.DefaultSelector()
    if not hasattr(selector, "fileno"):
        raise ConfigurationError('transport zmq needs epoll or kqueue: use Linux or macOS, or transport.use = "inproc"')
    return cast(selectors.EpollSelector, selector)  # or KqueueSelector, which is used alike


# -- messages --------------------------------------------------------------------------------------


def check_message(frames: Sequence[Frame], limit: int) -> None:
    """Refuse what cannot be sent, before a part of it is.

    Raises:
        InvalidRequestError: it is larger than `limit`.
        TypeError, ValueError: something in it is no frame.
    """
    if not frames:
        raise ValueError("a message has at least one frame")
    size = 0
    for frame in frames:
        if type(frame) is bytes:
            size += len(frame)
            continue
        view = memoryview(frame)
        if not view.c_contiguous:
            raise ValueError("a frame must be contiguous memory")
        size += view.nbytes
    if size > limit:
        raise InvalidRequestError(
            f"a message of {size} bytes is larger than transport.zmq.max_message_size = {limit} bytes"
        )


def send_frames(socket: Socket, frames: Sequence[Frame]) -> None:
    """Send a message. Frames from the socket's `copy_threshold` on are kept alive until they have
    left.

    Raises:
        zmq.Again: no peer is connected; nothing was sent.
    """
    last = len(frames) - 1
    for n, frame in enumerate(frames):
        socket.send(frame, _NOBLOCK if n == last else _SEND_MORE, copy=False)


def receive_frames(socket: Socket) -> list[Frame]:
    """The next message.

    Raises:
        zmq.Again: none has arrived.
    """
    frames: list[Frame] = []
    while True:
        frame = socket.recv(_NOBLOCK, copy=False)
        frames.append(frame.bytes if len(frame) < LARGE else frame.buffer)
        if not frame.more:
            return frames


# -- events ----------------------------------------------------------------------------------------


def milliseconds_until(deadline: float) -> int:
    """Milliseconds until a time, as ZMQ counts."""
    return max(round((deadline - time.monotonic()) * 1000), 0)


class Monitor:
    """Events of a socket's connections, in order."""

    def __init__(self, monitored: Socket, events: int) -> None:
        name = f"inproc://{secrets.token_hex(8)}"
        self._monitored = monitored
        self.socket: Socket = monitored.context.socket(zmq.PAIR)
        self.socket.linger = 0
        self.socket.rcvhwm = 0  # ZMQ's own thread would wait until a full one is read
        try:
            monitored.monitor(name, events)
            self.socket.connect(name)
            self.read()  # a file descriptor of ZMQ says nothing until its socket was found empty
        except BaseException:
            self.close()
            raise

    def read(self) -> list[tuple[int, int]]:
        """Events that have come, each with its value: often a connection's file descriptor. Never
        waits.
        """
        events: list[tuple[int, int]] = []
        while True:
            try:
                event, _ = self.socket.recv_multipart(_NOBLOCK)
            except zmq.Again:
                return events
            events.append(_EVENT.unpack(event))

    def wait_until_stopped(self, deadline: float) -> None:
        """Wait until the monitored socket, which was closed before, has really ended."""
        while self.socket.poll(milliseconds_until(deadline)):
            if any(event == zmq.EVENT_MONITOR_STOPPED for event, _ in self.read()):
                return

    def close(self) -> None:
        """Let go. Before the monitored socket is closed at once, and at any time after it was."""
        if not self._monitored.closed:
            self._monitored.disable_monitor()  # first: ZMQ's own thread would wait for ever for a reader
        self.socket.close()

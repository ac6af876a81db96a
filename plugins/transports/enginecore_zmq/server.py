"""The engine core's end: one ROUTER that receives from all front ends, and a line to each."""

import logging
import os
import selectors
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import zmq

from enginecore.interfaces import Frame, ServerChannel
from enginecore_zmq.keys import Gatekeeper, KeyPair, ServerKeys
from enginecore_zmq.line import Line
from enginecore_zmq.places import Place
from enginecore_zmq.sockets import (
    OPEN,
    Socket,
    check_message,
    make_context,
    make_peers_unpredictable,
    make_selector,
    make_socket,
    receive_frames,
    send_frames,
    use_as_server,
)

logger = logging.getLogger(__name__)

MAX_PEERS = 256
"""Front ends at a time, with those that are being let in."""

OPENING_TIME = 30.0
"""Seconds that a front end has to connect after it was given its endpoint."""

_SOCKETS_PER_PEER = 3  # a line's own, and both ends of its monitor
_OTHER_SOCKETS = 16
_NOBLOCK = int(zmq.NOBLOCK)  # as a plain number it costs less
_LINGER_MARGIN = 1.0  # ZMQ itself keeps to the time; this is for a machine that is too busy to


class ZmqServerChannel(ServerChannel):
    """The engine core's end: one socket to which front ends send, and a line to each of them.

    A front end sends OPEN to the ROUTER, is answered with the endpoint of its line, connects, and
    gets an empty message there: it is open. From then on all that it sends is the kernel's. The end
    of its line is the end of the peer.
    """

    def __init__(self, place: Place, keys: ServerKeys | None, limit: int) -> None:
        """Begin to listen.

        Raises:
            zmq.ZMQError: the first socket cannot be bound.
        """
        self._place, self._keys, self._limit = place, keys, limit
        self._lines: dict[bytes, Line] = {}  # by peer; changed by the receiving thread alone
        self._lock = threading.Lock()  # held to send on a line, and to change that it can be
        self._ending: deque[bytes] = deque()  # peers that are gone, whose last messages may still be here
        self._unread = True  # whether the ROUTER may hold something
        self._selector = make_selector()
        self._context = make_context(_SOCKETS_PER_PEER * MAX_PEERS + _OTHER_SOCKETS)
        make_peers_unpredictable()
        self._router = make_socket(self._context, zmq.ROUTER, place.base, limit)
        gatekeeper = None if keys is None else Gatekeeper(self._context, keys)
        # what is held outlives us: sockets must be closed in order, not as garbage
        self._held = os.getpid(), place, self._router, gatekeeper, self._lines
        self._end = weakref.finalize(self, _let_go, *self._held)
        self._end.atexit = False  # other threads may still be at work
        try:
            if keys is not None and gatekeeper is not None:
                self._selector.register(gatekeeper.zap_socket, selectors.EVENT_READ, gatekeeper.answer)
                use_as_server(self._router, keys.own)
            self._address: dict[str, Any] = {"endpoint": place.seen_as + place.bind(self._router, place.first)}
            self._selector.register(self._router, selectors.EVENT_READ, self._look)
        except BaseException:
            self.close(0)
            raise
        if keys is not None and keys.issued is not None:
            self._address["keys"] = keys.issued.to_plain()

    @property
    def address(self) -> Mapping[str, Any]:
        return self._address

    def fileno(self) -> int:
        return self._selector.fileno()

    def close(self, linger: float) -> None:
        self._selector.close()
        if self._end.detach() is not None:
            _let_go(*self._held, linger)

    # -- in ----------------------------------------------------------------------------------------

    def receive(self) -> tuple[bytes, Sequence[Frame] | None] | None:
        while True:
            # file descriptors of ZMQ say that something is new: each socket is emptied before they
            # are asked again
            while self._unread:
                try:
                    peer = self._router.recv(_NOBLOCK)
                except zmq.Again:
                    self._unread = False
                else:
                    frames = receive_frames(self._router)
                    if self._is_for_kernel(peer, frames):
                        return peer, frames
            if self._ending:
                peer = self._ending.popleft()
                self._forget(peer)
                return peer, None
            ready = self._selector.select(0)
            if not ready:
                return None
            for key, _ in ready:
                key.data()

    def _look(self) -> None:
        self._unread = True

    def _is_for_kernel(self, peer: bytes, frames: list[Frame]) -> bool:
        """Whether a message is for the kernel. OPEN is answered, and what comes from peers that are
        not open is dropped.
        """
        line = self._lines.get(peer)
        if line is not None and line.is_open:
            if sum(map(len, frames)) <= self._limit:  # ZMQ limits each frame, not all of them together
                return True
            logger.warning("a front end sent more than max_message_size = %d bytes: it is cut off", self._limit)
            self._forget(peer)
            self._ending.append(peer)
        elif frames == [OPEN]:
            self._router.send_multipart([peer, *self._let_in(peer)], zmq.NOBLOCK)
        else:
            logger.debug("a message of a front end that is not open is dropped")
        return False

    # -- out ---------------------------------------------------------------------------------------

    def send(self, peer: bytes, frames: Sequence[Frame]) -> None:
        check_message(frames, self._limit)
        with self._lock:
            line = self._lines.get(peer)
            if line is not None and line.is_open:
                with suppress(zmq.Again):  # it is gone, which was not noticed yet
                    send_frames(line.socket, frames)

    # -- who comes and goes: on the receiving thread -----------------------------------------------

    def _let_in(self, peer: bytes) -> list[bytes]:
        """Make a peer's line. Returns the answer to OPEN: the line's name, its key and the limit;
        or nothing, and why.
        """
        now = time.monotonic()
        for other, line in list(self._lines.items()):
            if not line.is_open and (other == peer or now - line.since > OPENING_TIME):
                self._forget(other)
        if len(self._lines) >= MAX_PEERS:
            return [b"", f"{MAX_PEERS} front ends are connected already".encode()]
        pair = None if self._keys is None else KeyPair.fresh()
        try:
            line = self._lines[peer] = Line(self._context, self._place, pair, self._limit)
        except zmq.ZMQError as error:
            logger.error("a front end is refused: %s", error)
            return [b"", f"it cannot make a socket: {error}".encode()]
        self._selector.register(line.monitor.socket, selectors.EVENT_READ, lambda: self._watch(peer, line))
        return [line.name.encode(), b"" if pair is None else pair.public, str(self._limit).encode()]

    def _watch(self, peer: bytes, line: Line) -> None:
        line.read_events()
        if line.has_ended and line.is_open:
            self._unread = True  # its last messages go first
            self._ending.append(peer)
        elif line.has_ended:
            self._forget(peer)
        elif line.is_connected and not line.is_open:
            with self._lock:
                line.open()

    def _forget(self, peer: bytes) -> None:
        with self._lock:
            line = self._lines.pop(peer, None)
            if line is not None:
                self._selector.unregister(line.monitor.socket)
                line.close()


def _let_go(
    pid: int, place: Place, router: Socket, gatekeeper: Gatekeeper | None, lines: dict[bytes, Line], linger: float = 0
) -> None:
    if pid != os.getpid():  # what a fork inherits is its parent's
        return
    deadline = time.monotonic() + linger + _LINGER_MARGIN
    try:
        if gatekeeper is not None:
            gatekeeper.stop()  # first: connections that it let in do not end without its consent
        for line in lines.values():
            line.close_slowly(linger)
        # front ends take the ROUTER's end for a broken line: it stays until they have everything
        for line in lines.values():
            line.wait(deadline)
    finally:
        lines.clear()
        place.hide(place.first)
        router.context.destroy(linger=0)

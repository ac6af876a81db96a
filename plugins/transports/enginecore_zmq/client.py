"""A front end's end: a DEALER to the engine core's ROUTER, and a PULL from the line that is bound
for it.
"""

import os
import selectors
import weakref
from collections.abc import Sequence

import zmq

from enginecore.interfaces import Channel, Frame
from enginecore_zmq.sockets import (
    Context,
    Monitor,
    Socket,
    check_message,
    make_selector,
    receive_frames,
    send_frames,
)

TRIED_AGAIN = zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_DELAYED | zmq.EVENT_CLOSED
"""What shows that a connection that was lost a while ago is still lost."""


class ZmqChannel(Channel):
    """A front end's end, over two sockets.

    The engine core's end is the PULL's: whatever was sent has arrived before. The DEALER may break
    alone, on the way between two machines. It then tries again after a second, which is long enough
    for the end of both to be seen; so a DEALER that tries again while the PULL lives says that the
    line is of no use any more.
    """

    def __init__(self, dealer: Socket, dealer_events: Monitor, pull: Socket, pull_events: Monitor, limit: int) -> None:
        self._dealer, self._pull, self._limit = dealer, pull, limit
        self._dealer_events, self._pull_events = dealer_events, pull_events
        self._unread = True  # whether the PULL may hold something
        self._is_broken = False  # the DEALER
        self._is_gone = False  # the engine core
        # file descriptors of ZMQ say nothing until their sockets were found empty; nothing has been
        # sent to us yet
        pull.poll(0)
        dealer_events.read()
        pull_events.read()
        # what is in its arguments outlives us: sockets must be closed in order, not as garbage
        self._let_go = weakref.finalize(self, _let_go, os.getpid(), dealer.context, (dealer_events, pull_events))
        self._let_go.atexit = False  # other threads may still be at work
        self._selector = make_selector()
        self._selector.register(pull, selectors.EVENT_READ, self._look)
        self._selector.register(pull_events.socket, selectors.EVENT_READ, self._watch_pull)
        self._selector.register(dealer_events.socket, selectors.EVENT_READ, self._watch_dealer)

    def fileno(self) -> int:
        return self._selector.fileno()

    def receive(self) -> Sequence[Frame] | None:
        while True:
            # file descriptors of ZMQ say that something is new: the socket is emptied before they
            # are asked again
            if self._unread:
                try:
                    return receive_frames(self._pull)
                except zmq.Again:
                    self._unread = False
            if self._is_gone:
                raise ConnectionError("the engine core's end of the line is gone")
            ready = self._selector.select(0)
            if not ready:
                return None
            for key, _ in ready:
                key.data()

    def send(self, frames: Sequence[Frame]) -> None:
        check_message(frames, self._limit)
        if not self._is_gone:
            send_frames(self._dealer, frames)

    def close(self) -> None:
        self._selector.close()
        self._let_go()

    def _look(self) -> None:
        self._unread = True

    def _watch_pull(self) -> None:
        if any(event == zmq.EVENT_DISCONNECTED for event, _ in self._pull_events.read()):
            self._unread = self._is_gone = True

    def _watch_dealer(self) -> None:
        for event, _ in self._dealer_events.read():
            if event == zmq.EVENT_DISCONNECTED:
                self._is_broken = True
            elif self._is_broken and event & TRIED_AGAIN:
                self._unread = self._is_gone = True


def _let_go(pid: int, context: Context, monitors: Sequence[Monitor]) -> None:
    if pid == os.getpid():  # what a fork inherits is its parent's
        for monitor in monitors:
            monitor.close()
        context.destroy(linger=0)

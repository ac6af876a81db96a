"""InputThread and OutputThread: they decode, encode and use the transport while the model runs.

A thread that fails reports it to the busy loop, which ends the engine.
"""

import os
import select
import threading
from collections.abc import Callable, Iterator

from enginecore.errors import InvalidRequestError
from enginecore.interfaces import ServerChannel
from enginecore.loop.queues import (
    FatalError,
    Forget,
    FromPeer,
    PeerGone,
    Queues,
    ToPeer,
    Unreadable,
    Unsendable,
    Wakeup,
)
from enginecore.messages import EngineCoreOutput, EngineCoreOutputs, FinishReason
from enginecore.wire import (
    AbortRequests,
    Dead,
    Rejected,
    ServerMessage,
    StepOutputs,
    UtilityFailure,
    UtilityReply,
    WireError,
    decode_client_message,
    encode,
)

SHORT = 500
"""Characters of an error that go into any message."""


class InputThread:
    """Receives and decodes. Aborts reach the engine core at once, ahead of the outputs of a step that runs."""

    def __init__(
        self, server: ServerChannel, queues: Queues, *, abort_at_once: Callable[[bytes, list[str]], None]
    ) -> None:
        self._server = server
        self._queues = queues
        self._abort_at_once = abort_at_once
        self._stopping = False
        self._control, self._controlled_by = os.pipe()
        os.set_blocking(self._controlled_by, False)
        self._thread = threading.Thread(target=self._run, name="engine-core-input", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End; whether it did within `timeout` seconds."""
        self._stopping = True  # there may be something to receive for ever
        os.close(self._controlled_by)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            os.close(self._control)
        return not self._thread.is_alive()

    @property
    def wakeup_fd(self) -> int:
        """Whatever is written here wakes the busy loop. For `signal.set_wakeup_fd`: a signal that comes while the loop
        is about to wait would not be noticed until something else arrives.
        """
        return self._controlled_by

    def _run(self) -> None:
        try:
            poll = select.poll()
            poll.register(self._server.fileno(), select.POLLIN)
            poll.register(self._control, select.POLLIN)
            while not self._stopping:
                self._receive_all()
                if any(fd == self._control for fd, _ in poll.poll()) and os.read(self._control, 512):
                    self._queues.inbox.put(Wakeup())
        except BaseException as error:
            self._queues.inbox.put(FatalError("the input thread", error))

    def _receive_all(self) -> None:
        activity, inbox = self._queues.activity, self._queues.inbox
        while not self._stopping and (received := self._server.receive()) is not None:
            peer, frames = received
            if frames is None:
                inbox.put(PeerGone(peer))
                continue
            try:
                message = decode_client_message(frames)
            except WireError as error:
                inbox.put(Unreadable(peer, error))
                continue
            activity.stats.num_received += 1
            activity.stats.num_received_in_step += activity.stepping
            if isinstance(message, AbortRequests):
                self._abort_at_once(peer, message.request_ids)
            inbox.put(FromPeer(peer, message))  # an abort too: what it ends may still be in this queue


class OutputThread:
    """Encodes and sends. A message that cannot be sent becomes an error of its request or call."""

    def __init__(self, server: ServerChannel, queues: Queues) -> None:
        self._server = server
        self._queues = queues
        self._ended: set[tuple[bytes, str]] = set()  # requests that this thread has ended; more of them may come
        self._thread = threading.Thread(target=self._run, name="engine-core-output", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Send what is queued, then end; whether it did within `timeout` seconds."""
        self._queues.outbox.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        activity, outbox = self._queues.activity, self._queues.outbox
        try:
            while (item := outbox.get()) is not None:
                match item:
                    case ToPeer(peer, message):
                        self._send(peer, self._without_ended(peer, message) if self._ended else message)
                        activity.stats.num_sent += 1
                        activity.stats.num_sent_in_step += activity.stepping
                    case Forget(peer, request_id):
                        self._ended.discard((peer, request_id))
        except BaseException as error:
            self._queues.inbox.put(FatalError("the output thread", error))

    def _without_ended(self, peer: bytes, message: ServerMessage) -> ServerMessage:
        match message:
            case StepOutputs(step):
                left = [output for output in step.outputs if (peer, output.request_id) not in self._ended]
                return StepOutputs(EngineCoreOutputs(outputs=left, timestamp=step.timestamp))
        return message

    def _send(self, peer: bytes, message: ServerMessage) -> None:
        try:
            self._server.send(peer, encode(message))
        except (WireError, InvalidRequestError) as error:
            for other in self._instead_of(peer, message, error):
                self._send(peer, other)

    def _instead_of(self, peer: bytes, message: ServerMessage, error: Exception) -> Iterator[ServerMessage]:
        """Messages in place of one that cannot be sent."""
        match message:
            case UtilityReply(call_id, failure=None):
                yield UtilityReply(call_id, failure=UtilityFailure.FAILED, error=f"its result {error}")
            case UtilityReply(call_id, failure=failure, error=why, traceback=trace) if trace or len(why) > SHORT:
                yield UtilityReply(call_id, failure=failure, error=why[:SHORT])
            case Dead(reason, trace) if trace or len(reason) > SHORT:
                yield Dead(reason[:SHORT])
            case Rejected(reason) if len(reason) > SHORT:
                yield Rejected(reason[:SHORT])
            case StepOutputs(EngineCoreOutputs(outputs=[_, _, *_] as outputs, timestamp=timestamp)):
                for output in outputs:
                    yield StepOutputs(EngineCoreOutputs(outputs=[output], timestamp=timestamp))
            case StepOutputs(EngineCoreOutputs(outputs=[EngineCoreOutput(request_id)], timestamp=timestamp)):
                self._ended.add((peer, request_id))
                self._queues.inbox.put(Unsendable(peer, request_id))
                last = EngineCoreOutput(request_id, [], FinishReason.ERROR, error=f"its output {error}")
                yield StepOutputs(EngineCoreOutputs(outputs=[last], timestamp=timestamp))
            case _:
                raise error

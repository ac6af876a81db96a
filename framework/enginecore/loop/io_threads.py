"""The threads that encode, decode and talk to the transport while the model runs.

A thread that cannot go on says so to the busy loop, which ends the engine: it never dies in silence.
"""

import os
import select
import threading
from collections.abc import Iterable
from typing import Protocol

from enginecore.errors import InvalidRequestError
from enginecore.interfaces import ServerChannel
from enginecore.loop.queues import Failed, FromPeer, PeerGone, Queues, ToPeer, Unreadable, Wakeup
from enginecore.messages import EngineCoreOutput, EngineCoreOutputs, FinishReason
from enginecore.wire import (
    Abort,
    Failure,
    Outputs,
    Reply,
    ServerMessage,
    WireError,
    decode_client_message,
    encode,
)


class TakesAborts(Protocol):
    """What the IO threads know of the engine core."""

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        """End requests; from any thread."""
        ...


class InputThread:
    """Receives and decodes. Aborts reach the engine core at once, ahead of the outputs of a step that runs."""

    def __init__(self, server: ServerChannel, core: TakesAborts, queues: Queues) -> None:
        self._server = server
        self._core = core
        self._queues = queues
        self._control, self._controlled_by = os.pipe()
        os.set_blocking(self._controlled_by, False)
        self._thread = threading.Thread(target=self._run, name="engine-core-input", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End; whether it did within `timeout` seconds."""
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
            while True:
                self._receive_all()
                if any(fd == self._control for fd, _ in poll.poll()):
                    if not os.read(self._control, 512):
                        return
                    self._queues.inbox.put(Wakeup())
        except BaseException as error:
            self._queues.inbox.put(Failed("the input thread", error))

    def _receive_all(self) -> None:
        activity, inbox = self._queues.activity, self._queues.inbox
        while (received := self._server.receive()) is not None:
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
            if isinstance(message, Abort):
                self._core.abort_requests(message.request_ids)
            inbox.put(FromPeer(peer, message))  # an abort too: what it ends may still be in this queue


class OutputThread:
    """Encodes and sends. What cannot be sent becomes an error of whom it concerns."""

    def __init__(self, server: ServerChannel, core: TakesAborts, queues: Queues) -> None:
        self._server = server
        self._core = core
        self._queues = queues
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
                self._send(item)
                activity.stats.num_sent += 1
                activity.stats.num_sent_in_step += activity.stepping
        except BaseException as error:
            self._queues.inbox.put(Failed("the output thread", error))

    def _send(self, item: ToPeer) -> None:
        try:
            self._server.send(item.peer, encode(item.message))
        except (WireError, InvalidRequestError) as error:
            for message in self._repaired(item, error):
                self._server.send(item.peer, encode(message))

    def _repaired(self, item: ToPeer, error: Exception) -> list[ServerMessage]:
        """What to say instead of a message that cannot be sent."""
        match item.message:
            case Reply(call_id=call_id):
                return [Reply(call_id, failure=Failure.FAILED, error=f"its result {error}")]
            case Outputs(outputs=EngineCoreOutputs(outputs=[_, _, *_]) as step):
                return [self._sendable(item.peer, step, output) for output in step.outputs]
            case Outputs(outputs=EngineCoreOutputs(outputs=[output]) as step):
                return [self._failed(step, output, error)]
        raise error

    def _sendable(self, peer: bytes, step: EngineCoreOutputs, output: EngineCoreOutput) -> ServerMessage:
        alone = Outputs(EngineCoreOutputs(outputs=[output], timestamp=step.timestamp))
        try:
            encode(alone)
        except WireError as error:
            return self._failed(step, output, error)
        return alone

    def _failed(self, step: EngineCoreOutputs, output: EngineCoreOutput, error: Exception) -> ServerMessage:
        self._core.abort_requests([output.request_id])
        last = EngineCoreOutput(output.request_id, [], FinishReason.ERROR, error=f"its output {error}")
        return Outputs(EngineCoreOutputs(outputs=[last], timestamp=step.timestamp))

"""Connection: messages between one client and an engine core in another process, and its end."""

import os
import select
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from enginecore.client.answers import dead_error, renewed
from enginecore.client.core_process import CoreProcess
from enginecore.errors import EngineCoreError, EngineDeadError, InvalidRequestError
from enginecore.interfaces import Channel
from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo
from enginecore.processes import milliseconds
from enginecore.wire import (
    SCHEMA,
    AbortRequests,
    AddRequest,
    Bye,
    ClientMessage,
    Dead,
    Hello,
    Idle,
    Rejected,
    ServerMessage,
    Shutdown,
    StepOutputs,
    UtilityCall,
    UtilityReply,
    Welcome,
    WireError,
    decode_server_message,
    encode,
)

LAST_WORDS_TIMEOUT = 0.5
"""Seconds that the last messages of an engine core that has ended may take to arrive."""
LAST_CHANCE = 2.0
"""Seconds to end for a process whose client was not shut down."""


class Connection:
    """Sends and receives messages, counts requests, and detects the end of the engine core.

    Attributes:
        info: Facts and limits of the engine core.
        client_index: Index of this front end among those of the engine core.
        process: Process of the engine core, for the front end that started it.
        is_idle: Whether nothing is left of all requests that were sent.
    """

    def __init__(
        self, channel: Channel, address: Mapping[str, Any], timeout: float, process: CoreProcess | None = None
    ) -> None:
        """Send `Hello`, and wait `timeout` seconds for the answer.

        Raises:
            EngineCoreError: there is none, or the engine core refuses this client.
        """
        self.address = address
        self.process = process
        self.is_idle = True
        self._channel = channel
        self._failure: EngineDeadError | None = None
        self._backlog: deque[ServerMessage] = deque()
        self._num_added = 0
        self._num_calls = 0
        self._pid = os.getpid()
        self.client_index, self.info = self._say_hello(timeout)

    @property
    def filenos(self) -> list[int]:
        """File descriptors that become readable when `take` has something again."""
        return [self._channel.fileno(), *([] if self.process is None else [self.process.fileno()])]

    def wait(self, timeout: float | None) -> None:
        """Wait until `take` may have a message, or so many seconds have passed."""
        poll = select.poll()  # not one for all: a signal handler may wait in the middle of a wait
        for fd in self.filenos:
            poll.register(fd, select.POLLIN)
        poll.poll(None if timeout is None else milliseconds(timeout))

    # -- sending -----------------------------------------------------------------------------------

    def add_request(self, request: EngineCoreRequest) -> None:
        """Send a request.

        Raises:
            InvalidRequestError: it cannot be sent.
            EngineDeadError: the engine core has ended.
        """
        self._send(AddRequest(request))
        self._num_added += 1
        self.is_idle = False

    def call(self, name: str, args: list[Any]) -> int:
        """Send a control call; returns the id that its `UtilityReply` will have.

        Raises:
            InvalidRequestError: its arguments cannot be sent.
            EngineDeadError: the engine core has ended.
        """
        self._num_calls += 1
        self._send(UtilityCall(self._num_calls, name, args))
        return self._num_calls

    def abort_requests(self, request_ids: Sequence[str]) -> None:
        """End requests, in as many messages as it takes."""
        try:
            self.say(AbortRequests(list(request_ids)))
        except InvalidRequestError:  # too large a message
            if len(request_ids) == 1:
                raise
            half = len(request_ids) // 2
            self.abort_requests(request_ids[:half])
            self.abort_requests(request_ids[half:])

    def say(self, message: ClientMessage) -> None:
        """Send a message that needs no answer. Nothing happens if the engine core has ended or this
        process was forked.
        """
        if self._failure is None and not self.is_forked:
            self._channel.send(encode(message))

    def _send(self, message: ClientMessage) -> None:
        self.check()
        try:
            self._channel.send(encode(message))
        except WireError as error:
            what = (
                "the request" if isinstance(message, AddRequest) else f"an argument of {getattr(message, 'name', '')!r}"
            )
            raise InvalidRequestError(f"{what} {error}") from error

    # -- receiving ---------------------------------------------------------------------------------

    def take(self) -> ServerMessage | None:
        """The next message; None: nothing now. `Idle` messages that are out of date are skipped.

        Raises:
            EngineDeadError: the engine core has ended, and all its messages were taken.
        """
        self._check_process()
        while True:
            message = self._backlog.popleft() if self._backlog else self._receive()
            if not isinstance(message, Idle):
                return message
            self.is_idle = message.num_added == self._num_added
            if self.is_idle:
                return message

    def _receive(self) -> ServerMessage | None:
        if self._failure is not None:
            raise renewed(self._failure)
        message = self._receive_now()
        if message is None and self.process is not None and self.process.has_ended:
            self._receive_last_messages(self.process)
            return self._backlog.popleft() if self._backlog else self._receive()
        return message

    def _receive_now(self) -> ServerMessage | None:
        """The next message of the channel. Its last one, and its end, become the failure."""
        try:
            frames = self._channel.receive()
            message = None if frames is None else decode_server_message(frames)
        except ConnectionError as error:
            self._failure = self._loss(error)
        except WireError as error:
            self._failure = dead_error(f"the engine core sent what cannot be read: {error}", "")
        else:
            match message:
                case Dead(reason, traceback):
                    self._failure = dead_error(reason, traceback)
                case Rejected(reason):
                    self._failure = dead_error(reason, "")
                case _:
                    return message
        raise renewed(self._failure)

    def _loss(self, error: ConnectionError) -> EngineDeadError:
        """Why the channel has ended: mostly since the process has, which takes a moment to show."""
        if self.process is not None and self.process.wait(LAST_WORDS_TIMEOUT):
            return self.process.failure()
        return dead_error(f"the connection to the engine core is lost: {error}", "")

    def _receive_last_messages(self, process: CoreProcess) -> None:
        """Receive what the process sent before it ended, which may still be on its way."""
        deadline = time.monotonic() + LAST_WORDS_TIMEOUT
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        try:
            while (left := deadline - time.monotonic()) > 0:
                if (message := self._receive_now()) is None:
                    poll.poll(left * 1000)
                else:
                    self._backlog.append(message)
        except EngineDeadError:
            return
        self._failure = process.failure()

    def leave(self, timeout: float | None = None) -> None:
        """Leave the engine core; one that this client has started is shut down and awaited.

        Args:
            timeout: Seconds for the shutdown. None: as long as it may take.
        """
        if self.process is None:
            self.say(Bye())
            return
        self.say(Shutdown())
        if self._wait_for_end(self.process.shutdown_time if timeout is None else timeout):
            self.process.wait()

    def _wait_for_end(self, timeout: float) -> bool:
        """Whether it ended within so many seconds; messages that come meanwhile are kept."""
        received: list[ServerMessage] = []
        deadline = time.monotonic() + timeout
        try:
            while (left := deadline - time.monotonic()) > 0:
                if (message := self.take()) is None:
                    self.wait(left)
                else:
                    received.append(message)
        except EngineDeadError:
            return True
        finally:
            self._backlog.extendleft(reversed(received))
        return False

    def understand(self, message: ServerMessage) -> EngineCoreOutputs | UtilityReply:
        """The outputs, or the reply, that a message carries.

        Raises:
            EngineDeadError: the engine core must not send such a message now; the connection is
                over.
        """
        match message:
            case StepOutputs(outputs):
                return outputs
            case UtilityReply():
                return message
            case Idle():
                return EngineCoreOutputs(idle=True)
        self._failure = dead_error(f"the engine core sent {type(message).__name__} out of turn", "")
        raise renewed(self._failure)

    # -- end ---------------------------------------------------------------------------------------

    @property
    def failure(self) -> EngineDeadError | None:
        """Why the engine core has ended; None while it has not."""
        if self._failure is None and self.process is not None and self.process.has_ended:
            self._receive_last_messages(self.process)
        return self._failure

    def check(self) -> None:
        """Raise EngineDeadError if the engine core has ended."""
        self._check_process()
        if (failure := self.failure) is not None:
            raise renewed(failure)

    def close(self, reason: str) -> None:
        """Release everything; the process is killed if it still runs."""
        if self.is_forked:
            return
        self._failure = self._failure or dead_error(reason, "")
        try:
            if self.process is not None:
                self.process.terminate()
                self.process.wait(LAST_CHANCE)
        finally:  # also when Ctrl-C comes meanwhile
            if self.process is not None:
                self.process.kill()
            self._channel.close()

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the engine's, and has to leave the engine alone."""
        return os.getpid() != self._pid

    def _check_process(self) -> None:
        if self.is_forked:
            raise EngineDeadError(
                f"this engine belongs to process {self._pid}, and this is process {os.getpid()}, forked from it: start "
                "an engine here, or before forking hand its address over and attach to it"
            )

    def _say_hello(self, timeout: float) -> tuple[int, EngineInfo]:
        deadline = time.monotonic() + timeout
        self._send(Hello(SCHEMA, "" if self.process is None else self.process.owner_key))
        while (message := self.take()) is None:
            if (left := deadline - time.monotonic()) <= 0:
                raise EngineCoreError(f"the engine core did not answer within {timeout:g} seconds")
            self.wait(left)
        match message:
            case Welcome(client_index, info):
                return client_index, info
        raise EngineCoreError(f"the engine core answered hello by {type(message).__name__}")

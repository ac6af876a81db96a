"""What both client halves share: one front end's talk with an engine core in another process."""

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
"""Seconds that what a dead engine core sent may take to arrive."""
LAST_CHANCE = 2.0
"""Seconds to end for a process whose client was forgotten."""


class Connection:
    """Says hello, counts requests, understands what comes, and knows when there is nobody left to talk to.

    Attributes:
        info: What is in force in the engine core.
        client_index: Which of its front ends this is.
        process: Of the engine core, for the front end that started it.
        is_idle: Whether nothing is left of all requests that were sent.
    """

    def __init__(
        self, channel: Channel, address: Mapping[str, Any], timeout: float, process: CoreProcess | None = None
    ) -> None:
        """Say hello, and wait `timeout` seconds for the answer.

        Raises:
            EngineCoreError: there is none, or the engine core refuses to talk.
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
        """Until `take` may have something, or so many seconds have passed."""
        poll = select.poll()  # not one for all: a signal handler may wait in the middle of a wait
        for fd in self.filenos:
            poll.register(fd, select.POLLIN)
        poll.poll(None if timeout is None else milliseconds(timeout))

    # -- what is said ------------------------------------------------------------------------------------------------

    def add_request(self, request: EngineCoreRequest) -> None:
        """Send a request.

        Raises:
            InvalidRequestError: it cannot be sent.
            EngineDeadError: there is nobody to send it to.
        """
        self._send(AddRequest(request))
        self._num_added += 1
        self.is_idle = False

    def call(self, name: str, args: list[Any]) -> int:
        """Send a control call; returns the id that its `UtilityReply` will have.

        Raises:
            InvalidRequestError: its arguments cannot be sent.
            EngineDeadError: there is nobody to send it to.
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
        """Send what needs no answer; to an engine core that is gone, or of another process, nothing happens."""
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

    # -- what is heard -----------------------------------------------------------------------------------------------

    def take(self) -> ServerMessage | None:
        """The next message; None: nothing now. Idle notes that are out of date are passed over.

        Raises:
            EngineDeadError: everything was heard, and the engine core is gone.
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
        message = self._hear()
        if message is None and self.process is not None and self.process.has_ended:
            self._hear_last_words(self.process)
            return self._backlog.popleft() if self._backlog else self._receive()
        return message

    def _hear(self) -> ServerMessage | None:
        """What the channel has. The last message, and the channel's end, become the failure."""
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
        """Why the channel has ended: mostly because the process has, which takes a moment to be seen."""
        if self.process is not None and self.process.wait(LAST_WORDS_TIMEOUT):
            return self.process.failure()
        return dead_error(f"the connection to the engine core is lost: {error}", "")

    def _hear_last_words(self, process: CoreProcess) -> None:
        """The process has ended: what it sent before may still be on its way."""
        deadline = time.monotonic() + LAST_WORDS_TIMEOUT
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        try:
            while (left := deadline - time.monotonic()) > 0:
                if (message := self._hear()) is None:
                    poll.poll(left * 1000)
                else:
                    self._backlog.append(message)
        except EngineDeadError:
            return
        self._failure = process.failure()

    def leave(self, timeout: float | None = None) -> None:
        """End the talk. An engine core that this front end has started is shut down, and its process awaited.

        Args:
            timeout: Seconds for the shutdown. None: as long as it may take.
        """
        if self.process is None:
            self.say(Bye())
            return
        self.say(Shutdown())
        if self._hear_out(self.process.shutdown_time if timeout is None else timeout):
            self.process.wait()

    def _hear_out(self, timeout: float) -> bool:
        """Whether the engine core ended within so many seconds. What it says meanwhile is kept for `take`."""
        heard: list[ServerMessage] = []
        deadline = time.monotonic() + timeout
        try:
            while (left := deadline - time.monotonic()) > 0:
                if (message := self.take()) is None:
                    self.wait(left)
                else:
                    heard.append(message)
        except EngineDeadError:
            return True
        finally:
            self._backlog.extendleft(reversed(heard))
        return False

    def understand(self, message: ServerMessage) -> EngineCoreOutputs | UtilityReply:
        """What a message means to a client that has said hello.

        Raises:
            EngineDeadError: nothing that an engine core says to it; the talk is over.
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

    # -- its end -----------------------------------------------------------------------------------------------------

    @property
    def failure(self) -> EngineDeadError | None:
        """Why there is nobody to talk to any more."""
        if self._failure is None and self.process is not None and self.process.has_ended:
            self._hear_last_words(self.process)
        return self._failure

    def check(self) -> None:
        """Raise EngineDeadError if there is nobody to talk to."""
        self._check_process()
        if (failure := self.failure) is not None:
            raise renewed(failure)

    def close(self, reason: str) -> None:
        """Let go of everything; the process is killed if it still runs."""
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
        """Whether this process was forked from the one that the engine belongs to, and has to leave it alone."""
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

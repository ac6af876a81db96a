"""EngineCoreProc: the busy loop around an engine core, between two queues."""

import itertools
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty

from enginecore.clock import Clock
from enginecore.errors import EngineDeadError, InvalidRequestError, UtilityError
from enginecore.interfaces import EngineCoreApi
from enginecore.loop.failure_text import dead_message, error_line, error_text, traceback_text
from enginecore.loop.queues import (
    Event,
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
from enginecore.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
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
    UtilityFailure,
    UtilityReply,
    Welcome,
)

BRIEFLY = 0.001
"""Seconds to leave to the IO threads when there is work but no forward pass ran."""


@dataclass(slots=True)
class FrontEnd:
    """A client that said hello.

    Attributes:
        peer: The transport's name of its connection.
        index: Client index of the front end.
        owns: Whether it started the engine core.
        num_added: Requests that it has sent.
        num_told: How many of them it knows to have ended.
    """

    peer: bytes
    index: int
    owns: bool
    num_added: int = 0
    num_told: int = 0


class EngineCoreProc:
    """Runs an engine core until its shutdown: takes messages of clients, steps, and queues the answers.

    Knows neither sockets nor processes; all of it but `request_shutdown` and `abort_at_once` runs on one thread.
    """

    def __init__(
        self, core: EngineCoreApi, queues: Queues, *, shutdown_timeout: float, clock: Clock, owner_key: str = ""
    ) -> None:
        """Running requests get `shutdown_timeout` seconds at the shutdown.

        The client that says hello with `owner_key` may ask for the shutdown; with an empty key, none may.
        """
        self._core = core
        self._queues = queues
        self._shutdown_timeout = shutdown_timeout
        self._clock = clock
        self._owner_key = owner_key
        self._clients: dict[bytes, FrontEnd] = {}
        self._by_index: dict[int, FrontEnd] = {}
        self._indices = itertools.count()
        self._shutdown_reason = ""
        self._deadline: float | None = None  # of the shutdown, once there is one
        self._patience = 0.0  # seconds to wait for input while there is work
        core.register_failure_callback(lambda error: queues.inbox.put(FatalError("the executor", error)))

    # -- start and end ---------------------------------------------------------------------------------------------

    def run(self) -> Dead:
        """Run until the shutdown, or until the engine core fails. Every client gets the message that is returned."""
        try:
            self.run_busy_loop()
            last = Dead(f"the engine core was shut down{self._shutdown_reason}")
        except BaseException as error:  # of any type: no client may wait for an engine core that is gone
            last = dead_message(error)
        for client in self._clients.values():
            self._say(client, last)
        return last

    def run_busy_loop(self) -> None:
        """Run until the shutdown is done: take in what arrived, and step.

        Raises:
            EngineDeadError: the engine core, its executor or an IO thread has failed; `__cause__` says why.
        """
        while self._goes_on():
            self._take_input()
            self._step()

    def request_shutdown(self, reason: str) -> None:
        """Finish what runs within the shutdown timeout, and stop; when called again, stop at once. From any thread,
        and from a signal handler.
        """
        again = self._deadline is not None
        self._deadline = self._clock.now() + (0.0 if again else self._shutdown_timeout)
        self._shutdown_reason = self._shutdown_reason or f": {reason}"
        self._queues.inbox.put(Wakeup())

    def abort_at_once(self, peer: bytes, request_ids: Iterable[str]) -> None:
        """End requests, ahead of all that is queued and of the outputs of a step that is running. From any thread.
        Aborts of a peer that did not say hello are left to `run`.
        """
        if peer in self._clients:
            self._core.abort_requests(request_ids)

    def _goes_on(self) -> bool:
        if self._deadline is None:
            return True
        waiting = self._core.has_unfinished_requests() and not self._core.is_paused  # a paused one stays paused now
        if waiting and self._clock.now() < self._deadline:
            return True
        self._take_what_is_there()  # what came too late is answered all the same
        self._emit(self._core.finish_all(FinishReason.ABORT))
        return False

    # -- one round -------------------------------------------------------------------------------------------------

    def _take_input(self) -> None:
        """Handle all that has arrived; wait for it if there is nothing else to do."""
        with suppress(Empty):
            if self._core.has_requests():
                self._handle(self._queues.inbox.get(timeout=self._patience))
            else:
                self._handle(self._await_input())
        self._take_what_is_there()

    def _take_what_is_there(self) -> None:
        inbox = self._queues.inbox
        for _ in range(inbox.qsize()):  # a bound: steps have their turn however many messages arrive
            self._handle(inbox.get_nowait())

    def _await_input(self) -> Event:
        if not self._core.has_unfinished_requests():
            self._say_idle()
        if self._deadline is None:
            return self._queues.inbox.get()
        return self._queues.inbox.get(timeout=max(self._deadline - self._clock.now(), 0.0))

    def _step(self) -> None:
        if not self._core.has_requests():
            return
        activity = self._queues.activity
        activity.stepping = True
        try:
            outputs, forward_ran = self._core.advance()
        finally:
            activity.stepping = False
        activity.stats.num_steps += 1
        self._patience = 0.0 if forward_ran else BRIEFLY
        self._emit(outputs)

    def _emit(self, outputs: Mapping[int, EngineCoreOutputs]) -> None:
        for index, due in outputs.items():
            if client := self._by_index.get(index):
                self._say(client, StepOutputs(due))

    def _say_idle(self) -> None:
        for client in self._clients.values():
            if client.num_told != client.num_added:
                client.num_told = client.num_added
                self._say(client, Idle(client.num_added))

    def _say(self, client: FrontEnd, message: ServerMessage) -> None:
        self._queues.outbox.put(ToPeer(client.peer, message))

    # -- messages of clients ----------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        match event:
            case FromPeer(peer, message):
                self._hear(peer, message)
            case Unreadable(peer, error):
                self._hear_nonsense(peer, str(error), error.request_id, error.call_id)
            case PeerGone(peer):
                self._forget(peer)
            case Unsendable(peer, request_id):
                self._core.abort_requests([request_id])
                self._queues.outbox.put(Forget(peer, request_id))
            case FatalError(what, error):
                raise EngineDeadError(f"{what} has failed: {error_line(error)}") from error
            case Wakeup():
                pass

    def _hear(self, peer: bytes, message: ClientMessage) -> None:
        client = self._clients.get(peer)
        match message:
            case Hello(schema, key):
                self._welcome(peer, schema, key)
            case _ if client is None:
                self._refuse(peer, "it did not say hello first")
            case AddRequest(request):
                client.num_added += 1
                request.client_index = client.index  # whatever the message says
                self._add(client, request)
            case AbortRequests(request_ids):
                self._core.abort_requests(request_ids)
            case UtilityCall(call_id, name, args):
                self._say(client, self._answer(call_id, name, args))
            case Bye():
                self._forget(peer)
            case Shutdown() if client.owns:
                self.request_shutdown("its front end ended it")
            case Shutdown():
                self._refuse(peer, "it asked for the shutdown of an engine core that another one started")

    def _welcome(self, peer: bytes, schema: str, key: str) -> None:
        if schema != SCHEMA:
            self._refuse(peer, f"it speaks message schema {schema!r} and the engine core {SCHEMA!r}: install the same "
                         "version of enginecore on both sides")  # fmt: skip
        elif peer in self._clients:
            self._refuse(peer, "it said hello twice")
        else:
            client = FrontEnd(peer, next(self._indices), owns=bool(key) and key == self._owner_key)
            self._clients[peer] = self._by_index[client.index] = client
            self._say(client, Welcome(client.index, self._core.info))

    def _add(self, client: FrontEnd, request: EngineCoreRequest) -> None:
        try:
            if self._deadline is not None:
                raise InvalidRequestError(f"no new requests: the engine core shuts down{self._shutdown_reason}")
            self._core.add_request(request)
        except InvalidRequestError as error:
            self._fail_request(client, request.request_id, str(error))

    def _fail_request(self, client: FrontEnd, request_id: str, error: str) -> None:
        last = EngineCoreOutput(request_id, [], FinishReason.ERROR, error=error)
        self._say(client, StepOutputs(EngineCoreOutputs(outputs=[last], timestamp=self._clock.now())))

    def _answer(self, call_id: int, name: str, args: list[object]) -> UtilityReply:
        try:
            if self._deadline is not None:
                raise InvalidRequestError(f"no utility {name!r}: the engine core shuts down{self._shutdown_reason}")
            if name == "get_loop_stats" and not args:
                return UtilityReply(call_id, self._queues.activity.stats)
            return UtilityReply(call_id, self._core.call_utility(name, *args))
        except InvalidRequestError as error:
            return UtilityReply(call_id, failure=UtilityFailure.INVALID, error=error_text(error))
        except EngineDeadError as error:
            return UtilityReply(call_id, failure=UtilityFailure.DEAD, error=error_text(error))
        except Exception as error:  # a plugin's, or on purpose; what must not go on has made the engine core dead
            why = (
                error_text(error)
                if isinstance(error, UtilityError)
                else f"utility {name!r} failed: {error_line(error)}"
            )
            return UtilityReply(call_id, failure=UtilityFailure.FAILED, error=why, traceback=traceback_text(error))

    def _hear_nonsense(self, peer: bytes, error: str, request_id: str | None, call_id: int | None) -> None:
        """A message that cannot be read ends the request or call that it names, or else the connection of its peer."""
        client = self._clients.get(peer)
        if client is not None and request_id is not None:
            client.num_added += 1
            self._fail_request(client, request_id, f"the request is not valid: {error}")
        elif client is not None and call_id is not None:
            self._say(client, UtilityReply(call_id, failure=UtilityFailure.INVALID, error=error))
        else:
            self._refuse(peer, f"it sent what cannot be read: {error}")

    def _refuse(self, peer: bytes, why: str) -> None:
        self._forget(peer)
        self._queues.outbox.put(ToPeer(peer, Rejected(f"the engine core does not talk to this front end: {why}")))

    def _forget(self, peer: bytes) -> None:
        if client := self._clients.pop(peer, None):
            del self._by_index[client.index]
            self._core.abort_client(client.index)

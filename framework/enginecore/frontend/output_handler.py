"""The task that reads the engine core's outputs and feeds the streams of requests."""

import asyncio
import contextvars
import itertools
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from enginecore.errors import EngineCoreError, EngineDeadError
from enginecore.frontend.input_processor import EngineInput
from enginecore.frontend.intake import Intake
from enginecore.frontend.output_processor import OutputProcessor, explain_loss
from enginecore.frontend.output_stream import OutputStream
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.frontend.request_state import RequestState
from enginecore.interfaces import AsyncEngineCoreClient
from enginecore.messages import EngineCoreOutput

logger = logging.getLogger(__name__)

TURN = 1024
"""Outputs that are processed before others on the event loop get their turn: one or two
milliseconds. Where more arrives than consumers can take, each of them then finds several steps'
news in one output.
"""


class OutputHandler:
    """Owns the streams of all live requests, and the task that feeds them.

    The task belongs to one event loop. It starts when a call needs it, and again when it was
    cancelled or another event loop has followed: what was received and not yet processed stays here
    meanwhile.

    Attributes:
        failure: Why nothing more comes, once nothing does.
    """

    def __init__(self, client: AsyncEngineCoreClient, output_processor: OutputProcessor) -> None:
        self.failure: EngineDeadError | None = None
        self._client = client
        self._output_processor = output_processor
        self._intake = Intake(client, output_processor)
        self._streams: dict[str, OutputStream] = {}  # by core id; one for each live request
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._received: Iterator[EngineCoreOutput] = iter(())
        self._lost: list[RequestState] = []  # those that end here once all that was received is processed

    # -- streams -----------------------------------------------------------------------------------------------------

    def open_stream(self, request_id: str, engine_input: EngineInput, kind: RequestOutputKind) -> OutputStream:
        """Submit a request. Nothing is awaited: it is submitted with a stream to read it, or not at
        all.

        Raises:
            InvalidRequestError: it is refused.
            EngineDeadError: the engine core has failed.
            EngineCoreError: another event loop uses this engine.
        """
        self.running_task()
        state = self._intake.submit_request(request_id, engine_input, kind)
        stream = self._streams[state.core_id] = OutputStream(state, asyncio.get_running_loop())
        return stream

    def close_stream(self, stream: OutputStream) -> None:
        """The stream has no consumer any more: if its request has not ended, end it silently."""
        if self._streams.pop(stream.state.core_id, None) is not None:
            self._output_processor.discard(stream.state)
            with suppress(EngineCoreError):  # a dead engine core has nothing to end
                self._client.abort_requests([stream.state.core_id])

    def abort(self, request_ids: Iterable[str]) -> None:
        """End requests: their streams end with reason "abort"."""
        self._refuse_second_loop()
        aborted = self._output_processor.abort_requests(request_ids)
        if aborted.core_ids_to_abort:
            with suppress(EngineCoreError):
                self._client.abort_requests(aborted.core_ids_to_abort)
        self._announce(aborted.states)

    async def call_utility(self, name: str, *args: Any) -> Any:
        """A control call; returns its value.

        Raises:
            InvalidRequestError: no such utility, or its arguments are wrong.
            UtilityError: it failed; says how.
            EngineDeadError: the engine core has failed.
        """
        reply = asyncio.ensure_future(self._client.call_utility(name, *args))
        try:
            while not reply.done():  # the task that reads it may be cancelled meanwhile
                await asyncio.wait({reply, self.running_task()}, return_when=asyncio.FIRST_COMPLETED)
            return reply.result()
        finally:
            reply.cancel()

    # -- the task ----------------------------------------------------------------------------------------------------

    def running_task(self) -> "asyncio.Task[None]":
        """The task, running in the current event loop.

        Raises:
            EngineDeadError: the engine core has failed.
            EngineCoreError: another event loop uses this engine.
        """
        loop = asyncio.get_running_loop()
        if self._task is None or self._loop is not loop or self._task.done():
            self._task = self._start(loop)
        return self._task

    def interrupt(self) -> None:
        """Have the client asked anew, if a request still waits for it. From any thread."""
        if self._task is not None and self._loop is not None:
            with suppress(RuntimeError):  # a closed event loop has cancelled it
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def drain(self) -> None:
        """Wait until all is processed that a client gives which has come to its end."""
        if self._streams and self.failure is None:
            await asyncio.wait({self.running_task()})

    def _start(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Task[None]":
        if self.failure is not None:
            raise EngineDeadError(*self.failure.args) from self.failure.__cause__
        self._refuse_second_loop()
        if self._loop is not loop:
            self._leave_loop()
        self._loop = loop
        # it outlives the call that starts it, and so must not keep the context of that call alive
        task = loop.create_task(self._run(), name="enginecore-outputs", context=contextvars.Context())
        task.add_done_callback(self._ended)
        return task

    def _refuse_second_loop(self) -> None:
        try:
            current = asyncio.get_running_loop()
        except RuntimeError:
            current = None
        if self._loop is not None and self._loop is not current and self._loop.is_running():
            raise EngineCoreError(
                "this AsyncLLM is in use by an event loop that runs in another thread: use it there, for example by "
                "asyncio.run_coroutine_threadsafe"
            )

    def _leave_loop(self) -> None:
        """The event loop is over, and so are its streams, which have no consumer any more."""
        if self._loop is None:
            return
        if self._loop.is_closed():
            for stream in self._streams.values():
                stream.abandon()
        elif self._task is not None:
            self._task.cancel()
        self.abort([state.request_id for state in self._output_processor.live])

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task is self._task and task.cancelled():
            logger.debug("the task that reads outputs was cancelled, with %d requests live", len(self._streams))
            for stream in self._streams.values():
                stream.nudge()  # a consumer that still waits starts it again

    async def _run(self) -> None:
        try:
            await self._read()
        except (asyncio.CancelledError, GeneratorExit):  # by others, or its event loop is gone
            raise
        except BaseException as error:
            self._fail(error if isinstance(error, EngineDeadError) else _fault(error))
            if not isinstance(error, Exception):
                raise

    async def _read(self) -> None:
        turn = TURN
        while True:
            batch = list(itertools.islice(self._received, turn))
            if batch:
                self._process(batch)
            else:
                self._end_lost()
                outputs = await self._client.get_output()
                self._received = iter(outputs.outputs)
                if outputs.idle:  # requests that are added from here on are not meant
                    self._lost = self._output_processor.live
            turn -= len(batch) or 1
            if turn <= 0:
                await asyncio.sleep(0)
                turn = TURN

    def _process(self, outputs: Iterable[EngineCoreOutput]) -> None:
        processed = self._output_processor.process_outputs(outputs)
        self._announce(processed.states)
        if processed.core_ids_to_abort:
            self._client.abort_requests(processed.core_ids_to_abort)

    def _end_lost(self) -> None:
        lost, self._lost = [state for state in self._lost if state.finish_reason is None], []
        if lost:
            self._output_processor.fail_requests(lost, explain_loss(self._client.info))
            self._announce(lost)

    def _announce(self, states: Iterable[RequestState]) -> None:
        streams = self._streams
        for state in states:
            streams[state.core_id].wake()
            if state.finish_reason is not None:
                del streams[state.core_id]

    def _fail(self, failure: EngineDeadError) -> None:
        self.failure = failure
        for stream in self._streams.values():
            self._output_processor.discard(stream.state)
            stream.fail(failure)
        self._streams.clear()


def _fault(error: BaseException) -> EngineDeadError:
    failure = EngineDeadError(f"the outputs of the engine core cannot be processed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure

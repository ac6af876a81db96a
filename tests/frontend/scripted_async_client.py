"""The scripted engine core behind an asyncio client: a step per `get_output`, on whatever event loop asks."""

# pyright: reportIncompatibleMethodOverride=false, reportAssignmentType=false, reportAttributeAccessIssue=false

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from enginecore.errors import EngineDeadError, InvalidRequestError
from enginecore.interfaces import AsyncEngineCoreClient
from enginecore.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, FinishReason
from tests.frontend.scripted_client import ScriptedClient, make_info


class ScriptedAsyncClient(AsyncEngineCoreClient):
    """`core` is the engine core. While `paused` it gives nothing, and while nothing is live neither. Each step waits
    for one round of the event loop, unless `waits` is False. `due` holds outputs that are there already. Control calls
    are answered by `on_call`, unless `answers` is False. What was not given before `shutdown` is lost, unless
    `keeps_last_outputs`.
    """

    client_index = 3
    info = make_info()
    failure: BaseException | None = None
    address: Mapping[str, Any] = {}

    def __init__(self, script: Callable[[EngineCoreRequest], list[int]], **options: Any) -> None:
        self.core = ScriptedClient(script, **options)
        self.info = self.core.info
        self.paused = False
        self.waits = True
        self.answers = True
        self.keeps_last_outputs = True
        self.due: deque[EngineCoreOutputs] = deque()
        self.calls: dict[asyncio.Future[Any], tuple[Any, ...]] = {}
        self.on_call: Callable[..., Any] = lambda name, *args: True
        self._waiter: asyncio.Future[None] | None = None

    def add_request(self, request):
        self._check()
        self.core.add_request(request)
        self.look()

    def abort_requests(self, request_ids):
        self._check()
        self.core.abort_requests(request_ids)

    async def get_output(self):
        while True:
            for call, words in list(self.calls.items()):
                self._answer(call, words)
            if self.due:
                return self.due.popleft()
            if self.failure is not None:
                for call in self.calls:
                    if not call.done():
                        call.set_exception(self._error())
                raise self._error()
            if self.core.live and not self.paused:
                if self.waits:
                    await asyncio.sleep(0)
                if self.core.live:
                    return self.core.get_output()
                continue
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    @property
    def is_waiting(self):
        """Whether `get_output` waits."""
        return self._waiter is not None and not self._waiter.done()

    def look(self):
        """There may be something for `get_output`."""
        if self._waiter is not None and self.is_waiting and not self._waiter.get_loop().is_closed():
            self._waiter.set_result(None)

    def _answer(self, call, words):
        if self.answers and not call.done():
            try:
                call.set_result(self.on_call(*words))
            except Exception as error:
                call.set_exception(error)

    async def call_utility(self, name, *args):
        self._check()
        if name == "unknown":
            raise InvalidRequestError("no utility 'unknown'")
        call = asyncio.get_running_loop().create_future()
        self.calls[call] = (name, *args)
        self.look()
        try:
            return await call
        finally:
            del self.calls[call]

    def resume(self):
        self.paused = False
        self.look()

    def die(self, cause):
        self.failure = cause
        self.look()

    async def drain(self):
        self._end()

    def shutdown(self):
        self.core.shutdown()
        self._end()
        if not self.keeps_last_outputs:
            self.due.clear()

    def _end(self):
        if self.failure is None:
            last = [EngineCoreOutput(name, [], FinishReason.ABORT) for name in self.core.live]
            self.due.append(EngineCoreOutputs(outputs=last))
            self.core.live.clear()
            self.die(EngineDeadError("the engine core was shut down"))

    def _check(self):
        if self.failure is not None:
            raise self._error()

    def _error(self):
        error = EngineDeadError(str(self.failure))
        error.__cause__ = self.failure
        return error

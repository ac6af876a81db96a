"""The asyncio client half for an engine core in another process."""

import asyncio
import threading
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from enginecore.client.answers import renewed, value_of
from enginecore.client.connection import Connection
from enginecore.client.process_client import SHUT_DOWN
from enginecore.errors import EngineDeadError
from enginecore.interfaces import AsyncEngineCoreClient
from enginecore.messages import EngineCoreOutputs, EngineCoreRequest, EngineInfo
from enginecore.wire import Shutdown, UtilityReply

ENDED_FUTURE = (asyncio.InvalidStateError, RuntimeError)
"""Raised by a future that is done, as when it was cancelled, or whose event loop is closed."""


class AsyncProcessClient(AsyncEngineCoreClient):
    """Asyncio client of an engine core in another process.

    Bound to no event loop: readers exist only while `get_output` waits.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._calls: dict[int, asyncio.Future[UtilityReply]] = {}
        self._closing = threading.RLock()
        self._closed = False
        self._draining = False
        self._patience: float | None = None  # seconds for an end in order; None: those of the shutdown
        self._release = weakref.finalize(self, connection.close, SHUT_DOWN)

    @property
    def info(self) -> EngineInfo:
        return self._connection.info

    @property
    def client_index(self) -> int:
        return self._connection.client_index

    @property
    def address(self) -> Mapping[str, Any]:
        """As in `ProcessClient`."""
        return self._connection.address

    @property
    def engine_core_pid(self) -> int | None:
        """Process id of the engine core, for the client that started it."""
        return None if self._connection.process is None else self._connection.process.pid

    @property
    def failure(self) -> EngineDeadError | None:
        return self._connection.failure

    def add_request(self, request: EngineCoreRequest) -> None:
        self._connection.add_request(request)

    def abort_requests(self, request_ids: Iterable[str]) -> None:
        self._connection.abort_requests(list(request_ids))

    async def get_output(self) -> EngineCoreOutputs:
        while True:
            try:
                message = self._connection.take()
                understood = None if message is None else self._connection.understand(message)
            except EngineDeadError as error:
                self._fail_calls(error)
                raise
            if isinstance(understood, EngineCoreOutputs):
                return understood
            if understood is None:
                await self._readable()
            elif (call := self._calls.get(understood.call_id)) is not None:
                with suppress(*ENDED_FUTURE):
                    call.set_result(understood)

    async def call_utility(self, name: str, *args: Any) -> Any:
        call_id = self._connection.call(name, list(args))
        call = self._calls[call_id] = asyncio.get_running_loop().create_future()
        try:
            return value_of(name, await call)
        finally:
            del self._calls[call_id]

    async def drain(self) -> None:
        process = self._connection.process
        if process is None or self._closed:
            return
        if not self._draining:
            self._draining = True
            self._connection.say(Shutdown())
        if not await asyncio.to_thread(process.wait):
            self._patience = 0.0  # it has had its time

    def shutdown(self) -> None:
        with self._closing:
            if self._closed or self._connection.is_forked:
                return
            self._closed = True
            try:
                self._connection.leave(self._patience)
            finally:
                self._release()

    async def _readable(self) -> None:
        """Until the connection may have something."""
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        filenos = self._connection.filenos

        def wake() -> None:
            if not readable.done():
                readable.set_result(None)

        for fd in filenos:
            loop.add_reader(fd, wake)
        try:
            await readable
        finally:
            for fd in filenos:
                loop.remove_reader(fd)

    def _fail_calls(self, error: EngineDeadError) -> None:
        for call in self._calls.values():
            with suppress(*ENDED_FUTURE):
                call.set_exception(renewed(error))

"""AsyncEngine: start, control calls and end of an engine core that an event loop uses."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from enginecore.client import attach_async_client, make_async_client
from enginecore.clock import Clock, RealClock
from enginecore.frontend.async_input import AsyncInputProcessor
from enginecore.frontend.output_handler import OutputHandler
from enginecore.frontend.output_processor import OutputProcessor
from enginecore.frontend.tokenizer import LazyTokenizer, load_tokenizer
from enginecore.interfaces import AsyncEngineCoreClient, Tokenizer
from enginecore.messages import EngineInfo, SchedulerStats
from enginecore.plugin import Component
from enginecore.settings import Layer, Loaded, load_settings

DEFAULTS = Layer({"transport": {"use": "zmq"}}, {"": "default of AsyncLLM"})
"""An event loop needs a transport that has an asyncio half."""


class AsyncEngine:
    """Base of `AsyncLLM`: everything but requests.

    Used from one event loop at a time. When that is over, another one may follow; what was left
    unread in the old one is aborted. Starting it and `shutdown` take seconds in which the event
    loop stands still; `async with` leaves without that.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        config_file: str | Path | None = None,
        components: Sequence[Component] = (),
        **settings: Any,
    ) -> None:
        """Start an engine. The transport is "zmq" where no source of settings names one.

        Args:
            model: Folder, GGUF file, hub id or name; None: as the other sources of settings say.
            config_file: TOML, YAML or JSON file with settings.
            components: Components beside those of installed plugins.
            settings: Any setting by name, for example `max_num_seqs=8` or `scheduler={"use":
                "fcfs"}`.

        Raises:
            EngineCoreError: it cannot start; says why.
        """
        arguments = settings if model is None else {"model": model, **settings}
        self._load(load_settings(arguments, config_file=config_file, components=components, defaults=DEFAULTS))

    @classmethod
    def from_loaded(cls, loaded: Loaded) -> Self:
        """Start an engine with settings that were read already.

        Raises:
            EngineCoreError: it cannot start; says why.
        """
        llm = cls.__new__(cls)
        llm._load(loaded)
        return llm

    @classmethod
    def attach(
        cls,
        address: Mapping[str, Any],
        model: str | None = None,
        *,
        config_file: str | Path | None = None,
        components: Sequence[Component] = (),
        **settings: Any,
    ) -> Self:
        """One more front end for an engine core that another one has started, here or in another
        process.

        Shutting it down ends its own requests, and not the engine core.

        Args:
            address: `address` of the `AsyncLLM` that started it.
            model: As that one's, for the tokenizer.
            config_file: As for a new engine; what counts is the transport, and what the tokenizer
                needs.
            components: As for a new engine.
            settings: As for a new engine.

        Raises:
            EngineCoreError: there is no engine core at that address, or it refuses to talk.
        """
        arguments = settings if model is None else {"model": model, **settings}
        loaded = load_settings(arguments, config_file=config_file, components=components, defaults=DEFAULTS)
        client = attach_async_client(loaded, address)
        return cls.from_client(client, functools.partial(load_tokenizer, loaded))

    @classmethod
    def from_client(
        cls, client: AsyncEngineCoreClient, get_tokenizer: Callable[[], Tokenizer], *, clock: Clock | None = None
    ) -> Self:
        """Use a client that is there already.

        Args:
            client: A client, which this object owns from now on.
            get_tokenizer: Called at most once, by the first request that needs text, maybe in a
                thread.
            clock: Times requests; None: wall time.
        """
        llm = cls.__new__(cls)
        llm._start(client, get_tokenizer, clock or RealClock())
        return llm

    def _load(self, loaded: Loaded) -> None:
        self._start(make_async_client(loaded), functools.partial(load_tokenizer, loaded), RealClock())

    def _start(self, client: AsyncEngineCoreClient, get_tokenizer: Callable[[], Tokenizer], clock: Clock) -> None:
        self._client = client
        self._get_tokenizer = LazyTokenizer(get_tokenizer)
        self._input_processor = AsyncInputProcessor(client.info, self._get_tokenizer)
        self._output_processor = OutputProcessor(self._get_tokenizer, clock)
        self._output_handler = OutputHandler(client, self._output_processor)
        self._serial = itertools.count()

    # -- control -----------------------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        """Facts and limits of the engine core."""
        return self._client.info

    @property
    def address(self) -> Mapping[str, Any]:
        """The address for `attach`, as plain JSON-able data. Secret: it gives access."""
        return self._client.address

    @property
    def dead_error(self) -> BaseException | None:
        """Why the engine core cannot be used any more, be it a failure or the shutdown; None while
        it can.
        """
        return self._output_handler.failure or self._client.failure

    @property
    def errored(self) -> bool:
        """Whether every call raises EngineDeadError from now on."""
        return self.dead_error is not None

    @property
    def is_running(self) -> bool:
        """Whether the engine core can be used."""
        return not self.errored

    def get_tokenizer(self) -> Tokenizer:
        """The tokenizer; loaded when it is first asked for."""
        return self._get_tokenizer()

    async def get_stats(self) -> SchedulerStats:
        """The scheduler's gauges of now and counters since start."""
        stats: SchedulerStats = await self._output_handler.call_utility("get_stats")
        return stats

    async def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        """Forget all cached blocks. False if requests hold blocks and are not to be reset."""
        return bool(await self._output_handler.call_utility("reset_prefix_cache", reset_running_requests))

    async def pause(self) -> None:
        """Schedule nothing more until `resume`. Requests are still accepted, and wait."""
        await self._output_handler.call_utility("pause")

    async def resume(self) -> None:
        """Go on after `pause`."""
        await self._output_handler.call_utility("resume")

    async def collective_rpc(self, method: str, *args: Any) -> list[Any]:
        """Call a method of every worker; one result per rank.

        Raises:
            UtilityError: it failed; says how.
        """
        results: list[Any] = await self._output_handler.call_utility("collective_rpc", method, *args)
        return results

    async def check_health(self) -> None:
        """Return if steps can be run.

        Raises:
            EngineDeadError: they cannot; says why.
        """
        await self._output_handler.call_utility("check_health")

    async def drain(self) -> None:
        """As `shutdown`, without stopping the event loop: streams go on meanwhile, and end.
        Cancelled, it ends them at once.
        """
        try:
            await self._client.drain()
            if self._client.failure is not None:  # so the client knows of an end up to which it gives outputs
                await self._output_handler.drain()
        finally:
            self.shutdown()

    def shutdown(self) -> None:
        """End the engine core. May be called more than once.

        Running requests get `shutdown_timeout` seconds, then end with reason "abort". The event
        loop stands still.
        """
        try:
            self._client.shutdown()
        finally:
            self._output_handler.interrupt()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain()

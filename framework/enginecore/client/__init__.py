"""Clients of an engine core: started behind the transport of the settings, attached to a running
one, or routed.
"""

from collections.abc import Mapping
from typing import Any

from enginecore.assembly import build_engine_core
from enginecore.client.async_process_client import AsyncProcessClient
from enginecore.client.async_routed_client import AsyncRoutedClient
from enginecore.client.connection import Connection
from enginecore.client.core_process import CoreProcess
from enginecore.client.process_client import ProcessClient
from enginecore.client.routed_client import RoutedClient
from enginecore.client.routing import Route
from enginecore.clock import Clock, RealClock
from enginecore.errors import ConfigurationError, EngineCoreError
from enginecore.interfaces import (
    AsyncEngineCoreClient,
    EngineCoreApi,
    EngineCoreClient,
    Transport,
)
from enginecore.plugin import Component, TransportContext
from enginecore.settings import Loaded

__all__ = [
    "AsyncRoutedClient",
    "Route",
    "RoutedClient",
    "attach_async_client",
    "attach_client",
    "make_async_client",
    "make_client",
]

CONNECT_TIMEOUT = 30.0
"""Seconds for an engine core that is ready to answer."""


def make_client(loaded: Loaded, *, clock: Clock | None = None) -> EngineCoreClient:
    """Start an engine core behind the transport that the settings name, and return its synchronous
    client.

    Args:
        loaded: Settings and registry.
        clock: The engine's clock; real time by default.

    Raises:
        EngineCoreError: the engine core did not start; says why.
    """
    component = _component(loaded)
    if "sync" in component.capabilities:
        transport: Transport = _build(component, loaded, clock or RealClock())
        return transport.connect()
    if not isinstance(clock, RealClock | None):
        raise ConfigurationError(
            f"a {type(clock).__name__} cannot be shared with the process that transport {component.name!r} starts: "
            'use transport = "inproc"'
        )
    return ProcessClient(_start(loaded, component))


def make_async_client(loaded: Loaded) -> AsyncEngineCoreClient:
    """Start an engine core behind the transport that the settings name, and return its asyncio
    client.

    Raises:
        ConfigurationError: the transport has no asyncio half.
        EngineCoreError: the engine core did not start; says why.
    """
    return AsyncProcessClient(_start(loaded, _component(loaded)))


def attach_client(loaded: Loaded, address: Mapping[str, Any]) -> EngineCoreClient:
    """One more synchronous client for an engine core that another one, here or in another process,
    has started.

    Args:
        loaded: Settings that name the same transport.
        address: `address` of the client that started it.

    Raises:
        EngineCoreError: there is no engine core at that address, or it refuses this front end.
    """
    return ProcessClient(_connect(loaded, _component(loaded), address, None))


def attach_async_client(loaded: Loaded, address: Mapping[str, Any]) -> AsyncEngineCoreClient:
    """As `attach_client`, with an asyncio client."""
    return AsyncProcessClient(_connect(loaded, _component(loaded), address, None))


def _component(loaded: Loaded) -> Component:
    return loaded.registry.get("transport", loaded.settings.component("transport").name)


def _build(component: Component, loaded: Loaded, clock: Clock) -> Any:
    def start_engine_core() -> EngineCoreApi:
        return build_engine_core(loaded, clock)

    context = TransportContext(
        start_engine_core=start_engine_core, clock=clock, shutdown_timeout=loaded.settings.shutdown_timeout
    )
    return loaded.registry.build(component, loaded.settings.component("transport").settings, context)


def _start(loaded: Loaded, component: Component) -> Connection:
    _check_channels(component)
    process = CoreProcess(loaded)
    try:
        return _connect(loaded, component, process.wait_until_ready(), process)
    except BaseException:
        process.kill()
        raise


def _connect(
    loaded: Loaded, component: Component, address: Mapping[str, Any], process: CoreProcess | None
) -> Connection:
    _check_channels(component)
    if not isinstance(address, Mapping):
        raise ConfigurationError(f"address must be what `address` of a client gave, a dict; got {address!r:.100}")
    transport: Transport = _build(component, loaded, RealClock())
    try:
        channel = transport.open(address, CONNECT_TIMEOUT)
    except ConnectionError as error:
        raise EngineCoreError(f"no engine core answers there: {error}") from error
    try:
        return Connection(channel, address, CONNECT_TIMEOUT, process)
    except BaseException:
        channel.close()
        raise


def _check_channels(component: Component) -> None:
    if "channels" not in component.capabilities:
        raise ConfigurationError(
            f"transport {component.name!r} runs the engine core in the caller's thread, where an event loop would "
            'stand still meanwhile: for AsyncLLM, and to attach to a running engine, choose another, such as "zmq"'
        )

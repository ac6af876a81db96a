"""Which client a front end gets: the transport says."""

from enginecore.clock import Clock, RealClock
from enginecore.core import build_component, build_engine_core
from enginecore.errors import ConfigurationError
from enginecore.interfaces import EngineCoreApi, EngineCoreClient, Transport
from enginecore.plugin import TransportContext
from enginecore.settings import Loaded


def make_client(loaded: Loaded, *, clock: Clock | None = None) -> EngineCoreClient:
    """Start an engine core behind the transport that the settings name, and return its synchronous client.

    Args:
        loaded: Settings and registry.
        clock: The engine's clock; real time by default.

    Raises:
        EngineCoreError: the engine core did not start; says why.
    """
    choice = loaded.settings.component("transport")
    component = loaded.registry.get("transport", choice.name)
    if "sync" not in component.capabilities:
        raise ConfigurationError(f"transport {component.name!r} has no synchronous client: choose another transport")
    engine_clock = clock or RealClock()

    def start_engine_core() -> EngineCoreApi:
        return build_engine_core(loaded, engine_clock)

    context = TransportContext(
        start_engine_core=start_engine_core,
        clock=engine_clock,
        shutdown_timeout=loaded.settings.shutdown_timeout,
    )
    transport: Transport = build_component(component, choice.settings, context)
    return transport.connect()

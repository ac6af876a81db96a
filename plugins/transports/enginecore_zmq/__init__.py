"""The `zmq` transport: front end and engine core in processes of their own."""

from typing import Any

from enginecore.plugin import Component, TransportContext, hookimpl
from enginecore_zmq.settings import ZmqSettings


def make_transport(settings: ZmqSettings, context: TransportContext) -> Any:
    """Factory of the transport."""
    from enginecore_zmq.transport import ZmqTransport

    return ZmqTransport(settings)


@hookimpl
def enginecore_components() -> list[Component]:
    """The components of this plugin."""
    return [
        Component(
            kind="transport",
            name="zmq",
            factory=make_transport,
            settings=ZmqSettings,
            capabilities=frozenset({"channels"}),
            summary="A process of its own, over Unix sockets or encrypted TCP.",
        )
    ]

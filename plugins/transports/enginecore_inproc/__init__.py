"""The `inproc` transport: engine core and front end share a thread."""

from typing import Any

from enginecore.plugin import Component, ComponentSettings, TransportContext, hookimpl


class InprocSettings(ComponentSettings):
    """Settings of the `inproc` transport.

    Attributes:
        codec_round_trip: Send requests and outputs through the codec, as transports between
            processes do. For tests.
    """

    codec_round_trip: bool = False


def make_transport(settings: InprocSettings, context: TransportContext) -> Any:
    """Factory of the transport."""
    from enginecore_inproc.transport import Direct, InprocTransport, ThroughWire

    return InprocTransport(ThroughWire() if settings.codec_round_trip else Direct(), context)


@hookimpl
def enginecore_components() -> list[Component]:
    """The components of this plugin."""
    return [
        Component(
            kind="transport",
            name="inproc",
            factory=make_transport,
            settings=InprocSettings,
            capabilities=frozenset({"sync"}),
            summary="The client's own thread: `get_output()` runs a step.",
        )
    ]

"""For enginecore's lab: workloads from the log of an API gateway, and the share of requests that stalled."""

from enginecore.plugin import Component, hookimpl
from gateway_lab.log import GatewayLog
from gateway_lab.stalls import StalledShare


@hookimpl
def enginecore_components():
    return [
        Component(
            kind="workload",
            name="gateway-log",
            factory=lambda settings, context: settings,  # the settings know how to load the file
            settings=GatewayLog,
            summary="The log of an API gateway, one tab-separated line per request.",
        ),
        Component(
            kind="metric",
            name="stalled-share",
            factory=lambda settings, context: StalledShare(),
            summary="Share of requests that waited longer than 200 ms between two tokens, or did not end.",
        ),
    ]

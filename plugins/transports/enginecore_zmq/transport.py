"""The transport `zmq`: settings and addresses in, ends out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zmq

from enginecore.errors import ConfigurationError
from enginecore.interfaces import Transport
from enginecore_zmq.client import ZmqChannel
from enginecore_zmq.keys import ClientKeys, ServerKeys, client_keys, fresh_keys, server_keys
from enginecore_zmq.opening import open_channel
from enginecore_zmq.places import Place
from enginecore_zmq.server import ZmqServerChannel
from enginecore_zmq.settings import ZmqSettings


class ZmqTransport(Transport):
    """Carries messages between processes through ZMQ sockets.

    An address is {"endpoint": ...}. If the engine core made fresh keys there are "keys" too, all
    that a front end needs: they grant access. If `curve` names keys the endpoint alone will do, and
    may be written by hand.
    """

    def __init__(self, settings: ZmqSettings) -> None:
        self._settings = settings

    def listen(self, directory: Path) -> ZmqServerChannel:
        settings = self._settings
        keys: ServerKeys | None = None
        if settings.curve is not None:
            keys = server_keys(settings.curve)
        elif settings.tcp is not None:
            keys = fresh_keys()
        if settings.tcp is None:
            place, remedy = Place.in_folder(directory), "the directory must be there and its path short"
        else:
            place, remedy = Place.on_host(*settings.tcp), "it must be an address of this machine and a free port, or 0"
        try:
            return ZmqServerChannel(place, keys, settings.max_message_size)
        except zmq.ZMQError as error:
            where = f"{place.base}{place.first}"
            raise ConfigurationError(
                f"transport.zmq.address = {settings.address!r}: cannot listen at {where}: {error}; {remedy}"
            ) from error

    def open(self, address: Mapping[str, Any], timeout: float) -> ZmqChannel:
        endpoint = address.get("endpoint")
        if not isinstance(endpoint, str) or not endpoint.startswith(("ipc://", "tcp://")):
            raise ConfigurationError(
                f"an address of transport zmq has an endpoint, ipc://... or tcp://..., not {endpoint!r}"
            )
        keys: ClientKeys | None = None
        if self._settings.curve is not None:
            keys = client_keys(self._settings.curve)
        elif "keys" in address:
            keys = ClientKeys.from_plain(address["keys"])
        elif endpoint.startswith("tcp:"):
            raise ConfigurationError(f"{endpoint} takes encrypted messages only: transport.zmq.curve must name keys")
        return open_channel(endpoint, keys, timeout)

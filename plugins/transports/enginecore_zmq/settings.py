"""Settings of the `zmq` transport."""

import re
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from enginecore.plugin import ComponentSettings

_TCP = re.compile(r"tcp://(?:\[(?P<ipv6>[^\]]*)\]|(?P<ipv4>[^:]*))(?::(?P<port>[0-9]{1,5}))?")
_HOST_NAMES = {"localhost": "127.0.0.1", "*": "0.0.0.0"}
_LAST_PORT = 65535


class CurveSettings(ComponentSettings):
    """CURVE certificates, by path. The settings themselves hold no secret.

    `python -c 'import zmq.auth; zmq.auth.create_certificates(".", "server")'` writes `server.key`,
    which is public, and `server.key_secret`, which also holds the secret key. The engine core
    needs `server.key_secret` and `client.key`; a front end `server.key` and `client.key_secret`; on
    one machine, both secret files.

    Attributes:
        server_key_file: The engine core's certificate.
        client_key_file: The front ends' certificate. Only a front end with its secret key can
            connect.
    """

    server_key_file: Path
    client_key_file: Path


class ZmqSettings(ComponentSettings):
    """Settings of the `zmq` transport.

    Attributes:
        address: Where the engine core listens. "ipc": Unix sockets in a directory that no other
            user can enter. "tcp://HOST" or "tcp://HOST:PORT": HOST is an IP address of this machine
            (an IPv6 address in brackets), "localhost" or "*" for all addresses; without a port, or
            with 0, a free one. Each front end also gets a port of its own, a free one. TCP is
            always encrypted.
        max_message_size: Bytes of a message at most, both ways. The engine core's value is the one
            in force.
        curve: Keys. Unset: on TCP, fresh ones for each engine, which only its own front ends get;
            they do only for a loopback address, so any other one needs keys here.
    """

    address: str = "ipc"
    max_message_size: int = Field(default=64 << 20, ge=4096)
    curve: CurveSettings | None = None

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        if (place := self.tcp) is not None and self.curve is None and not place[0].is_loopback:
            raise ValueError(
                f"address {self.address!r} can be reached from other machines, so keys must say who may connect: set "
                "curve.server_key_file and curve.client_key_file, or listen at tcp://127.0.0.1"
            )
        return self

    @property
    def tcp(self) -> tuple[IPv4Address | IPv6Address, int] | None:
        """Host and port, 0 for a free one; None: Unix sockets."""
        if self.address == "ipc":
            return None
        if match := _TCP.fullmatch(self.address):
            ipv4, ipv6, port = match["ipv4"], match["ipv6"], int(match["port"] or 0)
            with suppress(ValueError):
                host = IPv6Address(ipv6) if ipv4 is None else IPv4Address(_HOST_NAMES.get(ipv4, ipv4))
                if port <= _LAST_PORT:
                    return host, port
        raise ValueError(
            f"address {self.address!r} must be ipc, tcp://HOST or tcp://HOST:PORT, where HOST is an IP address of this "
            "machine (an IPv6 address in brackets), localhost or *"
        )

"""Where the engine core's sockets are bound, and how a front end finds them."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from itertools import count, repeat
from pathlib import Path

import zmq

from enginecore_zmq.sockets import Socket


@dataclass(frozen=True, slots=True)
class Place:
    """A folder for Unix sockets, or an address of this machine.

    Attributes:
        base: Beginning of all endpoints here; a name follows: of a file, or a port.
        seen_as: The same for front ends on this machine.
        first: Name of the socket that front ends begin with.
        others: Names to bind more sockets under.
        folder: Folder of Unix sockets.
    """

    base: str
    seen_as: str
    first: str
    others: Iterator[str]
    folder: Path | None

    @classmethod
    def in_folder(cls, folder: Path) -> "Place":
        """Names are short, since the path of a Unix socket must be."""
        base = f"ipc://{folder.absolute()}/"
        return cls(base, base, "in", (f"o{n}" for n in count(1)), folder.absolute())

    @classmethod
    def on_host(cls, host: IPv4Address | IPv6Address, port: int) -> "Place":
        """All sockets but the first get a free port; that one too if `port` is 0."""
        seen_as = host
        if host.is_unspecified:
            seen_as = IPv4Address("127.0.0.1") if host.version == 4 else IPv6Address("::1")
        return cls(_tcp(host), _tcp(seen_as), str(port), repeat("0"), None)

    def bind(self, socket: Socket, name: str) -> str:
        """Bind a socket; the name that it got.

        Raises:
            zmq.ZMQError: it cannot be bound.
        """
        socket.bind(self.base + name)
        return split_endpoint(socket.get_string(zmq.LAST_ENDPOINT))[1]

    def hide(self, name: str) -> None:
        """Remove the file of a Unix socket, so that no peer can connect any more; what is connected
        stays so.
        """
        if self.folder is not None:
            (self.folder / name).unlink(missing_ok=True)  # ZMQ would leave it there


def split_endpoint(endpoint: str) -> tuple[str, str]:
    """Base and name."""
    base, separator, name = endpoint.rpartition("/" if endpoint.startswith("ipc:") else ":")
    return base + separator, name


def _tcp(host: IPv4Address | IPv6Address) -> str:
    return f"tcp://{host}:" if isinstance(host, IPv4Address) else f"tcp://[{host}]:"

"""CURVE keys: made or read from certificates, and checked when a front end connects."""

import logging
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
from zmq.auth import Authenticator, load_certificate
from zmq.utils import z85

from enginecore.errors import ConfigurationError
from enginecore_zmq.settings import CurveSettings

logger = logging.getLogger(__name__)

ZAP_DOMAIN = "enginecore"
"""What sockets that ask the gatekeeper are marked with."""

_KEY_BYTES = 32
_OTHERS = 0o077  # permissions


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key pair, as Z85 text."""

    public: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def fresh(cls) -> "KeyPair":
        """A new pair."""
        return cls(*zmq.curve_keypair())

    @classmethod
    def read(cls, file: Path) -> "KeyPair":
        """The pair in a secret certificate.

        Raises:
            ConfigurationError: it cannot be read, or holds no secret key.
        """
        public, secret = _certificate(file)
        if secret is None:
            raise ConfigurationError(f"certificate {file} holds no secret key: name the file that does, *.key_secret")
        if file.stat().st_mode & _OTHERS:
            logger.warning("secret key file %s can be read by others: chmod 600 keeps them out", file)
        return cls(public, secret)


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """The keys that a front end needs: the engine core's public key, and a pair of its own."""

    server: bytes
    own: KeyPair

    @classmethod
    def from_plain(cls, plain: Any) -> "ClientKeys":
        """The keys that `to_plain` gave.

        Raises:
            ConfigurationError: these are others.
        """
        try:
            return cls(plain["server"].encode(), KeyPair(plain["public"].encode(), plain["secret"].encode()))
        except (LookupError, TypeError, AttributeError) as error:
            raise ConfigurationError("the address has broken keys: it must be as the engine core gave it") from error

    def to_plain(self) -> dict[str, str]:
        """JSON-able data, with the secret."""
        return {
            "server": self.server.decode(),
            "public": self.own.public.decode(),
            "secret": self.own.secret.decode(),
        }


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """The keys that the engine core needs.

    Attributes:
        own: The engine core's pair.
        allowed: Public keys of the front ends that may connect.
        issued: Keys for front ends, which travel with the address; None: they have their own.
    """

    own: KeyPair
    allowed: frozenset[bytes]
    issued: ClientKeys | None

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether the owner of a public key may connect. The name is the one that pyzmq calls."""
        return key in self.allowed


def fresh_keys() -> ServerKeys:
    """Fresh keys for an engine whose front ends have none yet."""
    server, client = KeyPair.fresh(), KeyPair.fresh()
    return ServerKeys(server, frozenset([client.public]), ClientKeys(server.public, client))


def server_keys(settings: CurveSettings) -> ServerKeys:
    """The engine core's keys, from files.

    Raises:
        ConfigurationError: they cannot be read; says which file, and what it must be.
    """
    client, _ = _certificate(settings.client_key_file)
    return ServerKeys(KeyPair.read(settings.server_key_file), frozenset([client]), None)


def client_keys(settings: CurveSettings) -> ClientKeys:
    """A front end's keys, from files.

    Raises:
        ConfigurationError: they cannot be read; says which file, and what it must be.
    """
    server, _ = _certificate(settings.server_key_file)
    return ClientKeys(server, KeyPair.read(settings.client_key_file))


def _certificate(file: Path) -> tuple[bytes, bytes | None]:
    try:
        public, secret = load_certificate(file)
        for key in (public, secret):
            if key is not None and len(z85.decode(key)) != _KEY_BYTES:
                raise ValueError(f"a key has {_KEY_BYTES} bytes, as Z85 text")
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise ConfigurationError(f"certificate {file} cannot be read: {error}") from error
    if secret is not None and zmq.curve_public(secret) != public:
        raise ConfigurationError(f"certificate {file}: the two keys do not belong together")
    return public, secret


class Gatekeeper(Authenticator):
    """Pyzmq's authenticator (ZAP, RFC 27), asked by the thread that receives, not by a thread or
    event loop of its own.

    So nothing of it runs in a process that was forked, and a server that is closed leaves no
    thread.
    """

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], keys: ServerKeys) -> None:
        """Let in the owners of the allowed keys."""
        super().__init__(context)
        self.configure_curve_callback(ZAP_DOMAIN, keys)
        self.start()

    def answer(self) -> None:
        """Answer all that ZMQ has asked. Never waits."""
        while True:
            try:
                question = self.zap_socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            with suppress(StopIteration):  # it waits for nothing: keys are looked up in memory
                self.handle_zap_message(question).send(None)

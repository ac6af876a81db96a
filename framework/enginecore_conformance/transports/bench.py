"""Bench for checks of channels: servers, front ends, child processes, and waiting for them."""

import json
import select
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from enginecore.client.core_process import private_directory
from enginecore.clock import RealClock
from enginecore.errors import InvariantError
from enginecore.interfaces import Channel, Frame, ServerChannel, Transport
from enginecore.plugin import Component, TransportContext
from enginecore.processes import ChildProcess
from enginecore.settings import Loaded
from enginecore_conformance.checks import Violation
from enginecore_conformance.subject import Subject
from enginecore_conformance.transports.background import Background
from enginecore_conformance.transports.payloads import expect

Received = tuple[bytes, Sequence[Frame] | None]

CHILD_START = 60.0
"""Seconds that a child may take to come up: importing takes long on a busy machine."""


class Pair(NamedTuple):
    """A front end's end that the server knows, and by which name."""

    channel: Channel
    peer: bytes


class ChannelBench(Background):
    """Makes both ends of channels, and clears all away in the end."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject.patience)
        self._subject = subject
        self._directories: list[Path] = []
        self._servers: list[ServerChannel] = []
        self._channels: list[Channel] = []
        self._children: list[ChildProcess] = []
        self._early: defaultdict[int, deque[Received]] = defaultdict(deque)  # by id: what came while one was attended
        self.transport = self.make_transport()

    # -- putting up --------------------------------------------------------------------------------

    def make_transport(self) -> Transport:
        """A transport, as each process has one."""
        return make_transport(self._subject.component, self._subject.loaded)

    def directory(self) -> Path:
        """The directory that the kernel gives `listen`."""
        self._directories.append(private_directory())
        return self._directories[-1]

    def listen(self, *, transport: Transport | None = None, directory: Path | None = None) -> ServerChannel:
        """An engine core's end."""
        server = (transport or self.transport).listen(directory or self.directory())
        self._servers.append(server)
        return server

    def open(
        self,
        server: ServerChannel,
        *,
        address: Mapping[str, Any] | None = None,
        transport: Transport | None = None,
    ) -> Channel:
        """A front end's end of the line to a server here, which is attended meanwhile."""
        opening = self.start_call(self.open_at, address or server.address, transport)
        self.attend(server, opening)
        return opening.result()

    def attend(self, server: ServerChannel, *opening: "Future[Channel]") -> None:
        """Receive while front ends open, who may need an answer to it; what comes is kept for
        `take`.
        """
        while not all(one.done() for one in opening):
            if (item := server.receive()) is not None:
                self._early[id(server)].append(item)
            else:
                wait_for(server.fileno(), 0.001)

    def open_at(self, address: Mapping[str, Any], transport: Transport | None = None) -> Channel:
        """A front end's end of the line to a server that others attend."""
        channel = (transport or self.transport).open(address, self.patience)
        self._channels.append(channel)
        return channel

    def join(self, server: ServerChannel) -> Pair:
        """A front end's end that has said hello. No other peer may send meanwhile."""
        return self.greet(server, self.open(server))

    def greet(self, server: ServerChannel, channel: Channel) -> Pair:
        """Say hello on a channel that has not said a word yet."""
        channel.send([b"hello"])
        peer, frames = self.take_message(server)
        if frames is None:
            raise Violation(f"peer {peer!r} is reported gone before it said a word", "its message, hello")
        expect(frames, [b"hello"], "the first message of a front end")
        return Pair(channel, peer)

    def pair(self) -> tuple[ServerChannel, Channel, bytes]:
        """An engine core's end, and one front end's that has said hello."""
        server = self.listen()
        channel, peer = self.join(server)
        return server, channel, peer

    def child(self, job: str, **payload: Any) -> ChildProcess:
        """A process that does one of the jobs in `child`."""
        full = {"loaded": self._subject.loaded.to_plain(), **payload}
        child = ChildProcess(f"enginecore_conformance.transports.child:{job}", full, title=f"enginecore-check-{job}")
        self._children.append(child)
        return child

    def report_of(self, child: ChildProcess) -> Any:
        """The report of a child."""
        report = child.receive(max(self.patience, CHILD_START))
        if report is None:
            raise InvariantError(f"the child of this check did not report; it {child.exit_text}")
        return json.loads(report)

    def close(self) -> None:
        for child in self._children:
            child.kill()
        for directory in self._directories:  # before what may hang
            shutil.rmtree(directory, ignore_errors=True)
        for channel in self._channels:
            with suppress(Exception):
                channel.close()
        for server in self._servers:
            with suppress(Exception):
                server.close(0.0)

    # -- waiting -----------------------------------------------------------------------------------

    def take_message(self, end: Any, patience: float = 0.0) -> Any:
        """The next that an end receives, waiting for it as the contract says; longer than usual, if
        need be.
        """
        if early := self._early.get(id(end)):
            return early.popleft()
        deadline = time.monotonic() + max(self.patience, patience)
        while (item := end.receive()) is None:
            if not wait_for(end.fileno(), deadline - time.monotonic()) or time.monotonic() > deadline:
                self._missed(end)
        return item

    def take_from(self, server: ServerChannel, peer: bytes) -> Sequence[Frame]:
        """The next message that a server receives; it must be of this peer."""
        item: Received = self.take_message(server)
        if item[0] != peer or item[1] is None:
            what = "the end" if item[1] is None else "a message"
            raise Violation(f"{what} of peer {item[0]!r} came", f"the next message is of peer {peer!r}")
        return item[1]

    def take_end(self, channel: Channel) -> None:
        """Nothing but the end is left to come."""
        try:
            frames = self.take_message(channel)
        except ConnectionError:
            return
        raise Violation(f"a message of {len(frames)} frames came", "ConnectionError: everything has been received")

    def expect_silence(self, end: Any, seconds: float = 0.05) -> None:
        """Nothing comes."""
        if early := self._early.get(id(end)):
            raise Violation(f"{_shown(early[0])} came", "nothing more comes")
        deadline = time.monotonic() + seconds
        while wait_for(end.fileno(), deadline - time.monotonic()) or time.monotonic() < deadline:
            if (item := end.receive()) is not None:
                raise Violation(f"{_shown(item)} came", "nothing more comes")

    def _missed(self, end: Any) -> NoReturn:
        late = end.receive()
        if late is not None:
            raise Violation(
                f"fileno() was not readable for {self.patience:g} s although receive() has something: {_shown(late)}",
                "fileno() is readable at the latest when receive() has something again after it returned None",
            )
        raise Violation(f"nothing came within {self.patience:g} s", "what was sent arrives; so does the word of an end")


def make_transport(component: Component, loaded: Loaded) -> Transport:
    """Build a transport of channels."""

    def start_engine_core() -> NoReturn:
        raise Violation(
            "it started an engine core", "a transport of channels carries messages; the kernel does the rest"
        )

    context = TransportContext(start_engine_core=start_engine_core, clock=RealClock(), shutdown_timeout=0.0)
    made: Transport = component.factory(loaded.settings.component("transport").settings, context)
    return made


def wait_for(fileno: int, seconds: float) -> bool:
    """Whether a file descriptor is readable within so many seconds."""
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(max(seconds, 0.0) * 1000))


def _shown(item: Any) -> str:
    if isinstance(item, tuple):
        peer, frames = item
        return f"the end of peer {peer!r}" if frames is None else f"{_shown(frames)} of peer {peer!r}"
    return f"a message of {len(item)} frames that begins with {bytes(item[0])[:40]!r}" if item else "an empty message"

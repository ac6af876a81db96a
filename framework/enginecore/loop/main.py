"""The main function of an engine core's process: start, serve, release everything."""

import gc
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from enginecore.assembly import build_engine_core
from enginecore.clock import RealClock
from enginecore.errors import EngineCoreError
from enginecore.interfaces import ServerChannel, Transport
from enginecore.loop.engine_core_proc import EngineCoreProc
from enginecore.loop.failure_text import error_line, error_text, traceback_text
from enginecore.loop.io_threads import InputThread, OutputThread
from enginecore.loop.queues import Queues
from enginecore.loop.reports import Ended, NotStarted, Report, Started
from enginecore.plugin import TransportContext
from enginecore.processes import Parent
from enginecore.settings import Loaded, restore_settings

LINGER = 2.0
"""Seconds that the last messages get to be sent."""
EXIT_TIMEOUT = 6.0
"""Seconds from the end of the busy loop to that of the process, whatever hangs."""
SIGNAL_INTERVAL = 0.2
"""Seconds after which a second signal of a kind is one of its own."""


class Signals:
    """SIGTERM and SIGINT: end the start-up, or shut down; never the default, which would leave children behind."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._act: Callable[[str], None] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    @contextmanager
    def calling(self, act: Callable[[str], None], wakeup_fd: int) -> Iterator[None]:
        """Meanwhile a signal wakes the loop by `wakeup_fd` and calls `act`; one that came before does so now."""
        self._act = act
        signal.set_wakeup_fd(wakeup_fd)
        if self.received is not None:
            act(self._reason(self.received))
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)
            self._act = self._ignore

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first, self.received = self.received is None, signal.Signals(number)
        if self._act is not None:
            self._act(self._reason(self.received))
        elif first:
            raise SystemExit(128 + number)

    def _ignore(self, reason: str) -> None:
        """The loop has ended already."""

    def _reason(self, number: signal.Signals) -> str:
        return f"it received {number.name}"


class ServingProcess:
    """One process from start to end: its reports, its end, and the release of all that it holds.

    Attributes:
        directory: For the transport's files.
        signals: SIGTERM and SIGINT, handled.
    """

    def __init__(self, parent: Parent, directory: Path) -> None:
        self.directory = directory
        self.signals = Signals()
        self._parent = parent

    def report(self, report: Report) -> None:
        """Send a report to the parent."""
        self._parent.report(msgspec.msgpack.encode(report))

    def clean_up(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def leave(self) -> None:
        """End the process at once, without cleaning up more than files."""
        self.clean_up()
        os._exit(1)

    def end_within(self, seconds: float) -> None:
        """Call `leave` if the proper end takes longer than that."""
        timer = threading.Timer(seconds, self.leave)
        timer.daemon = True
        timer.start()

    def leave_orphaned(self) -> None:
        """Shut down since the parent has ended: no client is left to serve."""
        self.end_within(EXIT_TIMEOUT)
        for _ in range(2):  # the second one cuts the draining short
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(SIGNAL_INTERVAL)


def main(payload: Mapping[str, Any], parent: Parent) -> int:
    """Build an engine core, serve until the shutdown, release everything. Returns the exit code.

    Args:
        payload: "loaded": as of `Loaded.to_plain`; "directory": for the transport's files; "owner_key": the key of
            the client that started this process.
        parent: Gets a report of the start, or of why there is none, and of the end.
    """
    process = ServingProcess(parent, Path(payload["directory"]))
    try:
        parent.watch(process.leave_orphaned)
        loaded = restore_settings(payload["loaded"])
        return _serve(loaded, payload["owner_key"], process)
    except BaseException as error:
        process.report(_not_started(error, process.signals))
        raise SystemExit(error.code if isinstance(error, SystemExit) else 1) from None
    finally:
        process.clean_up()


def _serve(loaded: Loaded, owner_key: str, process: ServingProcess) -> int:
    server = _transport(loaded).listen(process.directory)
    try:
        core = build_engine_core(loaded, RealClock())
        try:
            queues = Queues()
            timeout = loaded.settings.shutdown_timeout
            proc = EngineCoreProc(core, queues, shutdown_timeout=timeout, clock=RealClock(), owner_key=owner_key)
            receiving = InputThread(server, queues, abort_at_once=proc.abort_at_once)
            return _run(proc, receiving, OutputThread(server, queues), server, process)
        finally:
            core.shutdown()
    finally:
        server.close(LINGER)


def _run(
    proc: EngineCoreProc, receiving: InputThread, sending: OutputThread, server: ServerChannel, process: ServingProcess
) -> int:
    """Serve; afterwards no thread uses the server any more. Returns the exit code."""
    receiving.start()
    sending.start()
    with process.signals.calling(proc.request_shutdown, receiving.wakeup_fd):
        gc.collect()
        gc.freeze()  # what start-up made stays; no collection need look at it again
        process.report(Started(dict(server.address)))
        last = proc.run()
    process.report(Ended(last.reason, last.traceback))
    process.end_within(EXIT_TIMEOUT)
    if not (sending.stop(LINGER) and receiving.stop(LINGER)):
        process.leave()  # a thread that hangs in the transport must not see it closed
    return 1 if last.traceback else 0


def _transport(loaded: Loaded) -> Transport:
    context = TransportContext(
        start_engine_core=lambda: build_engine_core(loaded, RealClock()),
        clock=RealClock(),
        shutdown_timeout=loaded.settings.shutdown_timeout,
    )
    transport: Transport = loaded.build("transport", context)
    return transport


def _not_started(error: BaseException, signals: Signals) -> NotStarted:
    if signals.received is not None:
        return NotStarted("EngineCoreError", f"the engine core received {signals.received.name} before it was ready")
    if isinstance(error, EngineCoreError):
        return NotStarted(type(error).__name__, error_text(error), traceback_text(error))
    return NotStarted("EngineCoreError", f"the engine core did not start: {error_line(error)}", traceback_text(error))

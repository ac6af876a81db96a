"""The engine core's process, as the front end that started it sees it."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from enginecore import errors
from enginecore.client.answers import dead_error
from enginecore.errors import ConfigurationError, EngineCoreError, EngineDeadError, RemoteError
from enginecore.loop.reports import Ended, NotStarted, Report, Started, report_decoder
from enginecore.processes import ChildProcess
from enginecore.settings import Loaded

LONGEST_DIRECTORY = 60
"""Characters: paths of sockets may have 107 on Linux and 103 on macOS, and a transport names its
own below this one.
"""
GRACE = 8.0
"""Seconds beyond the shutdown timeout after which the process is killed."""


class CoreProcess:
    """A process that serves an engine core. The constructor starts it; `wait_until_ready` waits for
    the engine core, so that several processes can load at the same time.

    Attributes:
        owner_key: Shows the engine core that this front end started it.
    """

    def __init__(self, loaded: Loaded) -> None:
        """Start the process.

        Raises:
            EngineCoreError: it cannot be started; says why.
        """
        plain = loaded.to_plain()
        self._startup_timeout = loaded.settings.startup_timeout
        self._shutdown_timeout = loaded.settings.shutdown_timeout
        self.owner_key = secrets.token_hex(16)
        self._directory = private_directory()
        try:
            payload = {"loaded": plain, "directory": str(self._directory), "owner_key": self.owner_key}
            self._child = ChildProcess("enginecore.loop.main:main", payload, title="enginecore-core")
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise

    def wait_until_ready(self) -> Mapping[str, Any]:
        """The address where front ends find the engine core, once it is ready. Called once.

        Raises:
            EngineCoreError: it did not become ready: the error that it met, with its traceback as
                the cause. The process may still run: `kill` ends it.
        """
        match self._report(self._startup_timeout):
            case Started(address):
                return address
            case NotStarted(kind, message, traceback):
                known = getattr(errors, kind, EngineCoreError)
                raise known(message) from (RemoteError(traceback) if traceback else None)
        if not self._child.has_ended:
            raise EngineCoreError(
                f"the engine core was not ready within startup_timeout = {self._startup_timeout:g} seconds and was "
                "stopped; if the model needs longer, raise startup_timeout"
            )
        self._child.wait(GRACE)
        raise EngineCoreError(
            f"the engine core's process {self._child.exit_text} before it was ready; what it printed says more"
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def fileno(self) -> int:
        """A file descriptor that is readable once the process has ended."""
        return self._child.fileno()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended or is about to, after its last report."""
        return self._child.has_ended

    def failure(self) -> EngineDeadError:
        """Why the process has ended. Called once it has."""
        try:
            match self._report(0.0):
                case Ended(reason, traceback):
                    return dead_error(reason, traceback)
        except EngineCoreError as error:
            return dead_error(str(error), "")
        self._child.wait(1.0)
        return dead_error(f"the engine core's process {self.pid} {self._child.exit_text} and reported no error", "")

    def terminate(self) -> None:
        """Ask the engine core to shut down: running requests get the shutdown timeout."""
        self._child.terminate()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the process ended within so many seconds; None: within the time that a shutdown
        may take.
        """
        return self._child.wait(self.shutdown_time if timeout is None else timeout)

    @property
    def shutdown_time(self) -> float:
        """Seconds after which a shutdown has failed."""
        return self._shutdown_timeout + GRACE

    def kill(self) -> None:
        """End the process now if it runs, and remove its files. May be called more than once."""
        self._child.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _report(self, timeout: float) -> Report | None:
        data = self._child.receive(timeout)
        try:
            return None if data is None else report_decoder.decode(data)
        except msgspec.DecodeError as error:
            raise EngineCoreError(f"the engine core's process {self.pid} sent an unreadable report: {error}") from error


def private_directory() -> Path:
    """A new, empty directory that only this user can enter, with a path that leaves room for the
    names of sockets.

    Raises:
        ConfigurationError: none can be made; says where it was tried.
    """
    candidates = [_temporary_directory(), os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp"]
    tried = []
    for parent in dict.fromkeys(filter(None, candidates)):
        if len(os.fsencode(parent)) + len("/ec-4194304-12345678") > LONGEST_DIRECTORY:
            tried.append(f"{parent} (too long a path for sockets)")
            continue
        try:
            return Path(tempfile.mkdtemp(prefix=f"ec-{os.getpid()}-", dir=parent))
        except OSError as error:
            tried.append(f"{parent} ({error.strerror})")
    raise ConfigurationError(f"no directory for sockets can be made in {', '.join(tried)}: set TMPDIR to a short path")


def _temporary_directory() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:  # none is usable
        return ""

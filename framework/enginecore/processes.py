"""Child processes: a fresh interpreter that runs one function, reports to its parent, and never
outlives it.

Not `multiprocessing`: the child does not import the parent's main script again, so an engine starts
from a script without a main guard, from a notebook and from standard input alike; and nothing
between the two is pickled.
"""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from enginecore.errors import EngineCoreError
from enginecore.framing import FrameReader, FramingError, framed

_BOOTSTRAP = (
    "import json, sys; job = json.load(sys.stdin); sys.path[:] = job['path']; "
    "from enginecore.processes import run_child; run_child(job)"
)
_LONGEST_POLL = 2.0**31 - 1024
_LONGEST_REPORT = 32 << 20
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05
WATCH_INTERVAL = 0.5
"""Seconds between two looks at the parent."""


def milliseconds(seconds: float) -> float:
    """A time to wait, as `select.poll` takes it: at least 0, at most 24 days."""
    return min(max(seconds, 0.0) * 1000, _LONGEST_POLL)


class ChildProcess:
    """A running child, as its parent sees it. Used by one thread at a time, while another may
    `wait`.
    """

    def __init__(self, target: str, payload: Mapping[str, Any], *, title: str, fds: Sequence[int] = ()) -> None:
        """Start it.

        Args:
            target: "module:function", called in the child with the payload and a `Parent`.
            payload: Plain JSON-able data.
            title: Shown in lists of processes.
            fds: File descriptors that it gets under the same numbers, and no other child does.
        """
        self._reaping = threading.RLock()
        output = _standard_error()
        self._reports, child_end = _pipe()
        try:
            path = [entry for entry in sys.path if isinstance(entry, str)]  # as imports themselves do
            job = {"path": path, "target": target, "payload": payload, "reports": child_end, "parent": os.getpid()}
            text = json.dumps(job).encode()
            # -P: nothing of the working directory is imported before the path is the parent's
            # a session of its own: Ctrl-C in the terminal is for the parent, which decides what
            # becomes of the child
            self._popen = subprocess.Popen(
                [sys.executable, *_isolation(), "-P", "-X", "faulthandler", "-c", _BOOTSTRAP, title],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(child_end, *fds),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._reports)
            raise
        finally:
            os.close(child_end)
        os.set_blocking(self._reports, False)
        self._reader = FrameReader(partial(os.read, self._reports), _LONGEST_REPORT)
        if self._popen.stdin is not None:
            with suppress(BrokenPipeError), self._popen.stdin as stdin:  # a child that dies at once: see `receive`
                stdin.write(text)

    @property
    def pid(self) -> int:
        """Process id of the child, also its process group's and session's too."""
        return self._popen.pid

    @property
    def exit_text(self) -> str:
        """The child's state in words: how it ended, or that it runs."""
        code = self._exit_code()
        if code is None:
            return "is running"
        if code < 0:
            with suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"exited with code {code}"

    def fileno(self) -> int:
        """Readable when it has reported something or has ended."""
        return self._reports

    def receive(self, timeout: float) -> bytes | None:
        """The child's next report; None if none came within `timeout` seconds or it has ended.

        Raises:
            EngineCoreError: what it reports cannot be.
        """
        deadline = time.monotonic() + timeout
        while (report := self._next_report()) is None and not self._reader.has_ended:
            poll = select.poll()
            poll.register(self._reports, select.POLLIN)
            if not poll.poll(milliseconds(deadline - time.monotonic())) and time.monotonic() >= deadline:
                return None
        return report

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, or closed its end of the pipe because it is about to."""
        self._reader.read_available()
        return self._reader.has_ended

    def terminate(self) -> None:
        """Ask it to end, as SIGTERM does."""
        if self._exit_code() is None:
            self._popen.terminate()

    def wait(self, timeout: float) -> bool:
        """Whether it ended within so many seconds."""
        deadline = time.monotonic() + timeout
        pause = _SHORTEST_PAUSE
        while self._exit_code() is None:
            if (left := deadline - time.monotonic()) <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
        return True

    def kill(self) -> None:
        """End it and its own children now, if need be, and let go of it. May be called more than
        once.
        """
        if self._exit_code() is None:
            self._kill_group()
            self._popen.wait()
        if self._reports >= 0:
            os.close(self._reports)
            self._reports = -1
            self._reader.close()

    def _exit_code(self) -> int | None:
        """None while it runs. Of one that has ended, what is left of its process group is ended
        too.
        """
        with self._reaping:
            if self._popen.returncode is None:
                with suppress(ChildProcessError):  # it was reaped elsewhere
                    if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                        self._kill_group()  # until it is reaped, no other group has its number
            return self._popen.poll()

    def _kill_group(self) -> None:
        with self._reaping, suppress(ProcessLookupError):
            if self._popen.returncode is None:
                os.killpg(self.pid, signal.SIGKILL)

    def _next_report(self) -> bytes | None:
        try:
            return self._reader.receive()
        except FramingError as error:
            raise EngineCoreError(f"process {self.pid}: {error}: something else writes to its pipe") from error


class Parent:
    """The parent, as its child sees it."""

    def __init__(self, reports: int, pid: int) -> None:
        self._reports = reports
        self._pid = pid
        self._lock = threading.Lock()

    def report(self, data: bytes) -> None:
        """Send a report to the parent; if the parent is gone, nothing happens."""
        with self._lock, suppress(BrokenPipeError):
            view = memoryview(framed(data))
            while view:
                view = view[os.write(self._reports, view) :]

    @property
    def is_gone(self) -> bool:
        """Whether it has ended."""
        return os.getppid() != self._pid

    def watch(self, when_gone: Callable[[], None]) -> None:
        """Call `when_gone` on a thread of its own once the parent has ended, or has become another
        program.
        """

        def wait() -> None:
            unread = select.poll()  # the pipe's other end is never written: only errors are reported
            unread.register(self._reports, 0)
            while not (unread.poll(WATCH_INTERVAL * 1000) or self.is_gone):
                pass
            when_gone()

        threading.Thread(target=wait, name="watch-parent", daemon=True).start()


def _isolation() -> list[str]:
    """Options by which the child's interpreter starts as untouched by its environment as this one
    did.
    """
    options = {"-I": sys.flags.isolated, "-E": sys.flags.ignore_environment, "-s": sys.flags.no_user_site}
    return [option for option, is_set in options.items() if is_set]


def run_child(job: Mapping[str, Any]) -> None:
    """Run a child: its first and last steps, and the function between them."""
    reports: int = job["reports"]
    os.set_inheritable(reports, False)
    _close_in_forked_children(reports)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent's thread may have blocked some
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    module, _, function = job["target"].partition(":")
    sys.exit(getattr(import_module(module), function)(job["payload"], Parent(reports, job["parent"])))


def _close_in_forked_children(reports: int) -> None:
    """A process that this one forks must not keep the pipe open: its end is how the parent sees
    ours.
    """
    held = [reports]

    def close() -> None:
        if held:  # in what a forked child forks, the number may be that of another file
            os.close(held.pop())

    os.register_at_fork(after_in_child=close)


def _pipe() -> tuple[int, int]:
    """A pipe that takes none of the numbers of the standard streams, where those are closed."""
    ends = list(os.pipe())
    try:
        for end in ends[:2]:
            ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3))
        reader, writer = ends.pop(2), ends.pop(2)
    finally:
        for end in ends:
            os.close(end)
    return reader, writer


def _standard_error() -> int:
    """Where the child prints: not to the parent's output, which a program may read."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2

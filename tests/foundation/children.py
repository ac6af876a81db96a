"""What the child processes of the tests run."""

import contextlib
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from enginecore.processes import Parent

Payload = Mapping[str, Any]


def say(parent: Parent, **facts: Any) -> None:
    parent.report(json.dumps(facts).encode())


def echo(payload: Payload, parent: Parent) -> int:
    say(parent, payload=payload, title=sys.argv[1:], path=sys.path, stdin=sys.stdin.read())
    return 0


def report_sizes(payload: Payload, parent: Parent) -> int:
    for size in payload["sizes"]:
        parent.report(bytes([size % 256]) * size)
    return 0


def leave(payload: Payload, parent: Parent) -> int:
    code: int = payload["code"]
    return code


def die(payload: Payload, parent: Parent) -> int:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()  # a trace of a crash on purpose helps nobody
    os.kill(os.getpid(), payload["signal"])
    return 0


def fail(payload: Payload, parent: Parent) -> int:
    os.close(2)  # nobody wants to see the traceback
    os.open(os.devnull, os.O_WRONLY)
    raise ValueError("on purpose")


def stay(payload: Payload, parent: Parent) -> int:
    """Say the process id, then do nothing until a signal comes or the parent is gone."""
    say(parent, pid=os.getpid(), fds=sorted(map(int, os.listdir("/proc/self/fd"))))
    parent.watch(lambda: os._exit(0))
    while True:
        signal.pause()


def outlive(payload: Payload, parent: Parent) -> int:
    """Once the parent is gone, report to it all the same, and leave a file."""
    say(parent, pid=os.getpid())
    while not parent.is_gone:
        time.sleep(0.01)
    parent.report(b"is anybody there?")
    Path(payload["file"]).write_text("outlived")
    return 0


def print_then_report(payload: Payload, parent: Parent) -> int:
    with contextlib.suppress(OSError):
        os.write(1, b"to stdout\n")
    with contextlib.suppress(OSError):
        os.write(2, b"to stderr\n")
    say(parent, done=True)
    return 0


def report_nonsense(payload: Payload, parent: Parent) -> int:
    os.write(parent._reports, b"\xff" * 100)
    return 0


def sleep_on() -> None:
    signal.alarm(120)  # nothing stays behind if a test fails
    while True:
        signal.pause()


def leave_sleepers(payload: Payload, parent: Parent) -> int:
    """Fork and start processes that sleep on, and end."""
    pids = [
        subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.alarm(120); signal.pause()"], close_fds=False
        ).pid
    ]
    for _ in range(2):
        if (pid := os.fork()) == 0:
            sleep_on()
        pids.append(pid)
    say(parent, pids=pids)
    if payload["stay"]:
        sleep_on()
    os._exit(5)


def fork_twice(payload: Payload, parent: Parent) -> int:
    """A forked child opens a file, which gets the number of the pipe that it let go of, and forks in its turn."""
    if os.fork() == 0:
        opened = [os.open(payload["file"], os.O_WRONLY | os.O_CREAT) for _ in range(20)]
        if os.fork() == 0:
            usable = sum(os.write(fd, b"x") for fd in opened)
            os.rename(payload["file"], f"{payload['file']}.{usable}")
            os._exit(0)
        os.wait()
        os._exit(0)
    os.wait()
    return 0

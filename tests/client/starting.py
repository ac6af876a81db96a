"""Engine cores in processes of their own, and what is left of them."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from enginecore.client import make_async_client, make_client
from enginecore.settings import load_settings

DEADLINE = 30.0
EXECUTORS = "tests.client.executors:"
ROOT = Path(__file__).parents[2]


def load(executor="oracle", component=None, transport="zmq", **settings):
    arguments = {
        "model": "oracle",
        "executor.use": executor,
        "transport.use": transport,
        "max_model_len": "auto",
        "num_kv_blocks": 64,
        "startup_timeout": 60.0,
        **settings,
    }
    components = [] if component is None else [EXECUTORS + component]
    return load_settings(arguments, components=components, environ={})


@contextmanager
def running(**settings: Any) -> Iterator[Any]:
    """A synchronous client of a fresh engine core."""
    client = make_client(load(**settings))
    try:
        yield client
    finally:
        client.shutdown()


@contextmanager
def running_async(**settings: Any) -> Iterator[Any]:
    """An asyncio client of a fresh engine core."""
    client = make_async_client(load(**settings))
    try:
        yield client
    finally:
        client.shutdown()


def wait_until(condition, what):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE:g} s: {what}"
        time.sleep(0.01)


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Traces:
    """What the engines that this process starts leave on the machine: children and directories."""

    def __init__(self):
        self._before = self._look()

    def _look(self):
        children = {p.pid for p in psutil.Process().children(recursive=True)}
        folders = set(Path(tempfile.gettempdir()).glob(f"ec-{os.getpid()}-*"))
        return children, folders

    def check(self):
        """Nothing is left that was not there when this was made."""
        wait_until(lambda: not self.left(), f"left: {self.left()}")

    def left(self):
        return [after - before for before, after in zip(self._before, self._look(), strict=True) if after - before]


def python(code: str, *, stdin: Any = None, **options: Any) -> Any:
    """A Python process that runs `code` as `-c` does."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
        **options,
    )

"""Executors with one fault each, which the engine core's process finds as "tests.client.executors:NAME".

`marker` is a file that they create when the fault is at hand, so that tests need not guess the time.
"""

import os
import signal
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from enginecore.errors import ModelError
from enginecore.plugin import Component
from enginecore_conformance.oracle.executor import OracleExecutor
from enginecore_conformance.oracle.settings import OracleSettings

A_MINUTE = 60.0


class Settings(OracleSettings):
    marker: str = ""

    def mark(self):
        if self.marker:
            Path(self.marker).touch()


def component(name, factory):
    return Component(kind="executor", name=name, factory=factory, settings=Settings)


def raise_at_start(settings, context):
    raise RuntimeError("the device is on fire")


def refuse_at_start(settings, context):
    raise ModelError("the model has no weights")


def exit_at_start(settings, context):
    os._exit(3)


def crash_at_start(settings, context):
    os.kill(os.getpid(), signal.SIGSEGV)


def load_slowly(settings, context):
    settings.mark()
    time.sleep(A_MINUTE)
    return OracleExecutor(settings, context)


class StuckInStep(OracleExecutor):
    """A step that holds the engine core's thread."""

    _settings: Any

    def execute_model(self, scheduled):
        if scheduled.num_scheduled_tokens:
            self._settings.mark()
            time.sleep(A_MINUTE)
        return super().execute_model(scheduled)


class NeverDone(OracleExecutor):
    """A step whose future is never completed, as of a worker that hangs."""

    _settings: Any

    def execute_model(self, scheduled):
        self._settings.mark()
        return Future()


class StuckAtEnd(OracleExecutor):
    """An executor that does not let go, and a thread that would keep the interpreter alive."""

    _settings: Any

    def shutdown(self):
        self._settings.mark()
        threading.Thread(target=time.sleep, args=(A_MINUTE,)).start()
        time.sleep(A_MINUTE)


class FailsIdle(OracleExecutor):
    """Reports its death from a thread of its own, long after the last step."""

    _settings: Any

    def collective_rpc(self, method, *args, timeout=None):
        if method != "fail_soon":
            return super().collective_rpc(method, *args, timeout=timeout)
        threading.Timer(0.05, self._failure.fail, [RuntimeError("worker 1 was killed")]).start()
        return []


RAISES = component("raises", raise_at_start)
REFUSES = component("refuses", refuse_at_start)
EXITS = component("exits", exit_at_start)
CRASHES = component("crashes", crash_at_start)
LOADS_SLOWLY = component("loads-slowly", load_slowly)
STUCK_IN_STEP = component("stuck-in-step", StuckInStep)
NEVER_DONE = component("never-done", NeverDone)
STUCK_AT_END = component("stuck-at-end", StuckAtEnd)
FAILS_IDLE = component("fails-idle", FailsIdle)

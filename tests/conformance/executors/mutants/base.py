"""What all mutants start from: executors that hand every call on to the oracle, without its own checks of plans."""

import subprocess
import threading
from concurrent.futures import Future
from typing import Any, ClassVar

from enginecore import interfaces
from enginecore.errors import EngineDeadError
from enginecore_conformance.oracle.executor import OracleExecutor
from tests.forwarding import forwarding

ORACLE = {"depth": 2, "feeds_tokens": True, "verify": False}
"""Its settings: what is wrong shows as a wrong token, as it would with a real model."""


@forwarding(interfaces.Executor, to="inner")
class Executor(interfaces.Executor):
    """A mutant is one that differs somewhere.

    `caught_by` names the check that sees it, `oracle` are settings of the one inside, `patience` is the kit's: many a
    bug shows in something that never comes.
    """

    caught_by = ""
    oracle: ClassVar[Any] = {}
    patience = 1.0

    def __init__(self, settings, context):
        self.inner: Any = OracleExecutor(settings.model_copy(update={**ORACLE, **self.oracle}), context)
        self.context = context

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def execute_model(self, scheduled):
        """In the hands of `plan` before, and of `output` after."""
        plan = self.plan(scheduled)
        return self.then(self.inner.execute_model(plan), lambda output: self.output(scheduled, output))

    def plan(self, scheduled):
        return scheduled

    def output(self, scheduled, output):
        return output

    def then(self, future, change):
        """A future whose result is changed."""
        changed: Future[Any] = Future()

        def finish(done):
            if done.exception() is None:
                changed.set_result(change(done.result()))
            else:
                changed.set_exception(done.exception())

        future.add_done_callback(finish)
        return changed

    @property
    def rows(self):
        """What the oracle's worker knows of each request."""
        return self.inner._worker.rows

    @property
    def blocks(self):
        """What the oracle's slots hold."""
        return self.inner._worker._memory._blocks

    def spoil(self, output, request_id):
        """Another token than the right one."""
        row = output.request_ids.index(request_id)
        token = (output.sampled_token_ids[row][0] + 1) % self.inner.model_info.vocab_size
        output.sampled_token_ids[row] = [token]
        self.rows[request_id].token_ids[-1] = token


class Dying(Executor):
    """Goes for good with the first step that fails, and keeps the contract in that."""

    def __init__(self, settings, context):
        super().__init__(settings, context)
        self.failure: BaseException | None = None
        self.callbacks: list[Any] = []

    def register_failure_callback(self, callback):
        if self.failure is not None:
            callback(self.failure)
        else:
            self.callbacks.append(callback)

    def fail(self, error):
        self.failure = error
        for callback in self.callbacks:
            callback(error)

    def check_health(self):
        if self.failure is not None:
            raise EngineDeadError("dead") from self.failure
        self.inner.check_health()

    def execute_model(self, scheduled):
        self.check_health()
        future = self.inner.execute_model(scheduled)
        future.add_done_callback(lambda done: self.fail(done.exception()) if done.exception() else None)
        return future

    def collective_rpc(self, method, *args, timeout=None):
        self.check_health()
        return self.inner.collective_rpc(method, *args, timeout=timeout)


class WithWorkers(Dying):
    """Has two processes, which do nothing, and goes when one of them goes."""

    def __init__(self, settings, context):
        super().__init__(settings, context)
        self.processes = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
        self.is_shut_down = False
        self.watchers = [threading.Thread(target=self.watch, args=(process,)) for process in self.processes]
        for watcher in self.watchers:
            watcher.start()

    def watch(self, process):
        process.wait()
        if not self.is_shut_down and self.failure is None:
            self.died()

    def died(self):
        self.end()
        self.fail(RuntimeError("a worker has died"))

    def end(self):
        for process in self.processes:
            process.kill()

    def shutdown(self):
        self.is_shut_down = True
        self.end()
        for process in self.processes:
            process.wait()
        self.inner.shutdown()

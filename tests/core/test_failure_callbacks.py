"""Whoever runs an engine core is told when it fails: once, whoever noticed, whenever it was."""

import threading
from concurrent.futures import Future
from typing import Any

import pytest

from enginecore.clock import RealClock
from enginecore.core import EngineCore
from enginecore.errors import EngineDeadError, InvalidRequestError, StepError
from enginecore.plugin import Component
from enginecore_conformance.oracle.executor import OracleExecutor
from enginecore_conformance.oracle.settings import OracleSettings
from tests.core.engines import make_core, request, run


class Remote(OracleExecutor):
    """Reports its failure when told to, from whatever thread tells it; its steps never end."""

    def execute_model(self, scheduled: Any) -> Any:
        threading.Thread(target=self.report, args=("rank 3 is gone",)).start()
        return Future()

    def register_failure_callback(self, callback: Any) -> None:
        self.callback = callback

    def report(self, text: str) -> None:
        self.callback(RuntimeError(text))


def remote_core() -> EngineCore:
    component = Component(kind="executor", name="remote", factory=Remote, settings=OracleSettings)
    return make_core(components=[component], executor={"use": "remote"}, clock=RealClock())


def failing_core() -> EngineCore:
    core = make_core(oracle={"faults": [{"kind": "fail", "step": 2}]})
    core.add_request(request("r"))
    core.advance()
    return core


def test_a_failed_step_is_told_once() -> None:
    core = failing_core()
    told: list[BaseException] = []
    core.register_failure_callback(told.append)
    core.register_failure_callback(told.append)
    for _ in range(2):
        with pytest.raises(EngineDeadError):
            core.advance()
    assert [type(error) for error in told] == [StepError] * 2
    assert "set to fail at step 2" in str(told[0])


def test_a_failure_of_the_executor_is_told_on_its_thread_while_nobody_steps() -> None:
    core = remote_core()
    told: list[tuple[str, int]] = []
    core.register_failure_callback(lambda error: told.append((str(error), threading.get_ident())))
    reporter = threading.Thread(target=core.executor.report, args=("rank 3 is gone",))  # type: ignore[attr-defined]
    reporter.start()
    reporter.join()
    assert told == [("rank 3 is gone", reporter.ident)]
    with pytest.raises(EngineDeadError, match="rank 3 is gone"):
        core.add_request(request("r"))


def test_a_failure_that_ends_a_step_too_is_told_once() -> None:
    core = remote_core()
    told: list[BaseException] = []
    core.register_failure_callback(told.append)
    core.add_request(request("r"))
    with pytest.raises(EngineDeadError, match="rank 3 is gone"):
        core.advance()
    core.executor.report("rank 4 is gone")  # type: ignore[attr-defined]
    assert [str(error) for error in told] == ["rank 3 is gone"]


def test_a_failure_that_has_been_is_told_at_once() -> None:
    core = failing_core()
    with pytest.raises(EngineDeadError):
        core.advance()
    told: list[BaseException] = []
    core.register_failure_callback(told.append)
    assert [type(error) for error in told] == [StepError]


def test_a_callback_that_fails_keeps_nobody_from_being_told(caplog: pytest.LogCaptureFixture) -> None:
    core = failing_core()
    told: list[BaseException] = []

    def broken(error: BaseException) -> None:
        raise ValueError("broken callback")

    core.register_failure_callback(broken)
    core.register_failure_callback(told.append)
    with pytest.raises(EngineDeadError, match="set to fail"):
        core.advance()
    assert len(told) == 1
    assert "broken callback" in caplog.text


def test_neither_a_refusal_nor_a_shutdown_is_a_failure() -> None:
    core = make_core()
    told: list[BaseException] = []
    core.register_failure_callback(told.append)
    with pytest.raises(InvalidRequestError):
        core.add_request(request("empty", prompt=0))
    core.add_request(request("r"))
    run(core)
    core.shutdown()
    core.register_failure_callback(told.append)
    with pytest.raises(EngineDeadError, match="was shut down"):
        core.advance()
    assert told == []

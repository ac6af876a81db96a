"""Observers: everybody is told, and nobody's fault is another's."""

import logging
import sys

from enginecore.interfaces import RequestRecord, StepRecord
from enginecore.messages import FinishReason, SchedulerOutput, SchedulerStats
from enginecore.registry import Registry

STEP = StepRecord(
    step=1,
    started=0.0,
    settled=0.5,
    num_requests=2,
    num_tokens=3,
    batches_in_flight=1,
    stats=SchedulerStats(),
    scheduled=SchedulerOutput(step=1),
)
REQUEST = RequestRecord(
    request_id="r",
    finish_reason=FinishReason.STOP,
    arrival_time=0.0,
    ended=1.0,
    num_prompt_tokens=1,
    num_output_tokens=1,
    num_cached_tokens=0,
    num_preemptions=0,
)

OBSERVER = """
from enginecore.plugin import hookimpl

steps, requests = [], []


@hookimpl
def enginecore_step_finished(record):
    steps.append(record)
    {what}


@hookimpl
def enginecore_request_finished(record):
    requests.append(record)
"""


def test_nobody_listens_by_default():
    observers = Registry.discover(allow=[]).observers
    assert not observers.has_step_observers
    assert not observers.has_request_observers
    observers.step_finished(STEP)
    assert observers.failures == {}


def test_only_the_hooks_that_are_implemented_have_observers(site):
    site.install(
        "acme", "from enginecore.plugin import hookimpl\n\n@hookimpl\ndef enginecore_step_finished():\n    ...\n"
    )
    observers = Registry.discover().observers
    assert observers.has_step_observers
    assert not observers.has_request_observers
    observers.step_finished(STEP)  # a hook may leave out arguments
    assert observers.failures == {}


def test_everybody_is_told_although_one_raises(site, caplog):
    """Field case 32."""
    site.install("aaa", OBSERVER.format(what="raise ValueError('mine')"))
    site.install("bbb", OBSERVER.format(what="raise SystemExit"))
    site.install("ccc", OBSERVER.format(what="pass"))
    observers = Registry.discover().observers
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            observers.step_finished(STEP)
    for name in ("aaa", "bbb", "ccc"):
        assert sys.modules[name].steps == [STEP] * 3
    assert observers.failures == {"aaa (aaa)": 3, "bbb (bbb)": 3}
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert sorted(record.args[0] for record in logged) == ["aaa (aaa)", "bbb (bbb)"]  # the first failure of each
    assert "ValueError: mine" in caplog.text


def test_a_failing_step_hook_does_not_silence_the_plugins_request_hook(site):
    site.install("aaa", OBSERVER.format(what="raise ValueError"))
    observers = Registry.discover().observers
    observers.step_finished(STEP)
    observers.request_finished(REQUEST)
    assert sys.modules["aaa"].requests == [REQUEST]


def test_components_as_objects_leave_observers_as_they_are(site):
    site.install("aaa", OBSERVER.format(what="pass"))
    registry = Registry.discover().with_components(["tests.registry.importable:COMPONENT"])
    registry.observers.step_finished(STEP)
    assert sys.modules["aaa"].steps == [STEP]

"""Whose time it is: none but the engine's clock."""

import datetime
import time
from random import Random

import msgspec
import pytest

from enginecore.assembly import build_engine_core
from enginecore.clock import RealClock, VirtualClock
from enginecore.settings import load_settings
from enginecore_lab.recording import replayable_seconds
from tests.simulated.engines import Session, costing, make_core, request

READERS = ("time", "monotonic", "perf_counter", "process_time", "thread_time", "sleep")


def arrivals(count=40, *, every=0.004, seed=0, tokens=(1, 12)):
    random = Random(seed)
    at = 0.0
    found = []
    for n in range(count):
        at += random.expovariate(1 / every)
        found.append((at, request(f"r{n}", prompt=random.randint(1, 60), tokens=random.randint(*tokens))))
    return found


class NoDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        raise AssertionError("datetime.now in a virtual run")

    @classmethod
    def utcnow(cls):
        raise AssertionError("datetime.utcnow in a virtual run")


def raiser(name):
    def read(*args):
        raise AssertionError(f"time.{name} in a virtual run")

    return read


@pytest.mark.parametrize("more", [{}, {"overlap": True}, {"pipeline_parallel_size": 2}])
@pytest.mark.parametrize("scheduler", ["fcfs", "mlfq", "vtc"])
def test_nothing_looks_at_the_real_time_in_a_virtual_run(monkeypatch, scheduler, more):
    clock = VirtualClock()
    # a tight pool: preemption must not either
    core = make_core(
        clock, simulated=more, scheduler={"use": scheduler}, num_kv_blocks=16, max_model_len="auto", max_num_seqs=8
    )
    with monkeypatch.context() as patched:
        for name in READERS:
            patched.setattr(time, name, raiser(name))
            if hasattr(time, f"{name}_ns"):
                patched.setattr(time, f"{name}_ns", raiser(f"{name}_ns"))
        patched.setattr(datetime, "datetime", NoDatetime)
        with pytest.raises(AssertionError, match=r"time\.monotonic in a virtual run"):
            RealClock().now()
        session = Session(core, clock, arrivals())
    assert len(session.ended) == 40
    assert session.ended["r39"][0] > 0.1


def test_virtual_and_real_time_give_the_same_plans():
    """All requests are there before the first step, so that nothing depends on how fast this machine is."""
    requests = [(0.0, each) for _, each in arrivals()]
    settings = {"num_kv_blocks": 16, "max_model_len": "auto", "max_num_seqs": 8, "max_num_batched_tokens": 64}
    plans = []
    for clock in (VirtualClock(), RealClock()):
        core = make_core(clock, simulated=costing(per_step=2e-4) | {"overlap": True}, **settings)
        session = Session(core, clock, requests)
        assert len(session.ended) == len(requests)
        plans.append([msgspec.msgpack.encode(plan) for plan in session.plans])
    assert plans[0] == plans[1]
    assert any(plan.preempted_ids for plan in session.plans)


@pytest.mark.parametrize("executor", ["oracle", "simulated"])
def test_recorded_step_times_repeat_a_real_run_plan_by_plan(executor):
    pool = {"num_kv_blocks": 64 if executor == "oracle" else 12}  # tokens of resumed requests are not the same there
    settings = {
        **pool,
        "max_model_len": 160,
        "max_num_seqs": 6,
        "max_num_batched_tokens": 48,
        "executor": {
            "use": executor,
            "oracle": {"step_time": 0.001, "token_time": 2e-5, "eos_token_ids": ()},
            "simulated": costing(per_step=0.001, per_token=2e-5),
        },
    }
    clock = RealClock()
    core = build_engine_core(load_settings(settings, environ={}), clock)
    jobs = list(pinned(arrivals(every=0.003, tokens=(8, 40))))  # crowded enough to preempt
    real = Session(core, clock, [(clock.now() + at, each) for at, each in jobs[:20]])
    real.more([(clock.now() + at, each) for at, each in jobs[20:]])  # after a wait
    assert len(real.woken) > 1
    assert len(real.steps) > 100

    virtual_clock = VirtualClock()
    times = replayable_seconds(real.steps, real.woken)
    settings["executor"] = {"use": "simulated", "simulated": {"step_times": times}}
    again = build_engine_core(load_settings(settings, environ={}), virtual_clock)
    virtual = Session(again, virtual_clock, real.added)
    assert virtual.plans == real.plans
    assert len(virtual.plans) == len(times)
    if executor == "simulated":
        assert any(plan.preempted_ids for plan in real.plans)


def pinned(timed):
    """Every token counts, whatever it is: of known lengths."""
    for at, each in timed:
        each.params = msgspec.structs.replace(
            each.params, max_tokens=each.params.min_tokens + 1, min_tokens=0, stop_token_ids=()
        )
        yield at, each

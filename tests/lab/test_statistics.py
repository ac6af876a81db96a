"""Intervals that cover, p values that are exact, and verdicts that a statistician would sign."""

import itertools

import numpy as np
import pytest

from enginecore.lab.comparison import Interval
from enginecore.lab.statistics import (
    Refused,
    finite_pairs,
    holm,
    judge,
    mean_interval,
    relative_interval,
    sign_flip_p,
)

TRIALS, REPLICATES = 2_000, 20


def relative(baseline, candidate, seed=0) -> Interval:
    found = relative_interval(np.asarray(baseline, float), np.asarray(candidate, float), seed=seed)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("law", "draw", "mean"),
    [
        ("normal", lambda rng, shape: rng.normal(0.3, 1.0, shape), 0.3),
        ("skewed", lambda rng, shape: rng.gamma(4.0, 0.5, shape), 2.0),
        ("difference of skewed ones", lambda rng, shape: rng.gamma(2.0, 1, shape) - rng.gamma(1.0, 1, shape), 1.0),
    ],
)
def test_nominal_95_percent_covers_the_true_mean(law, draw, mean):
    samples = draw(np.random.default_rng(20260101), (TRIALS, REPLICATES))
    intervals = [mean_interval(sample) for sample in samples]
    covered = np.mean([each.low <= mean <= each.high for each in intervals])
    assert 0.93 <= covered <= 0.97, law


def test_relative_interval_covers_a_ratio_of_means_nearly_as_often_as_it_says():
    rng = np.random.default_rng(7)
    trials, covered = 200, 0
    for trial in range(trials):
        baseline = rng.normal(10, 1, REPLICATES)
        candidate = baseline * 0.9 + rng.normal(0, 0.2, REPLICATES)
        found = relative(baseline, candidate, seed=trial)
        covered += found.low <= -0.1 <= found.high
    assert 0.88 <= covered / trials <= 0.98  # the bootstrap of 20 pairs is known to cover about 92 %


def test_t_interval_by_hand():
    # mean 2, standard deviation 1, t(0.975, 2) = 4.302653
    found = mean_interval([1.0, 2.0, 3.0])
    assert (found.low, found.high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    assert found.method == "paired t"


def test_few_pairs_fall_back_to_t():
    baseline, candidate = np.full(9, 2.0), 2.0 + np.arange(9.0)
    plain = mean_interval((candidate - baseline) / 2)
    found = relative(baseline, candidate)
    assert found.method == "paired t"
    assert (found.low, found.high) == (plain.low, plain.high)


def test_bootstrap_is_the_same_every_time():
    rng = np.random.default_rng(1)
    baseline, candidate = rng.gamma(4, 1, 20), rng.gamma(4, 1, 20)
    assert relative(baseline, candidate, seed=3) == relative(baseline, candidate, seed=3)
    assert relative(baseline, candidate, seed=3).method == "paired BCa bootstrap"


def test_relative_change_of_proportional_arms_is_exact():
    baseline = np.array([1.0, 2.0, 4.0] * 5)
    found = relative(baseline, baseline * 1.5)
    assert (found.low, found.high) == (0.5, 0.5)


@pytest.mark.parametrize("baseline", [[0.0] * 12, [-1.0, 1.0] * 6])
def test_no_relative_change_against_a_baseline_around_zero(baseline):
    assert relative_interval(np.array(baseline), np.ones(12), seed=0) is None


def test_sign_flip_is_exact_on_few_pairs():
    values = np.array([0.5, 1.25, -0.25, 2.0, 0.75, 1.0])
    means = [np.mean(values * signs) for signs in itertools.product((-1, 1), repeat=6)]
    extreme = np.mean([abs(mean) >= abs(values.mean()) - 1e-12 for mean in means])
    assert sign_flip_p(values, seed=0) == pytest.approx(extreme)
    assert sign_flip_p(-values, seed=1) == pytest.approx(extreme)


def test_sign_flip_of_eight_equal_differences():
    assert sign_flip_p([0.1] * 8, seed=0) == 2 / 2**8


def test_sign_flip_is_level():
    """Under "no effect" p is at most 5 % in about 5 % of all experiments."""
    rng = np.random.default_rng(3)
    rejected = np.mean([sign_flip_p(rng.normal(0, 1, 10), seed=0) <= 0.05 for _ in range(400)])
    assert 0.02 <= rejected <= 0.08


def test_holm_by_hand():
    # sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, and never falling
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


def interval(low, high):
    return Interval(low=low, high=high, level=0.95, method="given")


@pytest.mark.parametrize(
    ("low", "high", "lower_is_better", "higher_is_better"),
    [
        (-3, -1.5, "better", "worse"),
        (1.5, 3, "worse", "better"),
        (-0.9, 0.9, "equivalent", "equivalent"),
        (-1, 1, "equivalent", "equivalent"),
        (0.2, 0.8, "equivalent", "equivalent"),
        (-3, -0.5, "undecided", "undecided"),
        (-0.5, 3, "undecided", "undecided"),
        (-3, 3, "undecided", "undecided"),
    ],
)
def test_verdict_from_interval_and_margin(low, high, lower_is_better, higher_is_better):
    assert judge(interval(low, high), "lower", 1).name == lower_is_better
    assert judge(interval(low, high), "higher", 1).name == higher_is_better


def test_undecided_says_which_side_is_sure():
    assert judge(interval(-3, -0.5), "lower", 1).reason == "it is better, but perhaps by less than the margin"
    assert judge(interval(-3, -0.5), "higher", 1).reason == "it is worse, but perhaps by less than the margin"


def test_no_difference_at_all_is_exact():
    found = mean_interval([0.0] * 20)
    assert (found.low, found.high) == (0.0, 0.0)
    assert sign_flip_p([0.0] * 20, seed=0) == 1.0
    assert judge(found, "lower", 0.0).name == "equivalent"
    assert judge(found, "lower", 0.0).reason == "there is no difference"


def test_equal_differences_have_no_width():
    found = mean_interval([0.1] * 20)
    assert found.low == found.high == pytest.approx(0.1)
    assert judge(found, "lower", 0.05).name == "worse"


def test_single_difference_is_refused():
    with pytest.raises(Refused, match="a single difference has no spread"):
        mean_interval([1.0])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_refused_by_name(value):
    with pytest.raises(Refused, match=r"the candidate's value in replicate 1 is (nan|inf|-inf), not a finite number"):
        finite_pairs([1.0, 2.0], [1.0, value])


@pytest.mark.parametrize(("baseline", "candidate"), [([1.0], [1.0, 2.0]), ([], []), ([[1.0]], [[1.0]])])
def test_what_is_not_paired_is_refused(baseline, candidate):
    with pytest.raises(Refused, match="must be pairs"):
        finite_pairs(baseline, candidate)

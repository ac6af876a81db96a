"""Intervals that cover, p values that are exact, and verdicts that a statistician would sign."""

import itertools

import numpy as np
import pytest

from enginecore_lab.comparison import Interval
from enginecore_lab.statistics import (
    VerdictRefused,
    difference,
    fewest_pairs,
    finite_pairs,
    has_ratio,
    holm,
    judge,
    relative_change,
    sign_flip_p,
)

TRIALS, REPLICATES = 2_000, 20


def pairs(differences, baseline=10.0):
    differences = np.asarray(differences, float)
    return np.full(differences.shape, baseline), baseline + differences


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
    intervals = [difference(*pairs(sample)).interval for sample in samples]
    covered = np.mean([each.low <= mean <= each.high for each in intervals])
    assert 0.93 <= covered <= 0.97, law


@pytest.mark.parametrize(
    ("law", "draw"),
    [
        ("normal", lambda rng, shape: rng.normal(10, 2, shape)),
        ("skewed", lambda rng, shape: rng.gamma(4.0, 2.5, shape)),
    ],
)
def test_nominal_95_percent_covers_the_true_ratio_of_means(law, draw):
    rng = np.random.default_rng(20260102)
    baselines = draw(rng, (TRIALS, REPLICATES))
    candidates = 0.9 * baselines + rng.normal(0, 0.3, baselines.shape)
    intervals = [relative_change(a, b).interval for a, b in zip(baselines, candidates, strict=True)]
    covered = np.mean([each.low <= -0.1 <= each.high for each in intervals])
    assert 0.93 <= covered <= 0.97, law


def test_bootstrap_of_medians_covers_nearly_as_often_as_it_says():
    rng, trials, covered = np.random.default_rng(7), 100, 0
    for trial in range(trials):
        baseline = rng.gamma(4.0, 2.5, REPLICATES)
        candidate = baseline - 1 + rng.laplace(0, 1, REPLICATES)
        found = difference(baseline, candidate, across="median", seed=trial).interval
        covered += found.low <= -1 <= found.high
    assert 0.88 <= covered / trials <= 0.99


def test_t_interval_by_hand():
    # mean 2, standard deviation 1, t(0.975, 2) = 4.302653
    found = difference(*pairs([1.0, 2.0, 3.0]))
    assert found.estimate == pytest.approx(2)
    assert (found.interval.low, found.interval.high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
    assert found.interval.method == "paired t"


def test_interval_of_the_ratio_by_hand():
    # ratio 12/8 = 1.5; residuals (b - 1.5 a) / 4 = (0.5, -0.5) / 4: standard error 0.125, t(0.975, 1) = 12.706205
    found = relative_change(np.array([3.0, 5.0]), np.array([5.0, 7.0]))
    assert found.estimate == pytest.approx(0.5)
    assert (found.interval.low, found.interval.high) == pytest.approx((0.5 - 12.706205 / 8, 0.5 + 12.706205 / 8))


def test_medians_are_bootstrapped_and_the_same_every_time():
    rng = np.random.default_rng(1)
    baseline, candidate = rng.gamma(4, 1, 20), rng.gamma(4, 1, 20)
    for change in (difference, relative_change):
        found = change(baseline, candidate, across="median", seed=3)
        assert found == change(baseline, candidate, across="median", seed=3)
        assert found.interval.method == "paired BCa bootstrap of the median"
        assert found.interval.low < found.estimate < found.interval.high
    assert difference(baseline, candidate, across="median").estimate == np.median(candidate - baseline)
    assert relative_change(baseline, candidate, across="median").estimate == np.median(candidate / baseline) - 1


def test_few_pairs_fall_back_to_t():
    baseline, candidate = pairs(np.arange(9.0) ** 2)
    assert difference(baseline, candidate, across="median") == difference(baseline, candidate)
    assert relative_change(baseline, candidate, across="median") == relative_change(baseline, candidate)


def test_arms_in_proportion_differ_by_an_exact_share():
    baseline = np.array([1.0, 2.0, 4.0] * 5)
    for across in ("mean", "median"):
        found = relative_change(baseline, baseline * 1.1, across=across)
        assert found.interval.low == found.interval.high == pytest.approx(0.1)


@pytest.mark.parametrize(("baseline", "ratio"), [([0.0, 1.0], False), ([-1.0, 1.0], False), ([0.1, 1.0], True)])
def test_shares_need_values_above_zero(baseline, ratio):
    assert has_ratio(np.array(baseline), np.ones(2)) is ratio
    assert has_ratio(np.ones(2), np.array(baseline)) is ratio


VALUES = np.array([0.5, 1.25, -0.25, 2.0, 0.75, 1.0])


@pytest.mark.parametrize("differences", [VALUES, -VALUES, VALUES * 1e-9])
def test_sign_flips_are_exact_on_few_pairs(differences):
    means = [np.mean(VALUES * signs) for signs in itertools.product((-1, 1), repeat=6)]
    extreme = np.mean([abs(mean) >= VALUES.mean() - 1e-12 for mean in means])
    assert sign_flip_p(differences) == pytest.approx(extreme)


def test_ratios_of_means_have_the_p_value_of_their_differences():
    rng = np.random.default_rng(5)
    baseline = rng.gamma(4, 1, 7)
    candidate = baseline * rng.uniform(0.8, 1.05, 7)
    observed = abs(np.log(candidate.mean() / baseline.mean()))
    swapped = []
    for swaps in itertools.product((False, True), repeat=7):
        a, b = np.where(swaps, candidate, baseline), np.where(swaps, baseline, candidate)
        swapped.append(abs(np.log(b.mean() / a.mean())))
    assert sign_flip_p(candidate - baseline) == pytest.approx(np.mean(np.array(swapped) >= observed - 1e-12))


def test_sign_flips_of_nearly_equal_values():
    """Whatever rounding does, the pairs as they are count as one of the ways."""
    baseline = 558 + np.arange(8) / 3
    assert sign_flip_p(baseline * (1 - 7e-4) - baseline) == 2 / 2**8
    assert sign_flip_p([0.1] * 8) == 2 / 2**8


def test_sign_flips_are_level():
    """Under "no effect" p is at most 5 % in about 5 % of all experiments."""
    rng = np.random.default_rng(3)
    rejected = np.mean([sign_flip_p(rng.normal(0, 1, 9)) <= 0.05 for _ in range(400)])
    assert 0.02 <= rejected <= 0.08


def test_holm_by_hand():
    # sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, and never falling
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    assert holm([]) == []


@pytest.mark.parametrize(("num_tests", "level", "fewest"), [(1, 0.95, 6), (6, 0.95, 8), (7, 0.95, 9), (6, 0.975, 9)])
def test_so_many_pairs_can_decide_so_many_tests(num_tests, level, fewest):
    for pairs, survives in ((fewest - 1, False), (fewest, True)):
        p_value = sign_flip_p([1.0] * pairs)
        assert (holm([p_value] * num_tests)[0] <= 1 - level) is survives
    assert fewest_pairs(num_tests, level) == fewest


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
    assert judge(interval(0.5, 3), "lower", 1).reason == "it is worse, but perhaps by less than the margin"


@pytest.mark.parametrize("across", ["mean", "median"])
def test_no_difference_at_all_is_exact(across):
    values = np.arange(1.0, 21.0)
    for change in (difference, relative_change):
        found = change(values, values, across=across)
        assert (found.estimate, found.interval.low, found.interval.high) == (0.0, 0.0, 0.0)
        assert judge(found.interval, "lower", 0.0).name == "equivalent"
        assert judge(found.interval, "lower", 0.0).reason == "there is no difference"
    assert sign_flip_p(values - values) == 1.0


def test_equal_differences_have_no_width():
    found = difference(np.zeros(20), np.full(20, 0.1)).interval
    assert found.low == found.high == pytest.approx(0.1)
    assert judge(found, "lower", 0.05).name == "worse"


@pytest.mark.parametrize("change", [difference, relative_change])
def test_single_difference_is_refused(change):
    with pytest.raises(VerdictRefused, match="a single difference has no spread"):
        change(*pairs([1.0]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_refused_by_name(value):
    with pytest.raises(
        VerdictRefused, match=r"the candidate's value in replicate 1 is (nan|inf|-inf), not a finite number"
    ):
        finite_pairs([1.0, 2.0], [1.0, value])


@pytest.mark.parametrize(("baseline", "candidate"), [([1.0], [1.0, 2.0]), ([], []), ([[1.0]], [[1.0]])])
def test_what_is_not_paired_is_refused(baseline, candidate):
    with pytest.raises(VerdictRefused, match="must be pairs"):
        finite_pairs(baseline, candidate)

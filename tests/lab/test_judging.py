"""Verdicts over metrics and arms: what is refused, what noise and many metrics do to them."""

import numpy as np
import pytest
from msgspec import structs

from enginecore_lab.judging import Rules, judge_arms, judge_metric, noise_floors
from enginecore_lab.measurement import measure
from enginecore_lab.metrics import Slo, Window
from enginecore_lab.statistics import Margin
from tests.lab.making import METRICS
from tests.lab.measured import Facts, arm, measurement
from tests.lab.metrics.made import run_of, served

TTFT = Facts("ttft_mean")
BASE = [1.0 + 0.1 * n for n in range(10)]


def rules(**changes):
    return Rules(**{"primary": TTFT, "primary_margin": Margin(0.02), **changes})


def test_paired_difference_is_seen_through_the_spread_between_replicates():
    candidate = [value - 0.1 - 0.001 * (n % 3) for n, value in enumerate(BASE)]
    (found,) = judge_arms(["a", "b"], [arm("ttft_mean", BASE), arm("ttft_mean", candidate)], rules())
    primary = found.primary
    assert (found.arm, primary.verdict) == ("b", "better")
    assert primary.difference == pytest.approx(-0.1009)
    assert primary.relative == pytest.approx(-0.1009 / 1.45)
    assert primary.margin == pytest.approx(0.02 * 1.45)
    assert primary.interval is not None
    assert -0.102 < primary.interval.low < -0.1009 < primary.interval.high < -0.1
    assert primary.p_value == 2 / 2**10
    assert primary.relative_interval is not None
    assert primary.relative_interval.method == "paired t of the ratio of means"
    assert primary.relative_interval.low < primary.relative < primary.relative_interval.high < 0


def test_latencies_are_refused_where_the_queue_only_grows_and_shares_are_not():
    hit = Facts("hit", unit="", direction="higher")
    baseline = [measurement({"ttft_mean": 1.0 + n, "hit": 0.5}, saturated=n < 2) for n in range(10)]
    candidate = [measurement({"ttft_mean": 1.0 + n, "hit": 0.7}) for n in range(10)]
    (found,) = judge_arms(["a", "b"], [baseline, candidate], rules(secondary=[hit]))
    assert found.primary.verdict == "refused"
    assert found.primary.reason.startswith("the baseline's queue only grew in 2 of 10 replicates")
    assert found.primary.interval is None
    assert found.primary.p_value is None
    assert found.secondary[0].verdict == "better"


def test_one_saturated_replicate_of_ten_is_let_pass():
    baseline = [measurement({"ttft_mean": 1.0}, saturated=n < 1) for n in range(10)]
    assert judge_metric(TTFT, baseline, arm("ttft_mean", [1.0] * 10), Margin(0), rules()).verdict == "equivalent"


def test_missing_values_are_refused_with_the_reason():
    few = measurement({}, refused={"ttft_mean": "it takes 1,000 requests, there are 12"})
    candidate = [*arm("ttft_mean", BASE[:-1]), few]
    found = judge_metric(TTFT, arm("ttft_mean", BASE), candidate, Margin(0.02), rules())
    assert found.verdict == "refused"
    assert found.reason == "the candidate has no value in replicate 9: it takes 1,000 requests, there are 12"
    assert len(found.baseline) == len(found.candidate) == 9


def test_infinite_values_are_refused_by_name():
    found = judge_metric(TTFT, arm("ttft_mean", BASE), arm("ttft_mean", [*BASE[:-1], np.inf]), Margin(0.02), rules())
    assert found.verdict == "refused"
    assert found.reason == "the candidate's value in replicate 9 is inf, not a finite number"


def test_secondary_metrics_without_any_value_are_left_out():
    (found,) = judge_arms(
        ["a", "b"], [arm("ttft_mean", BASE), arm("ttft_mean", BASE)], rules(secondary=[Facts("itl_p99")])
    )
    assert found.secondary == []


def test_equal_arms_are_equivalent_for_certain():
    found = judge_metric(TTFT, arm("ttft_mean", BASE), arm("ttft_mean", BASE), Margin(0.0), rules())
    assert (found.verdict, found.difference, found.relative, found.p_value) == ("equivalent", 0.0, 0.0, 1.0)
    assert found.interval is not None
    assert found.interval.low == found.interval.high == 0.0


def test_many_secondary_metrics_share_one_error_rate():
    """Each one alone would be better (p = 2/2^10); among forty of them none is sure."""
    names = [f"m{n}" for n in range(40)]
    baseline = [measurement({"ttft_mean": 1.0, **dict.fromkeys(names, 1.0)}) for _ in range(10)]
    candidate = [measurement({"ttft_mean": 1.0, **dict.fromkeys(names, 0.5)}) for _ in range(10)]
    one = judge_arms(["a", "b"], [baseline, candidate], rules(secondary=[Facts("m0")]))
    many = judge_arms(["a", "b"], [baseline, candidate], rules(secondary=[Facts(name) for name in names]))
    assert one[0].secondary[0].verdict == "better"
    assert one[0].secondary[0].p_value == pytest.approx(2 / 2**10)
    assert many[0].secondary[0].p_value == pytest.approx(40 * 2 / 2**10)
    assert {each.verdict for each in many[0].secondary} == {"undecided"}
    # 2 / 2^11 of one is above 0.05 / 40, and 2 / 2^12 is below
    assert many[0].secondary[0].reason == (
        "it looks better, but 10 pairs are too few to be sure of any of 40 secondary differences: it takes 11 pairs, "
        "or fewer secondary.metrics"
    )


def test_several_arms_are_one_family():
    baseline = [measurement({"ttft_mean": 1.0, "m": 1.0}) for _ in range(10)]
    other = [measurement({"ttft_mean": 1.0, "m": 0.5}) for _ in range(10)]
    found = judge_arms(["a", "b", "c"], [baseline, other, other], rules(secondary=[Facts("m")]))
    assert [each.secondary[0].p_value for each in found] == pytest.approx([2 * 2 / 2**10] * 2)


def test_what_differs_by_no_more_than_noise_is_undecided():
    first, second = (
        arm("ttft_mean", BASE),
        arm("ttft_mean", [value + (-0.2) ** (1 + n % 2) for n, value in enumerate(BASE)]),
    )
    noise = noise_floors(first, second, [TTFT, Facts("nowhere")])
    assert set(noise) == {"ttft_mean"}
    assert 0.06 < noise["ttft_mean"] / 1.45 < 0.2
    for margin in (Margin(0.01), Margin(0.0145, is_relative=False)):
        verdicts = []
        for factor in (1.06, 1.2, 1.005):
            candidate = arm("ttft_mean", [value * factor for value in BASE])
            verdicts += [
                judge_metric(TTFT, first, candidate, margin, rules(noise=each)).verdict for each in ({}, noise)
            ]
        # noise takes a verdict away, and never makes two arms equivalent
        assert verdicts == ["worse", "undecided", "worse", "worse", "equivalent", "equivalent"]


def test_noise_that_is_infinite_lets_nothing_through():
    floors = noise_floors(arm("ttft_mean", [1.0, np.inf, 1.0]), arm("ttft_mean", [1.0, np.inf, 1.0]), [TTFT])
    assert floors == {"ttft_mean": np.inf}
    candidate = [value - 0.5 for value in BASE]
    found = judge_metric(TTFT, arm("ttft_mean", BASE), arm("ttft_mean", candidate), Margin(0.02), rules(noise=floors))
    assert found.verdict == "undecided"


def test_margin_as_a_share_is_judged_by_the_interval_of_the_share():
    """The arms are in proportion, the replicates are not alike: the share is certain, the difference is not."""
    candidate = [value * 1.1 for value in BASE]
    share = judge_metric(TTFT, arm("ttft_mean", BASE), arm("ttft_mean", candidate), Margin(0.099), rules())
    quantity = Margin(0.099 * 1.45, is_relative=False)
    plain = judge_metric(TTFT, arm("ttft_mean", BASE), arm("ttft_mean", candidate), quantity, rules())
    assert (share.verdict, plain.verdict) == ("worse", "undecided")
    assert plain.relative_interval is None
    assert share.interval == plain.interval


def test_medians_over_replicates_shrug_off_a_single_one():
    candidate = [value * 0.9 for value in BASE[:-1]] + [100.0]
    by = {
        across: judge_metric(
            TTFT, arm("ttft_mean", BASE), arm("ttft_mean", candidate), Margin(0.02), rules(across=across)
        )
        for across in ("mean", "median")
    }
    assert by["mean"].verdict == "undecided"
    assert by["median"].verdict == "better"
    assert by["median"].relative == pytest.approx(-0.1)


def single(value, windows):
    return [measurement({"ttft_mean": value}, windows={"ttft_mean": windows})]


def test_one_workload_has_no_p_value_and_its_windows_say_how_far_it_carries_over():
    windows = [1.0 + 0.1 * n for n in range(15)]
    found = judge_metric(TTFT, single(1.7, windows), single(1.5, [w - 0.2 for w in windows]), Margin(0.02), rules())
    assert found.verdict == "better"
    assert found.difference == pytest.approx(-0.2)
    assert found.p_value is None
    assert found.interval is not None
    assert found.interval.method == "t over 15 windows of one workload"
    assert "on this very workload the difference is exact" in found.reason


def test_one_workload_whose_windows_disagree_is_undecided():
    windows = [1.0] * 15
    other = [0.0, 1.5, 0.7] * 5
    found = judge_metric(TTFT, single(1.0, windows), single(0.9, other), Margin(0.02), rules())
    assert found.verdict == "undecided"


def test_one_workload_too_short_for_windows_is_refused():
    found = judge_metric(TTFT, single(1.0, []), single(0.9, []), Margin(0.02), rules())
    assert found.verdict == "refused"
    assert found.difference == pytest.approx(-0.1)
    assert "too few requests" in found.reason


def test_one_workload_says_nothing_of_how_far_a_figure_of_the_whole_run_carries_over():
    run = run_of(*(served(float(n), [n + 1.0, n + 2.0]) for n in range(60)))
    measured = measure(run, [METRICS["makespan"], METRICS["ttft_mean"]], Slo(), Window(), in_windows=True)
    assert set(measured.windows) == {"ttft_mean"}
    assert set(measured.values) == {"makespan", "ttft_mean"}
    slower = structs.replace(measured, values={"makespan": 90.0})
    found = judge_metric(Facts("makespan"), [measured], [slower], Margin(0.02), rules())
    assert (found.verdict, found.interval, found.difference) == ("refused", None, 29.0)
    assert "this is of the whole run" in found.reason


def test_window_larger_than_the_run_is_refused_in_windows_too():
    measured = measure(run_of(served(), served()), [METRICS["ttft_mean"]], Slo(), Window(skip_last=4), in_windows=True)
    assert (measured.values, measured.windows) == ({}, {})
    assert "leave none of 2 requests" in measured.refused["ttft_mean"]


def test_margin_in_the_metrics_own_unit():
    assert Margin(0.05, is_relative=False).of(10) == 0.05
    assert Margin(0.05).of(-10) == 0.5

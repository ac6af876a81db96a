"""How numbers are written."""

from math import inf, nan

import msgspec
import pytest

from enginecore_lab import text
from enginecore_lab.comparison import Interval
from tests.lab.report.example import make_metric


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (3.0, "3"),
        (0.94, "0.940"),
        (45.123, "45.1"),
        (392.4, "392"),
        (999.7, "1,000"),
        (12345.6, "12,346"),
        (-0.25, "-0.250"),
        (0.000012, "1.20e-05"),
        (nan, "n/a"),
        (inf, "infinite"),
    ],
)
def test_number(value, written):
    assert text.number(value) == written


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [
        (0.392, "s", "392 ms"),
        (-0.005, "s", "-5 ms"),
        (2.3, "s", "2.30 s"),
        (0.0, "s", "0 s"),
        (5.53, "1/s", "5.53/s"),
        (0.5, "", "0.500"),
        (2084.0, "tokens", "2,084 tokens"),
        (inf, "s", "infinite"),
        (-inf, "1/s", "-infinite"),
        (nan, "s", "n/a"),
    ],
)
def test_quantity(value, unit, written):
    assert text.quantity(value, unit) == written


@pytest.mark.parametrize(
    ("share", "written"),
    [
        (0.1234, "+12.3 %"),
        (-0.034, "-3.4 %"),
        (0.0026, "+0.26 %"),
        (4.012, "+401 %"),
        (12.5, "+1,250 %"),
        (0.0, "0 %"),
        (-1e-9, "0 %"),
        (inf, "n/a"),
    ],
)
def test_percent(share, written):
    assert text.percent(share) == written


def test_differences_are_relative_to_the_baseline():
    metric = make_metric("ttft_mean", "better", before=0.4, ratio=0.8)
    low, high = text.relative_interval(metric) or (0.0, 0.0)
    assert low < metric.relative < high
    assert high - low == pytest.approx(0.06)
    assert text.margin(metric) == "2 %"


def test_an_interval_of_the_relative_difference_goes_before_a_scaled_one():
    metric = make_metric("ttft_mean", "better", before=0.4, ratio=0.8)
    own = Interval(low=-0.3, high=-0.1, level=0.95, method="BCa")
    assert text.interval(msgspec.structs.replace(metric, relative_interval=own)) == "-30.0 % to -10.0 %"


@pytest.mark.parametrize(
    ("relative", "low", "high", "written"),
    [
        (-0.003, -0.008, 0.002, "-0.3 % (95 % CI -0.8 to +0.2)"),
        (-0.18, -0.21, -0.15, "-18.0 % (95 % CI -21.0 to -15.0)"),
        (0.0003, 0.0001, 0.0005, "+0.03 % (95 % CI +0.01 to +0.05)"),
        (4.0, 3.0, 5.0, "+400 % (95 % CI +300 to +500)"),
        (0.0, 0.0, 0.0, "0.0 % (95 % CI 0.0 to 0.0)"),
        (-1e-7, -0.01, 0.01, "0.0 % (95 % CI -1.0 to +1.0)"),
    ],
)
def test_estimates_and_intervals_have_the_same_decimals(relative, low, high, written):
    metric = make_metric("ttft_mean", "better", before=0.4, ratio=0.8)
    interval = Interval(low=low, high=high, level=0.95, method="paired t of the ratio of means")
    metric = msgspec.structs.replace(metric, relative=relative, relative_interval=interval)
    assert text.estimate(metric) == written
    assert text.short_estimate(metric) == written.replace("95 % CI ", "")


@pytest.mark.parametrize(
    ("unit", "difference", "written"),
    [
        ("s", 0.0052, "+5.2 ms (+3.2 to +7.2)"),
        ("1/s", 0.5, "+0.500/s (+0.498 to +0.502)"),
        ("", 2, "+2.000 (+1.998 to +2.002)"),
    ],
)
def test_estimates_without_a_share_are_in_one_unit(unit, difference, written):
    metric = make_metric("made", "better", before=0.0, ratio=1.0, unit=unit)
    interval = Interval(low=difference - 0.002, high=difference + 0.002, level=0.95, method="paired t")
    assert text.short_estimate(msgspec.structs.replace(metric, difference=difference, interval=interval)) == written


def test_beside_a_baseline_of_zero_differences_are_in_the_metrics_unit():
    metric = make_metric("preemptions", "undecided", before=0.0, ratio=1.0, unit="")
    changed = msgspec.structs.replace(metric, difference=0.5)
    assert text.difference(changed) == "0.500"
    assert text.interval(changed) == "0 to 0"


def test_what_was_refused_has_no_interval_and_no_p_value():
    metric = make_metric("ttft_p99", "refused", before=1.0, ratio=1.0, interval=False)
    assert (text.interval(metric), text.p_value(metric)) == ("none", "-")

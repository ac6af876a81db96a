"""How numbers are written."""

from math import inf, nan

import msgspec
import pytest

from enginecore_lab.comparison import Interval
from enginecore_lab.report import text
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
    assert text.margin(metric) == "2.0 %"


def test_an_interval_of_the_relative_difference_goes_before_a_scaled_one():
    metric = make_metric("ttft_mean", "better", before=0.4, ratio=0.8)
    own = Interval(low=-0.3, high=-0.1, level=0.95, method="BCa")
    assert text.interval(msgspec.structs.replace(metric, relative_interval=own)) == "-30.0 % to -10.0 %"


def test_beside_a_baseline_of_zero_differences_are_in_the_metrics_unit():
    metric = make_metric("preemptions", "undecided", before=0.0, ratio=1.0, unit="")
    changed = msgspec.structs.replace(metric, difference=0.5)
    assert text.difference(changed) == "0.500"
    assert text.interval(changed) == "0 to 0"


def test_what_was_refused_has_no_interval_and_no_p_value():
    metric = make_metric("ttft_p99", "refused", before=1.0, ratio=1.0, interval=False)
    assert (text.interval(metric), text.p_value(metric)) == ("none", "-")

"""Latencies: what each is, by hand."""

from math import inf

import numpy as np
import pytest

from enginecore.errors import ConfigurationError
from enginecore_lab.metrics import MetricRefused, TooFewRequests, Window
from tests.lab.making import METRICS
from tests.lab.metrics.made import failed, served, unfinished, value

ONE = served(10.0, [13.0, 14.0, 17.0], scheduled=12.0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("queue_delay", 2.0),
        ("ttft", 3.0),
        ("tpot", 2.0),
        ("max_itl", 3.0),
        ("e2e", 7.0),
        ("normalized_latency", 7.0 / 3),
    ],
)
@pytest.mark.parametrize("summary", ["mean", "max"])
def test_a_latency_of_one_request(name, summary, expected):
    assert value(f"{name}_{summary}", ONE) == pytest.approx(expected)


def test_slowdown_is_over_the_time_that_it_takes_alone():
    assert value("slowdown_mean", ONE, alone=lambda request: request.num_output_tokens * 0.5) == pytest.approx(7 / 1.5)
    with pytest.raises(MetricRefused, match="takes alone"):
        value("slowdown_mean", ONE)


def test_tpot_weighs_requests_and_itl_weighs_tokens():
    slow, fast = served(0.0, [1.0, 5.0]), served(0.0, [1.0, 2.0, 3.0, 4.0])
    assert value("tpot_mean", slow, fast) == pytest.approx((4 + 1) / 2)
    assert value("itl_mean", slow, fast) == pytest.approx((4 + 1 + 1 + 1) / 4)


def test_several_tokens_at_once_count_each():
    """Trap 3: TPOT goes by tokens, not by chunks."""
    twos = served(0.0, [1.0, 1.0, 2.0, 2.0, 3.0])
    assert value("tpot_mean", twos) == pytest.approx(2 / 4)
    assert value("itl_mean", twos) == pytest.approx(2 / 4)
    assert value("max_itl_mean", twos) == 1.0


def test_the_first_token_is_in_neither_itl_nor_tpot():
    """Trap 4."""
    late = served(0.0, [100.0, 101.0, 102.0])
    assert value("tpot_mean", late) == value("itl_max", late) == 1.0


def test_a_request_of_one_token_has_no_tpot_and_no_itl():
    """Trap 5. It counts where it has a value."""
    one, two = served(0.0, [4.0]), served(0.0, [1.0, 3.0])
    assert value("tpot_mean", one, two) == value("itl_mean", one, two) == 2.0
    assert value("ttft_mean", one, two) == 2.5
    for name in ("tpot_mean", "itl_mean", "max_itl_mean", "tpot_max"):
        with pytest.raises(TooFewRequests, match="no request"):
            value(name, one)


class TestThoseThatDidNotEndWell:
    """Trap 6: never left out."""

    latencies = ("queue_delay", "ttft", "tpot", "itl", "max_itl", "e2e", "normalized_latency")

    @pytest.mark.parametrize("name", latencies)
    @pytest.mark.parametrize("bad", [failed(times=[0.5]), unfinished(times=[0.5]), failed(), unfinished()])
    def test_they_are_infinitely_late(self, name, bad):
        assert value(f"{name}_mean", ONE, bad) == inf
        assert value(f"{name}_max", ONE, bad) == inf

    def test_a_quantile_is_infinite_where_it_lands_among_them(self):
        good = [served(0.0, [float(n)]) for n in range(1, 101)]
        bad = [failed()] * 100
        assert value("ttft_p50", *good, *bad[:99]) == 100.0
        assert value("ttft_p50", *good, *bad) == inf
        assert value("ttft_p95", *good, *bad) == inf

    def test_a_policy_that_starves_the_slow_ones_does_not_look_better(self):
        fair = [served(0.0, [1.0])] * 150 + [served(0.0, [9.0])] * 150
        starving = [served(0.0, [1.0])] * 150 + [unfinished()] * 150
        assert value("ttft_p95", *starving) > value("ttft_p95", *fair)
        assert value("ttft_mean", *starving) > value("ttft_mean", *fair)


class TestQuantiles:
    def test_they_are_numpys_where_all_ended_well(self):
        times = [float((7 * n) % 1009) for n in range(1009)]
        runs = [served(0.0, [time]) for time in times]
        for percent in (50, 95, 99):
            assert value(f"ttft_p{percent}", *runs) == pytest.approx(np.percentile(times, percent))

    @pytest.mark.parametrize(("percent", "least"), [(50, 20), (95, 200), (99, 1000)])
    def test_they_are_refused_on_too_few_requests(self, percent, least):
        """Trap 12: ten samples must lie beyond it."""
        runs = [served(0.0, [1.0])] * least
        assert value(f"ttft_p{percent}", *runs) == 1.0
        with pytest.raises(TooFewRequests, match=f"P{percent} of {least - 1} samples.*at least {least}"):
            value(f"ttft_p{percent}", *runs[1:])

    def test_of_itl_samples_are_gaps(self):
        assert value("itl_p99", served(0.0, [float(n) for n in range(1, 1002)])) == 1.0


class TestWindow:
    """Trap 8: by place in the workload, the same in every arm."""

    runs = (served(0.0, [9.0]), served(1.0, [2.0]), served(2.0, [4.0]), served(3.0, [99.0]))

    def test_the_first_and_the_last_do_not_count(self):
        assert value("ttft_mean", *self.runs, window=Window(1, 1)) == 1.5
        assert value("ttft_max", *self.runs, window=Window(skip_last=1)) == 9.0

    def test_a_window_that_leaves_nothing_is_refused(self):
        with pytest.raises(TooFewRequests, match="leave none of 4"):
            value("ttft_mean", *self.runs, window=Window(2, 2))

    @pytest.mark.parametrize("window", [Window(skip_last=5), Window(5), Window(3, 9)])
    def test_one_that_is_larger_than_the_run_leaves_nothing(self, window):
        with pytest.raises(TooFewRequests, match="leave none of 4"):
            value("ttft_mean", *self.runs, window=window)

    def test_it_cannot_be_negative(self):
        with pytest.raises(ConfigurationError, match="at least 0"):
            Window(-1)


def test_every_metric_is_described():
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.summary.endswith(".")
        assert metric.direction in ("lower", "higher")
    assert METRICS["itl_p99"].unit == "s"
    assert METRICS["slo_attainment"].direction == "higher"

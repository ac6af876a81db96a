"""Arrivals, lengths and think times: means, spread and bounds of many draws, against what is known of each law."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from enginecore_lab.choices import ArrivalsChoice, LengthsChoice
from enginecore_lab.workloads.arrivals import ThinkTime

COUNT = 20_000


def times_of(count: int = COUNT, **table: Any):
    arrivals: Any = TypeAdapter(ArrivalsChoice).validate_python(table)
    times = arrivals.built.times(np.random.default_rng(7), count)
    assert len(times) == count
    assert all(a <= b for a, b in pairwise(times.tolist()))
    assert times[0] >= 0
    return times


def lengths_of(**table: Any):
    law: Any = TypeAdapter(LengthsChoice).validate_python(table)
    lengths = law.built.draw(np.random.default_rng(7), COUNT)
    assert lengths.dtype == np.int64
    assert lengths.min() >= 1
    return lengths


def cv(values: Any) -> float:
    return float(values.std() / values.mean())


def rate_between(times: Any, start: float, end: float) -> float:
    return float(((times >= start) & (times < end)).sum() / (end - start))


def test_all_at_once_and_one_after_another():
    assert times_of(3, kind="at_once").tolist() == [0, 0, 0]
    assert times_of(4, kind="constant", rate=2).tolist() == [0, 0.5, 1, 1.5]


def test_poisson_arrivals_have_gaps_without_memory():
    gaps = np.diff(times_of(kind="poisson", rate=4))
    assert gaps.mean() == pytest.approx(0.25, rel=0.03)
    assert cv(gaps) == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize("spread", [0.5, 1, 3])
def test_gamma_arrivals_keep_their_rate_whatever_their_burstiness(spread):
    gaps = np.diff(times_of(kind="gamma", rate=4, cv=spread))
    assert gaps.mean() == pytest.approx(0.25, rel=0.08)
    assert cv(gaps) == pytest.approx(spread, rel=0.08)


@pytest.mark.parametrize("off_rate", [0, 1])
def test_on_and_off(off_rate):
    times = times_of(kind="on_off", rate=9, on_seconds=10, off_seconds=30, off_rate=off_rate)
    phase = times % 40
    cycles = times[-1] / 40
    assert (phase < 10).sum() / cycles / 10 == pytest.approx(9, rel=0.03)
    assert (phase >= 10).sum() / cycles / 30 == pytest.approx(off_rate, rel=0.05)


@pytest.mark.parametrize(("rate", "to_rate"), [(2, 10), (10, 2), (0, 8)])
def test_a_ramp_goes_evenly_from_one_rate_to_another_and_stays_there(rate, to_rate):
    times = times_of(kind="ramp", rate=rate, to_rate=to_rate, seconds=1000)
    for start in (0, 300, 600, 900):
        expected = rate + (to_rate - rate) * (start + 50) / 1000
        assert rate_between(times, start, start + 100) == pytest.approx(expected, rel=0.15, abs=0.3)
    assert rate_between(times, 1000, times[-1]) == pytest.approx(to_rate, rel=0.04)


def test_lengths_have_the_means_they_name():
    assert set(lengths_of(kind="constant", tokens=7)) == {7}
    uniform = lengths_of(kind="uniform", low=3, high=5)
    assert {n: (uniform == n).mean() for n in (3, 4, 5)} == pytest.approx({3: 1 / 3, 4: 1 / 3, 5: 1 / 3}, rel=0.05)
    geometric = lengths_of(kind="geometric", mean=200)
    assert geometric.mean() == pytest.approx(200, rel=0.03)
    assert cv(geometric) == pytest.approx(1, rel=0.03)
    lognormal = lengths_of(kind="lognormal", mean=200, sigma=0.8)
    assert lognormal.mean() == pytest.approx(200, rel=0.03)
    assert np.median(lognormal) == pytest.approx(200 * np.exp(-0.32), rel=0.03)
    pareto = lengths_of(kind="pareto", mean=300, alpha=3)
    assert pareto.mean() == pytest.approx(300, rel=0.03)
    assert pareto.min() == 200
    assert set(lengths_of(kind="geometric", mean=1)) == {1}


def test_empirical_lengths_are_drawn_as_often_as_they_are_named():
    lengths = lengths_of(kind="empirical", values=[5, 5, 9])
    assert set(lengths) == {5, 9}
    assert (lengths == 5).mean() == pytest.approx(2 / 3, rel=0.03)


def test_ends_are_cut_off():
    lengths = lengths_of(kind="lognormal", mean=100, sigma=2, minimum=10, maximum=500)
    assert (lengths.min(), lengths.max()) == (10, 500)


def test_think_times():
    def mean_of(**table: Any) -> float:
        law: Any = TypeAdapter(ThinkTime).validate_python(table)
        return float(law.draw(np.random.default_rng(7), COUNT).mean())

    assert mean_of(kind="constant", seconds=3) == 3
    assert mean_of(kind="exponential", mean=3) == pytest.approx(3, rel=0.03)
    assert mean_of(kind="lognormal", mean=3, sigma=1) == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize(
    ("law", "table", "message"),
    [
        (LengthsChoice, {"kind": "uniform", "low": 5, "high": 3}, "high = 3 is below low = 5"),
        (LengthsChoice, {"kind": "geometric", "mean": 0.5}, "greater than or equal to 1"),
        (LengthsChoice, {"kind": "pareto", "mean": 5, "alpha": 1}, "greater than 1"),
        (
            LengthsChoice,
            {"kind": "geometric", "mean": 5, "minimum": 9, "maximum": 8},
            "maximum = 8 is below minimum = 9",
        ),
        (LengthsChoice, {"kind": "empirical", "values": []}, "at least 1 item"),
        (ArrivalsChoice, {"kind": "poisson", "rate": 0}, "greater than 0"),
        (ArrivalsChoice, {"kind": "poisson", "rate": float("inf")}, "finite"),
        (ArrivalsChoice, {"kind": "ramp", "rate": 2, "to_rate": 2, "seconds": 9}, "that is no ramp"),
        (ArrivalsChoice, {"kind": "gamma", "rate": 2, "rates": 2}, "'rates' is no setting here; did you mean rate"),
    ],
)
def test_what_cannot_be_meant_is_refused(law, table, message):
    with pytest.raises(ValidationError, match=message):
        TypeAdapter(law).validate_python(table)

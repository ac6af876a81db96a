"""Fairness between tenants, by hand."""

import pytest

from enginecore_lab.metrics import MetricRefused
from tests.lab.metrics.made import served, unfinished, value


def of(tenant, at, scheduled, times, prompt=10):
    return served(at, times, scheduled=scheduled, prompt=prompt, tenant=tenant)


def test_one_tenant_has_nobody_to_be_fair_to():
    for name in ("service_difference", "jain_service"):
        with pytest.raises(MetricRefused, match="between tenants"):
            value(name, of("a", 0.0, 1.0, [2.0]))


def test_equal_service_is_fair():
    """Both are backlogged until 3; each has a prompt of 10 and two tokens before that."""
    runs = [of(tenant, 0.0, at, [at + 1, at + 1]) for tenant in "ab" for at in (0.0, 3.0)]
    assert value("service_difference", *runs, settled=[5.0]) == 0.0
    assert value("jain_service", *runs, settled=[5.0]) == 1.0


def test_the_difference_is_over_the_worst_time_in_which_both_wait():
    """Within it a is served 10 + 2 * 2 more; what comes when b waits no longer does not count."""
    runs = [
        of("a", 0.0, 1.0, [2.0, 2.0, 9.0, 9.0]),
        of("a", 0.0, 9.0, [10.0]),
        of("b", 0.0, 5.0, [6.0]),
    ]
    assert value("service_difference", *runs, settled=[10.0]) == 14.0


def test_jain_is_one_over_n_where_one_has_everything():
    runs = [of("a", 0.0, 1.0, [2.0]), of("a", 0.0, 9.0, [10.0]), of("b", 0.0, 9.0, [10.0])]
    assert value("jain_service", *runs, settled=[10.0]) == pytest.approx(0.5)


def test_tenants_that_never_wait_together_share_nothing():
    runs = [of("a", 0.0, 1.0, [2.0]), of("b", 3.0, 4.0, [5.0])]
    assert value("service_difference", *runs, settled=[5.0]) == 0.0
    with pytest.raises(MetricRefused, match="no two tenants"):
        value("jain_service", *runs, settled=[5.0])


def test_one_that_is_never_served_is_backlogged_to_the_end():
    starved = unfinished(0.0)
    runs = [of("a", 0.0, 1.0, [2.0]), of("a", 0.0, 6.0, [7.0]), starved]
    assert value("service_difference", *runs, settled=[7.0]) == 12.0


def test_of_three_the_worst_pair_counts():
    runs = [
        *(of("a", 0.0, at, [at], prompt=10) for at in (1.0, 5.0)),
        *(of("b", 0.0, at, [at], prompt=30) for at in (1.0, 5.0)),
        *(of("c", 0.0, at, [at], prompt=70) for at in (1.0, 5.0)),
    ]
    assert value("service_difference", *runs, settled=[5.0]) == 60.0

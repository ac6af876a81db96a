"""Counts, rates and shares: what each is, by hand."""

from math import inf

import pytest

from enginecore_lab.metrics import MetricRefused, Slo, Window
from tests.lab.metrics.made import failed, served, unfinished, value

QUICK, SLOW = served(0.0, [1.0, 1.5]), served(0.0, [4.0, 8.0])


class TestGoodness:
    def test_all_offered_requests_count(self):
        """Not only those that ended well."""
        slo = Slo(ttft=2.0)
        assert value("slo_attainment", QUICK, SLOW, slo=slo) == 0.5
        assert value("slo_attainment", QUICK, SLOW, failed(times=[0.1]), unfinished(times=[0.1]), slo=slo) == 0.25

    @pytest.mark.parametrize(
        ("slo", "share"),
        [(Slo(ttft=4.0), 1.0), (Slo(tpot=0.5), 0.5), (Slo(e2e=1.4), 0.0), (Slo(ttft=4.0, tpot=1.0), 0.5)],
    )
    def test_each_term_must_be_met(self, slo, share):
        assert value("slo_attainment", QUICK, SLOW, slo=slo) == share

    def test_a_request_of_one_token_meets_any_tpot(self):
        """Trap 5."""
        assert value("slo_attainment", served(0.0, [1.0]), slo=Slo(tpot=0.001)) == 1.0

    def test_a_requests_own_terms_go_first(self):
        patient = served(0.0, [4.0, 8.0], ttft_slo=5.0)
        assert value("slo_attainment", patient, SLOW, slo=Slo(ttft=2.0)) == 0.5

    def test_without_terms_there_is_no_answer(self):
        for name in ("slo_attainment", "good_rps", "fluidity_index"):
            with pytest.raises(MetricRefused, match="slo"):
                value(name, QUICK)

    def test_good_requests_per_second_are_over_the_makespan(self):
        assert value("good_rps", QUICK, SLOW, slo=Slo(ttft=2.0)) == 1 / 8

    def test_fluidity_carries_slack(self):
        """Due at 2, 3, 4: the second is early enough to let the third be slow."""
        slo = Slo(ttft=2.0, tpot=1.0)
        assert value("fluidity_index", served(0.0, [1.0, 1.5, 4.0]), slo=slo) == 1.0

    def test_fluidity_starts_again_after_a_late_token(self):
        """Due at 2 and 3; the second comes at 5, so the third is due at 6 and the fourth at 7."""
        slo = Slo(ttft=2.0, tpot=1.0)
        assert value("fluidity_index", served(0.0, [1.0, 5.0, 6.0, 7.5]), slo=slo) == 0.5

    def test_tokens_that_never_came_were_late(self):
        slo = Slo(ttft=2.0, tpot=1.0)
        assert value("fluidity_index", unfinished(times=[1.0], output=4), slo=slo) == 0.25
        assert value("fluidity_index", failed(), slo=slo) == 0.0


class TestRates:
    def test_they_are_over_the_makespan(self):
        runs = QUICK, SLOW, failed(times=[0.5], ended=2.0)
        assert value("makespan", *runs) == 8.0
        assert value("requests_per_s", *runs) == 2 / 8
        assert value("output_tokens_per_s", *runs) == 5 / 8

    def test_a_run_that_was_cut_short_has_no_makespan(self):
        """Trap 7: it served another set of requests."""
        runs = QUICK, unfinished(times=[1.0])
        assert value("makespan", *runs, settled=[1.0, 4.0]) == inf
        assert value("requests_per_s", *runs, settled=[1.0, 4.0]) == 1 / 4

    def test_a_window_changes_nothing(self):
        assert value("makespan", QUICK, SLOW, window=Window(0, 1)) == 8.0

    def test_no_time_no_rate(self):
        with pytest.raises(MetricRefused, match="no time"):
            value("requests_per_s", unfinished())


def test_failures_and_wrong_lengths_are_shares():
    """Trap 10: output of another length makes latencies that are no pairs."""
    short = served(0.0, [1.0], asked_for=2)
    runs = QUICK, short, failed(), unfinished()
    assert value("failed_share", *runs) == 0.5
    assert value("wrong_length_share", *runs) == 0.25


def test_cache_hits_by_tokens_and_by_requests():
    runs = served(prompt=100, cached=48), served(prompt=10, cached=0), served(prompt=10, cached=8)
    assert value("cache_hit_share", *runs) == pytest.approx(56 / 120)
    assert value("cache_hit_share_mean", *runs) == pytest.approx((0.48 + 0 + 0.8) / 3)


def test_preemptions_and_what_they_cost():
    """One computed 8 tokens, then 1 decode, then 9 anew with a new one, then 1 decode; one 8 and a decode."""
    evicted = served(0.0, [1.0, 2.0, 6.0, 7.0], preempted=[2.0], pieces=[(1, 8), (5, 10)])
    runs = evicted, QUICK
    assert value("preemptions_per_request", *runs) == 0.5
    assert value("preempted_share", *runs) == 0.5
    computed = (8 + 10 + 2) + (8 + 1)
    assert value("recomputed_share", *runs) == pytest.approx(9 / computed)


def test_what_a_preemption_within_the_prompt_costs():
    """It computed 5 of 8 tokens, then all of them, then 1 decode."""
    evicted = served(0.0, [6.0, 7.0], preempted=[2.0], pieces=[(1, 5), (5, 8)])
    assert value("recomputed_share", evicted) == pytest.approx(5 / 14)

"""`edf`: under overload more first tokens come in time than under fcfs; what is too late is refused or stands back."""

from random import Random

import pytest

from enginecore.messages import FinishReason
from tests.schedulers.lab import Trial, job

STEP = 0.02
LIMITS = {"step_time": STEP, "token_time": 0.0002, "max_num_seqs": 8, "max_num_batched_tokens": 256}


def overload(seed, rate):
    """Half of the requests want their first token within a second, half within eight. Seven a second would do."""
    random, at, jobs = Random(seed), 0.0, []
    for n in range(150):
        at += random.expovariate(rate)
        kind, within = random.choice((("tight", random.uniform(0.3, 1.0)), ("loose", random.uniform(4.0, 8.0))))
        tokens = random.randrange(5, 60)
        jobs.append(job(f"{kind}{n}", at, random.randrange(50, 400), tokens, deadline=at + within, hints={"itl": 0.1}))
    return jobs


def attainment(trial, prefix=""):
    """Share of all requests whose first token came in time."""
    jobs = trial.of(prefix)
    return sum(bool(each.token_times) and each.token_times[0] <= each.request.deadline for each in jobs) / len(jobs)


@pytest.mark.parametrize("missed", ["demote", "refuse"])
@pytest.mark.parametrize(("rate", "at_least"), [(14.0, 0.85), (24.0, 0.65)])
def test_more_deadlines_are_met_under_overload(missed, rate, at_least):
    jobs = overload(1, rate)
    trial = Trial("edf", jobs, policy_settings={"missed": missed}, **LIMITS)
    fcfs = Trial("fcfs", jobs, **LIMITS)
    assert attainment(trial) >= at_least
    assert attainment(fcfs) < 0.6 * attainment(trial)
    assert attainment(trial, "tight") > 0.8
    assert attainment(fcfs, "tight") < 0.2
    if missed == "demote":
        assert all(each.error is None for each in trial.of())
        assert trial.makespan < 1.1 * fcfs.makespan


def test_tokens_after_the_first_have_deadlines_too():
    # both run; a third one must have a seat, and the one whose reader is far behind its writer gives it up
    jobs = [job("slow-reader", 0.0, 20, 100, hints={"itl": 1.0}), job("fast-reader", 0.0, 20, 100, hints={"itl": 0.03})]
    jobs.append(job("urgent", 1.0, 20, 5, deadline=1.2))
    trial = Trial("edf", jobs, step_time=STEP, max_num_seqs=2)
    assert trial["urgent"].token_times[0] <= 1.2
    assert trial["fast-reader"].largest_gap <= 2 * STEP
    assert trial["slow-reader"].largest_gap >= 5 * STEP
    late = [n for n, at in enumerate(trial["slow-reader"].token_times) if at > 10.0 + n * 1.0]
    assert not late


def test_what_cannot_be_met_is_refused_with_a_reason_that_the_client_gets():
    jobs = [job("hopeless", 1.0, 10, 5, deadline=0.5), job("fine", 1.0, 10, 5, deadline=2.0), job("easy", 1.0, 10, 5)]
    trial = Trial("edf", jobs, step_time=STEP, policy_settings={"missed": "refuse"})
    terminal = trial.transcript["hopeless"].terminal
    assert terminal is not None
    assert terminal.finish_reason is FinishReason.ERROR
    assert terminal.error is not None
    assert "first token is due -0.500 s from now" in terminal.error
    assert "the deadline cannot be met" in terminal.error
    assert [trial[name].error for name in ("fine", "easy")] == [None, None]


def test_it_is_refused_while_it_waits_once_its_deadline_cannot_be_met():
    jobs = [job("long", 0.0, 10, 300, hints={"itl": 0.02}), job("waits", 0.1, 10, 5, deadline=1.0)]
    settings = {"missed": "refuse", "slack": 0.0}
    trial = Trial("edf", jobs, step_time=STEP, max_num_seqs=1, policy_settings=settings)
    assert trial["waits"].error is not None
    assert trial["waits"].ended == pytest.approx(1.0, abs=2 * STEP)


def test_how_long_a_prompt_takes_is_learnt_and_counts():
    # prompts take a second; the deadline of the last one leaves half of that
    jobs = [job(f"j{n}", 2.0 * n, 500, 2) for n in range(20)]
    jobs.append(job("hopeless", 41.0, 500, 2, deadline=41.5))
    settings = {"missed": "refuse"}
    trial = Trial("edf", jobs, step_time=0.0, token_time=0.002, max_num_batched_tokens=512, policy_settings=settings)
    assert trial["hopeless"].ended == pytest.approx(41.0, abs=0.01)
    assert "takes about 0.8" in str(trial["hopeless"].error)


@pytest.mark.parametrize("late_every", [2, 8])
def test_those_that_are_late_get_a_share_and_do_not_starve(late_every):
    # one seat, a request of 10 tokens every 10 steps and one more: there is always one on time that waits
    jobs = [job(f"stream{n}", max(n - 1, 0) * 10 * STEP, 5, 10) for n in range(80)]
    jobs += [job(f"late{n}", 0.1, 5, 10, deadline=0.05) for n in range(4)]
    trial = Trial("edf", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"late_every": late_every})
    waits = sorted(each.ttft for each in trial.of("late"))
    for place, wait in enumerate(waits, 1):
        assert wait == pytest.approx(place * late_every * 10 * STEP, abs=25 * STEP)


@pytest.mark.parametrize(("ttft", "first"), [(1.0, "other"), (10.0, "deadline")])
def test_a_request_without_a_deadline_has_the_usual_one(ttft, first):
    jobs = [job("running", 0.0, 5, 20), job("deadline", 0.1, 5, 5, deadline=5.0), job("other", 0.1, 5, 5)]
    trial = Trial("edf", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"ttft": ttft})
    assert trial[first].ttft == min(trial["deadline"].ttft, trial["other"].ttft)


@pytest.mark.parametrize(("itl", "displaced"), [(0.02, False), (2.0, True)])
def test_a_request_without_that_hint_has_the_usual_time_between_tokens(itl, displaced):
    jobs = [job("running", 0.0, 5, 200, deadline=0.1), job("urgent", 1.0, 5, 5, deadline=1.3)]
    trial = Trial("edf", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"itl": itl})
    assert (trial.stats.num_preemptions == 1) == displaced


@pytest.mark.parametrize(("slack", "displaced"), [(0.0, False), (0.5, True)])
def test_nobody_is_displaced_before_it_is_pressing(slack, displaced):
    jobs = [job("running", 0.0, 5, 200), job("urgent", 1.0, 5, 5, deadline=3.0)]
    trial = Trial("edf", jobs, step_time=STEP, max_num_seqs=1, policy_settings={"slack": slack})
    assert (trial.stats.num_preemptions == 1) == displaced
    if displaced:
        assert 2.4 < trial["urgent"].token_times[0] <= 3.0

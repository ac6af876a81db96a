"""A live experiment decides for the better arm, finds nothing where there is nothing, and gives up what does harm."""

import asyncio
import os
import signal
from contextlib import suppress
from math import inf, isnan
from random import Random
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from enginecore import SamplingParams
from enginecore.client import make_async_client
from enginecore.clock import VirtualClock
from enginecore.errors import EngineCoreError, EngineDeadError
from enginecore.frontend.async_engine import DEFAULTS
from enginecore.frontend.outputs import RequestOutputKind
from enginecore.messages import EngineCoreOutput, EngineCoreOutputs, FinishReason
from enginecore.settings import load_settings
from enginecore_lab.live import LiveExperiment, LiveSettings, Switchback
from tests.frontend.scripted_async_client import ScriptedAsyncClient

PARAMS = SamplingParams(detokenize=False, ignore_eos=True, max_tokens=3)
SETTINGS: dict[str, Any] = {"block_seconds": 10.0, "burn_in_seconds": 2.0, "sd": 0.1, "num_pairs": 20}


def no_tokenizer():
    raise AssertionError("the tokenizer was asked for")


class Traffic:
    """A request a second through an experiment in virtual time; `latency` says what each arm takes to answer."""

    def __init__(self, latency, *, fails=lambda arm: False, **settings):
        self.clock = VirtualClock()
        self.clients = [ScriptedAsyncClient(lambda request: [1]) for _ in range(2)]
        self.live = LiveExperiment.from_clients(
            self.clients, no_tokenizer, LiveSettings(**{**SETTINGS, **settings}), clock=self.clock
        )
        self.latency, self.fails = latency, fails
        self.arms: list[int] = []

    def run(self, seconds):
        for _ in range(seconds):
            number = len(self.arms)
            arm = self.live.route(SimpleNamespace(request_id=f"r{number}"))  # type: ignore[arg-type]
            self.arms.append(arm)
            took = self.latency(arm)
            self.clock.wait(deadline=self.clock.now() + took)
            reason = FinishReason.ERROR if self.fails(arm) else FinishReason.LENGTH
            tokens = [] if self.fails(arm) else [1]
            self.live.saw(arm, EngineCoreOutputs(outputs=[EngineCoreOutput(f"r{number}", tokens, reason)]))
            self.clock.wait(deadline=self.clock.now() + 1 - took)
            if self.live.report().state not in ("pilot", "running"):
                return self.live.report()
        return self.live.report()


def noisy(*means, sd=0.05):
    random = Random(1)
    return lambda arm: min(max(random.gauss(means[arm], sd), 0.01), 0.99)


def test_the_better_arm_is_found_and_gets_all_requests_from_then_on():
    traffic = Traffic(noisy(0.5, 0.3))
    report = traffic.run(2_000)
    assert report.state == "decided"
    assert report.sentence.startswith("the candidate is better: ttft of candidate - baseline is -0.")
    assert report.difference == pytest.approx(-0.2, abs=0.03)
    assert report.p_value <= 0.05 <= report.e_value
    assert report.num_pairs < 40
    traffic.arms.clear()
    for number in range(50):
        assert traffic.live.route(SimpleNamespace(request_id=f"later{number}")) == 1  # type: ignore[arg-type]


def test_a_worse_candidate_loses():
    report = Traffic(noisy(0.3, 0.5)).run(2_000)
    assert report.state == "decided"
    assert report.sentence.startswith("the baseline is better")
    assert report.difference > 0


def test_nothing_is_found_where_there_is_nothing():
    report = Traffic(noisy(0.4, 0.4), max_pairs=60).run(3_000)
    assert report.state == "undecided"
    assert report.num_pairs == 60
    assert abs(report.difference) < 0.05


def test_the_pilot_measures_the_baseline_only_and_its_pairs_do_not_count():
    traffic = Traffic(noisy(0.5, 0.3), sd=None, pilot_pairs=5)
    traffic.run(99)
    report = traffic.live.report()
    assert report.state == "pilot"
    assert report.sentence == "pilot: 4 of 5 pairs of blocks measured"
    assert set(traffic.arms) == {0}
    assert isnan(report.sd)
    traffic.run(30)
    report = traffic.live.report()
    assert report.state == "running"
    assert 0 < report.sd < 0.2
    assert report.num_pairs == 0
    assert traffic.run(2_000).sentence.startswith("the candidate is better")


def test_blocks_are_served_as_the_lots_say():
    traffic = Traffic(noisy(0.4, 0.4))
    traffic.run(100)
    switchback = Switchback(10.0, 2.0)
    assert traffic.arms == [switchback.arm_of(second // 10) for second in range(100)]


def test_burn_ins_are_left_out():
    traffic = Traffic(noisy(0.4, 0.4))
    traffic.run(100)
    assert sum(arm.completed for arm in traffic.live.report().arms) == 80


def test_a_candidate_that_misses_the_objectives_is_given_up_at_once():
    traffic = Traffic(noisy(0.2, 0.8), ttft_slo=0.5, min_attainment=0.9, guard_window=50)
    report = traffic.run(200)
    assert report.state == "reverted"
    assert "within the objectives, below min_attainment = 90.0%" in report.sentence
    assert len(traffic.arms) < 40
    assert traffic.live.route(SimpleNamespace(request_id="later")) == 0  # type: ignore[arg-type]


def test_the_better_arm_is_left_when_its_engine_core_fails():
    traffic = Traffic(noisy(0.5, 0.3))
    assert traffic.run(2_000).state == "decided"
    traffic.clients[1].failure = EngineDeadError("out of memory")
    traffic.live.saw(1, EngineCoreOutputs())
    report = traffic.live.report()
    assert report.state == "reverted"
    assert report.sentence.startswith("the candidate is better: ")
    assert report.sentence.endswith("; later the candidate's engine core has failed: out of memory")
    assert traffic.live.route(SimpleNamespace(request_id="later")) == 0  # type: ignore[arg-type]
    traffic.clients[0].failure = EngineDeadError("too")
    traffic.live.saw(0, EngineCoreOutputs())
    assert traffic.live.report() == report


def test_dotted_keys_of_one_arm_do_not_hide_tables_of_the_other(monkeypatch):
    class Stopped(Exception):
        pass

    def stop(arm):
        made.append(arm.settings.component("scheduler").name)
        if len(made) == 2:
            raise Stopped
        return ScriptedAsyncClient(lambda request: [1])

    made: list[str] = []
    monkeypatch.setattr("enginecore_lab.live.experiment.make_async_client", stop)
    with pytest.raises(Stopped):
        LiveExperiment({"model": "m", "scheduler.use": "fcfs"}, {"scheduler": {"use": "srpt"}})
    assert made == ["fcfs", "srpt"]


def test_failed_requests_cost_what_the_settings_say():
    report = Traffic(noisy(0.3, 0.3), fails=lambda arm: arm == 1, penalty_seconds=0.9).run(2_000)
    assert report.sentence.startswith("the baseline is better")
    assert report.difference == pytest.approx(0.6, abs=0.05)
    assert report.arms[1].failed > 0
    assert report.arms[1].completed == 0


def test_giving_up_before_the_first_token_counts_as_the_time_that_was_waited():
    traffic = Traffic(noisy(0.3, 0.3))
    traffic.clock.wait(deadline=5.0)
    arm = traffic.live.route(SimpleNamespace(request_id="impatient"))  # type: ignore[arg-type]
    traffic.clock.wait(deadline=8.0)
    traffic.live.left(["impatient", "unknown"])
    assert traffic.live.report().arms[arm].aborted == 1


def test_blocks_in_which_nobody_comes_are_skipped_and_counted():
    traffic = Traffic(noisy(0.3, 0.3))
    traffic.clock.wait(deadline=101.0)
    traffic.run(1)
    assert traffic.live.report().skipped_pairs == 5


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"block_seconds": 5, "burn_in_seconds": 5}, "leaves nothing of block_seconds"),
        ({"min_attainment": 0.9}, "min_attainment needs ttft_slo or tpot_slo"),
        ({"metric": "ttfd"}, "metric"),
        ({"block_seconds": inf}, "finite number"),
        ({"sd": inf}, "finite number"),
        ({"penalty_seconds": inf}, "finite number"),
        ({"blok_seconds": 5}, "blok_seconds"),
    ],
)
def test_settings_that_make_no_sense(settings, words):
    with pytest.raises(ValidationError, match=words):
        LiveSettings(**settings)


# -- on engine cores in processes of their own ---------------------------------------------------------------------


def engine(step_time):
    return {"executor": {"use": "oracle", "oracle": {"vocab_size": 100, "step_time": step_time}}}


async def last_of(llm, prompt):
    stream = llm.generate(prompt, PARAMS, output_kind=RequestOutputKind.FINAL_ONLY)
    return [output async for output in stream][-1]


async def keep_asking(live, stop):
    while live.report().state not in stop:
        await last_of(live.llm, [1, 2, 3])


def test_real_engine_cores():
    """A step of 30 ms against one of 3 ms, under 4 clients: the shorter one wins, and every request is served."""

    async def run():
        settings = LiveSettings(block_seconds=0.2, burn_in_seconds=0.05, sd=0.03, num_pairs=5, metric="e2e")
        async with LiveExperiment({"model": "oracle", **engine(0.03)}, engine(0.003), settings) as live:
            stop = ("decided", "reverted", "undecided")
            await asyncio.wait_for(asyncio.gather(*(keep_asking(live, stop) for _ in range(4))), 120)
            report = live.report()
            assert report.sentence.startswith("the candidate is better: e2e"), report
            assert report.arms[1].e2e < report.arms[0].e2e
            assert [arm.failed for arm in report.arms] == [0, 0]
        assert live.report().state == "decided"

    asyncio.run(run())


def test_a_candidate_that_is_killed_costs_its_own_requests_and_no_more():
    arms = [load_settings({"model": "oracle", **engine(0.001 * n)}, defaults=DEFAULTS) for n in (1, 2)]
    clients: list[Any] = [make_async_client(arm) for arm in arms]

    async def run():
        settings = LiveSettings(block_seconds=0.2, burn_in_seconds=0.0, sd=1.0)
        async with LiveExperiment.from_clients(clients, no_tokenizer, settings) as live:
            while not live.report().arms[1].completed:
                await last_of(live.llm, [1, 2, 3])
            os.kill(clients[1].engine_core_pid, signal.SIGKILL)
            async with asyncio.timeout(60):
                while live.report().state == "running":
                    with suppress(EngineDeadError):
                        await last_of(live.llm, [1])
            report = live.report()
            assert report.state == "reverted"
            assert "the candidate's engine core has failed" in report.sentence
            for _ in range(20):
                assert (await last_of(live.llm, [1])).outputs[0].finish_reason == "length"

    asyncio.run(run())


def test_a_candidate_that_cannot_start_takes_the_baselines_engine_core_along():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    broken = {"executor": {"use": "single"}}  # there is no such model
    with pytest.raises(EngineCoreError) as caught:
        LiveExperiment({"model": "oracle", **engine(0.001)}, broken)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    del caught

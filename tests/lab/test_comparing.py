"""`compare`, from runs to verdict: on the oracle, and with runs that somebody else makes."""

from typing import Any

import msgspec
import pytest

from enginecore.errors import ConfigurationError, EngineCoreError, EngineDeadError
from enginecore.messages import FinishReason
from enginecore.settings import Loaded
from enginecore_lab import compare
from enginecore_lab.experiment_file import load_experiment
from enginecore_lab.replay import replay
from enginecore_lab.run import Run
from enginecore_lab.workload import Workload
from tests.lab.small import experiment


class Spy:
    """Runs as `replay` does, and remembers what was asked of it."""

    def __init__(self, change=None) -> None:
        self.asked: list[tuple[float, Workload, bool]] = []
        self._change = change

    def __call__(self, workload: Workload, settings: Loaded, /, *, virtual: bool, reveal_lengths: bool) -> Run:
        self.asked.append((step_time(settings), workload, reveal_lengths))
        run = replay(workload, settings, virtual=True, reveal_lengths=reveal_lengths)
        if self._change:
            self._change(run, len(self.asked))
        run.virtual = virtual
        return run


def step_time(settings: Loaded) -> float:
    oracle: Any = settings.settings.component("executor").settings
    return float(oracle.step_time)


def test_faster_steps_are_better_by_what_they_are_faster():
    outcome = compare(experiment())
    comparison = outcome.comparison
    primary = comparison.comparisons[0].primary
    # all come at once and have room: a request takes as many steps as it has tokens
    assert primary.verdict == "better"
    assert primary.relative == pytest.approx(-0.5)
    assert primary.relative_interval is not None
    assert primary.relative_interval.low == primary.relative_interval.high == pytest.approx(-0.5)
    assert primary.p_value == 2 / 2**8
    assert comparison.sentence == (
        "In e2e_mean, fast is better than slow: -50.0 % (95 % CI -50.0 to -50.0), beyond the 2 % margin."
    )
    assert (comparison.loop, comparison.virtual, comparison.replicates) == ("open", True, 8)
    assert comparison.noise_floor == 0.0
    assert comparison.warnings == []
    assert len(set(comparison.workload_hashes)) == 8
    assert [arm.name for arm in comparison.arms] == list(outcome.runs) == ["slow", "fast"]
    assert outcome.runs["slow"].workload == outcome.runs["fast"].workload
    assert len(comparison.arms[0].metrics["e2e_mean"]) == 8
    assert comparison.arms[0].info["components"]["executor"] == "oracle"
    assert comparison.arms[1].settings["executor"]["oracle"]["step_time"] == 0.5


def test_slowdowns_are_against_the_baseline_alone():
    primary = compare(experiment(primary__metric="slowdown_mean")).comparison.comparisons[0].primary
    assert primary.baseline == pytest.approx([1.0] * 8)  # there is room for all: nobody slows anybody down
    assert primary.candidate == pytest.approx([0.5] * 8)


def test_arms_meet_the_same_requests_and_first_themselves():
    spy, told = Spy(), []
    compare(experiment(replicates=8, reveal_lengths=True), runner=spy, progress=lambda *each: told.append(each))
    times = [time for time, _, _ in spy.asked]
    assert times[:4] == [1.0, 1.0, 0.5, 0.5]  # A/A
    by_replicate = [spy.asked[n : n + 2] for n in range(4, len(spy.asked), 2)]
    assert len(by_replicate) == 7
    for (_, first, _), (_, second, _) in by_replicate:
        assert first == second
    assert {tuple(sorted(each[0] for each in pair)) for pair in by_replicate} == {(0.5, 1.0)}
    assert all(reveals for _, _, reveals in spy.asked)
    assert told == [(n, 18) for n in range(1, 19)]


def test_processes_give_the_same():
    one, two = compare(experiment()).comparison, compare(experiment(), jobs=2).comparison
    assert one.arms == two.arms
    assert one.comparisons == two.comparisons
    assert one.workload_hashes == two.workload_hashes


def test_equal_arms_are_equivalent_and_that_is_said():
    comparison = compare(experiment(arms=[{"name": "a"}, {"name": "b"}])).comparison
    primary = comparison.comparisons[0].primary
    assert (primary.verdict, primary.difference, primary.p_value) == ("equivalent", 0.0, 1.0)
    assert comparison.sentence == (
        "In e2e_mean, a and b are equivalent: 0.0 % (95 % CI 0.0 to 0.0), within the 2 % margin."
    )
    assert comparison.warnings == ["'b' has the same settings as 'a': this compares an arm with itself."]


def slower_each_time(run: Run, number: int) -> None:
    for each in run.requests:
        each.token_times[-1] += 0.1 * (number * 7 % 5)


def test_arms_that_differ_from_themselves_lower_what_can_be_said():
    comparison = compare(experiment(arms=[{"name": "a"}, {"name": "b"}]), runner=Spy(slower_each_time)).comparison
    assert comparison.noise_floor > 0
    assert comparison.comparisons[0].primary.verdict == "undecided"
    assert any("two runs of 'a' on one workload differ although time is simulated" in w for w in comparison.warnings)


def test_real_time_takes_turns_by_chance_and_knows_its_noise():
    spy = Spy(slower_each_time)
    comparison = compare(experiment(clock="real", replicates=12), runner=spy, jobs=4).comparison
    times = [time for time, _, _ in spy.asked]
    assert times[:24] == [1.0] * 24  # the baseline against itself, on every replicate
    pairs = [tuple(times[n : n + 2]) for n in range(24, len(times), 2)]
    assert len(pairs) == 12
    assert set(pairs) == {(1.0, 0.5), (0.5, 1.0)}
    again = Spy(slower_each_time)
    compare(experiment(clock="real", replicates=12), runner=again)
    assert [time for time, _, _ in again.asked] == times  # by chance, and repeatable
    assert not comparison.virtual
    assert 0 < comparison.noise_floor < 1
    assert comparison.comparisons[0].primary.verdict == "better"


def test_oracle_in_real_time():
    arms = [{"name": "slow"}, {"name": "fast", "settings": {"executor": {"oracle": {"step_time": 0.01}}}}]
    asked = experiment(clock="real", arms=arms, engine__executor__oracle__step_time=0.03, workload__num_requests=3)
    comparison = compare(asked).comparison
    assert not comparison.virtual
    assert comparison.noise_floor > 0
    assert comparison.warnings == [
        "The first requests of each engine count, which meet it idle: set window.skip_first."
    ]
    assert comparison.comparisons[0].primary.difference < -0.02


def test_failed_requests_count_as_infinitely_late():
    def one_fails(run: Run, number: int) -> None:
        run.requests[3].finish_reason = FinishReason.ERROR

    comparison = compare(experiment(), runner=Spy(one_fails)).comparison
    primary = comparison.comparisons[0].primary
    assert primary.verdict == "refused"
    assert primary.reason.startswith("1 of 12 requests of the baseline failed or did not end in replicate 0")
    assert any("8 of 96 requests of 'slow' failed or did not end" in warning for warning in comparison.warnings)


def test_refusals_quote_what_the_engine_says_of_the_first_that_failed():
    too_long = experiment(engine__max_model_len=16, workload__prompt={"kind": "constant", "tokens": 20})
    comparison = compare(too_long).comparison
    reason = comparison.comparisons[0].primary.reason
    assert "so this is infinite; the first is '0': " in reason
    assert "20 tokens" in reason
    assert "16" in reason
    assert any("The first is '0': " in warning for warning in comparison.warnings)


def test_outputs_of_another_length_than_asked_for_are_pointed_out():
    """Four prompt tokens, and up to six more: in one arm there is room for four."""
    short = experiment(arms=[{"name": "long"}, {"name": "short", "settings": {"max_model_len": 8}}])
    (warning,) = [each for each in compare(short).comparison.warnings if "another number of tokens" in each]
    assert " of 96 requests of 'short' ended with another number of tokens than asked for" in warning


def test_queue_that_only_grows_is_refused():
    # four tokens each, one after another, and one more comes every second: most of them wait
    overloaded = experiment(
        workload__arrivals={"kind": "constant", "rate": 1.0},
        workload__num_requests=60,
        workload__output__low=4,
        workload__output__high=4,
        engine__max_num_seqs=1,
    )
    comparison = compare(overloaded).comparison
    assert [arm.saturated for arm in comparison.arms] == [8, 8]
    assert comparison.comparisons[0].primary.verdict == "refused"
    assert "queue only grew in 8 of 8 replicates" in comparison.sentence
    makespan = next(each for each in comparison.comparisons[0].secondary if each.metric == "makespan")
    assert makespan.relative == pytest.approx(-0.5, abs=0.02)


def test_too_few_requests_for_the_primary_quantile_end_it_at_once():
    spy = Spy()
    with pytest.raises(ConfigurationError, match=r"primary metric e2e_p99 has no value.*it takes at least 1000"):
        compare(experiment(primary__metric="e2e_p99"), runner=spy)
    assert len(spy.asked) == 2


def test_secondary_metrics_that_were_asked_for_are_missed_aloud():
    comparison = compare(experiment(secondary__metrics=["e2e_p99", "makespan"])).comparison
    assert [each.metric for each in comparison.comparisons[0].secondary] == ["makespan"]
    assert [warning for warning in comparison.warnings if warning.startswith("e2e_p99 was left out: P99 of 12 samples")]


def test_repeated_from_its_result_an_experiment_warns_of_the_same():
    first = compare(experiment())
    again = compare(load_experiment({"experiment": first.comparison.experiment, "comparisons": [], "sentence": ""}))
    assert again.comparison.warnings == first.comparison.warnings == []


def test_result_that_is_repeated_gives_the_same_result():
    first = compare(experiment()).comparison
    again = compare(load_experiment({"experiment": first.experiment, "comparisons": []})).comparison
    assert msgspec.structs.replace(again, created=first.created) == first


def test_three_arms_share_the_error_rate():
    arms = [{"name": "a"}, {"name": "b"}, {"name": "c", "settings": {"executor": {"oracle": {"step_time": 0.9}}}}]
    comparison = compare(experiment(arms=arms)).comparison
    assert [each.primary.verdict for each in comparison.comparisons] == ["equivalent", "better"]
    intervals = [each.primary.interval for each in comparison.comparisons]
    assert [interval.level for interval in intervals if interval] == [0.975, 0.975]
    assert comparison.sentence.count(" (97.5 % CI ") == 2


def trace(tmp_path, num_requests):
    rows = [
        f'{{"id": "{n}", "arrival_s": {n * 0.5}, "prompt_tokens": 4, "output_tokens": {2 + n % 3}}}'
        for n in range(num_requests)
    ]
    (tmp_path / "trace.jsonl").write_text("\n".join(rows))
    return {"kind": "jsonl", "path": str(tmp_path / "trace.jsonl")}


def test_one_trace_as_a_whole_has_no_p_value(tmp_path):
    made = experiment(replicates=1).model_dump(mode="json", exclude_none=True)
    comparison = compare(load_experiment(made | {"workload": trace(tmp_path, 60)})).comparison
    primary = comparison.comparisons[0].primary
    assert (primary.verdict, primary.p_value) == ("better", None)
    assert primary.interval is not None
    assert primary.interval.method == "t over 15 windows of one workload"
    assert "One workload: intervals are spreads between windows of it" in comparison.warnings[0]
    assert "one workload" in comparison.sentence


def test_trace_that_is_too_short_is_named_before_anything_runs(tmp_path):
    made = experiment().model_dump(mode="json", exclude_none=True)
    spy = Spy()
    with pytest.raises(ConfigurationError, match=r"number 7 \(from 0\) was asked for: lower it, or ask for fewer"):
        compare(load_experiment(made | {"workload": trace(tmp_path, 60) | {"requests_per_replicate": 9}}), runner=spy)
    assert spy.asked == []


def test_more_metrics_than_the_pairs_can_decide_are_pointed_out():
    names = ["ttft_mean", "ttft_max", "itl_mean", "itl_max", "tpot_mean", "e2e_max", "makespan"]
    for number, warnings in (
        (6, []),
        (7, ["8 pairs are too few to be sure of any of 7 secondary differences: it takes 9 pairs, or fewer "
             "secondary.metrics."]),
    ):  # fmt: skip
        comparison = compare(experiment(secondary__metrics=names[:number])).comparison
        assert comparison.warnings == warnings
        verdicts = {metric.verdict for metric in comparison.comparisons[0].secondary}
        assert verdicts == ({"undecided"} if warnings else {"better"})


def test_one_replicate_of_what_is_drawn_is_refused():
    with pytest.raises(ConfigurationError, match="replicates = 1 is for one workload without chance"):
        compare(experiment(replicates=1))


def test_different_kv_blocks_are_pointed_out():
    arms = [{"name": "a"}, {"name": "b", "settings": {"num_kv_blocks": 512}}]
    comparison = compare(experiment(arms=arms)).comparison
    assert comparison.warnings == [
        "'a' has 4,096 KV blocks and 'b' has 512: set num_kv_blocks if that is not what you ask about."
    ]


def test_arm_that_cannot_run_is_named():
    def runner(workload: Workload, settings: Loaded, /, **options: Any) -> Run:
        if settings.settings.seed == 3 and step_time(settings) == 0.5:
            raise EngineDeadError("the engine core has failed in a step")
        return replay(workload, settings, **options)

    with pytest.raises(EngineCoreError, match=r"^arm 'fast', replicate 3: the engine core has failed"):
        compare(experiment(), runner=runner)

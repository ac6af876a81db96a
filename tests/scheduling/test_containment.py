"""What a policy or an executor does wrong costs as little as can be, and says whose fault it was."""

import math
from typing import Any

import pytest

from enginecore.clock import VirtualClock
from enginecore.errors import ConfigurationError, EngineDeadError, InvariantError, PluginError
from enginecore.messages import FinishReason, ModelRunnerOutput, SchedulerOutput
from enginecore.scheduling import SchedulingPolicy, Split, policy_component
from enginecore_conformance.harness import SchedulerHarness
from tests.core.engines import make_core, request, run
from tests.scheduling.harnesses import make_harness, make_request, terminal_of


class ByHint(SchedulingPolicy):
    """Ranks by what the request may have forgotten to say."""

    def __init__(self) -> None:
        self.added_ids: list[str] = []
        self.ended_ids: list[str] = []

    def rank(self, request, scheduler):
        return request.hints["rank"]

    def lane(self, request):
        return request.tenant

    def added(self, request, scheduler):
        self.added_ids.append(request.request_id)

    def ended(self, request, scheduler):
        self.ended_ids.append(request.request_id)


def hinted(request_id: str, rank: Any, tenant: str = "") -> Any:
    made = make_request(request_id, 5, max_tokens=3)
    made.tenant = tenant
    made.hints = {} if rank is None else {"rank": rank}
    return made


@pytest.mark.parametrize(
    ("rank", "told"), [(None, "KeyError"), (math.nan, "not NaN"), ("high", "TypeError"), ((1, math.nan), "not NaN")]
)
def test_a_rank_that_cannot_be_had_ends_that_request_alone(rank, told):
    policy = ByHint()
    harness = make_harness(policy=policy)
    harness.add(hinted("before", 1))
    harness.add(hinted("odd", rank))
    harness.add(hinted("after", 0))
    harness.run()
    terminal = terminal_of(harness, "odd")
    assert terminal.finish_reason is FinishReason.ERROR
    assert "ByHint" in str(terminal.error)
    assert told in str(terminal.error)
    assert [harness.transcript[name].finish_reason for name in ("before", "after")] == [FinishReason.LENGTH] * 2
    assert sorted(policy.added_ids) == sorted(policy.ended_ids)


def test_a_refused_request_leaves_no_lane_behind():
    harness = make_harness(policy=ByHint())
    harness.add(hinted("odd", None, tenant="lonely"))
    harness.add(hinted("fine", 1, tenant="other"))
    harness.run()
    assert len(harness.transcript["fine"].token_ids) == 3


class Misguided(SchedulingPolicy):
    """Gives one wrong answer."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def rank(self, request, scheduler):
        return request.arrival

    def split(self, scheduler):
        return self.answer if isinstance(self.answer, Split) else super().split(scheduler)

    def lease(self, request, scheduler):
        return self.answer if isinstance(self.answer, int) else None


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Split(prefill=8, chunk=0, admit=1), "Misguided.split gave .*chunk of at least 1"),
        (Split(prefill=-1, chunk=1, admit=1), "prefill and admit of at least 0"),
        (Split(prefill=8, chunk=1, admit=-1), "prefill and admit of at least 0"),
        (Split(prefill=8, chunk=1, admit=1, first="decodes"), "first 'decode' or 'prefill'"),  # type: ignore[arg-type]
        (0, "Misguided.lease gave 0: at least 1"),
    ],
)
def test_an_answer_out_of_range_names_policy_and_method(answer, told):
    harness = make_harness(policy=Misguided(answer))
    harness.add(make_request("a", 5))
    with pytest.raises(InvariantError, match=told):
        harness.run()


def test_decodes_go_on_where_a_split_that_does_not_mix_leaves_prompts_nothing():
    class Stopping(SchedulingPolicy):
        def rank(self, request, scheduler):
            return request.arrival

        def split(self, scheduler):
            prompts = scheduler.step < 3 or not scheduler.num_decodes
            return Split(prefill=8 if prompts else 0, chunk=8, admit=1, first="prefill", mix=False)

    harness = make_harness(policy=Stopping())
    harness.add(make_request("short", 6, max_tokens=10))
    harness.step()
    harness.add(make_request("long", 40, max_tokens=2))
    harness.run()
    assert len(harness.transcript["short"].token_ids) == 10


def test_now_is_the_present_when_a_request_arrives_after_an_idle_spell():
    seen: list[tuple[float, float]] = []

    class Watching(SchedulingPolicy):
        def rank(self, request, scheduler):
            seen.append((scheduler.now, request.arrival))
            return request.arrival

        def choose(self, scheduler):
            seen.append((scheduler.now, scheduler.waiting.best().since))
            return scheduler.waiting.best()

    clock = VirtualClock()
    core = make_core(components=[policy_component("watching", Watching)], scheduler={"use": "watching"}, clock=clock)
    clock.wait(deadline=60.0)
    core.add_request(request("r"))
    run(core)
    assert seen == [(60.0, 60.0), (60.0, 60.0)]


# -- displacement --


class Urgent(SchedulingPolicy):
    preemptive = True

    def rank(self, request, scheduler):
        return request.priority


@pytest.mark.parametrize("in_order", [True, False])
def test_an_urgent_request_displaces_no_more_than_it_needs_although_blocks_come_back_late(in_order):
    harness = make_harness(
        policy=Urgent(),
        num_blocks=20,
        max_num_batched_tokens=64,
        oracle={"depth": 4, "feeds_tokens": True, "in_order": in_order},
    )
    for n in range(5):  # three blocks each; the second block after the prompt is far away
        harness.add(make_request(f"r{n}", 9, max_tokens=4, priority=5))
    harness.submit()
    harness.add(make_request("urgent", 28, priority=0))  # seven blocks; five are free
    for _ in range(3):
        harness.submit()
    assert harness.scheduler.get_stats().num_preemptions == 1
    harness.run()


def test_nobody_is_displaced_for_blocks_that_both_would_share():
    harness = make_harness(policy=Urgent(), num_blocks=16, max_num_seqs=4)
    shared = list(range(1, 17))
    harness.add(make_request("first", [*shared, 50], max_tokens=1, priority=9))
    harness.run()
    harness.add(make_request("holds", list(range(100, 120)), max_tokens=30, priority=0))
    harness.add(make_request("victim", [*shared, 51], max_tokens=30, priority=5))
    harness.step()
    harness.add(make_request("newcomer", [*shared, *range(60, 88)], max_tokens=2, priority=1))
    harness.step()
    assert harness.transcript["victim"].terminal is None
    assert harness.scheduler.get_stats().num_preemptions == 0, "its shared blocks would not have helped"
    harness.run()


# -- executors --


def settle_with(harness: SchedulerHarness, plan: SchedulerOutput, output: ModelRunnerOutput) -> Any:
    return harness.scheduler.update_from_output(plan, output)


@pytest.mark.parametrize(
    ("ids", "tokens", "told"),
    [
        (["a", "b"], [[1]], {"b": "no row"}),
        (["a"], [[1]], {"b": "no row"}),
        (["a", "b", "b"], [[1], [2], [3]], {"b": "2 tokens"}),
        (["a", "b"], [[1], []], {"b": "0 tokens"}),
        (["a", "b"], [[1], [2, 3]], {"b": "2 tokens"}),
        (["b", "a"], [[2], [1]], {}),
    ],
    ids=["short", "missing", "twice", "empty", "two", "another order"],
)
def test_rows_that_do_not_fit_end_their_requests_and_no_others(ids, tokens, told):
    harness = make_harness()
    for name in "ab":
        harness.add(make_request(name, 4, max_tokens=5))
    plan = harness.scheduler.schedule()
    outputs = settle_with(harness, plan, ModelRunnerOutput(step=plan.step, request_ids=ids, sampled_token_ids=tokens))
    ended = {o.request_id: o.error for o in outputs[0] if o.finish_reason is FinishReason.ERROR}
    assert ended.keys() == told.keys()
    assert all(word in str(ended[name]) for name, word in told.items())
    given = {o.request_id: o.new_token_ids for o in outputs[0] if o.finish_reason is None}
    assert given == {name: [number] for name, number in (("a", 1), ("b", 2)) if name not in told}


def test_an_error_for_a_request_that_is_new_but_has_no_tokens_yet_counts():
    harness = make_harness(enable_chunked_prefill=False, max_num_batched_tokens=256, num_blocks=200)
    harness.add(make_request("first", 200, max_tokens=2))
    harness.add(make_request("second", 100, max_tokens=2))
    plan = harness.scheduler.schedule()
    assert [new.request_id for new in plan.new_requests] == ["first", "second"]
    assert list(plan.num_scheduled_tokens) == ["first"]
    output = ModelRunnerOutput(step=plan.step, request_ids=["first"], sampled_token_ids=[[1]], errors={"second": "no"})
    ended = [o for o in settle_with(harness, plan, output)[0] if o.finish_reason is FinishReason.ERROR]
    assert [(o.request_id, o.error) for o in ended] == [("second", "no")]


# -- start-up --


def test_a_policys_constructor_must_name_its_settings():
    class Vague(SchedulingPolicy):
        def __init__(self, **settings: int) -> None:
            self.settings = settings

        def rank(self, request, scheduler):
            return 0

    with pytest.raises(PluginError, match=r"\*\*settings.* cannot be a setting"):
        policy_component("vague", Vague)


def test_a_class_that_is_no_policy_is_refused_when_the_engine_is_built():
    class Alike:
        def rank(self, request, scheduler):
            return 0

    component: Any = policy_component("alike", Alike)  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="made a Alike, which is no SchedulingPolicy"):
        make_core(components=[component], scheduler={"use": "alike"})


def test_a_piece_size_is_refused_where_prompts_are_not_split():
    with pytest.raises(ConfigurationError, match="no effect while chunked prefill is off"):
        make_core(
            oracle={"max_model_len": 64}, enable_chunked_prefill=False, scheduler={"fcfs": {"prefill_chunk_size": 4}}
        )


def test_a_policy_that_raises_in_a_step_ends_the_engine_with_its_name():
    class Raising(SchedulingPolicy):
        def rank(self, request, scheduler):
            return 0

        def split(self, scheduler):
            raise ZeroDivisionError("no split")

    core = make_core(components=[policy_component("raising", Raising)], scheduler={"use": "raising"})
    core.add_request(request("r"))
    with pytest.raises(EngineDeadError, match="ZeroDivisionError: no split") as raised:
        core.advance()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("reason", [1, True, ["no"]])
def test_a_refusal_is_in_words(reason):
    class Curt(SchedulingPolicy):
        def rank(self, request, scheduler):
            return 0

        def admit(self, request, scheduler):
            return reason

    harness = make_harness(policy=Curt())
    harness.add(make_request("a", 5))
    harness.run()
    assert "Curt.admit gave" in str(terminal_of(harness, "a").error)


def test_a_method_with_other_arguments_is_refused_before_any_engine_is_built():
    """Field case 132."""

    class Short(SchedulingPolicy):
        def rank(self, request):  # type: ignore[override]
            return request.arrival

    with pytest.raises(PluginError, match=r"rank must take \(self, request.*too many positional arguments"):
        policy_component("short", Short)


def test_a_method_may_name_its_arguments_as_it_likes():
    class Terse(SchedulingPolicy):
        def rank(self, r, s):
            return r.arrival

        def lease(self, *arguments):
            return None

    policy_component("terse", Terse)

"""Random sequences of everything that can happen to a scheduler, with all invariants checked after each move."""

from collections import Counter

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from enginecore.errors import InvalidRequestError
from enginecore.messages import FinishReason
from enginecore_conformance.workloads import BrickWorkload
from tests.kv_cache.making import EVICTIONS, make_order
from tests.scheduling.harnesses import MANAGERS, POLICIES, VICTIMS, make_harness, make_victim

BLOCK_SIZE = 4
REQUESTS = BrickWorkload(
    seed=7,
    block_size=BLOCK_SIZE,
    vocab_size=32,
    num_bricks=2,
    max_bricks=5,
    max_tokens=14,
    salts=(None, None, None, "a"),
).requests(200)


class SchedulerMachine(RuleBasedStateMachine):
    """A scheduler among clients that come and go, operators that reset, and steps in flight."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        victim=st.sampled_from(VICTIMS),
        manager=st.sampled_from(sorted(MANAGERS)),
        eviction=st.sampled_from(EVICTIONS),
        depth=st.sampled_from((1, 2, 4)),
        feeds_tokens=st.booleans(),
        in_order=st.booleans(),
        caching=st.sampled_from((True, True, False)),
        chunked=st.booleans(),
        num_blocks=st.sampled_from((6, 9, 12, 40)),
        max_num_seqs=st.sampled_from((1, 3, 6)),
    )
    def start(
        self,
        policy,
        victim,
        manager,
        eviction,
        depth,
        feeds_tokens,
        in_order,
        caching,
        chunked,
        num_blocks,
        max_num_seqs,
    ):
        self.harness = make_harness(
            policy=POLICIES[policy](),
            victim=make_victim(victim),
            manager=manager,
            order=make_order(eviction),
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=16 if chunked else 64,
            max_model_len=64,
            enable_chunked_prefill=chunked,
            enable_prefix_caching=caching,
            oracle={"depth": depth, "feeds_tokens": feeds_tokens, "in_order": in_order, "vocab_size": 32},
        )

    @rule(number=st.integers(0, len(REQUESTS) - 1))
    def add(self, number):
        request = REQUESTS[number]
        if request.request_id not in self.harness.transcript.open_ids:
            self.harness.add(request)

    @precondition(lambda self: self.harness.transcript.open_ids)
    @rule(data=st.data())
    def add_again(self, data):
        request_id = data.draw(st.sampled_from(self.harness.transcript.open_ids))
        if request_id in {request.request_id for request in self.harness.scheduler.unfinished_requests}:
            try:
                self.harness.add(self.harness.transcript[request_id].request)
            except InvalidRequestError:
                return
            raise AssertionError(f"{request_id} was accepted twice")

    @rule(times=st.integers(1, 6))
    def step(self, times):
        for _ in range(times):
            self.harness.step()

    @rule()
    def submit(self):
        self.harness.submit()

    @rule()
    def settle(self):
        self.harness.settle()

    @rule(data=st.data(), unknown=st.booleans())
    def abort(self, data, unknown):
        known = [story.request.request_id for story in self.harness.transcript.stories[-12:]]
        ids = data.draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
        self.harness.abort([*ids, "never seen"] if unknown else ids)

    @precondition(lambda self: self.harness.transcript.open_ids)
    @rule(data=st.data(), reason=st.sampled_from((FinishReason.ABORT, FinishReason.ERROR)))
    def finish(self, data, reason):
        self.harness.finish([data.draw(st.sampled_from(self.harness.transcript.open_ids))], reason, "ended by the test")

    @rule(running_too=st.booleans())
    def reset(self, running_too):
        harness = self.harness
        blocks_held = harness.kv_cache_manager.num_free_blocks < harness.kv_cache_manager.num_blocks
        done = harness.reset_prefix_cache(running_too)
        if done:
            assert harness.scheduler.get_stats().num_cached_blocks == 0
        else:
            assert blocks_held
            assert not (running_too and harness.conditions.oracle.in_order)

    @invariant()
    def seats(self):
        if hasattr(self, "harness"):
            stats = self.harness.scheduler.get_stats()
            assert stats.num_running + stats.num_waiting == len(self.harness.scheduler.unfinished_requests)

    def teardown(self):
        if hasattr(self, "harness"):
            self.harness.run(max_steps=20_000)
            plans, stories = self.harness.plans, self.harness.transcript.stories
            SEEN["steps"] += len(plans)
            SEEN["preemptions"] += self.harness.scheduler.get_stats().num_preemptions
            SEEN["resumptions"] += sum(new.resumed for plan in plans for new in plan.new_requests)
            SEEN["hits"] += sum(new.num_computed_tokens > 0 for plan in plans for new in plan.new_requests)
            SEEN["queued"] += self.harness.max_in_flight > 1
            SEEN["aborted"] += sum(story.aborted for story in stories)
            SEEN["completed"] += sum(
                story.finish_reason in (FinishReason.STOP, FinishReason.LENGTH) for story in stories
            )


SEEN: Counter[str] = Counter()


def test_scheduler_machine():
    SEEN.clear()
    run_state_machine_as_test(
        SchedulerMachine,
        settings=settings(
            max_examples=200,
            stateful_step_count=50,
            derandomize=True,
            deadline=None,
            database=None,
            phases=(Phase.generate,),  # shrinking takes minutes; add Phase.shrink to look into a failure
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )
    # how often depends on Hypothesis, which draws from constants of whatever modules are loaded
    assert SEEN["steps"] > 1_000, SEEN
    assert all(SEEN[what] for what in ("preemptions", "resumptions", "hits", "queued", "aborted", "completed")), SEEN

"""Field case 135: in which order a policy and a KV cache manager hear of what becomes of a request."""

import pytest

from enginecore.messages import FinishReason
from enginecore.scheduling import ContinuousBatchingScheduler
from enginecore_conformance.harness import Conditions, SchedulerHarness
from enginecore_conformance.oracle.settings import OracleSettings
from enginecore_kv_cache.paged import PagedKVCacheManager
from enginecore_schedulers.fcfs import Fcfs
from tests.scheduling.harnesses import make_request

DEPTHS = pytest.mark.parametrize("depth", [1, 2])


class Heard(list[str]):
    """What was said since one last asked."""

    def take(self):
        taken = self[:]
        self.clear()
        return taken


class Policy(Fcfs):
    def __init__(self, heard):
        super().__init__()
        self.heard = heard

    def admitted(self, request, scheduler):
        self.heard.append(f"{request.request_id} admitted")

    def preempted(self, request, scheduler):
        self.heard.append(f"{request.request_id} preempted")

    def ended(self, request, scheduler):
        self.heard.append(f"{request.request_id} ended")


class Manager(PagedKVCacheManager):
    heard: Heard

    def allocate_slots(self, request, num_tokens, prefix=None):
        blocks = super().allocate_slots(request, num_tokens, prefix)
        if blocks is not None:
            self.heard.append(f"{request.request_id} gets slots")
        return blocks

    def cache_blocks(self, request, num_tokens):
        self.heard.append(f"{request.request_id} is cached")
        super().cache_blocks(request, num_tokens)

    def free(self, request):
        self.heard.append(f"{request.request_id} is freed")
        super().free(request)

    def reset_prefix_cache(self):
        self.heard.append("reset")
        return super().reset_prefix_cache()


def make(depth=1, in_order=True, **conditions):
    """A harness, and what both hear in it."""
    heard = Heard()

    def make_manager(context):
        manager = Manager(context.config, clock=context.clock)
        manager.heard = heard
        return manager

    oracle = OracleSettings(depth=depth, feeds_tokens=True, in_order=in_order)
    harness = SchedulerHarness(
        Conditions(oracle=oracle, **conditions),
        lambda context: ContinuousBatchingScheduler(Policy(heard), context),
        make_manager,
    )
    return harness, heard


def test_of_a_life_that_ends_well():
    harness, heard = make()
    harness.add(make_request("a", 8, max_tokens=2))
    harness.run()
    assert heard == ["a gets slots", "a admitted", "a is cached", "a gets slots", "a is freed", "a ended"]


def test_a_block_that_the_last_step_filled_is_cached_before_it_is_freed():
    harness, heard = make()
    harness.add(make_request("a", 8, max_tokens=1))
    harness.run()
    assert heard == ["a gets slots", "a admitted", "a is cached", "a is freed", "a ended"]


@DEPTHS
def test_of_an_abort_in_the_queue(depth):
    harness, heard = make(depth, max_num_seqs=1)
    harness.add(make_request("a", 8))
    harness.add(make_request("queued", 8))
    harness.step()
    heard.take()
    harness.abort(["queued", "queued", "never seen"])
    assert heard.take() == ["queued ended"]  # it held no blocks


@DEPTHS
def test_of_an_abort_or_an_end_at_the_engines_behest_between_steps(depth):
    harness, heard = make(depth)
    for name in ("a", "b"):
        harness.add(make_request(name, 8))
    harness.step()
    while harness.settle():
        pass
    heard.take()
    harness.abort(["a", "a"])
    assert heard.take() == ["a is freed", "a ended"]
    harness.finish(["b", "b"], FinishReason.ABORT)
    assert heard.take() == ["b is freed", "b ended"]


@DEPTHS
def test_of_an_abort_with_its_step_in_flight(depth):
    harness, heard = make(depth)
    harness.add(make_request("a", 8))
    harness.submit()
    heard.take()
    harness.abort(["a"])
    assert heard.take() == ["a is freed", "a ended"]
    harness.run()
    assert heard.take() == []  # its late result is nobody's


def test_of_an_abort_with_its_step_in_flight_where_steps_end_in_any_order():
    harness, heard = make(2, in_order=False)
    harness.add(make_request("a", 8))
    harness.submit()
    heard.take()
    harness.abort(["a"])
    assert heard.take() == ["a ended"]
    harness.settle()
    assert heard.take() == ["a is freed"]  # nothing writes to its blocks any more
    harness.run()
    assert heard.take() == []


def test_of_a_preemption():
    harness, heard = make(num_blocks=5)
    harness.add(make_request("a", range(1, 9), max_tokens=5))
    harness.add(make_request("b", range(21, 29), max_tokens=5))
    harness.step()
    heard.take()
    harness.submit()
    assert heard.take() == ["a gets slots", "b is freed", "b preempted"]
    harness.run()
    assert heard[heard.index("b admitted") - 1] == "b gets slots"
    assert heard[-2:] == ["b is freed", "b ended"]


@DEPTHS
def test_of_a_reset(depth):
    harness, heard = make(depth)
    harness.add(make_request("a", 8))
    harness.submit()
    heard.take()
    assert not harness.reset_prefix_cache()
    assert heard.take() == ["reset"]
    assert harness.reset_prefix_cache(reset_running_requests=True)
    assert heard.take() == ["a is freed", "a preempted", "reset"]
    harness.run()
    assert heard[-2:] == ["a is freed", "a ended"]

"""The mechanism uses a cached prefix only while it is valid: until blocks are allocated, published or freed."""

from random import Random

import pytest

from enginecore.scheduling import ContinuousBatchingScheduler
from enginecore_conformance.chaos import Chaos
from enginecore_conformance.harness import Conditions, SchedulerHarness
from enginecore_conformance.oracle.settings import OracleSettings
from enginecore_conformance.workloads import BrickWorkload
from enginecore_kv_cache.paged import PagedKVCacheManager
from enginecore_schedulers.priority import Priority


class StrictManager(PagedKVCacheManager):
    """Takes the contract at its word: no prefix outlives a change."""

    version = 0

    def get_computed_blocks(self, request):
        prefix = super().get_computed_blocks(request)
        self.looked_up = (request, prefix, self.version)
        return prefix

    def allocate_slots(self, request, num_tokens, prefix=None):
        if prefix is not None:
            assert self.looked_up == (request, prefix, self.version), "the prefix is older than the last change"
        self.version += 1
        return super().allocate_slots(request, num_tokens, prefix)

    def cache_blocks(self, request, num_tokens):
        self.version += 1
        super().cache_blocks(request, num_tokens)

    def free(self, request):
        self.version += 1
        super().free(request)


@pytest.mark.parametrize("policy", [Chaos, Priority])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_prefix_is_looked_up_anew_after_a_displacement(policy, depth):
    harness = SchedulerHarness(
        Conditions(
            num_blocks=14,
            max_num_seqs=3,
            max_model_len=48,
            oracle=OracleSettings(depth=depth, feeds_tokens=True, vocab_size=32),
        ),
        lambda context: ContinuousBatchingScheduler(policy(), context),
        lambda context: StrictManager(context.config, clock=context.clock),
    )
    random = Random(5)
    for request in BrickWorkload(seed=3, block_size=4, vocab_size=32, num_bricks=2).requests(60):
        harness.add(request)
        for _ in range(random.randrange(4)):
            harness.step()
    harness.run()
    assert harness.scheduler.get_stats().num_preemptions > 0
    assert sum(new.num_computed_tokens > 0 for plan in harness.plans for new in plan.new_requests) > 0

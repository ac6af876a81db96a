"""Random lives of requests against a naive model of what each block holds."""

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from enginecore.clock import VirtualClock
from tests.kv_cache.making import EVICTIONS, MANAGERS, make_manager, make_order, make_request

NUM_BRICKS = 2  # few kinds of content, so that prefixes are shared and repeated often
CHUNK = st.sampled_from([100, 100, 100, 1, 2, 3])  # tokens; mostly all there are


LIFETIME = 8.0  # seconds, under `ttl`


class Facts:
    """What the model knows of a published content.

    Attributes:
        blocks: Those that hold it, in order of publication; the first is hit.
    """

    def __init__(self, published):
        self.blocks = []
        self.published = published
        self.num_hits = self.last_use = 0
        self.last_used_at = 0.0


GOES_FIRST: dict[str, Callable[[Facts], Any]] = {
    "lru": lambda facts: facts.last_use,
    "lfu": lambda facts: (facts.num_hits, facts.last_use),
    "fifo": lambda facts: facts.published,
    "ttl": lambda facts: facts.last_use,
}


class CacheModel:
    """What each slot and block holds, in words that need no keys: identity and tokens up to there.

    Attributes:
        slots: Content by (block, offset): the whole prefix that ends there, as an executor's attention would see it.
        facts: By published content.
        now: The time.
    """

    def __init__(self, num_blocks, block_size, eviction):
        self.block_size = block_size
        self.goes_first = GOES_FIRST[eviction]
        self.lifetime = LIFETIME if eviction == "ttl" else None
        self.free = set(range(num_blocks))
        self.references = dict.fromkeys(range(num_blocks), 0)
        self.slots = {}
        self.facts = {}
        self.now = 0.0
        self.num_published = self.num_uses = 0

    @property
    def cached(self):
        """Contents in free blocks."""
        return [content for content, facts in self.facts.items() if facts.blocks[0] in self.free]

    def is_expired(self, content):
        facts = self.facts[content]
        unused = facts.blocks[0] in self.free
        return unused and self.lifetime is not None and self.now - facts.last_used_at >= self.lifetime

    def can_be_hit(self, content):
        return content in self.facts and not self.is_expired(content)

    def content_of(self, block):
        return next((content for content, facts in self.facts.items() if block in facts.blocks), None)

    def parent_of(self, content):
        identity, tokens = content
        return identity, tokens[: -self.block_size]

    def forget_expired(self):
        for content in [content for content in self.facts if self.is_expired(content)]:
            del self.facts[content]

    def take(self, block):
        """`block` is given out as a new one: it must be the right one, and loses its content."""
        assert block in self.free, f"block {block} is in use"
        cached, content = self.cached, self.content_of(block)
        if len(cached) < len(self.free):
            assert content is None, f"block {block} was evicted although others hold nothing"
        else:
            parents = {self.parent_of(content) for content in self.facts}
            leaves = [content for content in cached if content not in parents]
            right = min(leaves, key=lambda content: self.goes_first(self.facts[content]))
            assert content == right, f"block {block} was evicted before {self.facts[right].blocks[0]}"
            del self.facts[content]
        self.refer(block)

    def hit(self, block):
        self.refer(block)
        self.facts[self.content_of(block)].num_hits += 1

    def refer(self, block):
        self.free.discard(block)
        self.references[block] += 1

    def publish(self, content, block):
        """Returns whether it is a copy."""
        if content not in self.facts:
            self.facts[content] = Facts(self.num_published)
            self.num_published += 1
        blocks = self.facts[content].blocks
        if block in blocks:
            return False
        is_copy = bool(blocks)
        if blocks and blocks[0] in self.free:
            blocks.clear()  # nobody uses the first: this one takes over
        blocks.append(block)
        return is_copy

    def release(self, blocks):
        """One request gives up its blocks. Returns how many of their contents a copy took over."""
        self.num_uses += 1
        num_taken_over = 0
        for block in reversed(blocks):
            self.references[block] -= 1
            if not self.references[block]:
                self.free.add(block)
                num_taken_over += self.leave(self.content_of(block), block)
        return num_taken_over

    def leave(self, content, block):
        if content is None:
            return False
        facts = self.facts[content]
        if len(facts.blocks) > 1:
            first = facts.blocks[0] == block
            facts.blocks.remove(block)
            return first
        facts.last_use, facts.last_used_at = self.num_uses, self.now
        return False


class Life:
    """A request with what the model knows of it."""

    def __init__(self, request):
        self.request = request
        self.blocks = []
        self.num_written = 0

    def content(self, num_tokens):
        """What a cache must be true to: who may read it, and every token."""
        return (self.request.cache_identity, tuple(self.request.token_ids[:num_tokens]))


class KVCacheMachine(RuleBasedStateMachine):
    manager_name: ClassVar[str]
    eviction: ClassVar[str]
    seen: ClassVar[Counter[str]]  # what took place

    @initialize(num_blocks=st.integers(4, 12), block_size=st.integers(1, 3))
    def start(self, num_blocks, block_size):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.clock = VirtualClock()
        order = make_order(self.eviction, **({"seconds": LIFETIME} if self.eviction == "ttl" else {}))
        self.manager = make_manager(num_blocks, block_size, self.manager_name, order=order, clock=self.clock)
        self.model = CacheModel(num_blocks, block_size, self.eviction)
        self.waiting, self.running = [], []
        self.num_queried = self.num_hit = 0

    def brick(self, kind):
        return [kind * self.block_size + n for n in range(self.block_size)]

    def longest_published_prefix(self, life):
        if life.request.skip_prefix_cache:
            return 0
        longest = 0
        for length in range(self.block_size, life.request.num_tokens, self.block_size):
            if not self.model.can_be_hit(life.content(length)):
                break
            longest = length
        return longest

    @rule(seconds=st.sampled_from([1.0, 1.0, 4.0, LIFETIME]))
    def wait(self, seconds):
        self.clock.wait(deadline=self.clock.now() + seconds)
        self.model.now += seconds
        self.seen["expired"] += any(self.model.is_expired(content) for content in self.model.facts)

    @rule(
        bricks=st.lists(st.integers(0, NUM_BRICKS - 1), min_size=1, max_size=4),
        tail=st.integers(0, 1),
        identity=st.sampled_from([*[(None, None)] * 5, ("x", None), (None, "x")]),
        skip=st.sampled_from([*[False] * 5, True]),
        num_copies=st.sampled_from([1, 1, 2, 3]),
        num_tokens=CHUNK,
        publish=st.sampled_from([True, True, True, False]),
    )
    @precondition(lambda self: len(self.waiting) < 4)
    def arrive(self, bricks, tail, identity, skip, num_copies, num_tokens, publish):
        """Equal requests come, all of one id; those that fit are admitted together and run a step."""
        prompt = [token for kind in bricks for token in self.brick(kind)] + [99] * tail
        salt, adapter = identity
        lives = [Life(make_request(prompt, "same", salt=salt, adapter=adapter, skip=skip)) for _ in range(num_copies)]
        self.waiting += lives
        for life in [life for life in lives if self.admit(life, num_tokens)]:
            self.run(life, num_tokens, publish)

    @rule(num_tokens=CHUNK, data=st.data())
    @precondition(lambda self: self.waiting)
    def retry(self, num_tokens, data):
        life = data.draw(st.sampled_from(self.waiting))
        if self.admit(life, num_tokens):
            self.run(life, num_tokens, publish=True)

    def admit(self, life, num_tokens):
        request, manager = life.request, self.manager
        hit = self.longest_published_prefix(life)
        assert manager.peek_cached_tokens(request) == hit
        prefix = manager.get_computed_blocks(request)
        assert prefix.num_tokens == hit
        (shared,) = prefix.block_ids
        assert len(shared) * self.block_size == hit
        for position in range(hit):
            slot = (shared[position // self.block_size], position % self.block_size)
            assert self.model.slots[slot] == life.content(position + 1), "hit on foreign content"
        num_slots = min(hit + num_tokens, request.num_tokens)  # a first chunk
        if not self.allocate(life, num_slots, prefix):
            return False
        self.waiting.remove(life)
        self.running.append(life)
        life.num_written = hit
        self.seen["hit"] += hit > 0
        self.seen["whole prompt cached"] += 0 < hit == request.num_tokens - 1
        self.seen["resumed with a hit"] += request.num_preemptions > 0 and hit > 0
        if not request.num_preemptions and not request.skip_prefix_cache:
            self.num_queried += request.num_prompt_tokens
            self.num_hit += hit
        return True

    @rule(
        kinds=st.lists(st.integers(0, NUM_BRICKS - 1), max_size=2),
        num_tokens=CHUNK,
        data=st.data(),
        publish=st.sampled_from([True, True, True, False]),
    )
    @precondition(lambda self: self.running)
    def step(self, kinds, num_tokens, data, publish):
        """A request has got new tokens and is given slots for some of what it lacks."""
        life = data.draw(st.sampled_from(self.running))
        life.request.append([token for kind in kinds for token in self.brick(kind)])
        if self.allocate(life, min(life.num_written + num_tokens, life.request.num_tokens), None):
            self.run(life, num_tokens, publish)

    def run(self, life, num_tokens, publish):
        """The step that writes its next tokens runs; what it wrote is published now or later."""
        self.write(life, min(life.num_written + num_tokens, life.request.num_tokens))
        if publish:
            self.publish(life)

    def allocate(self, life, num_slots, prefix):
        """Allocate and compare with the model, including the announced need."""
        request, manager, model = life.request, self.manager, self.model
        shared = prefix.block_ids[0] if prefix else []
        num_needed = -(-num_slots // self.block_size) - len(life.blocks)  # in all, shared ones among them
        free_hits = [block for block in shared if block in model.free]
        announced = manager.num_blocks_to_allocate(request, num_slots, prefix)
        assert announced == max(num_needed, len(shared)) - len(shared) + len(free_hits)
        before = manager.get_block_ids(request)
        added = manager.allocate_slots(request, num_slots, prefix)
        self.seen["free hits pinned"] += len(free_hits) > 0
        if announced > len(model.free):
            self.seen["refused"] += 1
            assert added is None
            assert manager.get_block_ids(request) == before
            return False
        assert added is not None
        assert added[0][: len(shared)] == shared
        assert len(added[0]) == max(num_needed, len(shared))
        for block in shared:
            model.hit(block)
        if added[0]:
            model.forget_expired()
        for block in added[0][len(shared) :]:
            self.seen["evicted"] += model.content_of(block) is not None
            model.take(block)
        life.blocks += added[0]
        return True

    def write(self, life, end):
        for position in range(life.num_written, end):
            slot = (life.blocks[position // self.block_size], position % self.block_size)
            assert self.model.references[slot[0]] == 1, "write to a shared block"
            self.model.slots[slot] = life.content(position + 1)
        life.num_written = end

    def publish(self, life):
        self.manager.cache_blocks(life.request, life.num_written)
        if life.request.skip_prefix_cache:
            return
        for n in range(life.num_written // self.block_size):
            self.seen["copy"] += self.model.publish(life.content((n + 1) * self.block_size), life.blocks[n])

    @rule(data=st.data())
    @precondition(lambda self: self.running)
    def finish(self, data):
        self.leave(data.draw(st.sampled_from(self.running)))

    @rule(data=st.data())
    @precondition(lambda self: self.running)
    def preempt(self, data):
        life = data.draw(st.sampled_from(self.running))
        self.leave(life)
        life.request.preempt()
        self.waiting.append(life)

    @rule(data=st.data())
    def finish_all(self, data):
        for life in data.draw(st.permutations(self.running)):
            self.leave(life)

    def leave(self, life):
        alone = sum(self.model.references[block] == 1 for block in life.blocks)
        assert self.manager.num_freeable_blocks([life.request]) == alone
        before = self.manager.num_free_blocks
        self.manager.free(life.request)
        assert self.manager.num_free_blocks == before + alone
        self.seen["copy took over"] += self.model.release(life.blocks)
        self.manager.free(life.request)  # the word may come twice
        self.running.remove(life)
        life.blocks, life.num_written = [], 0

    @rule()
    def reset(self):
        idle = len(self.model.free) == self.num_blocks
        assert self.manager.reset_prefix_cache() is idle
        if idle:
            self.seen["reset"] += len(self.model.facts) > 0
            self.model.facts.clear()

    @invariant()
    def agrees_with_the_model(self):
        manager, model = self.manager, self.model
        manager.check_invariants()
        referenced = {block for life in self.running for block in life.blocks}
        assert manager.num_free_blocks + len(referenced) == self.num_blocks
        for life in self.running + self.waiting:
            assert manager.get_block_ids(life.request) == (life.blocks,)
            assert manager.peek_cached_tokens(life.request) == self.longest_published_prefix(life)
        stats = manager.get_stats()
        assert stats.num_free_blocks == len(model.free)
        assert stats.num_cached_blocks == len(model.cached)
        assert (stats.queries, stats.hits) == (self.num_queried, self.num_hit)

    def teardown(self):
        if hasattr(self, "manager"):
            for life in self.running:
                self.manager.free(life.request)
            self.manager.check_invariants()
            assert self.manager.num_free_blocks == self.num_blocks
            assert self.manager.reset_prefix_cache()


@pytest.mark.parametrize("eviction", EVICTIONS)
@pytest.mark.parametrize("manager", MANAGERS)
def test_random_lives_agree_with_the_model(manager, eviction):
    class Machine(KVCacheMachine):
        manager_name = manager
        seen: ClassVar[Counter[str]] = Counter()

    Machine.eviction = eviction
    profile = settings(max_examples=100, stateful_step_count=50, deadline=None, derandomize=True, database=None)
    run_state_machine_as_test(Machine, settings=profile)
    for what in ("hit", "refused", "copy", "evicted", "free hits pinned", "whole prompt cached", "resumed with a hit"):
        assert Machine.seen[what] >= 15, Machine.seen
    for what in ("reset", "copy took over", *(["expired"] if eviction == "ttl" else [])):
        assert Machine.seen[what] >= 5, Machine.seen

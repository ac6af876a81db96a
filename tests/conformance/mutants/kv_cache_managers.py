"""KV cache managers with one bug each."""

from hashlib import sha256

from enginecore.kv_cache import BlockHasher, BlockPool, HashIndex
from enginecore.kv_cache.manager import _Table
from enginecore.request import CacheIdentity
from tests.conformance.mutants.assembly import Plain, manager, table

# -- what a content is known by ----------------------------------------------------------------------------------------


class HitsAcrossSalts(BlockHasher):
    """The salt is no part of the cache identity."""

    def root(self, identity):
        return super().root(CacheIdentity(None, identity.adapter))


class HitsAcrossAdapters(BlockHasher):
    """The adapter is no part of the cache identity."""

    def root(self, identity):
        return super().root(CacheIdentity(identity.salt, None))


class MixesSaltAndAdapter(BlockHasher):
    """A salt and an adapter of one name are the same cache identity: the parts have no types."""

    def root(self, identity):
        return super().root(CacheIdentity((identity.salt or "") + (identity.adapter or ""), None))


class _OwnHashes(BlockHasher):
    """Keys from `content` instead of the tokens themselves."""

    def extend(self, request, num_blocks):
        hashes, size = request.block_hashes, self.block_size
        for n in range(len(hashes), num_blocks):
            parent = hashes[-1] if hashes else self.root(request.cache_identity)
            hashes.append(self.key(parent, request, request.token_ids[n * size : (n + 1) * size]))

    def key(self, parent, request, tokens):
        return sha256(parent + self.content(tokens)).digest()

    def content(self, tokens):
        return b"".join([token.to_bytes(8, "little", signed=True) for token in tokens])


class CutsTokensToBytes(_OwnHashes):
    """Token ids are cut to 8 bits in hashes: 65 is 321."""

    def content(self, tokens):
        return bytes([token & 0xFF for token in tokens])


class HashesWithoutOrder(_OwnHashes):
    """The order of tokens in a block does not count."""

    def content(self, tokens):
        return super().content(sorted(tokens))


class HashesByArithmetic(_OwnHashes):
    """A polynomial of the tokens: [a + 1, b] is [a, b + 31]."""

    def content(self, tokens):
        value = 0
        for token in tokens:
            value = 31 * value + token
        return (value % (1 << 64)).to_bytes(8, "little")


class HashesWithoutChain(_OwnHashes):
    """A block is known by its own tokens: it is hit behind any other."""

    def key(self, parent, request, tokens):
        return super().key(self.root(request.cache_identity), request, tokens)


class KeepsStaleHashes(HashIndex):
    """What is evicted stays in the index: its hash leads to a block that holds something else."""

    def remove(self, content):
        pass


# -- lookups -----------------------------------------------------------------------------------------------------------


class HitsAllTokens(Plain):
    """A prompt that is cached to its last token is a hit of all of it: nothing is left to compute."""

    def _num_hittable_blocks(self, request):
        if not self._uses_cache(request):
            return 0
        num_blocks = request.num_tokens // self._block_size
        self._keys.extend(request, num_blocks)
        return num_blocks


class NeverHits(Plain):
    """Declares prefix caching, and never finds anything."""

    def _num_hittable_blocks(self, request):
        return 0


class IgnoresSkip(Plain):
    """A request that asks to leave the prefix cache alone is served from it, and feeds it."""

    def _uses_cache(self, request):
        return self._enable_prefix_caching


class CachesAllTheSame(Plain):
    """Prefix caching cannot be switched off."""

    def __init__(self, config, *, enable_prefix_caching, order, clock):
        super().__init__(config, enable_prefix_caching=True, order=order, clock=clock)


class PinsOnLookup(Plain):
    """A lookup takes references to what it finds, besides those that allocation takes."""

    def get_computed_blocks(self, request):
        prefix = super().get_computed_blocks(request)
        self._pool.share(prefix.block_ids[0])
        return prefix


class PeekRefreshes(Plain):
    """A peek counts as a use: it moves what it finds to the end of the order of eviction."""

    def peek_cached_tokens(self, request):
        prefix = self.get_computed_blocks(request)
        self._pool.share(prefix.block_ids[0])
        self._pool.free(prefix.block_ids[0], "peek")
        return prefix.num_tokens


class PeeksOneBlockTooFar(Plain):
    """A peek counts the block of the last token, too."""

    def peek_cached_tokens(self, request):
        if not self._uses_cache(request):
            return 0
        num_blocks = request.num_tokens // self._block_size
        self._keys.extend(request, num_blocks)
        return self._pool.count_prefix(request.block_hashes, num_blocks) * self._block_size


# -- allocation --------------------------------------------------------------------------------------------------------


class AllocatesBeforeItPins(Plain):
    """New blocks are taken before the hits are pinned: these may be evicted for them."""

    def allocate_slots(self, request, num_tokens, prefix=None):
        shared, num_new, num_pinned = self._demand(request, num_tokens, prefix)
        if num_new + num_pinned > self._pool.num_free:
            return None
        new = self._pool.allocate(num_new)
        if prefix is not None:
            self._pool.share(shared)
            self._count_lookup(request, prefix)
        if shared or new:
            self._tables.setdefault(request, _Table(len(shared))).blocks += [*shared, *new]
        return ([*shared, *new],)


class CountsHitsAsFree(Plain):
    """Cached blocks that are about to be pinned count as free for the taking."""

    def num_blocks_to_allocate(self, request, num_tokens, prefix=None):
        return self._demand(request, num_tokens, prefix)[1]


class LeavesHitsPinned(Plain):
    """An allocation that fails keeps its references to the cached prefix."""

    def allocate_slots(self, request, num_tokens, prefix=None):
        allocated = super().allocate_slots(request, num_tokens, prefix)
        if allocated is None and prefix is not None:
            self._pool.share(prefix.block_ids[0])
        return allocated


class GivesWhatThereIs(Plain):
    """An allocation that lacks blocks takes those that are left before it fails."""

    def allocate_slots(self, request, num_tokens, prefix=None):
        allocated = super().allocate_slots(request, num_tokens, prefix)
        table = self._tables.get(request)
        if allocated is None and table:
            table.blocks += self._pool.allocate(self._pool.num_free)
        return allocated


class ReturnsTheWholeTable(Plain):
    """Allocation returns all blocks of the request, not only those that were added."""

    def allocate_slots(self, request, num_tokens, prefix=None):
        allocated = super().allocate_slots(request, num_tokens, prefix)
        return self.get_block_ids(request) if allocated and allocated[0] else allocated


class TakesOneBlockTooMany(Plain):
    """A request whose tokens fill its blocks exactly gets one more."""

    def _demand(self, request, num_tokens, prefix):
        return super()._demand(request, num_tokens + (num_tokens % self._block_size == 0), prefix)


class CountsSharedAsFreeable(Plain):
    """Blocks that others share count among those that come back when a request is freed."""

    def num_freeable_blocks(self, requests, keep=None):
        held = {block for request in requests for block in self.get_block_ids(request)[0]}
        return len(held.difference(keep.block_ids[0] if keep else ()))


class CountsKeptAsFreeable(Plain):
    """Blocks that somebody is about to share count among those that come back."""

    def num_freeable_blocks(self, requests, keep=None):
        return super().num_freeable_blocks(requests)


class CountsEachOwnerApart(Plain):
    """Blocks that several of those to be freed share with one another are not counted: each is looked at alone."""

    def num_freeable_blocks(self, requests, keep=None):
        return sum(super(CountsEachOwnerApart, self).num_freeable_blocks([request], keep) for request in requests)


class HidesCachedBlocks(Plain):
    """Free blocks with cached content do not count as free."""

    @property
    def num_free_blocks(self):
        return self._pool.num_free - self._pool.num_cached


class IgnoresTheEvictionOrder(Plain):
    """Declares "eviction", and evicts by its own order."""

    def __init__(self, config, *, enable_prefix_caching, order, clock):
        super().__init__(config, enable_prefix_caching=enable_prefix_caching, clock=clock)


# -- publication -------------------------------------------------------------------------------------------------------


class PublishesUnwritten(Plain):
    """Blocks are published when they are allocated, before any step has written them."""

    def allocate_slots(self, request, num_tokens, prefix=None):
        allocated = super().allocate_slots(request, num_tokens, prefix)
        if allocated is not None:
            super().cache_blocks(request, min(num_tokens, request.num_tokens))
        return allocated


class PublishesTheBlockInProgress(Plain):
    """The block that is being written is published with those that are full."""

    def cache_blocks(self, request, num_tokens):
        size = self._block_size
        begun = min(-(-num_tokens // size), request.num_tokens // size, len(self.get_block_ids(request)[0]))
        super().cache_blocks(request, max(num_tokens, begun * size))


# -- release -----------------------------------------------------------------------------------------------------------


class FreesTwice(Plain):
    """A request keeps its table when it is freed: whoever frees it again takes references from others."""

    def free(self, request):
        table = self._tables.get(request)
        if table:
            self._pool.free(table.blocks, f"request {request.request_id!r}")

    def allocate_slots(self, request, num_tokens, prefix=None):
        if prefix is not None:  # it comes back
            self._tables.pop(request, None)
        return super().allocate_slots(request, num_tokens, prefix)


class RaisesOnStrangers(Plain):
    """To free a request that holds nothing is a KeyError."""

    def free(self, request):
        table = self._tables.pop(request)
        self._pool.free(table.blocks, f"request {request.request_id!r}")


class FreesForAllHolders(BlockPool):
    """The first to free a shared block frees it for all."""

    def free(self, blocks, owner):
        self._num_uses += 1
        for block in reversed(blocks):
            if self._num_references[block]:
                self._num_references[block] = 0
                self._release(block, self._clock.now())


class KeepsSharedForEver(BlockPool):
    """A block that was ever shared never comes back."""

    def share(self, blocks):
        referenced = [block for block in blocks if self._num_references[block]]
        super().share(blocks)
        for block in referenced:
            self._num_references[block] += 1


class PointsAtTheFreedCopy(BlockPool):
    """Of two blocks with one content the hit one goes, and the content still leads to it."""

    def _drop_copy(self, content, block):
        copies = self._copies.get(content, [])
        if block in copies:
            copies.remove(block)
        if not copies:
            self._copies.pop(content, None)
        self._content[block] = None


class NeverForgets(Plain):
    """Keeps every request that ever held blocks: host memory grows for ever."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._seen = set()

    def free(self, request):
        super().free(request)
        self._seen.add(request)


# -- reset and statistics ----------------------------------------------------------------------------------------------


class SaysThatItHasReset(Plain):
    """A reset while blocks are held says yes, and forgets nothing."""

    def reset_prefix_cache(self):
        super().reset_prefix_cache()
        return True


class ResetsNothing(Plain):
    """A reset says yes where it may, and forgets nothing: old KV meets new weights."""

    def reset_prefix_cache(self):
        return self.num_free_blocks == self.num_blocks


class CountsEveryLookup(Plain):
    """Hits are counted at each lookup, also of admissions that fail."""

    def get_computed_blocks(self, request):
        prefix = super().get_computed_blocks(request)
        super()._count_lookup(request, prefix)
        return prefix

    def _count_lookup(self, request, prefix):
        pass


class CountsResumptions(Plain):
    """A resumed request counts as a second query, with its own blocks as hits."""

    def _count_lookup(self, request, prefix):
        self._num_queried_tokens += request.num_prompt_tokens
        self._num_hit_tokens += prefix.num_tokens


MUTANTS = table(
    (manager(HitsAcrossSalts), 44),
    (manager(HitsAcrossAdapters), 44),
    (manager(MixesSaltAndAdapter), 44),
    (manager(CutsTokensToBytes), 43),
    (manager(HashesWithoutOrder), 43),
    (manager(HashesByArithmetic), 43),
    (manager(HashesWithoutChain), 43),
    (manager(KeepsStaleHashes), 35),
    (manager(HitsAllTokens), 34),
    (manager(NeverHits), 51),
    (manager(IgnoresSkip), 53),
    (manager(CachesAllTheSame), 11),
    (manager(PinsOnLookup), 52),
    (manager(PeekRefreshes), None),
    (manager(PeeksOneBlockTooFar), 34),
    (manager(AllocatesBeforeItPins), 37),
    (manager(CountsHitsAsFree), 37),
    (manager(LeavesHitsPinned), 37),
    (manager(GivesWhatThereIs), None),
    (manager(ReturnsTheWholeTable), None),
    (manager(TakesOneBlockTooMany), 51),
    (manager(CountsSharedAsFreeable), 37),
    (manager(CountsKeptAsFreeable), 37),
    (manager(CountsEachOwnerApart), 37),
    (manager(HidesCachedBlocks), 52),
    (manager(IgnoresTheEvictionOrder), 140),
    (manager(PublishesUnwritten), 41),
    (manager(PublishesTheBlockInProgress), 51),
    (manager(FreesTwice), 39),
    (manager(RaisesOnStrangers), 39),
    (manager(FreesForAllHolders), 39),
    (manager(KeepsSharedForEver), 40),
    (manager(PointsAtTheFreedCopy), 42),
    (manager(NeverForgets), 109),
    (manager(SaysThatItHasReset), 45),
    (manager(ResetsNothing), 46),
    (manager(CountsEveryLookup), 52),
    (manager(CountsResumptions), 32),
)

"""The manager: who holds which block, and what is in it."""

from collections import Counter
from collections.abc import Sequence

from enginecore.errors import ConfigurationError, InvariantError
from enginecore.interfaces import CachedPrefix, KVCacheManager, KVCacheStats
from enginecore.messages import BlockIds
from enginecore.plugin import KVCacheManagerContext
from enginecore.request import Request
from trie_cache.greedy_dual import GreedyDual
from trie_cache.trie import Node, Trie


class Table:
    """What one request holds.

    Attributes:
        blocks: In order of position.
        nodes: Of the first of them, those that are published.
        is_copy: The block behind these was computed by somebody else too, who published it first. Nothing behind a copy
            is published: in the tree it would hang on a block that this request does not hold.
    """

    def __init__(self, blocks: list[int], nodes: list[Node]) -> None:
        self.blocks = blocks
        self.nodes = nodes
        self.is_copy = False


class TrieKVCacheManager(KVCacheManager):
    """A KV cache manager from scratch, with nothing of `enginecore.kv_cache`.

    Whoever holds a node's block holds those of all nodes above it. So below a block that nobody holds there is none
    that anybody holds, and whatever is cached can be evicted, from the leaves on.
    """

    def __init__(self, context: KVCacheManagerContext) -> None:
        self._num_blocks, self._block_size = context.config.num_blocks, context.config.block_size
        if len(context.config.groups) != 1:
            raise ConfigurationError(f"trie keeps 1 KV cache group, got {len(context.config.groups)}")
        self._order = GreedyDual() if context.eviction is None else context.eviction  # an empty one is false
        self._enabled = context.enable_prefix_caching
        self._clock = context.clock
        self._trie = Trie(self.block_size)
        self._tables: dict[Request, Table] = {}
        self._num_references = [0] * self.num_blocks
        self._nodes: dict[int, Node] = {}  # by block
        self._empty = list(range(self.num_blocks - 1, -1, -1))  # free and without content; a stack
        self._num_cached = self._num_uses = self._num_queries = self._num_hits = 0

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def block_size(self) -> int:
        return self._block_size

    @property
    def num_free_blocks(self) -> int:
        return len(self._empty) + self._num_cached

    def get_computed_blocks(self, request: Request) -> CachedPrefix:
        found = self._find(request)
        while found and self._is_expired(found[-1]):
            found.pop()
        return CachedPrefix(([node.block_id for node in found],), len(found) * self.block_size)

    def num_blocks_to_allocate(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> int:
        shared = self._shared(request, prefix)
        return self._num_new(request, num_tokens, shared) + self._num_cached_among(shared)

    def num_freeable_blocks(self, requests: Sequence[Request], keep: CachedPrefix | None = None) -> int:
        given_up = Counter(block for request in requests for block in self.get_block_ids(request)[0])
        kept = set(keep.block_ids[0]) if keep else ()
        return sum(self._num_references[block] == n and block not in kept for block, n in given_up.items())

    def allocate_slots(self, request: Request, num_tokens: int, prefix: CachedPrefix | None = None) -> BlockIds | None:
        shared = self._shared(request, prefix)
        num_new = self._num_new(request, num_tokens, shared)
        if num_new + self._num_cached_among(shared) > self.num_free_blocks:
            return None
        if prefix is not None and request.num_preemptions == 0 and self._uses_cache(request):
            self._num_queries += request.num_prompt_tokens
            self._num_hits += prefix.num_tokens
        self._hold(shared)
        added = [node.block_id for node in shared] + [self._take() for _ in range(num_new)]
        if request in self._tables:
            self._tables[request].blocks += added
        elif added:
            self._tables[request] = Table(added, shared)
        return (list(added),)

    def cache_blocks(self, request: Request, num_tokens: int) -> None:
        table = self._tables.get(request)
        num_full, num_held = num_tokens // self.block_size, len(table.blocks) if table else 0
        if num_tokens > request.num_tokens or num_full > num_held:
            raise InvariantError(f"{num_tokens} tokens of {request!r} cannot be written: it holds {num_held} blocks")
        while table and len(table.nodes) < num_full and not table.is_copy and self._uses_cache(request):
            self._publish(request, table)

    def get_block_ids(self, request: Request) -> BlockIds:
        table = self._tables.get(request)
        return (list(table.blocks) if table else [],)

    def free(self, request: Request) -> None:
        table = self._tables.pop(request, None)
        self._num_uses += 1
        for block in reversed(table.blocks) if table else ():
            self._num_references[block] -= 1
            if self._num_references[block] == 0:
                self._release(block)

    def reset_prefix_cache(self) -> bool:
        if self.num_free_blocks != self.num_blocks:
            return False
        while self._num_cached:
            self._empty.append(self._evict())
        return True

    def get_stats(self) -> KVCacheStats:
        return KVCacheStats(self.num_blocks, self.num_free_blocks, self._num_cached, self._num_queries, self._num_hits)

    # -- lookups ---------------------------------------------------------------------------------------------------

    def _uses_cache(self, request: Request) -> bool:
        return self._enabled and not request.skip_prefix_cache

    def _find(self, request: Request) -> list[Node]:
        """All but the last token may be found: what follows it is wanted."""
        return (
            self._trie.find(request, (request.num_tokens - 1) // self.block_size) if self._uses_cache(request) else []
        )

    def _is_expired(self, node: Node) -> bool:
        lifetime = self._order.lifetime
        if lifetime is None or self._num_references[node.block_id]:
            return False
        return self._clock.now() - node.last_used_at >= lifetime

    def _shared(self, request: Request, prefix: CachedPrefix | None) -> list[Node]:
        """The nodes of a prefix that was found a moment ago."""
        if prefix is None:
            return []
        (blocks,) = prefix.block_ids
        shared = self._find(request)[: len(blocks)]
        if request in self._tables or [node.block_id for node in shared] != blocks:
            raise InvariantError(
                f"blocks {blocks} are not what the cache holds for {request!r}, or it has blocks already"
            )
        return shared

    def _num_new(self, request: Request, num_tokens: int, shared: list[Node]) -> int:
        num_held = len(self._tables[request].blocks) if request in self._tables else len(shared)
        return max(-(-num_tokens // self.block_size) - num_held, 0)

    def _num_cached_among(self, nodes: list[Node]) -> int:
        return sum(self._num_references[node.block_id] == 0 for node in nodes)

    # -- blocks ----------------------------------------------------------------------------------------------------

    def _hold(self, nodes: list[Node]) -> None:
        """A hit."""
        for node in nodes:
            if self._num_references[node.block_id] == 0:
                self._uncache(node)
            self._num_references[node.block_id] += 1
            node.num_hits += 1

    def _take(self) -> int:
        """A block without content."""
        block = self._empty.pop() if self._empty else self._evict()
        self._num_references[block] = 1
        return block

    def _publish(self, request: Request, table: Table) -> None:
        """Make known what its first unpublished block holds."""
        block = table.blocks[len(table.nodes)]
        node = self._trie.add(request, table.nodes[-1] if table.nodes else None)
        if node.block_id >= 0:
            if self._num_references[node.block_id]:
                table.is_copy = True
                return
            self._uncache(node)  # nobody holds the other block, so this one takes over
            self._empty.append(node.block_id)
            del self._nodes[node.block_id]
        node.block_id = block
        self._nodes[block] = node
        table.nodes.append(node)

    def _release(self, block: int) -> None:
        """Nobody holds it any more."""
        node = self._nodes.get(block)
        if node is None:
            self._empty.append(block)
            return
        node.last_use, node.last_used_at = self._num_uses, self._clock.now()
        self._num_cached += 1
        if not node.children:
            self._order.add(node)

    def _uncache(self, node: Node) -> None:
        self._num_cached -= 1
        if not node.children:
            self._order.remove(node)

    def _evict(self) -> int:
        """Forget what the order gives up first; its parent may be next."""
        block = self._order.pop().block_id
        node = self._nodes.pop(block)
        self._trie.remove(node)
        self._num_cached -= 1
        parent = node.parent
        if parent is not None and not parent.children and not self._num_references[parent.block_id]:
            self._order.add(parent)
        return block

    def check_invariants(self) -> None:
        held = Counter(block for table in self._tables.values() for block in table.blocks)
        if any(held[block] != references for block, references in enumerate(self._num_references)):
            raise InvariantError(f"references are {self._num_references}, and requests hold {dict(held)}")
        nodes = {node.block_id: node for node in self._trie}
        if nodes != self._nodes:
            raise InvariantError(f"blocks {sorted(self._nodes)} are published, and the trie has {sorted(nodes)}")
        cached = {block for block in nodes if block not in held}
        if sorted([*self._empty, *cached, *held]) != list(range(self.num_blocks)) or len(cached) != self._num_cached:
            raise InvariantError(f"blocks: {self._empty} empty, {cached} cached ({self._num_cached}), {set(held)} held")
        leaves = {block for block in cached if not nodes[block].children}
        if {content.block_id for content in self._order} != leaves:
            raise InvariantError(f"{leaves} are cached leaves, and the order of eviction holds others")

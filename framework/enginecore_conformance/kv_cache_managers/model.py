"""A model of what a KV cache may hit, without hashes: identity, and every token of the prefix."""

from dataclasses import dataclass, field

from enginecore.contracts import BrokenRule
from enginecore.interfaces import CachedPrefix
from enginecore.request import CacheIdentity, Request

Content = tuple[CacheIdentity, tuple[int, ...]]
"""Of a block: the identity, and all tokens of the prefix that ends with it."""


@dataclass(slots=True)
class Published:
    """A content that was published.

    Attributes:
        blocks: Blocks that hold it, as written.
        may_be_lost: Whether one of them was given out since: which of them is evicted with the
            content is the manager's affair.
    """

    blocks: set[int] = field(default_factory=set)
    may_be_lost: bool = False


class CacheModel:
    """Contents that are written and published, block by block.

    Args:
        block_size: Tokens per block.
        enabled: Whether anything is ever to be hit.
    """

    def __init__(self, block_size: int, *, enabled: bool) -> None:
        self._block_size = block_size
        self._enabled = enabled
        self._slots: dict[int, Content] = {}
        self._published: dict[Content, Published] = {}

    def content(self, request: Request, num_blocks: int) -> Content:
        """Content of the last of the request's first blocks."""
        return request.cache_identity, tuple(request.token_ids[: num_blocks * self._block_size])

    def hold(self, blocks: list[int], shared: list[int]) -> None:
        """A request was given these blocks, the first of which are shared."""
        for block in blocks[len(shared) :]:
            content = self._slots.pop(block, None)
            published = self._published.get(content) if content else None
            if published and block in published.blocks:
                published.blocks.discard(block)
                published.may_be_lost = True

    def write(self, request: Request, blocks: list[int], start: int, end: int) -> None:
        """Tokens were computed; blocks that are full now hold their content."""
        for number in range(start // self._block_size, end // self._block_size):
            self._slots[blocks[number]] = self.content(request, number + 1)

    def publish(self, request: Request, blocks: list[int], num_tokens: int) -> None:
        """Record that the full blocks among the request's first tokens were published."""
        if not self._enabled or request.skip_prefix_cache:
            return
        for number in range(num_tokens // self._block_size):
            published = self._published.setdefault(self.content(request, number + 1), Published())
            if not published.blocks:
                published.may_be_lost = False
            published.blocks.add(blocks[number])

    def reset(self) -> None:
        """All is forgotten."""
        self._published.clear()

    def check(self, request: Request, prefix: CachedPrefix) -> None:
        """A look-up found this.

        Raises:
            BrokenRule: it is not true to the request's tokens, or is less than what is there for
                sure.
        """
        blocks = list(prefix.block_ids[0])
        name = f"get_computed_blocks of {request.token_ids} with {request.cache_identity} gave {prefix}"
        for number, block in enumerate(blocks):
            right, found = self.content(request, number + 1), self._slots.get(block)
            if found != right:
                self._explain(name, block, found, right)
            if right not in self._published:
                _broken("only_what_is_published_is_hit", f"{name}; block {block} holds it, and it is not published")
        if prefix.num_tokens != len(blocks) * self._block_size:
            _broken("hits_are_those_of_the_model", f"{name}: {len(blocks)} blocks of {self._block_size} tokens")
        if len(blocks) < (least := self._least(request)):
            _broken("cached_content_is_found", f"{name}; its first {least} blocks are published and not evicted")

    def _least(self, request: Request) -> int:
        """Blocks that must be found."""
        if request.skip_prefix_cache:
            return 0
        most = (request.num_tokens - 1) // self._block_size
        for number in range(most):
            published = self._published.get(self.content(request, number + 1))
            if published is None or not published.blocks:
                return number
            if published.may_be_lost:
                return number
        return most

    @staticmethod
    def _explain(name: str, block: int, found: Content | None, right: Content) -> None:
        if found is not None and found[1] == right[1]:
            _broken("salts_and_adapters_are_kept_apart", f"{name}; block {block} was written for {found[0]}")
        what = "nothing that was written" if found is None else f"the prefix {list(found[1])}"
        _broken("hits_are_those_of_the_model", f"{name}; block {block} holds {what}")


def _broken(rule: str, seen: str) -> None:
    raise BrokenRule("kv_cache_manager", rule, seen)

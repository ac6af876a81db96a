"""An order of eviction in twenty lines, over the heap of the toolkit."""

from enginecore.interfaces import CachedContent
from enginecore.kv_cache import KeyedOrder


class GreedyDual(KeyedOrder):
    """GreedyDual with frequency (Young, 1994; Cherkasova, 1998): a content is worth its uses times its cost.

    Nothing is ever aged: what becomes evictable starts from the worth of what went last. So a prefix that was hit a
    thousand times yesterday goes once others have been worth more for long enough.

    Args:
        position_cost: What a block costs more for each block before it. Attention looks at all of them.
    """

    def __init__(self, position_cost: float = 0.01) -> None:
        super().__init__()
        self._position_cost = position_cost
        self._worth: dict[CachedContent, float] = {}
        self._level = 0.0

    def key(self, content: CachedContent) -> tuple[float, int]:
        cost = 1 + self._position_cost * content.position
        worth = self._worth[content] = self._level + (1 + content.num_hits) * cost
        return worth, content.last_use

    def remove(self, content: CachedContent) -> None:
        super().remove(content)
        del self._worth[content]

    def pop(self) -> CachedContent:
        content = super().pop()
        self._level = self._worth.pop(content)
        return content

"""What may be evicted for the longest time goes first."""

from collections.abc import Iterator

from enginecore.interfaces import CachedContent, EvictionOrder
from enginecore.plugin import Component, ComponentSettings, EvictionContext, hookimpl


class FrozenEviction(EvictionOrder):
    """A dictionary keeps the order in which contents were added."""

    def __init__(self) -> None:
        self._held: dict[CachedContent, None] = {}

    def add(self, content: CachedContent) -> None:
        self._held[content] = None

    def remove(self, content: CachedContent) -> None:
        del self._held[content]

    def pop(self) -> CachedContent:
        content = next(iter(self._held))
        del self._held[content]
        return content

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[CachedContent]:
        return iter(self._held)


def make_eviction(settings: ComponentSettings, context: EvictionContext) -> EvictionOrder:
    return FrozenEviction()


COMPONENT = Component(
    kind="eviction", name="frozen-eviction", factory=make_eviction, summary="First released, first evicted."
)


@hookimpl
def enginecore_components() -> list[Component]:
    return [COMPONENT]

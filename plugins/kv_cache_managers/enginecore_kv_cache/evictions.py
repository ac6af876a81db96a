"""Orders of eviction. `lru` is the toolkit's own."""

from pydantic import Field

from enginecore.interfaces import CachedContent
from enginecore.kv_cache import KeyedOrder, Lru
from enginecore.plugin import ComponentSettings


class Lfu(KeyedOrder):
    """Fewest hits first; among equals, least recently used first."""

    def key(self, content: CachedContent) -> tuple[int, int]:
        return content.num_hits, content.last_use


class Fifo(KeyedOrder):
    """Content that was published first goes first, however often it is used."""

    def key(self, content: CachedContent) -> int:
        return content.published


class TtlSettings(ComponentSettings):
    """Table `[eviction.ttl]`."""

    seconds: float = Field(
        default=300.0, gt=0, allow_inf_nan=False, description="Seconds after which unused content is dropped."
    )


class Ttl(Lru):
    """Content that was not used for some time is forgotten and found no more; until then, least recently used first.

    Args:
        seconds: Seconds without use. Each use begins it anew, and while it is in use content does
            not age.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.lifetime = seconds

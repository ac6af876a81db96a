"""Kit for orders of eviction: alone, and in a KV cache manager that uses one."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from enginecore.interfaces import CachedContent, EvictionOrder
from enginecore.plugin import EvictionContext
from enginecore_conformance.checks import Check, Violation, check
from enginecore_conformance.kv_cache_managers.bench import KVCacheBench
from enginecore_conformance.schedulers.knobs import kit_with_knobs
from enginecore_conformance.weight import require_light_import

__all__ = ["CHECKS", "KIT"]

NUM_CONTENTS = 24


@dataclass(eq=False, slots=True)
class _Block:
    """Fills `CachedContent`."""

    block_id: int
    position: int
    published: int
    num_hits: int = 0
    last_use: int = 0
    last_used_at: float = 0.0


class _Uses:
    """Blocks that come and go, and an order that holds those which are not in use."""

    def __init__(self, order: EvictionOrder, seed: int) -> None:
        self.order = order
        self.held: list[_Block] = []
        self._random = Random(seed)
        self._used = [_Block(number, number % 4, number) for number in range(NUM_CONTENTS)]
        self._num_uses = 0

    def run(self, moves: int) -> Iterator[CachedContent]:
        """The contents that are given up, one after the other."""
        for _ in range(moves):
            kind = self._random.choice(("add", "add", "remove", "pop"))
            if kind == "add" and self._used:
                self._add()
            elif kind == "remove" and self.held:
                self._remove()
            elif kind == "pop" and self.held:
                yield self.order.pop()
            if len(self.order) != len(self.held) or set(self.order) != set(self.held):
                raise Violation(
                    f"it holds {len(self.order)} and lists {[content.block_id for content in self.order]}",
                    f"{[block.block_id for block in self.held]}",
                )

    def give_up(self, content: Any) -> None:
        """Use the block of a content for something else."""
        self.held.remove(content)
        content.num_hits = 0
        self._used.append(content)

    def _add(self) -> None:
        block = self._used.pop(self._random.randrange(len(self._used)))
        self._num_uses += 1
        block.last_use, block.last_used_at = self._num_uses, float(self._num_uses)
        block.published += NUM_CONTENTS
        self.held.append(block)
        self.order.add(block)

    def _remove(self) -> None:
        block = self.held.pop(self._random.randrange(len(self.held)))
        self.order.remove(block)
        block.num_hits += 1
        self._used.append(block)


def _uses(bench: KVCacheBench, seed: int) -> _Uses:
    make = bench.parts.make_eviction
    if make is None:
        raise Violation("the KV cache manager beside it asks no order of eviction", "one that declares 'eviction'")
    return _Uses(make(EvictionContext(num_blocks=NUM_CONTENTS, block_size=4, seed=0)), seed)


@check("eviction")
def it_gives_up_what_it_holds(bench: KVCacheBench) -> None:
    """`pop` gives up one that was added and not removed since; len() and iteration tell what is
    held.
    """
    for seed in range(6):
        uses = _uses(bench, seed)
        for content in uses.run(300):
            if content not in uses.held:
                raise Violation(f"it gave up {content}, which it does not hold", "one of those it holds")
            uses.give_up(content)


@check("eviction")
def what_has_a_lifetime_goes_by_age(bench: KVCacheBench) -> None:
    """An order with a `lifetime` is above 0 and gives up first what was used least recently."""
    uses = _uses(bench, 1)
    lifetime = uses.order.lifetime
    if lifetime is None:
        return
    if not lifetime > 0:
        raise Violation(f"lifetime = {lifetime}", "above 0, or None")
    for content in uses.run(300):
        oldest = min(uses.held, key=lambda block: block.last_use)
        if content is not oldest:
            raise Violation(f"it gave up {content} before {oldest}", "what was used least recently")
        uses.give_up(content)


@check("eviction")
def same_uses_give_the_same_order(bench: KVCacheBench) -> None:
    """Two orders in one process share nothing, and the same uses give the same order."""
    first, second = [], []
    one, other = _uses(bench, 3), _uses(bench, 3)
    for content in one.run(300):
        one.give_up(content)
        first.append(content.block_id)
    for content in other.run(300):
        other.give_up(content)
        second.append(content.block_id)
    if first != second:
        raise Violation(f"one order gave up {first}, and the other {second}", "the same")


@check("eviction")
def managers_keep_their_contract_behind_it(bench: KVCacheBench) -> None:
    """Whatever it gives up, the KV cache manager that asks keeps all rules: no block is torn from
    its owner, no hit is wrong.
    """
    for rule in bench.broken_rules():
        bench.require_kept(rule)


@check("eviction")
def importing_it_is_light(bench: KVCacheBench) -> None:
    """Importing the plugin's module pulls in no model library and takes little time."""
    require_light_import(bench.subject)


CHECKS: tuple[Check[Any], ...] = (
    it_gives_up_what_it_holds,
    what_has_a_lifetime_goes_by_age,
    same_uses_give_the_same_order,
    managers_keep_their_contract_behind_it,
    importing_it_is_light,
)
"""All checks of orders of eviction. A component has one more for each of its own settings."""


KIT = kit_with_knobs(CHECKS, KVCacheBench)

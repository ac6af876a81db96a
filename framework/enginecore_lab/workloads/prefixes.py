"""Shared prefixes of prompts: a tree of system prompts, then tools, then documents."""

from collections.abc import Iterator

import numpy as np
from pydantic import Field

from enginecore_lab.tables import Table


class ContentIds:
    """Hands out ids of blocks that are new."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> range:
        """The next `count` ids."""
        first, self._next = self._next, self._next + count
        return range(first, self._next)


class PrefixLevel(Table):
    """One level of the tree.

    Attributes:
        branches: Different continuations of whatever stands before it.
        tokens: Length of each; whole blocks.
    """

    branches: int = Field(ge=1, le=1_000_000)
    tokens: int = Field(ge=1)


class PrefixTree(Table):
    """A tree of prefixes; every prompt goes along one path from the root to a leaf, and on with tokens of its own.

    Attributes:
        levels: From the root on.
        skew: How unequally branches are chosen: the n-th as often as 1 / n^skew. 0: all alike.
    """

    levels: tuple[PrefixLevel, ...] = Field(min_length=1)
    skew: float = Field(default=0.0, ge=0, le=10)

    @property
    def num_tokens(self) -> int:
        """Length of every prefix."""
        return sum(level.tokens for level in self.levels)

    def check_block_size(self, block_size: int) -> None:
        """Prefixes are shared in whole blocks.

        Raises:
            ValueError: a level's tokens do not fill blocks.
        """
        for number, level in enumerate(self.levels):
            if level.tokens % block_size:
                raise ValueError(
                    f"prefix.levels[{number}].tokens = {level.tokens} must be a multiple of block_size = {block_size}"
                )

    def draw(self, rng: np.random.Generator, count: int, block_size: int, ids: ContentIds) -> Iterator[tuple[int, ...]]:
        """The ids of the blocks of so many prefixes."""
        choices = [self._choose(rng, level.branches, count) for level in self.levels]
        known: dict[tuple[int, ...], tuple[int, ...]] = {}
        for path in zip(*choices, strict=True):
            blocks: tuple[int, ...] = ()
            for depth, level in enumerate(self.levels):
                node = path[: depth + 1]
                if node not in known:
                    known[node] = (*blocks, *ids.take(level.tokens // block_size))
                blocks = known[node]
            yield blocks

    def _choose(self, rng: np.random.Generator, branches: int, count: int) -> list[int]:
        weights = np.arange(1, branches + 1, dtype=np.float64) ** -self.skew
        chosen: list[int] = rng.choice(branches, count, p=weights / weights.sum()).tolist()
        return chosen

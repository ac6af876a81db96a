"""Switchbacks: blocks of time in pairs, one for each arm, in an order drawn by lot."""

from random import Random
from typing import NamedTuple


class Block(NamedTuple):
    """A stretch of time that belongs to one arm.

    Attributes:
        number: From 0.
        arm: 0 is the baseline, 1 the candidate.
        is_burn_in: Whether the moment asked for is so early in it that what comes then is left out: the other arm's
            requests are still being served on the same machine.
    """

    number: int
    arm: int
    is_burn_in: bool

    @property
    def pair(self) -> int:
        """Which pair of blocks it is of."""
        return self.number // 2


class Switchback:
    """Gives each pair of blocks to both arms, in an order that depends on nothing but the seed and the pair's number.

    Bojinov, Simchi-Levi, Zhao: Design and Analysis of Switchback Experiments, Management Science 2023.

    Args:
        block_seconds: Length of a block; five to ten times what the engine takes to drain.
        burn_in_seconds: From the start of each block, left out.
        seed: Seed of the lots.

    Raises:
        ValueError: the lengths make no sense.
    """

    def __init__(self, block_seconds: float, burn_in_seconds: float, seed: int = 0) -> None:
        if not 0 <= burn_in_seconds < block_seconds:
            raise ValueError(
                f"burn_in_seconds must be at least 0 and below block_seconds, got {burn_in_seconds} and {block_seconds}"
            )
        self.block_seconds = block_seconds
        self.burn_in_seconds = burn_in_seconds
        self._seed = seed

    def at(self, elapsed: float) -> Block:
        """The block that a moment falls into, in seconds since the start."""
        number, into = divmod(elapsed, self.block_seconds)
        return Block(int(number), self.arm_of(int(number)), into < self.burn_in_seconds)

    def arm_of(self, number: int) -> int:
        """The arm of a block."""
        first = Random(f"{self._seed}:{number // 2}").randrange(2)
        return first ^ (number % 2)

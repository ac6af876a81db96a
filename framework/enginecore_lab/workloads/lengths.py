"""Length distributions: of prompts, outputs, and turns of a conversation."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from enginecore_lab.interfaces import LengthDistribution, Lengths
from enginecore_lab.tables import Table


class _BoundedLength(Table, LengthDistribution):
    """A distribution whose ends are cut off, which moves its mean.

    Attributes:
        minimum: Smaller numbers are raised to it.
        maximum: Larger numbers are lowered to it; None: none are.
    """

    minimum: int = Field(default=1, ge=1)
    maximum: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check_bounds(self) -> "_BoundedLength":
        if self.maximum is not None and self.maximum < self.minimum:
            raise ValueError(f"maximum = {self.maximum} is below minimum = {self.minimum}")
        return self

    def _rounded(self, drawn: NDArray[np.float64]) -> Lengths:
        most = float(self.maximum) if self.maximum is not None else float(1 << 40)
        lengths: Lengths = np.rint(np.clip(drawn, self.minimum, most)).astype(np.int64)
        return lengths


class ConstantLength(Table, LengthDistribution):
    """The same length for all."""

    tokens: int = Field(ge=1)

    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        return np.full(count, self.tokens, np.int64)


class UniformLength(Table, LengthDistribution):
    """Equally likely lengths from `low` to `high`, both included."""

    low: int = Field(ge=1)
    high: int = Field(ge=1)

    @model_validator(mode="after")
    def _check_order(self) -> "UniformLength":
        if self.high < self.low:
            raise ValueError(f"high = {self.high} is below low = {self.low}")
        return self

    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        return rng.integers(self.low, self.high, count, dtype=np.int64, endpoint=True)


class GeometricLength(_BoundedLength):
    """Memoryless lengths, with a mean of at least 1.

    After any number of tokens the expected rest is the same.
    """

    mean: float = Field(ge=1)

    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        return self._rounded(rng.geometric(1 / self.mean, count).astype(np.float64))


class LognormalLength(_BoundedLength):
    """Mostly short lengths, a few long ones.

    `sigma` is the deviation of the logarithm: 0.7 for chats, 1.5 for a heavy tail.
    """

    mean: float = Field(gt=0)
    sigma: float = Field(gt=0, le=10)

    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        return self._rounded(rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, count))


class ParetoLength(_BoundedLength):
    """A power law: the few longest are much of the work.

    At `alpha` of 2 and below they are most of it.
    """

    mean: float = Field(gt=0)
    alpha: float = Field(gt=1, le=100)

    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        shortest = self.mean * (self.alpha - 1) / self.alpha
        return self._rounded(shortest * (1 + rng.pareto(self.alpha, count)))


class EmpiricalLength(Table, LengthDistribution):
    """Lengths drawn from a list.

    Each is as likely as any other: a length that is listed twice is drawn twice as often.
    """

    values: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)

    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        drawn: Lengths = rng.choice(np.array(self.values, np.int64), count)
        return drawn

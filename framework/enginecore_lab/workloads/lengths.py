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
    """All are equal."""

    tokens: int = Field(ge=1)

    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        return np.full(count, self.tokens, np.int64)


class UniformLength(Table, LengthDistribution):
    """Every number of tokens from `low` to `high`, both included, is as likely as any other."""

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
    """Without memory: after any number of tokens as many more are to be expected. The mean is at least 1."""

    mean: float = Field(ge=1)

    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        return self._rounded(rng.geometric(1 / self.mean, count).astype(np.float64))


class LognormalLength(_BoundedLength):
    """Most are short, few are long. `sigma` is the deviation of the logarithm: 0.7 for chats, 1.5 for a heavy tail."""

    mean: float = Field(gt=0)
    sigma: float = Field(gt=0, le=10)

    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        return self._rounded(rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, count))


class ParetoLength(_BoundedLength):
    """A power law: at `alpha` of 2 and below, the few longest are most of the work."""

    mean: float = Field(gt=0)
    alpha: float = Field(gt=1, le=100)

    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        shortest = self.mean * (self.alpha - 1) / self.alpha
        return self._rounded(shortest * (1 + rng.pareto(self.alpha, count)))


class EmpiricalLength(Table, LengthDistribution):
    """One of these, each as likely as any other: name one twice and it is drawn twice as often."""

    values: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1)

    def draw(self, rng: np.random.Generator, count: int) -> Lengths:
        drawn: Lengths = rng.choice(np.array(self.values, np.int64), count)
        return drawn

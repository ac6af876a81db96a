"""Arrival processes, and the think times of conversations."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from enginecore_lab.interfaces import ArrivalProcess, Times
from enginecore_lab.tables import Table


def _unit_arrivals(rng: np.random.Generator, count: int) -> Times:
    """Poisson arrivals, one per second on average; other processes change how fast time runs for them."""
    return np.cumsum(rng.exponential(1.0, count))


class AtOnce(Table, ArrivalProcess):
    """All requests at the beginning."""

    def times(self, rng: np.random.Generator, count: int) -> Times:
        return np.zeros(count)


class ConstantArrivals(Table, ArrivalProcess):
    """Equal gaps, the first request at the beginning."""

    rate: float = Field(gt=0)

    def times(self, rng: np.random.Generator, count: int) -> Times:
        return np.arange(count) / self.rate


class PoissonArrivals(Table, ArrivalProcess):
    """Independent arrivals, as from many clients."""

    rate: float = Field(gt=0)

    def times(self, rng: np.random.Generator, count: int) -> Times:
        return _unit_arrivals(rng, count) / self.rate


class GammaArrivals(Table, ArrivalProcess):
    """Burstier than Poisson with `cv` above 1, steadier below.

    `cv` is the coefficient of variation of the gaps.
    """

    rate: float = Field(gt=0)
    cv: float = Field(gt=0, le=1000)

    def times(self, rng: np.random.Generator, count: int) -> Times:
        shape = 1 / self.cv**2
        return np.cumsum(rng.gamma(shape, 1 / (shape * self.rate), count))


class OnOffArrivals(Table, ArrivalProcess):
    """Poisson at two rates in turn.

    At `rate` for `on_seconds`, then at `off_rate` for `off_seconds`, and again.
    """

    rate: float = Field(gt=0)
    on_seconds: float = Field(gt=0)
    off_seconds: float = Field(gt=0)
    off_rate: float = Field(default=0.0, ge=0)

    def times(self, rng: np.random.Generator, count: int) -> Times:
        while_on = self.rate * self.on_seconds
        cycles, rest = np.divmod(_unit_arrivals(rng, count), while_on + self.off_rate * self.off_seconds)
        late = self.on_seconds + (rest - while_on) / self.off_rate if self.off_rate else rest / self.rate
        return cycles * (self.on_seconds + self.off_seconds) + np.where(rest < while_on, rest / self.rate, late)


class RampArrivals(Table, ArrivalProcess):
    """Poisson at a rate that changes evenly.

    From `rate` to `to_rate` within `seconds`; then it stays there.
    """

    rate: float = Field(ge=0)
    to_rate: float = Field(gt=0)
    seconds: float = Field(gt=0)

    @model_validator(mode="after")
    def _check_ramp(self) -> "RampArrivals":
        if self.rate == self.to_rate:
            raise ValueError(f"rate and to_rate are both {self.rate}: that is no ramp; use kind = 'poisson'")
        return self

    def times(self, rng: np.random.Generator, count: int) -> Times:
        due = _unit_arrivals(rng, count)
        slope = (self.to_rate - self.rate) / self.seconds
        on_ramp = (self.rate + self.to_rate) / 2 * self.seconds
        # so many arrivals are due where rate * t + slope * t^2 / 2 has grown to that number
        root = np.sqrt(np.maximum(self.rate**2 + 2 * slope * np.minimum(due, on_ramp), 0.0))
        times: Times = np.where(
            due < on_ramp, 2 * due / (self.rate + root), self.seconds + (due - on_ramp) / self.to_rate
        )
        return times


class ConstantThinkTime(Table):
    """Always the same."""

    kind: Literal["constant"] = "constant"
    seconds: float = Field(ge=0)

    def draw(self, rng: np.random.Generator, count: int) -> Times:
        """Draw `count` think times in seconds, shape (count,)."""
        return np.full(count, self.seconds)


class ExponentialThinkTime(Table):
    """Without memory."""

    kind: Literal["exponential"]
    mean: float = Field(gt=0)

    def draw(self, rng: np.random.Generator, count: int) -> Times:
        """Draw `count` think times in seconds, shape (count,)."""
        return rng.exponential(self.mean, count)


class LognormalThinkTime(Table):
    """Mostly short, sometimes a coffee. `sigma` is the deviation of the logarithm."""

    kind: Literal["lognormal"]
    mean: float = Field(gt=0)
    sigma: float = Field(gt=0, le=10)

    def draw(self, rng: np.random.Generator, count: int) -> Times:
        """Draw `count` think times in seconds, shape (count,)."""
        return rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, count)


ThinkTime = Annotated[ConstantThinkTime | ExponentialThinkTime | LognormalThinkTime, Field(discriminator="kind")]

"""Host work between steps: how much of it a simulated run is charged with."""

from math import inf
from typing import Literal, Protocol

from enginecore.clock import Clock, VirtualClock
from enginecore.errors import ConfigurationError
from enginecore_simulation import CostModel


class Charge(Protocol):
    """Says when a step may begin that is submitted now. Times are on the engine's clock."""

    def submitted(self, now: float) -> float:
        """A step is submitted; when its host work is done."""
        ...

    def completed(self, now: float) -> None:
        """A step's result is handed to the engine core."""
        ...


class FixedCharge:
    """The same for every step. The host does one thing at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._free_from = -inf

    def submitted(self, now: float) -> float:
        self._free_from = max(now, self._free_from) + self._seconds
        return self._free_from

    def completed(self, now: float) -> None:
        """Changes nothing."""


class MeasuredCharge:
    """The real time of the engine core since the last result.

    It is charged if no time has passed on the virtual clock since: then the core settled that step
    and scheduled this one without a wait. A wait for arrivals is not charged.
    """

    def __init__(self) -> None:
        # the one place of a virtual run that looks at the real time, because it was asked to
        from time import perf_counter

        self._stopwatch = perf_counter
        self._completed_at = -inf
        self._began = 0.0

    def submitted(self, now: float) -> float:
        return now + (self._stopwatch() - self._began) if now == self._completed_at else now

    def completed(self, now: float) -> None:
        self._completed_at = now
        self._began = self._stopwatch()


def make_charge(asked: float | Literal["measured"] | None, costs: CostModel, clock: Clock) -> Charge:
    """The charge that the settings ask for.

    Raises:
        ConfigurationError: "measured" on a real clock, where that time passes by itself.
    """
    if asked == "measured":
        if not isinstance(clock, VirtualClock):
            raise ConfigurationError(
                'executor.simulated.scheduler_charge = "measured" is for virtual time: on a real clock the time that '
                "scheduling takes passes by itself; set 0"
            )
        return MeasuredCharge()
    return FixedCharge(costs.gap if asked is None else asked)

"""Times at which batches leave a pipeline of stages."""

from collections.abc import Sequence
from math import inf

from enginecore.errors import ConfigurationError


class Pipeline:
    """Batches go through all stages, one at a time in each, in order.

    A batch enters a stage when it has left the one before and the batch before it has left this one. What stages hand
    on to each other costs no time.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        """With stages that take a step's time in these proportions."""
        if not weights or min(weights) <= 0:
            raise ConfigurationError(f"a pipeline needs stages, each with a share above 0, got {list(weights)}")
        total = sum(weights)
        self._shares = [weight / total for weight in weights]
        self._free_from = [-inf] * len(weights)

    def push(self, at: float, seconds: float) -> float:
        """When a batch is done that may begin at `at` and takes `seconds` in all stages together."""
        for stage, share in enumerate(self._shares):
            at = max(at, self._free_from[stage]) + seconds * share
            self._free_from[stage] = at
        return at

"""The cost of a step: linear in its parameters, with features that have a physical meaning."""

from dataclasses import dataclass, fields, replace
from math import isfinite

from enginecore.errors import ConfigurationError
from enginecore_simulation.features import StepFeatures


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Parameters of the step time, all in seconds but `rho`.

    With n tokens, B requests and the sums of `StepFeatures`, a step takes

        per_step + per_request * B
        + (weights ** rho + (per_token * n) ** rho) ** (1 / rho)
        + per_kv_token * decode_context + per_attention_pair * prefill_attention
        + comm_per_step + comm_per_token * n

    Attributes:
        per_step: Fixed, e.g. launching kernels.
        per_request: For each request in the batch.
        weights: Reading the weights once: what few tokens cost, however few.
        per_token: Arithmetic for each token: what many tokens cost.
        rho: How the two overlap: 1 is their sum, infinity the larger one (the roofline), between them a smooth maximum.
        per_kv_token: Reading keys and values of one token.
        per_attention_pair: Arithmetic of one token that attends to one other.
        comm_per_step: All-reduces, whatever their size.
        comm_per_token: All-reduces, for each token.

    Raises:
        ConfigurationError: a time is negative or not finite, or rho is below 1.
    """

    per_step: float = 0.0
    per_request: float = 0.0
    weights: float = 0.0
    per_token: float = 0.0
    rho: float = 1.0
    per_kv_token: float = 0.0
    per_attention_pair: float = 0.0
    comm_per_step: float = 0.0
    comm_per_token: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "rho":
                if not value >= 1:
                    raise ConfigurationError(f"rho of a step's costs must be at least 1, got {value}")
            elif not 0 <= value or not isfinite(value):
                raise ConfigurationError(f"{each.name} of a step's costs must be finite and at least 0, got {value}")

    def seconds(self, features: StepFeatures) -> float:
        """Seconds of the step; 0 if it computes nothing."""
        n, _, requests, decode_context, prefill_attention = features
        if not n:
            return 0.0
        return (
            self.per_step
            + self.comm_per_step
            + self.per_request * requests
            + smooth_maximum(self.weights, self.per_token * n, self.rho)
            + self.per_kv_token * decode_context
            + self.per_attention_pair * prefill_attention
            + self.comm_per_token * n
        )


@dataclass(frozen=True, slots=True)
class CostModel:
    """Costs of steps, by regime: the code that runs is not the same.

    Attributes:
        decode: Cost of steps that only decode.
        mixed: Cost of all other steps.
        gap: Seconds of host work from the end of a step to the start of the next one.
    """

    decode: StepCosts
    mixed: StepCosts
    gap: float = 0.0

    @classmethod
    def uniform(cls, costs: StepCosts) -> "CostModel":
        """The same costs in both regimes."""
        return cls(costs, costs)

    def seconds(self, features: StepFeatures) -> float:
        """Seconds of the step."""
        return (self.decode if features.is_pure_decode else self.mixed).seconds(features)

    def overridden(self, values: dict[str, float]) -> "CostModel":
        """With some parameters, by name, set to other values in both regimes."""
        return replace(self, decode=replace(self.decode, **values), mixed=replace(self.mixed, **values))


def smooth_maximum(a: float, b: float, rho: float) -> float:
    """The rho-norm of two times: between their maximum and their sum."""
    low, high = (a, b) if a < b else (b, a)
    if not low or rho == 1:
        return low + high
    return float(high * (1 + (low / high) ** rho) ** (1 / rho))

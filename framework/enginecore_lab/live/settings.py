"""Settings of a live experiment."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from enginecore_lab.live.ledger import LiveRequest


class LiveSettings(BaseModel):
    """How a live experiment is run and judged.

    Attributes:
        metric: Metric that decides: means per block of "ttft", "tpot" or "e2e" in seconds; less is
            better.
        block_seconds: Length of a block; five to ten times what the engine takes to drain.
        burn_in_seconds: From the start of each block, not counted.
        pilot_pairs: Pairs before the test, in which the baseline serves both blocks: how much a difference varies
            without an effect must be known before the test begins.
        sd: The same, if it is known already: then there is no pilot.
        num_pairs: Pairs after which the test is to be sharpest.
        max_pairs: Pairs after which it gives up.
        alpha: Chance of a wrong decision, over all looks together.
        ttft_slo: Seconds to the first token within which a request is served well.
        tpot_slo: Seconds per further token, likewise.
        min_attainment: The candidate is given up at once when less than this share of its latest requests is served
            well.
        guard_window: How many requests that share is taken over; none is judged by fewer than a tenth of them.
        penalty_seconds: Latency that a failed request counts with; None: `block_seconds`.
        seed: Seed of the lots that order the blocks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    metric: Literal["ttft", "tpot", "e2e"] = "ttft"
    block_seconds: float = Field(default=60.0, gt=0)
    burn_in_seconds: float = Field(default=10.0, ge=0)
    pilot_pairs: int = Field(default=10, ge=3)
    sd: float | None = Field(default=None, gt=0)
    num_pairs: int = Field(default=100, ge=1)
    max_pairs: int = Field(default=1000, ge=1)
    alpha: float = Field(default=0.05, gt=0, lt=1)
    ttft_slo: float | None = Field(default=None, gt=0)
    tpot_slo: float | None = Field(default=None, gt=0)
    min_attainment: float | None = Field(default=None, gt=0, le=1)
    guard_window: int = Field(default=200, ge=10)
    penalty_seconds: float | None = Field(default=None, gt=0)
    seed: int = 0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.burn_in_seconds >= self.block_seconds:
            raise ValueError(
                f"burn_in_seconds = {self.burn_in_seconds} leaves nothing of block_seconds = {self.block_seconds}"
            )
        if self.min_attainment is not None and self.ttft_slo is None and self.tpot_slo is None:
            raise ValueError("min_attainment needs ttft_slo or tpot_slo: what being served well means")
        return self

    def is_met_by(self, request: LiveRequest) -> bool:
        """Whether a completed request was served well."""
        ttft_met = self.ttft_slo is None or request.ttft <= self.ttft_slo
        return ttft_met and (self.tpot_slo is None or request.tpot <= self.tpot_slo)

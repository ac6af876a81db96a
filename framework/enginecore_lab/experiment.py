"""Experiments as their files say them: one workload, two or more arms, and the metric that decides.

name = "chunked-prefill"
[workload]
kind = "azure"
path = "azure_2023_conv.csv"
[[arms]]
name = "whole prompts"
settings.scheduler.use = "prefill_first"
[[arms]]
name = "chunks"
[primary]
metric = "itl_p99"
"""

from collections import Counter
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from enginecore_lab.choices import MetricByName, MetricChoice
from enginecore_lab.metrics import Slo, Window
from enginecore_lab.statistics import FEWEST_TO_RESAMPLE, LEVEL, Across, Margin
from enginecore_lab.tables import Table
from enginecore_lab.workloads.choice import AnyWorkload

FEWEST_REPLICATES = 8
DEFAULT_MARGIN = 0.02
DEFAULT_SECONDARY = (
    *("ttft_mean", "ttft_p50", "ttft_p99", "itl_p50", "itl_p99", "tpot_mean", "e2e_mean", "e2e_p50", "e2e_p99"),
    *("queue_delay_mean", "slo_attainment", "good_rps", "output_tokens_per_s", "makespan"),
    *("cache_hit_share", "preemptions_per_request", "recomputed_share", "failed_share"),
    *("service_difference", "jain_service"),
)
"""As many as answer most questions, and no more: each one more makes the others less sure."""


class ArmSettings(Table):
    """One configuration.

    Attributes:
        name: Name for people.
        settings: Settings that the arm sets over `[engine]`.
    """

    name: str = Field(min_length=1)
    settings: dict[str, Any] = Field(default_factory=dict)


class PrimarySettings(Table):
    """The one metric that decides, named before anything is run.

    Attributes:
        metric: The metric, by its name.
        margin: Differences up to this share of the baseline do not matter. Unset: 2 %, unless `margin_abs` is set.
        margin_abs: The same in the metric's unit, instead.
    """

    metric: MetricByName
    margin: float | None = Field(default=None, ge=0, lt=1)
    margin_abs: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _check_margin(self) -> "PrimarySettings":
        if self.margin is not None and self.margin_abs is not None:
            raise ValueError("margin is a share of the baseline and margin_abs a quantity: set one of them")
        return self

    def margin_in_force(self) -> Margin:
        """The margin as the table says it, or the default."""
        if self.margin_abs is not None:
            return Margin(self.margin_abs, is_relative=False)
        return Margin(DEFAULT_MARGIN if self.margin is None else self.margin)


class SecondarySettings(Table):
    """Metrics that are compared beside the primary one.

    Attributes:
        metrics: The metrics, by their names. The default are those that most questions are about.
        margin: Differences up to this share of the baseline do not matter.
    """

    metrics: tuple[MetricByName, ...] = Field(default=DEFAULT_SECONDARY, validate_default=True)
    margin: float = Field(default=DEFAULT_MARGIN, ge=0, lt=1)


class SloSettings(Table):
    """Limits that a good request meets, in seconds; a request's own terms go before these.

    Attributes:
        ttft: Seconds to the first token.
        tpot: Per output token after the first.
        e2e: Seconds to the last token.
    """

    ttft: float | None = Field(default=None, gt=0)
    tpot: float | None = Field(default=None, gt=0)
    e2e: float | None = Field(default=None, gt=0)

    def terms(self) -> Slo:
        """For the metrics."""
        return Slo(self.ttft, self.tpot, self.e2e)


class WindowSettings(Table):
    """Which requests of each replicate count, by their place.

    Attributes:
        skip_first: Requests at the beginning, which meet an idle engine.
        skip_last: Requests at the end, which meet an engine that empties.
    """

    skip_first: int = Field(default=0, ge=0)
    skip_last: int = Field(default=0, ge=0)

    def window(self) -> Window:
        """For the metrics."""
        return Window(self.skip_first, self.skip_last)


class Experiment(Table):
    """A whole experiment. `load_experiment` reads one, with errors that name the key.

    Attributes:
        name: Name for people. Unset: its file's.
        workload: Workload of every arm.
        arms: The first is the baseline.
        primary: The metric that decides.
        secondary: Metrics that are compared beside the primary one.
        engine: Settings of every arm, as in an engine's configuration file. The environment is not read.
        slo: Limits that a good request meets.
        window: Choice of the requests that count.
        seed: Seed of the workload, of the order of runs, of resampling, and, if no arm says
            otherwise, of the engines.
        across: Summary of the replicates: their mean; or their median, if single ones may be
            anything.
        replicates: How many pairs; 1: one workload without chance, of which the difference is exact.
        clock: "virtual": simulated, as by the executor `simulated`. "real": for executors that compute.
        reveal_lengths: Policies may know how long outputs will be.
    """

    name: str = Field(min_length=1)
    workload: AnyWorkload
    arms: tuple[ArmSettings, ...] = Field(min_length=2)
    primary: PrimarySettings
    secondary: SecondarySettings = Field(default={}, validate_default=True)
    engine: dict[str, Any] = Field(default_factory=dict)
    slo: SloSettings = SloSettings()
    window: WindowSettings = WindowSettings()
    seed: int = Field(default=0, ge=0, lt=1 << 32)
    replicates: int = Field(default=20, ge=1)
    across: Across = "mean"
    clock: Literal["virtual", "real"] = "virtual"
    reveal_lengths: bool = False

    @field_validator("arms")
    @classmethod
    def _check_names(cls, arms: tuple[ArmSettings, ...]) -> tuple[ArmSettings, ...]:
        twice = [name for name, count in Counter(arm.name for arm in arms).items() if count > 1]
        if twice:
            raise ValueError(f"two arms are called {twice[0]!r}: their names must differ")
        return arms

    @field_validator("replicates")
    @classmethod
    def _check_replicates(cls, replicates: int) -> int:
        if 1 < replicates < FEWEST_REPLICATES:
            raise ValueError(
                f"must be at least {FEWEST_REPLICATES}, for fewer pairs tell too little of their spread; or 1, for one "
                "workload without chance"
            )
        return replicates

    @model_validator(mode="after")
    def _check_few_replicates(self) -> "Experiment":
        if self.replicates == 1 and self.clock == "real":
            raise ValueError("replicates = 1 takes a virtual clock: on a real one no run comes out like another")
        if self.replicates < FEWEST_TO_RESAMPLE and self.across == "median":
            raise ValueError(
                f"across = 'median' takes at least {FEWEST_TO_RESAMPLE} replicates, got {self.replicates}: of fewer "
                "medians there is no interval"
            )
        return self

    def level(self) -> float:
        """Level of intervals. With several candidates they are wider, so that all hold at once."""
        return 1 - (1 - LEVEL) / (len(self.arms) - 1)

    @property
    def needs_alone(self) -> bool:
        """Whether a metric needs the time that each request takes alone."""
        return any(metric.built.needs_alone for metric in self.metrics())

    def metrics(self) -> list[MetricChoice]:
        """The primary one first, then the secondary ones."""
        return list({metric.name: metric for metric in (self.primary.metric, *self.secondary.metrics)}.values())

    def plain(self) -> dict[str, Any]:
        """The experiment as plain values, from which `load_experiment` reads the same one.

        Complete, but for workload and secondary metrics: there what was left unsaid means something else than its
        default said aloud, so they hold what was said.
        """
        said = self.model_dump(mode="json", exclude_unset=True, include={"workload", "secondary"})
        return {**self.model_dump(mode="json", exclude_none=True, exclude={"workload", "secondary"}), **said}

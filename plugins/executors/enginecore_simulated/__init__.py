"""`simulated`: steps that take as long as a cost model says, on the engine's clock, real or virtual."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from enginecore.interfaces import Executor
from enginecore.plugin import Component, ComponentSettings, ExecutorContext, hookimpl

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class CustomHardware(BaseModel):
    """A card that has no name here.

    Attributes:
        flops: Operations of dense 16-bit arithmetic per second.
        bandwidth: Memory bandwidth, bytes per second.
        memory: Bytes.
        link: Bandwidth to its peers, bytes per second in one direction.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    flops: float = Field(gt=0)
    bandwidth: float = Field(gt=0)
    memory: int = Field(gt=0)
    link: float = Field(default=50e9, gt=0)


class Parameters(BaseModel):
    """Parameters of the step time that are known better than the model does; see `StepCosts`. Unset: as they are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    per_step: Seconds | None = None
    per_request: Seconds | None = None
    weights: Seconds | None = None
    per_token: Seconds | None = None
    rho: float | None = Field(default=None, ge=1)
    per_kv_token: Seconds | None = None
    per_attention_pair: Seconds | None = None
    comm_per_step: Seconds | None = None
    comm_per_token: Seconds | None = None


class SimulatedExecutorSettings(ComponentSettings):
    """Options of the executor `simulated`.

    Attributes:
        hardware: The card; "custom": what the table `custom` says.
        custom: Data sheet of a card of your own.
        shape: Shape of the model: the name of a preset, a config.json, a folder with one, or a hub
            id. Unset: the engine's `model`.
        max_position_embeddings: The longest context, if it is not to be what the model was made for.
        tensor_parallel_size: Cards that share every layer.
        pipeline_parallel_size: Stages, each on cards of its own, with as many steps in flight.
        overlap: With one stage: a step is submitted while the one before it runs.
        gpu_memory_utilization: Share of a card's memory that weights and KV cache may take. Of what is left for the KV
            cache the engine takes the share `kv_cache_memory`: 1.0 is all.
        costs: Step costs that were measured: a file by `enginecore calibrate`, or a CSV table of steps. Unset: derived
            from card and model.
        parameters: Single parameters, over all of that.
        step_times: Seconds that the steps take, one after another, whatever they hold; a list, or a CSV file with a
            column `seconds`. For repeating a recorded run.
        scheduler_charge: Seconds of host work for each step, hidden if another step runs meanwhile. "measured": what
            the engine core really took from the end of a step to the next one, on a virtual clock: such runs do not
            repeat exactly. Unset: what `costs` found, or else 0.
    """

    hardware: Literal["A100-SXM-80", "H100-SXM", "H200-SXM", "custom"] = "H100-SXM"
    custom: CustomHardware | None = None
    shape: str | None = Field(default=None, min_length=1)
    max_position_embeddings: int | None = Field(default=None, ge=1)
    tensor_parallel_size: int = Field(default=1, ge=1)
    pipeline_parallel_size: int = Field(default=1, ge=1)
    overlap: bool = False
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    costs: Path | None = None
    parameters: Parameters = Parameters()
    step_times: tuple[Seconds, ...] | Path | None = None
    scheduler_charge: Seconds | Literal["measured"] | None = None

    @model_validator(mode="after")
    def _check_custom(self) -> "SimulatedExecutorSettings":
        if (self.hardware == "custom") != (self.custom is not None):
            raise ValueError('the table `custom` and hardware = "custom" go together: give both, or neither')
        return self


def _make_simulated(settings: SimulatedExecutorSettings, context: ExecutorContext) -> Executor:
    from enginecore_simulated.executor import SimulatedExecutor

    return SimulatedExecutor(settings, context)


@hookimpl
def enginecore_components() -> Iterable[Component]:
    """This package's components."""
    factory: Any = _make_simulated
    yield Component(
        kind="executor",
        name="simulated",
        factory=factory,
        settings=SimulatedExecutorSettings,
        summary="No model: a cost model says how long each step takes.",
    )

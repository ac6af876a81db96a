"""Executors that run real models with torch: `single`, one process on a CPU or one CUDA device."""

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field

from enginecore.interfaces import Executor
from enginecore.plugin import Component, ComponentSettings, ExecutorContext, hookimpl


class SingleExecutorSettings(ComponentSettings):
    """Options of the executor `single`.

    Attributes:
        attention: Attention backend. "native" is the C kernel (CPU; needs a C compiler), "torch" runs everywhere;
            "auto" takes the fastest that works here.
        ops: The small operations between matrix products; same choices.
        num_threads: Threads on the CPU, for the whole process. None: one per physical core that nobody else keeps busy
            at start-up, or what OMP_NUM_THREADS says.
    """

    attention: Literal["auto", "native", "torch"] = "auto"
    ops: Literal["auto", "native", "torch"] = "auto"
    num_threads: int | None = Field(default=None, ge=1)


def make_single(settings: SingleExecutorSettings, context: ExecutorContext) -> Executor:
    """Load the model and return the executor."""
    from enginecore_torch.executor import SingleExecutor

    return SingleExecutor.from_context(settings, context)


@hookimpl
def enginecore_components() -> Iterable[Component]:
    """The components of this plugin."""
    factory: Any = make_single
    yield Component(
        kind="executor",
        name="single",
        factory=factory,
        settings=SingleExecutorSettings,
        summary="runs a model with torch in this process, on the CPU or one CUDA device",
    )

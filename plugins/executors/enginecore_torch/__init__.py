"""Executors that run real models with torch, on the CPU or CUDA: `single` in this process, `multiproc` in workers."""

from collections.abc import Iterable
from typing import Any

from enginecore.interfaces import Executor
from enginecore.plugin import Component, ExecutorContext, hookimpl
from enginecore_torch.settings import MultiprocExecutorSettings, SingleExecutorSettings


def make_single(settings: SingleExecutorSettings, context: ExecutorContext) -> Executor:
    """Load the model and return the executor."""
    from enginecore_torch.executor import SingleExecutor

    return SingleExecutor.from_context(settings, context)


def make_multiproc(settings: MultiprocExecutorSettings, context: ExecutorContext) -> Executor:
    """Start the workers, have them load the model, and return the executor."""
    from enginecore_torch.multiproc.executor import MultiprocExecutor

    return MultiprocExecutor(settings, context)


@hookimpl
def enginecore_components() -> Iterable[Component]:
    """The components of this plugin."""
    single: Any = make_single
    multiproc: Any = make_multiproc
    yield Component(
        kind="executor",
        name="single",
        factory=single,
        settings=SingleExecutorSettings,
        summary="runs a model with torch in this process, on the CPU or one CUDA device",
    )
    yield Component(
        kind="executor",
        name="multiproc",
        factory=multiproc,
        settings=MultiprocExecutorSettings,
        summary="runs a model with torch in worker processes, shared out by layers, heads or both",
    )

"""The lab's plugin: its kinds of component, its own workloads, distributions and metrics, and its commands."""

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from enginecore.plugin import Command, Component, KindSpec, hookimpl
from enginecore_lab.kinds import LAB_KINDS
from enginecore_lab.metrics.catalogue import metric_components
from enginecore_lab.workloads import arrivals, lengths, mix, sharegpt, synthetic, traces

_WORKLOADS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("azure", traces.AzureTrace),
    ("mooncake", traces.MooncakeTrace),
    ("bailian", traces.BailianTrace),
    ("burstgpt", traces.BurstGPTTrace),
    ("jsonl", traces.JsonlTrace),
    ("sharegpt", sharegpt.ShareGPTWorkload),
    ("synthetic", synthetic.SyntheticWorkload),
    ("mix", mix.MixedWorkload),
)

_ARRIVALS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("at_once", arrivals.AtOnce),
    ("constant", arrivals.ConstantArrivals),
    ("poisson", arrivals.PoissonArrivals),
    ("gamma", arrivals.GammaArrivals),
    ("on_off", arrivals.OnOffArrivals),
    ("ramp", arrivals.RampArrivals),
)

_LENGTHS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("constant", lengths.ConstantLength),
    ("uniform", lengths.UniformLength),
    ("geometric", lengths.GeometricLength),
    ("lognormal", lengths.LognormalLength),
    ("pareto", lengths.ParetoLength),
    ("empirical", lengths.EmpiricalLength),
)


@hookimpl
def enginecore_kinds() -> Iterable[KindSpec]:
    """Kinds that experiment files choose among."""
    return LAB_KINDS


@hookimpl
def enginecore_components() -> Iterable[Component]:
    """The lab's own workloads, distributions and metrics."""
    offers = (("workload", _WORKLOADS), ("arrivals", _ARRIVALS), ("lengths", _LENGTHS))
    own = [_component(kind, name, model) for kind, models in offers for name, model in models]
    return [*own, *metric_components()]


@hookimpl
def enginecore_commands() -> Iterable[Command]:
    """Commands on experiments."""
    folder = "enginecore_lab.commands"
    return [
        Command(name="ab", target=f"{folder}.ab:ab", summary="Run the arms of an experiment, and say which is better."),
        Command(name="replay", target=f"{folder}.replay:replay", summary="Run one workload on one configuration."),
        Command(
            name="capacity",
            target=f"{folder}.capacity:capacity",
            summary="Find the highest rate at which requests are served in time.",
        ),
        Command(
            name="sweep", target=f"{folder}.sweep:sweep", summary="Run the arms of an experiment at several rates."
        ),
        Command(
            name="calibrate",
            target=f"{folder}.calibrate:calibrate",
            summary="Measure the steps of an engine, and fit what they cost.",
        ),
    ]


def _component(kind: str, name: str, model: type[BaseModel]) -> Component:
    """A component whose settings are the component itself."""
    summary = (model.__doc__ or "").partition("\n")[0]
    return Component(kind=kind, name=name, factory=_settings_themselves, settings=model, summary=summary)


def _settings_themselves(settings: Any, context: object) -> Any:
    return settings

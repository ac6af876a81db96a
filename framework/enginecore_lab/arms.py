"""Settings of an experiment's arms, complete."""

from dataclasses import replace

from enginecore.errors import ConfigurationError
from enginecore.settings import Loaded, load_settings
from enginecore.settings.sources import expanded, overlay
from enginecore_lab.experiment import ArmSettings, Experiment


def load_arms(experiment: Experiment) -> list[Loaded]:
    """The complete settings of each arm. The environment is not read: the experiment says all.

    Raises:
        ConfigurationError: an arm's settings are wrong; names it.
    """
    return [_load(experiment, arm) for arm in experiment.arms]


def for_replicate(arm: Loaded, experiment: Experiment, replicate: int) -> Loaded:
    """With a seed of its own in each replicate, the same for all arms, unless the experiment names one."""
    if arm.sources["seed"] != "default":
        return arm
    settings = arm.settings.model_copy(update={"seed": experiment.seed + replicate})
    return replace(arm, settings=settings)


def _load(experiment: Experiment, arm: ArmSettings) -> Loaded:
    try:
        return load_settings(overlay(expanded(experiment.engine), expanded(arm.settings)), environ={})
    except ConfigurationError as error:
        raise ConfigurationError(f"arm {arm.name!r}: {error}") from error

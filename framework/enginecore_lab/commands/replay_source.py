"""Plans of `enginecore replay`: an arm of an experiment, or a workload on an engine, from options."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginecore.errors import ConfigurationError
from enginecore.registry.spelling import closest
from enginecore.settings import Loaded, load_settings, parse_overrides
from enginecore.settings.sources import Values, nested, overlay
from enginecore_lab.arms import for_replicate, load_arms
from enginecore_lab.experiment import ArmSettings, Experiment
from enginecore_lab.experiment_file import load_experiment
from enginecore_lab.experiment_file import parse_overrides as parse_values
from enginecore_lab.metrics import Slo, Window
from enginecore_lab.workload import Workload
from enginecore_lab.workloads import read_workload

TERMS = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options of the command, as they were given.

    Attributes:
        workload: Keys of the workload, with values.
        overrides: Keys of the engine's settings, with values.
        config: File with the engine's settings.
        virtual: Unset: as the experiment says, or True.
        seed: Seed of the workload. Unset: as the experiment says, or 0.
        replicate: Replicate of the workload.
        slo: Terms, with values.
        skip_first: Unset: as the experiment says, or 0.
        skip_last: Likewise.
        reveal_lengths: Whether policies may know lengths; also if the experiment says so.
    """

    workload: Sequence[str]
    overrides: Sequence[str]
    config: Path | None
    virtual: bool | None
    seed: int | None
    replicate: int
    slo: Sequence[str]
    skip_first: int | None
    skip_last: int | None
    reveal_lengths: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """All that a run needs."""

    workload: Workload
    settings: Loaded
    virtual: bool
    reveal_lengths: bool
    slo: Slo
    window: Window


def plan_replay(experiment: Path | None, arm: str | None, options: ReplayOptions) -> ReplayPlan:
    """The run that the options ask for.

    Raises:
        ConfigurationError: what is wrong, and what would be right.
    """
    if experiment is None and arm is not None:
        raise ConfigurationError(f"--arm {arm}: arms are those of an experiment; name its file first")
    asked = _of_options(options) if experiment is None else _of_experiment(experiment, arm, options)
    window, count = asked.window, len(asked.workload.requests)
    if window.skip_first + window.skip_last >= count:
        raise ConfigurationError(
            f"skip_first = {window.skip_first} and skip_last = {window.skip_last} leave none of {count} requests"
        )
    return asked


def _of_options(options: ReplayOptions) -> ReplayPlan:
    """A workload on an engine; the environment is read, as for any engine."""
    if not options.workload:
        raise ConfigurationError(
            "there is nothing to replay: name an experiment's file, or a workload, for example --workload kind=azure "
            "--workload path=trace.csv"
        )
    loaded = load_settings(parse_overrides(options.overrides), config_file=options.config)
    workload = read_workload(_table(options.workload), loaded.registry)
    return ReplayPlan(
        workload=workload.make(options.seed or 0, options.replicate),
        settings=loaded,
        virtual=options.virtual is not False,
        reveal_lengths=options.reveal_lengths,
        slo=_slo(options.slo, Slo()),
        window=_window(options, Window()),
    )


def _of_experiment(file: Path, arm: str | None, options: ReplayOptions) -> ReplayPlan:
    """One arm of an experiment, as the experiment would run it, but for what options say."""
    if options.config is not None:
        raise ConfigurationError(
            f"--config {options.config}: an experiment holds the settings of its engines; use --set"
        )
    experiment = load_experiment(
        file, {f"workload.{key}": value for key, value in parse_values(options.workload).items()}
    )
    chosen = _arm(experiment, arm)
    settings = {**chosen.settings, **parse_values(options.overrides)}
    changed = chosen.model_copy(update={"settings": settings})
    loaded = load_arms(experiment.model_copy(update={"arms": (changed,)}))[0]
    seed = experiment.seed if options.seed is None else options.seed
    return ReplayPlan(
        workload=experiment.workload.make(seed, options.replicate),
        settings=for_replicate(loaded, experiment, options.replicate),
        virtual=experiment.clock == "virtual" if options.virtual is None else options.virtual,
        reveal_lengths=options.reveal_lengths or experiment.reveal_lengths,
        slo=_slo(options.slo, experiment.slo.terms()),
        window=_window(options, experiment.window.window()),
    )


def _arm(experiment: Experiment, name: str | None) -> ArmSettings:
    names = [arm.name for arm in experiment.arms]
    if name is not None and name not in names:
        raise ConfigurationError(f"there is no arm {name!r}{closest(name, names)}; there are {', '.join(names)}")
    return experiment.arms[0 if name is None else names.index(name)]


def _table(texts: Sequence[str]) -> Values:
    table: Values = {}
    for key, value in parse_values(texts).items():
        table = overlay(table, nested(key.split("."), value))
    return table


def _slo(texts: Sequence[str], before: Slo) -> Slo:
    terms: dict[str, Any] = {term: getattr(before, term) for term in TERMS}
    for key, value in parse_values(texts).items():
        if key not in TERMS or isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ConfigurationError(f"--slo {key}={value}: must be one of {', '.join(TERMS)} with seconds above 0")
        terms[key] = float(value)
    return Slo(**terms)


def _window(options: ReplayOptions, before: Window) -> Window:
    first, last = options.skip_first, options.skip_last
    return Window(before.skip_first if first is None else first, before.skip_last if last is None else last)

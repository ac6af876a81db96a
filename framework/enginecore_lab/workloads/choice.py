"""The table `[workload]` of an experiment: a component of the kind "workload", and the options of
every workload.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, SerializationInfo, TypeAdapter, ValidationError, model_validator

from enginecore.errors import ConfigurationError
from enginecore.plugin import Component
from enginecore.registry import Registry
from enginecore.settings.sentences import describe_problem, find_problems
from enginecore_lab.choices import ChoiceOf, ComponentChoice, dumped, validated
from enginecore_lab.interfaces import WorkloadLoader
from enginecore_lab.kinds import WORKLOAD
from enginecore_lab.streams import Streams
from enginecore_lab.tables import Table, unknown_keys
from enginecore_lab.workload import Workload
from enginecore_lab.workloads.tenants import Tenant, assign_tenants
from enginecore_lab.workloads.transform import at_rate, in_closed_loop, scale_rate


class ClosedLoopSettings(Table):
    """Clients that each send their next request when their last one has ended.

    Attributes:
        concurrency: Number of clients.
        think_time: Seconds that each waits before its next request.
    """

    concurrency: int = Field(ge=1)
    think_time: float = Field(default=0.0, ge=0)


class WorkloadOptions(Table):
    """Keys of every workload beside those of its component.

    Attributes:
        rate_scale: Requests arrive this many times as fast.
        rate: Or so fast that this many arrive per second on average.
        tenants: Tenants of requests, drawn by weight; none: as the workload says.
        closed: Send the requests in a closed loop instead; times of arrival do not count.
    """

    rate_scale: float = Field(default=1.0, gt=0)
    rate: float | None = Field(default=None, gt=0)
    tenants: tuple[Tenant, ...] = ()
    closed: ClosedLoopSettings | None = None

    @model_validator(mode="after")
    def _check_rate(self) -> "WorkloadOptions":
        if self.rate is not None and self.rate_scale != 1:
            raise ValueError(f"rate = {self.rate} and rate_scale = {self.rate_scale}: set one of them")
        return self


@dataclass(frozen=True, eq=False)
class WorkloadChoice(ComponentChoice[WorkloadLoader]):
    """A workload as a file chooses it.

    Attributes:
        options: Options of every workload.
    """

    options: WorkloadOptions

    def make(self, seed: int, replicate: int) -> Workload:
        """The workload of one replicate: the same for the same seed, in every arm and every process.

        Of what is drawn, each replicate is drawn anew; of a trace, it is the next part.

        Raises:
            ConfigurationError: it cannot be made; says why.
        """
        return self.make_from(Streams(seed), replicate)

    def make_from(self, streams: Streams, replicate: int) -> Workload:
        """The same, from streams that may be below others."""
        options, workload = self.options, self.built.make(streams, replicate)
        faster = scale_rate(workload, options.rate_scale) if options.rate is None else at_rate(workload, options.rate)
        if options.tenants:
            faster = assign_tenants(faster, options.tenants, streams.generator("tenants", replicate))
        if options.closed is not None:
            faster = in_closed_loop(faster, options.closed.concurrency, options.closed.think_time)
        return faster

    def _key(self) -> tuple[object, ...]:
        return *super()._key(), self.options


class WorkloadField(ChoiceOf):
    """Makes a field of a pydantic model a workload."""

    def choose(self, component: Component, table: Mapping[str, Any], registry: Registry) -> WorkloadChoice:
        options = {key: value for key, value in table.items() if key in WorkloadOptions.model_fields}
        own = {key: value for key, value in table.items() if key not in options}
        if problem := unknown_keys(table, {**component.settings.model_fields, **WorkloadOptions.model_fields}):
            raise ValueError(problem)
        settings = validated(component.settings, own, registry)
        return WorkloadChoice(component, settings, self.kind.interface, WorkloadOptions.model_validate(options))

    def dump(self, choice: ComponentChoice[Any], info: SerializationInfo) -> Any:
        options = dumped(choice.options, info) if isinstance(choice, WorkloadChoice) else {}
        return {**super().dump(choice, info), **options}


AnyWorkload = Annotated[WorkloadChoice, WorkloadField(WORKLOAD)]
"""A field of a pydantic model: `workload: AnyWorkload`."""


def read_workload(table: Mapping[str, Any], registry: Registry | None = None) -> WorkloadChoice:
    """The workload that such a table chooses.

    Args:
        table: As `[workload]` of an experiment.
        registry: The plugins to choose from. None: all that are installed.

    Raises:
        ConfigurationError: it is wrong; says which key, and what would be right.
    """
    try:
        choice: WorkloadChoice = TypeAdapter(AnyWorkload).validate_python(dict(table), context={"registry": registry})
    except ValidationError as error:
        problems = [problem._replace(path=("workload", *problem.path)) for problem in find_problems(error, table)]
        raise ConfigurationError(
            "; ".join(describe_problem(problem, {"workload": table}) for problem in problems)
        ) from error
    return choice

"""The table `[workload]` of an experiment: one of several kinds."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from enginecore.errors import ConfigurationError
from enginecore.settings.sentences import describe_problem, find_problems
from enginecore_lab.workload import Workload
from enginecore_lab.workloads.settings_base import AnyWorkload
from enginecore_lab.workloads.sharegpt import ShareGPTWorkload
from enginecore_lab.workloads.streams import Streams
from enginecore_lab.workloads.synthetic import SyntheticWorkload
from enginecore_lab.workloads.traces import AzureTrace, BailianTrace, BurstGPTTrace, JsonlTrace, MooncakeTrace
from enginecore_lab.workloads.transform import merge


class MixedWorkload(AnyWorkload):
    """Several workloads at the same time, such as one per tenant, each with lengths and rates of its own.

    Attributes:
        parts: The workloads. They share no content. Their requests' ids begin with their number.
    """

    kind: Literal["mix"]
    parts: "tuple[WorkloadSettings, ...]" = Field(min_length=1)

    def _make(self, streams: Streams, replicate: int) -> Workload:
        made = [part.make_from(streams.below(f"part {n}"), replicate) for n, part in enumerate(self.parts)]
        return merge("mix", made)


WorkloadSettings = Annotated[
    AzureTrace
    | MooncakeTrace
    | BailianTrace
    | BurstGPTTrace
    | JsonlTrace
    | ShareGPTWorkload
    | SyntheticWorkload
    | MixedWorkload,
    Field(discriminator="kind"),
]
"""Any kind, as a field of a pydantic model: `workload: WorkloadSettings`."""

MixedWorkload.model_rebuild()


def workload_settings(table: Mapping[str, Any]) -> AnyWorkload:
    """The settings in such a table.

    Raises:
        ConfigurationError: they are wrong; says which, and what would be right.
    """
    try:
        settings: AnyWorkload = TypeAdapter(WorkloadSettings).validate_python(dict(table))
    except ValidationError as error:
        problems = [problem._replace(path=("workload", *problem.path)) for problem in find_problems(error, table)]
        raise ConfigurationError(
            "; ".join(describe_problem(problem, {"workload": table}) for problem in problems)
        ) from error
    return settings

"""The table `[workload]` of an experiment: one of several kinds."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from enginecore.errors import ConfigurationError
from enginecore_lab.workload import Workload
from enginecore_lab.workloads.settings_base import AnyWorkload
from enginecore_lab.workloads.sharegpt import ShareGPTWorkload
from enginecore_lab.workloads.streams import Streams
from enginecore_lab.workloads.synthetic import SyntheticWorkload
from enginecore_lab.workloads.traces import AzureTrace, BailianTrace, BurstGPTTrace, MooncakeTrace, OwnTrace
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
    | OwnTrace
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
        raise ConfigurationError("; ".join(_sentence(details) for details in error.errors())) from error
    return settings


def _sentence(details: ErrorDetails) -> str:
    place = ".".join(("workload", *(str(part) for part in details["loc"][1:])))
    given, context = details["input"], details.get("ctx", {})
    match details["type"]:
        case "union_tag_invalid":
            return f"{place}.kind = {context['tag']!r}: must be one of {context['expected_tags']}"
        case "union_tag_not_found":
            return f"{place}.kind must be set: it says what the other settings mean"
        case "missing":
            return f"{place} must be set"
    said = details["msg"].removeprefix("Value error, ").replace("Input should be", "must be", 1)
    return f"{place}: {said}" if isinstance(given, Mapping) else f"{place} = {given!r:.80}: {said}"

"""Workloads that are several at the same time."""

from pydantic import Field

from enginecore_lab.interfaces import WorkloadLoader
from enginecore_lab.streams import Streams
from enginecore_lab.tables import Table
from enginecore_lab.workload import Workload
from enginecore_lab.workloads.choice import AnyWorkload
from enginecore_lab.workloads.transform import merge


class MixedWorkload(Table, WorkloadLoader):
    """Several workloads at once, such as one per tenant.

    Attributes:
        parts: The workloads. They share no content. Their requests' ids begin with their number.
    """

    parts: tuple[AnyWorkload, ...] = Field(min_length=1)

    def make(self, streams: Streams, replicate: int) -> Workload:
        made = [part.make_from(streams.below(f"part {n}"), replicate) for n, part in enumerate(self.parts)]
        return merge("mix", made)

"""What every kind of workload can be told, and how it is made from that."""

from abc import abstractmethod
from typing import Any

from pydantic import Field, model_validator

from enginecore_lab.workload import Workload
from enginecore_lab.workloads.streams import Streams
from enginecore_lab.workloads.tables import Table
from enginecore_lab.workloads.tenants import Tenant, assign_tenants
from enginecore_lab.workloads.transform import at_rate, in_closed_loop, scale_rate


class ClosedLoopSettings(Table):
    """So many clients, each of which sends its next request when its last one has ended.

    Attributes:
        concurrency: Clients.
        think_time: Seconds that each waits before its next request.
    """

    concurrency: int = Field(ge=1)
    think_time: float = Field(default=0.0, ge=0)


class AnyWorkload(Table):
    """Settings of every workload.

    Attributes:
        rate_scale: Requests arrive this many times as fast.
        rate: Or so fast that this many arrive per second on average.
        tenants: Whom requests are for, drawn by weight; none: as the workload says.
        closed: Send them in a closed loop instead; times of arrival do not count.
    """

    rate_scale: float = Field(default=1.0, gt=0)
    rate: float | None = Field(default=None, gt=0)
    tenants: tuple[Tenant, ...] = ()
    closed: ClosedLoopSettings | None = None

    @model_validator(mode="after")
    def _check_rate(self) -> "AnyWorkload":
        if self.rate is not None and self.rate_scale != 1:
            raise ValueError(f"rate = {self.rate} and rate_scale = {self.rate_scale}: set one of them")
        return self

    def make(self, seed: int, replicate: int) -> Workload:
        """The workload of one replicate: the same for the same seed, in every arm and every process.

        Of what is drawn, each replicate is drawn anew; of a trace, it is the next part.

        Raises:
            ConfigurationError: it cannot be made; says why.
        """
        return self.make_from(Streams(seed), replicate)

    def make_from(self, streams: Streams, replicate: int) -> Workload:
        """The same, from streams that may be below others."""
        workload = self._make(streams, replicate)
        workload = scale_rate(workload, self.rate_scale) if self.rate is None else at_rate(workload, self.rate)
        if self.tenants:
            workload = assign_tenants(workload, self.tenants, streams.generator("tenants", replicate))
        if self.closed is not None:
            workload = in_closed_loop(workload, self.closed.concurrency, self.closed.think_time)
        return workload

    @abstractmethod
    def _make(self, streams: Streams, replicate: int) -> Workload:
        """What it is before it is made faster, or anybody's."""

    def __getstate__(self) -> dict[Any, Any]:
        """Without what it has loaded: another process loads it again."""
        state = super().__getstate__()
        return {**state, "__dict__": {name: state["__dict__"][name] for name in type(self).model_fields}}

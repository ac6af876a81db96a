"""Sources of requests: open loops, where they come by themselves, and closed ones, where clients wait."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from typing import NamedTuple, Protocol

from enginecore.errors import ConfigurationError
from enginecore_lab.workload import Workload, WorkloadRequest


class Arrival(NamedTuple):
    """When a request is meant to come, in seconds from the start of the workload."""

    at: float
    request: WorkloadRequest


class RequestSource(Protocol):
    """Says which request arrives when."""

    def first(self) -> Iterable[Arrival]:
        """Arrivals of requests that wait for no other. Asked once, before the start."""
        ...

    def following(self, request_id: str, ended: float) -> Iterable[Arrival]:
        """Arrivals of requests that waited for this one, which has ended. Well or not: all arms get the same ones."""
        ...


class OpenLoopSource:
    """Open and partly open: requests come at their times, turns `delay` seconds after the one before."""

    def __init__(self, workload: Workload) -> None:
        self._requests = workload.requests
        self._followers: dict[str, list[WorkloadRequest]] = defaultdict(list)
        known: set[str] = set()
        for request in workload.requests:
            if request.after is not None:
                if request.after not in known:
                    raise ConfigurationError(
                        f"workload {workload.name!r}: request {request.request_id!r} follows {request.after!r}, which "
                        "does not stand before it"
                    )
                self._followers[request.after].append(request)
            known.add(request.request_id)
        if workload.loop == "open" and self._followers:
            raise ConfigurationError(
                f"workload {workload.name!r} has requests that follow others, such as those after "
                f"{next(iter(self._followers))!r}: its loop is 'partly open', not 'open'"
            )

    def first(self) -> Iterable[Arrival]:
        return [Arrival(request.arrival, request) for request in self._requests if request.after is None]

    def following(self, request_id: str, ended: float) -> Iterable[Arrival]:
        return [Arrival(ended + request.delay, request) for request in self._followers.get(request_id, ())]


class ClosedLoopSource:
    """Closed: each client sends the next request of the workload when its last one has ended and it has thought."""

    def __init__(self, workload: Workload) -> None:
        if workload.concurrency < 1:
            raise ConfigurationError(
                f"workload {workload.name!r} is a closed loop with concurrency = {workload.concurrency}: it takes at "
                "least one client"
            )
        if turn := next((request for request in workload.requests if request.after is not None), None):
            raise ConfigurationError(
                f"workload {workload.name!r} is a closed loop, so its request {turn.request_id!r} cannot wait for "
                f"{turn.after!r}: conversations come in a partly open loop"
            )
        self._concurrency = workload.concurrency
        self._think_time = workload.think_time
        self._left: Iterator[WorkloadRequest] = iter(workload.requests)

    def first(self) -> Iterable[Arrival]:
        return [Arrival(0.0, request) for request in islice(self._left, self._concurrency)]

    def following(self, request_id: str, ended: float) -> Iterable[Arrival]:
        return [Arrival(ended + self._think_time, request) for request in islice(self._left, 1)]


def request_source(workload: Workload) -> RequestSource:
    """The loop that a workload asks for.

    Raises:
        ConfigurationError: its requests do not go with it, two have one id, a number is none, or there are no requests.
    """
    if not workload.requests:
        raise ConfigurationError(f"workload {workload.name!r} has no requests")
    _check_numbers(workload)
    seen: set[str] = set()
    for request in workload.requests:
        if request.request_id in seen:
            raise ConfigurationError(f"workload {workload.name!r} has two requests with the id {request.request_id!r}")
        seen.add(request.request_id)
    return ClosedLoopSource(workload) if workload.loop == "closed" else OpenLoopSource(workload)


def _check_numbers(workload: Workload) -> None:
    """Settings and loaders let no others through, but workloads can be made by hand. Time that is NaN never comes."""
    if not 0 <= workload.think_time < inf:
        raise ConfigurationError(
            f"workload {workload.name!r}: think_time must be finite and at least 0, got {workload.think_time}"
        )
    for request in workload.requests:
        for name, least in (("arrival", 0), ("delay", 0), ("num_prompt_tokens", 1), ("num_output_tokens", 1)):
            value = getattr(request, name)
            if not least <= value < inf:
                raise ConfigurationError(
                    f"workload {workload.name!r}, request {request.request_id!r}: {name} must be finite and at least "
                    f"{least}, got {value}"
                )

"""Transformations of workloads: faster or slower, cut, in a closed loop, several as one."""

from collections.abc import Iterable, Sequence
from math import inf, isfinite

import msgspec

from enginecore.errors import ConfigurationError
from enginecore_lab.workload import Loop, Workload, WorkloadRequest


def scale_rate(workload: Workload, factor: float) -> Workload:
    """The same requests, arriving `factor` times as fast. Think times and deadlines are what they were.

    Raises:
        ConfigurationError: the factor is not above 0, or so large or small that its times are no numbers.
    """
    if not 0 < factor < inf:
        raise ConfigurationError(f"a workload's rate is scaled by a finite factor above 0, got {factor}")
    last = max((each.arrival for each in workload.requests), default=0.0)
    if not isfinite(last / factor):
        raise ConfigurationError(f"at {factor} times its rate, workload {workload.name!r} would never end")
    if factor == 1:
        return workload
    return _with(workload, [msgspec.structs.replace(each, arrival=each.arrival / factor) for each in workload.requests])


def mean_rate(workload: Workload) -> float:
    """Arrivals per second, over what lies between the first and the last. Turns that wait for others do not count.

    Raises:
        ConfigurationError: fewer than two arrive by themselves, or all at the same time.
    """
    arrivals = [each.arrival for each in workload.requests if each.after is None]
    if len(arrivals) < 2 or arrivals[0] == arrivals[-1]:
        raise ConfigurationError(
            f"workload {workload.name!r} has no rate: {len(arrivals)} requests arrive by themselves, all at once"
        )
    return (len(arrivals) - 1) / (arrivals[-1] - arrivals[0])


def at_rate(workload: Workload, rate: float) -> Workload:
    """The same requests, so much faster or slower that they arrive at this mean rate.

    Raises:
        ConfigurationError: the rate is not above 0, or the workload has none.
    """
    if not 0 < rate < inf:
        raise ConfigurationError(f"the rate of a workload must be finite and above 0, got {rate}")
    return scale_rate(workload, rate / mean_rate(workload))


def between_times(workload: Workload, start: float, end: float | None) -> Workload:
    """Requests that arrive from `start` on and before `end`, in seconds; `start` becomes the
    beginning.
    """
    last = float("inf") if end is None else end
    kept = _whole(each for each in workload.requests if each.after is not None or start <= each.arrival < last)
    return _moved(workload, kept, start)


def between_indexes(workload: Workload, first: int, last: int | None) -> Workload:
    """Requests from index `first` to before `last`; the first of them becomes the beginning.

    A turn whose predecessor is not among them is left out: its time of arrival is not known.
    """
    kept = _whole(workload.requests[first:last])
    return _moved(workload, kept, min((each.arrival for each in kept if each.after is None), default=0.0))


def in_closed_loop(workload: Workload, concurrency: int, think_time: float = 0.0) -> Workload:
    """The same requests, sent by so many clients, each of which sends the next one when its last has ended.

    Raises:
        ConfigurationError: turns wait for one another already.
    """
    if workload.loop == "partly open":
        raise ConfigurationError(
            f"workload {workload.name!r} has sessions whose turns wait for one another: it cannot be sent in a closed "
            "loop as well"
        )
    return msgspec.structs.replace(workload, loop="closed", concurrency=concurrency, think_time=think_time)


def merge(name: str, workloads: Sequence[Workload]) -> Workload:
    """Several workloads at the same time. They share no content: equal ids of two workloads mean different tokens.

    Raises:
        ConfigurationError: one is a closed loop, or their blocks have different sizes.
    """
    if closed := [each.name for each in workloads if each.loop == "closed"]:
        raise ConfigurationError(f"a closed loop cannot be a part of something larger: {closed[0]!r} is one")
    sizes = sorted({each.block_size for each in workloads if each.block_size})
    if len(sizes) > 1:
        raise ConfigurationError(f"parts of a workload must cut prompts into blocks of one size, got {sizes}")
    groups = []
    for number, workload in enumerate(workloads):
        groups += _groups(_renamed(workload, f"{number}.", number, len(workloads)))
    groups.sort(key=lambda group: group[0].arrival)
    loop: Loop = "partly open" if any(each.loop == "partly open" for each in workloads) else "open"
    return Workload(
        name=name,
        requests=[each for group in groups for each in group],
        block_size=sizes[0] if sizes else 0,
        loop=loop,
    )


def _renamed(workload: Workload, prefix: str, number: int, count: int) -> list[WorkloadRequest]:
    """The requests of one of several workloads, with names and content that are its own."""
    return [
        msgspec.structs.replace(
            each,
            request_id=prefix + each.request_id,
            after=None if each.after is None else prefix + each.after,
            session=None if each.session is None else prefix + each.session,
            hash_ids=tuple(hash_id * count + number for hash_id in each.hash_ids),
        )
        for each in workload.requests
    ]


def _groups(requests: Iterable[WorkloadRequest]) -> list[list[WorkloadRequest]]:
    """Each request that arrives by itself, with those that wait for it behind it."""
    groups: list[list[WorkloadRequest]] = []
    group_of: dict[str, list[WorkloadRequest]] = {}
    for each in requests:
        if each.after is None:
            groups.append([])
        group = groups[-1] if each.after is None else group_of[each.after]
        group.append(each)
        group_of[each.request_id] = group
    return groups


def _whole(requests: Iterable[WorkloadRequest]) -> list[WorkloadRequest]:
    """Without turns whose predecessor is missing."""
    kept: list[WorkloadRequest] = []
    known: set[str] = set()
    for each in requests:
        if each.after is None or each.after in known:
            kept.append(each)
            known.add(each.request_id)
    return kept


def _moved(workload: Workload, requests: list[WorkloadRequest], start: float) -> Workload:
    return _with(
        workload,
        [each if each.after else msgspec.structs.replace(each, arrival=each.arrival - start) for each in requests],
    )


def _with(workload: Workload, requests: Sequence[WorkloadRequest]) -> Workload:
    return msgspec.structs.replace(workload, requests=requests)

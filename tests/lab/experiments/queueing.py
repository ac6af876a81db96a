"""What queueing theory says of one server: computed job by job, on the very jobs that an engine is given."""

from heapq import heappop, heappush
from itertools import pairwise

import numpy as np


def fcfs_waits(arrivals, sizes):
    """Lindley's recursion: how long each job waits for the first moment of its service."""
    waits = [0.0]
    for (before, now), size in zip(pairwise(arrivals), sizes, strict=False):
        waits.append(max(waits[-1] + size - (now - before), 0.0))
    return waits


def pollaczek_khinchine(rate, sizes):
    """Mean wait of M/G/1 in order of arrival."""
    sizes = np.asarray(sizes)
    return rate * np.mean(sizes**2) / (2 * (1 - rate * np.mean(sizes)))


def sjf_latencies(arrivals, sizes):
    """The shortest waiting job next, and none is interrupted."""
    ends, now, n = [0.0] * len(sizes), 0.0, 0
    waiting: list[tuple[float, int]] = []
    while n < len(sizes) or waiting:
        if not waiting:
            now = max(now, arrivals[n])
        while n < len(sizes) and arrivals[n] <= now:
            heappush(waiting, (sizes[n], n))
            n += 1
        size, job = heappop(waiting)
        now += size
        ends[job] = now
    return [end - at for end, at in zip(ends, arrivals, strict=True)]


def srpt_latencies(arrivals, units, unit):
    """The job with the least left next, decided anew after each unit of work."""
    ends, now, n = [0.0] * len(units), 0.0, 0
    left: list[tuple[int, int]] = []
    while n < len(units) or left:
        if not left:
            now = max(now, arrivals[n])
        while n < len(units) and arrivals[n] <= now:
            heappush(left, (units[n], n))
            n += 1
        rest, job = heappop(left)
        now += unit
        if rest > 1:
            heappush(left, (rest - 1, job))
        else:
            ends[job] = now
    return [end - at for end, at in zip(ends, arrivals, strict=True)]

"""How many threads a model gets on the CPU."""

import logging
import os

import psutil
import torch

logger = logging.getLogger(__name__)

SAMPLE_SECONDS = 0.1


def set_num_threads(asked: int | None) -> None:
    """Settle torch's threads, for the whole process. None: one per CPU that nobody else uses now.

    Threads that share a matrix product wait for each other by spinning. Where one of them has to share its CPU with
    another process, all crawl: two threads on two CPUs, one of them busy, were seen 70 times slower than one thread.
    A number in OMP_NUM_THREADS is left alone.
    """
    if asked is not None:
        torch.set_num_threads(asked)
    elif "OMP_NUM_THREADS" not in os.environ:
        free, usable = count_free_cpus()
        if free < usable:
            logger.warning(
                "%d of %d CPUs are busy with other work: the model runs on %d threads; "
                "executor.single.num_threads says otherwise",
                usable - free, usable, max(free, 1),
            )  # fmt: skip
        torch.set_num_threads(max(free, 1))


def count_free_cpus() -> tuple[int, int]:
    """CPUs that are mostly idle now, and CPUs that this process may use, one per physical core."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    busy = psutil.cpu_percent(interval=SAMPLE_SECONDS, percpu=True)
    num_busy = sum(percent > 50 for cpu, percent in enumerate(busy) if cpu in allowed)
    usable = min(psutil.cpu_count(logical=False) or len(allowed), len(allowed))
    return max(usable - num_busy, 0), usable

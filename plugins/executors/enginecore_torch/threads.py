"""How many threads a model gets on the CPU. Free of torch."""

import logging
import os

import psutil

logger = logging.getLogger(__name__)

SAMPLE_SECONDS = 0.1


def choose_num_threads(asked: int | None, *, executor: str, num_processes: int = 1) -> int | None:
    """Threads for each of so many processes; None asked: the CPUs that are idle now, divided.

    Threads that share a matrix product wait for each other by spinning. Where one of them has to
    share its CPU with another process, all crawl: two threads on two CPUs, one of them busy, were
    seen 70 times slower than one thread. None is returned where OMP_NUM_THREADS says how many:
    torch obeys it by itself.
    """
    if asked is not None:
        return asked
    if "OMP_NUM_THREADS" in os.environ:
        return None
    free, usable = count_free_cpus()
    number = max(free // num_processes, 1)
    if free < usable:
        logger.warning(
            "%d of %d CPUs are busy with other work: the model runs on %d threads; "
            "executor.%s.num_threads says otherwise",
            usable - free, usable, number * num_processes, executor,
        )  # fmt: skip
    return number


def count_free_cpus() -> tuple[int, int]:
    """CPUs that are mostly idle now, and CPUs that this process may use, one per physical core."""
    allowed, usable = _allowed_cpus(), count_usable_cpus()
    busy = psutil.cpu_percent(interval=SAMPLE_SECONDS, percpu=True)
    num_busy = sum(percent > 50 for cpu, percent in enumerate(busy) if cpu in allowed)
    return max(usable - num_busy, 0), usable


def count_usable_cpus() -> int:
    """CPUs that this process may use, one per physical core."""
    allowed = _allowed_cpus()
    return min(psutil.cpu_count(logical=False) or len(allowed), len(allowed))


def _allowed_cpus() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))

"""The same function on many tasks at once: in processes of this machine, or on a Ray cluster."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any, Literal, TypeVar

from enginecore.errors import ConfigurationError
from enginecore.lab.extras import require

PoolKind = Literal["processes", "ray"]

Result = TypeVar("Result")


def run_tasks(
    function: Callable[..., Result],
    tasks: Sequence[tuple[Any, ...]],
    *,
    jobs: int,
    kind: PoolKind = "processes",
    on_done: Callable[[], None] = lambda: None,
) -> list[Result]:
    """What `function` gives for the arguments of each task, in the order of the tasks.

    Args:
        function: Of a module, so that another process can import it.
        tasks: Arguments; they and the results go from process to process.
        jobs: Processes, or Ray tasks, at the same time. One process is this one.
        kind: Where they run.
        on_done: Called here after each task.

    Raises:
        ConfigurationError: Ray is asked for and not installed.
    """
    found: dict[int, Result] = {}
    for index, result in _results(kind, jobs)(function, tasks, jobs):
        found[index] = result
        on_done()
    return [found[index] for index in range(len(tasks))]


_Results = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]], int], Iterator[tuple[int, Any]]]


def _results(kind: PoolKind, jobs: int) -> _Results:
    if jobs < 1:
        raise ConfigurationError(f"jobs = {jobs}: it takes at least one")
    if kind == "ray":
        return _on_ray
    return _here if jobs == 1 else _in_processes


def _here(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[tuple[int, Any]]:
    for index, task in enumerate(tasks):
        yield index, function(*task)


def _in_processes(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], jobs: int
) -> Iterator[tuple[int, Any]]:
    with ProcessPoolExecutor(min(jobs, len(tasks) or 1), mp_context=get_context("spawn")) as pool:
        running = {pool.submit(function, *task): index for index, task in enumerate(tasks)}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _on_ray(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[tuple[int, Any]]:
    ray = _require_ray()
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    remote = ray.remote(function)
    waiting = list(enumerate(tasks))[::-1]
    running: dict[Any, int] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            index, task = waiting.pop()
            running[remote.remote(*task)] = index
        for done in ray.wait(list(running), num_returns=1)[0]:
            yield running.pop(done), ray.get(done)


def _require_ray() -> Any:
    try:
        return require("ray")
    except ConfigurationError:
        raise ConfigurationError(
            "Ray is not installed: pip install ray, or leave it out and use processes of this machine"
        ) from None

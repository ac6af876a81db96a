"""Pools: one function on many tasks at once, in processes of this machine or on a Ray cluster."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from enginecore.errors import ConfigurationError, EngineCoreError
from enginecore_lab.extras import require

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

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
    """Call `function` with the arguments of each task; returns the results in the order of the tasks.

    Args:
        function: A function of a module, so that another process can import it.
        tasks: Arguments; they and the results are pickled.
        jobs: Processes, or Ray tasks, at the same time; with one process it is this one.
        kind: Where the tasks run.
        on_done: Called here after each task.

    Raises:
        ConfigurationError: Ray is asked for and not installed.
        EngineCoreError: a process was killed.
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
    context = get_context("spawn")
    watched, held = context.Pipe(duplex=False)
    workers = min(jobs, len(tasks) or 1)
    try:
        with (
            ProcessPoolExecutor(workers, mp_context=context, initializer=_follow, initargs=(watched,)) as pool,
            held,  # closed first: results that are still computed then are not wanted
        ):
            running = {pool.submit(function, *task): index for index, task in enumerate(tasks)}
            for future in as_completed(running):
                yield running[future], future.result()
    except BrokenProcessPool as error:
        raise EngineCoreError(
            f"one of the {workers} processes that share the runs was killed, perhaps because memory ran out: ask for "
            "fewer jobs"
        ) from error
    finally:
        watched.close()


def _follow(watched: "Connection[None, None]") -> None:
    """In each process of the pool: end when the other end of the pipe is closed, by its holder or by its holder's end.

    Ctrl-C in the terminal is for the parent, which then closes it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        watched.poll(None)  # nothing is ever sent
        os._exit(1)

    threading.Thread(target=wait, name="watch-parent", daemon=True).start()


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

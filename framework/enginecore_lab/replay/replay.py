"""`replay`: one workload on one configuration."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from enginecore.assembly import build_engine_core
from enginecore.clock import Clock, RealClock, VirtualClock
from enginecore.settings import Loaded, load_settings
from enginecore_lab.replay.driver import Driver
from enginecore_lab.replay.sending import Sender
from enginecore_lab.replay.sources import request_source
from enginecore_lab.replay.warm_up import warm_up
from enginecore_lab.run import Run
from enginecore_lab.workload import Workload

RARE = (100_000, 20, 100)
"""Thresholds of the garbage collector while a replay runs."""

Progress = Callable[[int], None]
"""Called with the number of requests that have ended, whenever a step has ended some."""


def replay(
    workload: Workload,
    settings: Mapping[str, Any] | Loaded,
    *,
    virtual: bool,
    reveal_lengths: bool = False,
    until: float | None = None,
    on_progress: Progress | None = None,
) -> Run:
    """Run a workload on a fresh engine core in this process, to the end of its last request.

    The engine core is the one of production, with its scheduler and KV cache manager. In real time it is warmed up
    first. What fails is recorded as failed, and what is not over when time is up as unfinished.

    Args:
        workload: The requests and their times.
        settings: Settings of the engine. A mapping is all that counts: then the environment is not
            read, so that the same run can be had elsewhere.
        virtual: On simulated time, which an executor such as `simulated` lets pass.
        reveal_lengths: Policies may know how long outputs will be.
        until: Seconds after the start at which to stop. None: when all requests have ended.
        on_progress: Called on this thread.

    Raises:
        EngineCoreError: the engine cannot start, or failed; or the workload is not sound. Says why.
    """
    loaded = settings if isinstance(settings, Loaded) else load_settings(settings, environ={})
    source = request_source(workload)
    watch = RealClock()
    began = watch.now()
    clock: Clock = VirtualClock() if virtual else RealClock()
    core = build_engine_core(loaded, clock)
    try:
        sender = Sender(core, workload, reveal_lengths=reveal_lengths, beforehand=not virtual)
        if not virtual:
            warm_up(core, sender, workload)
        driver = Driver(core, clock, workload, source, sender)
        with _rare_collections():
            driver.run(until=until, on_progress=on_progress or _ignore)
    finally:
        core.shutdown()
    return Run(
        workload=workload,
        info=core.info,
        settings=loaded.settings.model_dump(mode="json"),
        requests=tuple(driver.recorder.requests.values()),
        steps=driver.recorder.steps,
        virtual=virtual,
        wall_seconds=watch.now() - began,
    )


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for garbage cycles less often: an engine makes none, and each look goes through every token that waits.

    The thresholds are the whole process's: of replays in several threads, only those that changed them put them back.
    """
    before = gc.get_threshold()
    gc.set_threshold(*RARE)
    try:
        yield
    finally:
        if before != RARE:
            gc.set_threshold(*before)


def _ignore(num_ended: int) -> None:
    """Progress that is not shown."""

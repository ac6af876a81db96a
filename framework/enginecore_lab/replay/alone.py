"""Times of requests that have an engine to themselves."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from enginecore.errors import ConfigurationError
from enginecore.settings import Loaded, load_settings
from enginecore_lab.metrics import Alone
from enginecore_lab.replay.replay import replay
from enginecore_lab.workload import Workload, WorkloadRequest


def time_alone(
    workload: Workload,
    settings: Mapping[str, Any] | Loaded,
    *,
    virtual: bool,
    on_progress: Callable[[int, int], None] | None = None,
) -> Alone:
    """Run each request by itself, one after another, with nothing cached. Of equal lengths only one runs.

    Args:
        workload: The workload of the requests.
        settings: Settings of the engine, as for `replay`.
        virtual: As for `replay`.
        on_progress: Called with the number of requests that have ended and the number of all.

    Raises:
        EngineCoreError: the engine cannot start, or one of them fails.
    """
    loaded = settings if isinstance(settings, Loaded) else load_settings(settings, environ={})
    changed = msgspec.structs.replace
    by_lengths = {_lengths(each): each for each in workload.requests}
    alone = changed(
        workload,
        requests=[changed(each, arrival=0.0, after=None, hash_ids=()) for each in by_lengths.values()],
        block_size=0,
        loop="closed",
        concurrency=1,
        think_time=0.0,
    )
    report = on_progress or (lambda done, total: None)
    run = replay(alone, loaded, virtual=virtual, on_progress=lambda done: report(done, len(alone.requests)))
    seconds: dict[tuple[int, int], float] = {}
    for each in run.requests:
        if not each.is_complete:
            raise ConfigurationError(f"request {each.request.request_id!r} fails even alone: {each.error}")
        seconds[_lengths(each.request)] = each.token_times[-1] - each.arrival
    return lambda request: seconds[_lengths(request)]


def _lengths(request: WorkloadRequest) -> tuple[int, int]:
    return request.num_prompt_tokens, request.num_output_tokens

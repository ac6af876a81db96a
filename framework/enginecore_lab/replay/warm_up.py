"""Warm-up of an engine before it is measured, so that its first requests are like any other."""

from itertools import islice

import msgspec

from enginecore.core import EngineCore
from enginecore.errors import InvalidRequestError
from enginecore_lab.replay.sending import Sender
from enginecore_lab.workload import Workload

NUM_REQUESTS = 4


def warm_up(core: EngineCore, sender: Sender, workload: Workload) -> None:
    """Run the first requests of a workload, together, to their end; then forget what they left in the prefix cache.

    The same in every arm. Ones that the engine refuses are left out: they will be refused again, and recorded.

    Raises:
        EngineDeadError: the engine failed.
    """
    for request in islice(workload.requests, NUM_REQUESTS):
        try:
            sender(msgspec.structs.replace(request, request_id=f"warm-up {request.request_id}", ttft_slo=None), None)
        except InvalidRequestError:
            continue
    while core.has_requests():
        core.advance()
    core.call_utility("reset_prefix_cache")

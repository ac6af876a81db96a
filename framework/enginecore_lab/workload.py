"""Workloads: requests with times, described by lengths and prefix blocks rather than by tokens."""

from collections.abc import Sequence
from typing import Literal

import msgspec

Loop = Literal["open", "closed", "partly open"]


class WorkloadRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request of a workload.

    Attributes:
        request_id: The same in every arm.
        arrival: Seconds from the start of the workload at which it is meant to come; of a turn that follows another,
            0: it comes `delay` seconds after that one ended.
        num_prompt_tokens: Length of its prompt, at least 1.
        num_output_tokens: Tokens that it gets, at least 1.
        hash_ids: Contents of the prompt's blocks, first block first, as the workload's `block_size`
            cuts it: equal ids at equal places after equal prefixes are equal tokens. The last one
            may be partly filled. Tokens of the prompt behind them are like no other's; with no ids
            at all, the whole prompt. Where there are more than the prompt has blocks, they say what
            its output holds too, which a simulated cache can keep then.
        session: The conversation that it belongs to.
        turn: Index of the turn in its session, from 0.
        after: Id of the request that it waits for; None: it comes at `arrival`.
        delay: Think time: seconds from the end of `after`.
        tenant: Tenant that sent it.
        priority: Smaller is more urgent.
        ttft_slo: Seconds from its arrival within which its first token is wanted.
        tpot_slo: Seconds per output token wanted after the first.
    """

    request_id: str
    arrival: float
    num_prompt_tokens: int
    num_output_tokens: int
    hash_ids: tuple[int, ...] = ()
    session: str | None = None
    turn: int = 0
    after: str | None = None
    delay: float = 0.0
    tenant: str = ""
    priority: float = 0
    ttft_slo: float | None = None
    tpot_slo: float | None = None


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in order of arrival, and how they come.

    Attributes:
        name: Name for people.
        requests: By arrival; a request that follows another stands after it.
        block_size: Tokens per hash id; 0: no request has any.
        loop: "open": requests come when they come. "closed": `concurrency` clients each send the next one when their
            last has ended; arrivals are ignored. "partly open": sessions come when they come, their turns wait.
        concurrency: Clients of a closed loop; 0 otherwise.
        think_time: Seconds that a client of a closed loop waits before its next request.
    """

    name: str
    requests: Sequence[WorkloadRequest]
    block_size: int = 0
    loop: Loop = "open"
    concurrency: int = 0
    think_time: float = 0.0

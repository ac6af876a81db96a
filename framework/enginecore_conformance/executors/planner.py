"""Plans by hand: blocks of requests, tokens computed, and tokens that have come back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from enginecore.errors import InvariantError
from enginecore.messages import ModelRunnerOutput, NewRequestData, PositionLogprobs, RequestDelta, SchedulerOutput
from enginecore.sampling import SamplingParams
from enginecore_conformance.executors.lending import BLOCK_SIZE, NUM_BLOCKS, Standing

GREEDY = SamplingParams(temperature=0, seed=0, max_tokens=100, ignore_eos=True, detokenize=False)
PROBED = msgspec.structs.replace(GREEDY, logprobs=5)
"""As greedy, and how likely the tokens were: shows faults that are too small to change a token."""
SUPPLY = 8
"""Blocks that a request may have."""


@dataclass(eq=False, slots=True, kw_only=True)
class Tracked:
    """A request, as the kit's own books have it.

    Attributes:
        request_id: Name of the request.
        tokens: Prompt, and what came back.
        num_prompt_tokens: How many of them are the prompt.
        params: How it is sampled.
        blocks: Blocks that it may have, in order.
        adapter: LoRA adapter of the request.
        num_blocks: How many of its blocks the executor knows.
        num_computed: Tokens that were scheduled.
        num_pending: Sampled tokens that have not come back.
        is_known: Whether the executor knows it.
        resumed: Whether it ran before it was preempted.
        logprobs: Log-probabilities that came with the tokens.
    """

    request_id: str
    tokens: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    blocks: list[int]
    adapter: str | None = None
    num_blocks: int = 0
    num_computed: int = 0
    num_pending: int = 0
    is_known: bool = False
    resumed: bool = False
    logprobs: list[PositionLogprobs] = field(default_factory=list)

    @property
    def output(self) -> list[int]:
        """Tokens behind the prompt."""
        return self.tokens[self.num_prompt_tokens :]

    @property
    def length(self) -> int:
        """Tokens that the executor knows, or samples in steps before the next."""
        return len(self.tokens) + self.num_pending

    @property
    def left(self) -> int:
        """Tokens that are not scheduled yet."""
        return self.length - self.num_computed


class Planned(NamedTuple):
    """A plan, and who is sampled in it."""

    plan: SchedulerOutput
    sampled: list[Tracked]


class ManualPlanner:
    """Makes plans for an executor."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._free = list(range(NUM_BLOCKS))
        self._finished: list[str] = []
        self._preempted: list[str] = []
        self.running: list[Tracked] = []

    def add_request(
        self,
        prompt: Sequence[int],
        params: SamplingParams = GREEDY,
        *,
        blocks: Iterable[int] | None = None,
        computed: Tracked | None = None,
        num_computed: int = 0,
        request_id: str | None = None,
        adapter: str | None = None,
    ) -> Tracked:
        """A request; the executor hears of it when it is scheduled first.

        Args:
            prompt: Prompt tokens.
            params: How it is sampled.
            blocks: Blocks that it may have, in order; `SUPPLY` free ones by default.
            computed: Request whose first blocks it shares.
            num_computed: Number of its tokens in these blocks.
            request_id: Name of the request; a new one by default.
            adapter: LoRA adapter of the request.
        """
        shared = computed.blocks[: num_computed // BLOCK_SIZE] if computed else []
        own = self.take_blocks(SUPPLY - len(shared)) if blocks is None else self._claim(list(blocks))
        added = Tracked(
            request_id=request_id or next(self._standing.request_ids),
            tokens=list(prompt),
            num_prompt_tokens=len(prompt),
            params=params,
            blocks=shared + own,
            adapter=adapter,
            num_computed=num_computed,
        )
        self.running.append(added)
        return added

    @property
    def owes(self) -> bool:
        """Whether the next plan must name requests that ended or were preempted."""
        return bool(self._finished or self._preempted)

    def take_blocks(self, count: int) -> list[int]:
        """Claim `count` free blocks.

        Raises:
            InvariantError: there are not so many: a mistake of the check.
        """
        if count > len(self._free):
            raise InvariantError(f"this check asks for {count} blocks more, and {len(self._free)} are free")
        return self._claim(self._free[:count])

    def _claim(self, blocks: list[int]) -> list[int]:
        for block in blocks:
            if block in self._free:
                self._free.remove(block)
        return blocks

    def finish(self, *requests: Tracked) -> None:
        """End requests. The next plan says so; their blocks are free now."""
        for request in requests:
            if request.is_known:
                self._finished.append(request.request_id)
            self._let_go(request)
            self.running.remove(request)

    def preempt(self, request: Tracked, blocks: Iterable[int] | None = None) -> None:
        """Take the blocks of a request; it gets others if it is scheduled again."""
        self._preempted.append(request.request_id)
        self._let_go(request)
        request.blocks = self.take_blocks(SUPPLY) if blocks is None else self._claim(list(blocks))
        request.num_blocks = request.num_computed = 0
        request.is_known, request.resumed = False, True

    def _let_go(self, request: Tracked) -> None:
        held = {block for other in self.running if other is not request for block in other.blocks}
        self._free += [block for block in request.blocks if block not in held]
        request.is_known = False

    def plan_step(self, counts: Mapping[Tracked, int], *, defer_sampling: bool = False) -> Planned:
        """The next step: so many tokens of each request."""
        new, deltas, sampled = [], [], []
        for request, count in counts.items():
            end = request.num_computed + count
            needed = -(-end // BLOCK_SIZE)
            added = request.blocks[request.num_blocks : needed]
            if not request.is_known:
                new.append(_as_new(request, needed))
            elif added:
                deltas.append(
                    RequestDelta(
                        request_id=request.request_id, new_block_ids=(added,), num_computed_tokens=request.num_computed
                    )
                )
            if end == request.length:
                sampled.append(request)
            request.num_blocks, request.num_computed, request.is_known = needed, end, True
        for request in sampled:
            request.num_pending += 1
        plan = SchedulerOutput(
            step=next(self._standing.steps),
            num_scheduled_tokens={request.request_id: count for request, count in counts.items()},
            new_requests=new,
            deltas=deltas,
            finished_ids=self._finished,
            preempted_ids=self._preempted,
            defer_sampling=defer_sampling,
        )
        self._finished, self._preempted = [], []
        return Planned(plan, sampled)

    @staticmethod
    def settle(planned: Planned, output: ModelRunnerOutput) -> None:
        """Take in what a step gave."""
        rows = dict(zip(output.request_ids, output.sampled_token_ids, strict=True))
        for request in planned.sampled:
            request.num_pending -= 1
            request.tokens += rows[request.request_id]
            request.logprobs += output.logprobs.get(request.request_id, [])


def _as_new(request: Tracked, num_blocks: int) -> NewRequestData:
    return NewRequestData(
        request_id=request.request_id,
        token_ids=list(request.tokens),
        num_prompt_tokens=request.num_prompt_tokens,
        params=request.params,
        block_ids=(request.blocks[:num_blocks],),
        num_computed_tokens=request.num_computed,
        resumed=request.resumed,
        adapter=request.adapter,
    )

"""Features of a step: the few sums over its batch that its cost depends on."""

from typing import NamedTuple

from enginecore.messages import NewRequestData, SchedulerOutput


class StepFeatures(NamedTuple):
    """A step, as a cost model sees it. A decode computes one new token; everything else is part of a prompt.

    Attributes:
        num_tokens: Tokens computed.
        num_decodes: Requests of which one new token is computed.
        num_requests: Requests in the batch.
        decode_context: Over the decodes, the sum of c + 1: tokens whose keys and values are read, c of them cached.
        prefill_attention: Over the pieces of prompts, the sum of q * (c + q / 2): pairs of tokens that attend, for q
            new tokens after c cached ones.
    """

    num_tokens: int = 0
    num_decodes: int = 0
    num_requests: int = 0
    decode_context: int = 0
    prefill_attention: float = 0.0

    @property
    def is_pure_decode(self) -> bool:
        """Whether no prompt is worked on."""
        return self.num_decodes == self.num_requests


class TrackedStep(NamedTuple):
    """One plan with its features.

    Attributes:
        features: Features of its batch.
        sampled_ids: Requests that get a token from it, in order of the batch.
    """

    features: StepFeatures
    sampled_ids: list[str]


class StepTracker:
    """Follows plans as a worker does, and keeps of each request no more than two numbers."""

    def __init__(self) -> None:
        self._contexts: dict[str, int] = {}  # tokens computed, by request
        self._prefills: dict[str, int] = {}  # tokens known, of those that have not computed them all

    def apply(self, plan: SchedulerOutput) -> TrackedStep:
        """Follow the next plan; returns its features."""
        for request_id in (*plan.finished_ids, *plan.preempted_ids):
            del self._contexts[request_id]
            self._prefills.pop(request_id, None)
        for request in plan.new_requests:
            self._begin(request)
        for delta in plan.deltas:
            self._contexts[delta.request_id] = delta.num_computed_tokens
        scheduled = plan.num_scheduled_tokens
        return self._mixed(scheduled) if self._prefills else self._decodes(scheduled)

    @property
    def request_ids(self) -> list[str]:
        """Requests that the worker still holds."""
        return list(self._contexts)

    def _begin(self, request: NewRequestData) -> None:
        self._contexts[request.request_id] = request.num_computed_tokens
        self._prefills[request.request_id] = len(request.token_ids)

    def _decodes(self, scheduled: dict[str, int]) -> TrackedStep:
        """The hot loop: once per running request and step."""
        contexts, total = self._contexts, 0
        for request_id in scheduled:
            context = contexts[request_id] + 1
            contexts[request_id] = context
            total += context
        count = len(scheduled)
        return TrackedStep(StepFeatures(count, count, count, total), list(scheduled))

    def _mixed(self, scheduled: dict[str, int]) -> TrackedStep:
        contexts, prefills = self._contexts, self._prefills
        sampled: list[str] = []
        num_decodes = decode_context = num_tokens = 0
        attention = 0.0
        for request_id, tokens in scheduled.items():
            context = contexts[request_id]
            contexts[request_id] = context + tokens
            num_tokens += tokens
            known = prefills.get(request_id)
            if known is None:
                num_decodes += 1
                decode_context += context + 1
            else:
                attention += tokens * (context + tokens / 2)
                if context + tokens < known:
                    continue
                del prefills[request_id]
            sampled.append(request_id)
        features = StepFeatures(num_tokens, num_decodes, len(scheduled), decode_context, attention)
        return TrackedStep(features, sampled)

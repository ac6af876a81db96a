"""Shortest job first."""

from enginecore.scheduling import RequestView, SchedulerView, SchedulingPolicy
from enginecore_schedulers.arguments import NotNegative


class Sjf(SchedulingPolicy):
    """Shortest predicted job first, with ageing.

    Running requests are not displaced.

    The order that minimises the mean latency of jobs that are not interrupted (Conway, Maxwell and
    Miller, "Theory of Scheduling", 1967); for outputs of language models with predicted lengths, S3
    (Jin et al., NeurIPS 2023) and Fu et al., "Efficient LLM Scheduling by Learning to Rank"
    (NeurIPS 2024). Predictions may be rough: only their order counts. All that wait age alike, so
    the key is made once.

    A request says its length by `hints["predicted_output_tokens"]`; one that does not counts with
    its `max_tokens`.

    Args:
        ageing: Tokens that a second of waiting is worth. A job that is n tokens longer than another
            is overtaken by it only if that one arrives within n / ageing seconds. 0: long jobs may
            starve.
        prompt_weight: What a prompt token counts, in output tokens: prompts are computed many
            tokens at a time.
    """

    def __init__(self, ageing: NotNegative = 10.0, prompt_weight: NotNegative = 0.02) -> None:
        self._ageing = ageing
        self._prompt_weight = prompt_weight

    def rank(self, request: RequestView, scheduler: SchedulerView) -> float:
        return self._prompt_weight * request.num_prompt_tokens + predicted(request) + self._ageing * request.arrival


def predicted(request: RequestView) -> float:
    """Output tokens that a request will probably have; `max_tokens` if it does not say."""
    return min(max(request.hints.get("predicted_output_tokens", request.max_tokens), 1), request.max_tokens)

"""Metrics that are counts, rates or shares. The first line of each docstring is what users read of it."""

from collections.abc import Sequence
from math import inf

from enginecore_lab.interfaces import MeasuredRequest, MeasuredRun, MetricRefused, Slo
from enginecore_lab.metrics import goodness

Requests = Sequence[MeasuredRequest]

# -- of a whole run: what was served in which time cannot be cut by requests -------------------------------------------


def makespan(run: MeasuredRun, slo: Slo) -> float:
    """Time from the start to the end of the last request.

    Infinite if one did not end: another arm may have done more in that time.
    """
    return inf if any(each.ended is None for each in run.all_requests) else run.makespan


def requests_per_second(run: MeasuredRun, slo: Slo) -> float:
    """Complete requests per second."""
    return sum(each.is_complete for each in run.all_requests) / _duration(run)


def output_tokens_per_second(run: MeasuredRun, slo: Slo) -> float:
    """Output tokens per second."""
    return sum(len(each.token_times) for each in run.all_requests) / _duration(run)


def good_rps(run: MeasuredRun, slo: Slo) -> float:
    """Requests per second that met their SLO."""
    return goodness.num_good(run.all_requests, slo) / _duration(run)


# -- of the requests that count ------------------------------------------------------------------------------------


def slo_attainment(requests: Requests, slo: Slo) -> float:
    """Share of all offered requests that met their SLO."""
    return goodness.num_good(requests, slo) / len(requests)


def fluidity_index(requests: Requests, slo: Slo) -> float:
    """Mean share of a request's tokens that came in time.

    Early tokens give slack to later ones.
    """
    return sum(goodness.share_in_time(each, slo) for each in requests) / len(requests)


def failed_share(requests: Requests, slo: Slo) -> float:
    """Share of requests that failed or did not end."""
    return sum(not each.is_complete for each in requests) / len(requests)


def wrong_length_share(requests: Requests, slo: Slo) -> float:
    """Share of requests with another output length.

    Another than the request asked for: its latencies make no pairs.
    """
    return sum(each.has_wrong_length for each in requests) / len(requests)


def cache_hit_share(requests: Requests, slo: Slo) -> float:
    """Share of all prompt tokens that were cached.

    In whole blocks, at first admission.
    """
    return sum(each.num_cached_tokens for each in requests) / sum(each.request.num_prompt_tokens for each in requests)


def cache_hit_share_mean(requests: Requests, slo: Slo) -> float:
    """Mean cached share of a request's prompt tokens.

    At first admission.
    """
    return sum(each.num_cached_tokens / each.request.num_prompt_tokens for each in requests) / len(requests)


def preemptions_per_request(requests: Requests, slo: Slo) -> float:
    """Preemptions per request."""
    return sum(each.num_preemptions for each in requests) / len(requests)


def preempted_share(requests: Requests, slo: Slo) -> float:
    """Share of requests that were preempted at least once."""
    return sum(each.num_preemptions > 0 for each in requests) / len(requests)


def recomputed_share(requests: Requests, slo: Slo) -> float:
    """Share of tokens computed again after preemption.

    They had been computed before.
    """
    computed = sum(_num_computed(each) for each in requests)
    if not computed:
        raise MetricRefused("no token was computed for these requests")
    return sum(_num_recomputed(each) for each in requests) / computed


def _duration(run: MeasuredRun) -> float:
    """To the end of the last request, or of the run if it was cut short."""
    cut_short = any(each.ended is None for each in run.all_requests) and run.steps.settled
    seconds = run.steps.settled[-1] if cut_short else run.makespan
    if seconds <= 0:
        raise MetricRefused("the run took no time, so it has no rates")
    return seconds


def _num_computed(run: MeasuredRequest) -> int:
    """Tokens of pieces, and one per token that no piece gave: a piece gave the first, and one after each restart."""
    return sum(tokens for _, tokens in run.pieces) + max(len(run.token_times) - 1 - _num_restarts(run), 0)


def _num_recomputed(run: MeasuredRequest) -> int:
    needed = run.request.num_prompt_tokens - run.num_cached_tokens + _num_restarts(run)
    return max(sum(tokens for _, tokens in run.pieces) - needed, 0)


def _num_restarts(run: MeasuredRequest) -> int:
    """Preemptions after its first token: then the last token that it got had not been computed before."""
    return sum(time >= run.token_times[0] for time in run.preempted_at) if run.token_times else 0

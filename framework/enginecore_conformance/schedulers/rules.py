"""Checks: the rules that a watched run enforces in every step, over all traces."""

from enginecore_conformance.checks import Check
from enginecore_conformance.schedulers.bench import SchedulerBench

RULES: dict[str, str] = {
    "budget_is_kept": "No plan computes more tokens than max_num_batched_tokens or more requests than max_num_seqs, "
    "and over all steps in flight at most max_num_seqs requests hold blocks.",
    "each_request_once": "A plan names a request once, with at least one token, and only one that is live and that "
    "the workers know or meet in it; steps count up and are answered in order.",
    "spans_are_contiguous": "Each piece begins where the one before ended, the first one where the cached prefix "
    "ends. Request.num_scheduled_tokens says what is scheduled, num_computed_tokens what has returned.",
    "only_known_tokens_are_scheduled": "A token is scheduled once it is known; one more may be if the executor "
    "declares feeds_tokens.",
    "tokens_have_slots": "A request holds a slot for each token that is scheduled, and none is beyond max_model_len.",
    "prompts_stay_whole": "Without chunked prefill a prompt is computed in one step.",
    "workers_are_told_what_is": "What a plan says of a request, its tokens, parameters, salt and blocks, is what the "
    "scheduler and the KV cache manager hold.",
    "workers_hear_of_the_gone": "The next plan names, once, every request that ended or lost its blocks and that "
    "workers know, also if it schedules nothing.",
    "cached_prefixes_are_fresh": "A CachedPrefix is used by the request it was looked up for, before blocks are "
    "allocated, published or freed.",
    "only_what_is_written_is_published": "cache_blocks names tokens that returned steps have written to the blocks "
    "that the request holds now.",
    "policy_does_not_change_tokens": "Whatever is decided, each request gets the tokens that it gets alone: with "
    "prefix caching or without, chunked or not, preempted or not, at every depth, on every kind of executor.",
    "one_last_word": "Every accepted request gets exactly one terminal output, with its reason, at its own client, "
    "after all its tokens and before silence. One that was aborted gets not a word more.",
    "late_tokens_are_kept": "A token in flight when its request is preempted is delivered, before the request is "
    "resumed; one whose request has ended is dropped.",
    "faults_stay_with_their_request": "A request that the executor names in errors, or whose token it leaves out, "
    "ends by ERROR, and no other does.",
    "cached_tokens_are_told_once": "The first output of a request says how many tokens its first admission found in "
    "the cache; later ones say 0.",
    "ids_are_unique_among_the_live": "add_request raises InvalidRequestError for an id that a live request has, and "
    "takes one that was free again.",
    "cancelled_requests_end_at_once": "abort_requests and finish_requests end requests wherever they stand: waiting, "
    "in their prompt, in flight, named twice. Unknown ids are left alone.",
    "unfinished_requests_are_listed": "unfinished_requests are those that were accepted and have not ended, in order "
    "of arrival.",
    "has_requests_is_true": "has_requests() is true while a request is unfinished, a step is in flight, or the "
    "workers have not heard who is gone; then false.",
    "has_outputs_is_true": "has_outputs is true if take_outputs() has outputs to give, and then only.",
    "progress_or_a_wake_time": "Everything comes to its end. An empty plan with nothing in flight ends a request, or "
    "names a wake_time that is yet to come.",
    "reset_forgets_all_or_nothing": "reset_prefix_cache changes nothing and gives False while requests hold blocks; "
    "with reset_running_requests they lose them, and go on to the same output.",
    "stats_agree": "get_stats() agrees with the KV cache manager and with unfinished_requests.",
    "nothing_is_left": "When all requests have ended no block is referenced, and no worker knows any.",
    "its_own_books_hold": "check_invariants() raises nothing.",
    "nothing_is_raised": "Nothing is raised, whatever clients, operators and executors do.",
}


def _check(name: str, rule: str) -> Check[SchedulerBench]:
    return Check(name, "scheduler", frozenset(), rule, lambda bench: bench.require_kept(name))


ELSEWHERE = ("impossible_requests_are_refused",)
"""Rules with a check that stages them, too."""


def _others(bench: SchedulerBench) -> None:
    for name in bench.broken_rules():
        if name not in RULES and name not in ELSEWHERE:
            bench.require_kept(name)


CHECKS: tuple[Check[SchedulerBench], ...] = (
    *(_check(name, rule) for name, rule in RULES.items()),
    Check(
        "nothing_else_breaks",
        "scheduler",
        frozenset(),
        "No rule breaks that has no check here: the KV cache manager keeps its contract in this scheduler's hands.",
        _others,
    ),
)
